"""One intent along one legal transition: the whole grid, lost races, locks, and holds."""

import uuid
from collections import Counter
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from sends.lifecycle.transitions import (
    IllegalTransition,
    StaleIntent,
    clear_hold,
    lock_action,
    lock_intent,
    lock_switch,
    move,
    set_hold,
)
from sends.models import SendIntent, Switch, database_now, new_id
from sends.rules.statuses import ACCEPTED, CLAIMABLE, HOLD_BITS, LEGAL, Hold, Status
from tests.factories import make_intent
from tests.lifecycle.races import at_once

ROUNDS = 3
ALL_HOLDS = sum(HOLD_BITS.values())
LEGAL_EDGES = [(before, after) for before in Status for after in Status if after in LEGAL[before]]
OTHER_EDGES = [
    (before, after) for before in Status for after in Status if after not in LEGAL[before]
]


def columns_for(intent: SendIntent, to: Status, now: datetime) -> dict[str, Any]:
    """What has to be written with a status, so that only the transition itself is on trial."""
    columns: dict[str, Any] = {}
    if to is Status.QUEUED:
        columns["approved_digest"] = intent.digest
    if to in CLAIMABLE:
        columns["next_attempt_at"] = now
    if to is Status.IN_FLIGHT:
        columns |= {"lease_token": new_id(), "lease_expires_at": now}
    if to is Status.UNCERTAIN:
        columns["in_doubt"] = True
    if to in {Status.SUBMITTED, Status.DEAD_LETTER}:
        columns["in_doubt"] = False
    if to in ACCEPTED and intent.accepted_at is None:
        columns["accepted_at"] = now
    return columns


def take(intent: SendIntent, to: Status) -> None:
    now = database_now()
    move(intent, to, now=now, **columns_for(intent, to, now))


def stored(intent: SendIntent) -> dict[str, Any]:
    return SendIntent.objects.values().get(pk=intent.pk)


@pytest.mark.django_db
@pytest.mark.parametrize(("before", "after"), LEGAL_EDGES, ids=str)
def test_a_legal_transition_is_written_and_the_fence_grows(before: Status, after: Status) -> None:
    intent = make_intent(status=before)
    fence, now = intent.fence, database_now()

    move(intent, after, now=now, **columns_for(intent, after, now))

    row = stored(intent)
    assert (row["status"], row["fence"], row["status_at"]) == (after, fence + 1, now)
    del row["change_mark"]  # the database's own
    assert {name: getattr(intent, name) for name in row} == row
    assert (row["lease_token"] is None) == (after is not Status.IN_FLIGHT)


@pytest.mark.django_db
@pytest.mark.parametrize(("before", "after"), OTHER_EDGES, ids=str)
def test_any_other_transition_is_refused_and_nothing_is_written(
    before: Status, after: Status
) -> None:
    intent = make_intent(status=before)
    row = stored(intent)

    with pytest.raises(IllegalTransition, match=f"{intent.pk}: {before} cannot become {after}"):
        take(intent, after)

    assert stored(intent) == row
    assert (intent.status, intent.fence) == (row["status"], row["fence"])


def test_the_two_lists_are_the_whole_grid() -> None:
    assert len(LEGAL_EDGES) + len(OTHER_EDGES) == 12 * 12


# Who read an older state loses


@pytest.mark.django_db
def test_whoever_read_an_older_status_changes_nothing() -> None:
    intent = make_intent(status=Status.QUEUED)
    old = SendIntent.objects.get(pk=intent.pk)
    take(intent, Status.IN_FLIGHT)
    row = stored(intent)

    with pytest.raises(StaleIntent, match="no longer queued"):
        take(old, Status.CANCELLED)

    assert stored(intent) == row
    assert old.status == Status.QUEUED


@pytest.mark.django_db
def test_whoever_read_it_before_it_left_and_came_back_to_the_same_status_has_lost() -> None:
    intent = make_intent(status=Status.QUEUED)
    old = SendIntent.objects.get(pk=intent.pk)
    take(intent, Status.AWAITING_APPROVAL)
    take(intent, Status.QUEUED)
    row = stored(intent)

    with pytest.raises(StaleIntent):
        take(old, Status.CANCELLED)

    assert old.status == row["status"] == Status.QUEUED
    assert stored(intent) == row


@pytest.mark.django_db
def test_the_fence_alone_makes_a_reader_stale() -> None:
    intent = make_intent(status=Status.QUEUED)
    intent.fence -= 1

    with pytest.raises(StaleIntent):
        take(intent, Status.CANCELLED)


@pytest.mark.django_db
def test_who_lost_can_read_again_and_go_on() -> None:
    intent = make_intent(status=Status.QUEUED)
    old = SendIntent.objects.get(pk=intent.pk)
    take(intent, Status.AWAITING_APPROVAL)
    with pytest.raises(StaleIntent):
        take(old, Status.CANCELLED)

    old.refresh_from_db()
    take(old, Status.CANCELLED)

    assert stored(intent)["status"] == Status.CANCELLED


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("start", "ways"),
    [
        (Status.QUEUED, (Status.IN_FLIGHT, Status.IN_FLIGHT)),
        (Status.QUEUED, (Status.IN_FLIGHT, Status.CANCELLED)),
        (Status.QUEUED, (Status.IN_FLIGHT, Status.AWAITING_APPROVAL, Status.SUPERSEDED)),
        (Status.IN_FLIGHT, (Status.SUBMITTED, Status.UNCERTAIN)),
        (Status.UNCERTAIN, (Status.SUBMITTED, Status.DEAD_LETTER, Status.RETRY_SCHEDULED)),
        (Status.DEAD_LETTER, (Status.QUEUED, Status.SUBMITTED, Status.CANCELLED)),
    ],
    ids=str,
)
@pytest.mark.parametrize("in_transaction", [False, True])
def test_of_those_who_race_for_one_row_exactly_one_moves_it(
    start: Status, ways: tuple[Status, ...], in_transaction: bool
) -> None:
    def run(intent: SendIntent, to: Status) -> Status:
        if not in_transaction:
            take(intent, to)
            return to
        with transaction.atomic():
            take(intent, to)
        return to

    for _ in range(ROUNDS):
        intent = make_intent(status=start)
        readers = [SendIntent.objects.get(pk=intent.pk) for _ in ways]

        answers = at_once(*(partial(run, *race) for race in zip(readers, ways, strict=True)))

        won = [answer for answer in answers if isinstance(answer, Status)]
        lost = [answer for answer in answers if isinstance(answer, StaleIntent)]
        assert len(won) == 1, answers
        assert len(lost) == len(ways) - 1, answers
        row = stored(intent)
        assert (row["status"], row["fence"]) == (won[0], intent.fence + 1)


# Locks


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("lock", ["intent", "action"])
def test_what_is_read_under_a_lock_is_still_so_when_it_is_written(lock: str) -> None:
    intent = make_intent(status=Status.QUEUED)

    def count() -> None:
        with transaction.atomic():
            if lock == "intent":
                read = lock_intent(intent.pk)
            else:
                lock_action(intent.action_id)
                read = SendIntent.objects.get(pk=intent.pk)
            SendIntent.objects.filter(pk=intent.pk).update(attempt_count=read.attempt_count + 1)

    calls = [count] * 4
    assert at_once(*calls) == [None] * len(calls)

    assert stored(intent)["attempt_count"] == len(calls)


@pytest.mark.django_db(transaction=True)
def test_two_causes_of_one_switch_wait_for_each_other() -> None:
    scope_id = make_intent().account_id

    def add(cause: int) -> None:
        with transaction.atomic():
            switch = lock_switch(scope_id)
            switch.causes |= cause
            switch.save(update_fields=["causes"])

    assert at_once(partial(add, 1), partial(add, 2)) == [None, None]

    assert Switch.objects.get(pk=scope_id).causes == 3


@pytest.mark.django_db(transaction=True)
def test_two_who_lock_one_intent_both_get_their_turn() -> None:
    intent = make_intent(status=Status.QUEUED)

    def go_on() -> Status:
        with transaction.atomic():
            fresh = lock_intent(intent.pk)
            to = {
                Status.QUEUED: Status.AWAITING_APPROVAL,
                Status.AWAITING_APPROVAL: Status.CANCELLED,
            }[Status(fresh.status)]
            take(fresh, to)
        return to

    answers = at_once(go_on, go_on)

    assert Counter(answers) == Counter([Status.AWAITING_APPROVAL, Status.CANCELLED])


# Holds


def holds_of(intent_id: uuid.UUID) -> int:
    return SendIntent.objects.values_list("holds", flat=True).get(pk=intent_id)


@pytest.mark.django_db
@pytest.mark.parametrize("hold", Hold)
@pytest.mark.parametrize("mask", range(ALL_HOLDS + 1))
def test_a_cause_sets_and_clears_its_own_bit_alone(hold: Hold, mask: int) -> None:
    intent = make_intent(holds=mask)
    bit = HOLD_BITS[hold]

    assert set_hold(hold, pk=intent.pk) == 1
    assert holds_of(intent.pk) == mask | bit
    assert clear_hold(hold, pk=intent.pk) == 1
    assert holds_of(intent.pk) == mask & ~bit


@pytest.mark.django_db
def test_a_hold_reaches_exactly_the_intents_that_are_named() -> None:
    first = make_intent(status=Status.QUEUED)
    second = make_intent(first.agent, action=first.action)
    other = make_intent(first.agent)

    assert set_hold(Hold.ANOMALY, action=first.action) == 2

    assert [holds_of(intent.pk) for intent in (first, second, other)] == [1, 1, 0]


@pytest.mark.django_db
def test_a_hold_that_comes_between_reading_and_moving_stays() -> None:
    intent = make_intent(status=Status.QUEUED)
    set_hold(Hold.ANOMALY, pk=intent.pk)

    take(intent, Status.AWAITING_APPROVAL)

    assert holds_of(intent.pk) == HOLD_BITS[Hold.ANOMALY]


@pytest.mark.django_db(transaction=True)
def test_causes_set_and_cleared_at_once_never_undo_each_other() -> None:
    anomaly, cancel, restored = Hold.ANOMALY, Hold.CANCEL_ASKED, Hold.RESTORED
    for _ in range(ROUNDS):
        intent = make_intent(holds=HOLD_BITS[restored])

        answers = at_once(
            partial(set_hold, anomaly, pk=intent.pk),
            partial(set_hold, cancel, pk=intent.pk),
            partial(clear_hold, restored, pk=intent.pk),
        )

        assert answers == [1, 1, 1]
        assert holds_of(intent.pk) == HOLD_BITS[anomaly] | HOLD_BITS[cancel]
