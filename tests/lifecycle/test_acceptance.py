"""Evidence that a provider took an intent, and what then holds."""

from datetime import date, timedelta

import pytest
from django.db import transaction

from sends.lifecycle.acceptance import accept, accept_late, finish, reach, refuse
from sends.lifecycle.transitions import StaleIntent, lock_intent, move
from sends.models import (
    AnomalyKind,
    Attempt,
    Direction,
    EventState,
    EvidenceKind,
    ProviderEvent,
    SendIntent,
    database_now,
)
from sends.rules.contracts import Contract, Recovery
from sends.rules.deliveries import EventKind
from sends.rules.outcomes import Happened, Outcome, Phase
from sends.rules.statuses import ACTIVE, HOLD_BITS, NEVER_SENT, DeliveryState, Hold, Status
from tests.factories import make_attempt, make_intent

pytestmark = pytest.mark.django_db

PERSON_ONLY = Contract(Recovery.PERSON, source="a test", checked_on=date(2026, 11, 30))
ON_ITS_WAY = sorted({*ACTIVE, Status.DEAD_LETTER})


def taken(intent: SendIntent, **facts: object) -> SendIntent:
    """`accept` as every caller calls it: in a transaction, under the locks."""
    with transaction.atomic():
        locked = lock_intent(intent.pk)
        accept(locked, now=database_now(), **facts)  # type: ignore[arg-type]
    # What the caller holds is what the database has.
    fresh = SendIntent.objects.get(pk=intent.pk)
    assert (locked.status, locked.fence) == (fresh.status, fresh.fence)
    assert locked.provider_message_id == fresh.provider_message_id
    return fresh


def states(intent: SendIntent) -> list[str]:
    return list(intent.deliveries.order_by("position").values_list("state", flat=True))


@pytest.mark.parametrize("status", ON_ITS_WAY)
def test_evidence_of_acceptance_settles_whatever_was_on_its_way(status: Status) -> None:
    intent = make_intent(status=status, to=("a@example.org", "b@example.org"))
    fence = intent.fence
    intent = taken(intent, provider_message_id="sbx_1", thread_id="thr_1")
    assert intent.status == Status.SUBMITTED
    assert not intent.in_doubt
    assert intent.accepted_at is not None
    assert (intent.provider_message_id, intent.provider_thread_id) == ("sbx_1", "thr_1")
    assert intent.lease_token is None
    assert intent.next_attempt_at is None
    assert intent.fence == fence + 1
    assert states(intent) == [DeliveryState.ACCEPTED, DeliveryState.ACCEPTED]


def test_doubt_ends_with_acceptance() -> None:
    intent = make_intent(status=Status.RETRY_SCHEDULED, in_doubt=True)
    assert not taken(intent).in_doubt


def test_a_hold_does_not_hide_that_it_was_accepted() -> None:
    intent = make_intent(status=Status.QUEUED, holds=HOLD_BITS[Hold.CANCEL_ASKED])
    assert taken(intent).status == Status.SUBMITTED


def test_acceptance_told_twice_changes_nothing() -> None:
    first = taken(make_intent(status=Status.IN_FLIGHT), provider_message_id="sbx_1")
    again = taken(first, provider_message_id="sbx_1")
    assert (again.fence, again.accepted_at) == (first.fence, first.accepted_at)
    assert not again.anomalies.exists()


def test_an_id_that_was_missing_is_learnt_later() -> None:
    intent = taken(make_intent(status=Status.UNCERTAIN))
    assert intent.provider_message_id == ""
    intent = taken(intent, provider_message_id="sbx_1", thread_id="thr_1")
    assert (intent.provider_message_id, intent.provider_thread_id) == ("sbx_1", "thr_1")


def test_another_provider_id_for_the_same_intent_is_an_anomaly() -> None:
    intent = taken(make_intent(status=Status.IN_FLIGHT), provider_message_id="sbx_1")
    intent = taken(intent, provider_message_id="sbx_2")
    assert intent.status == Status.SUBMITTED
    assert intent.provider_message_id == "sbx_1"
    anomaly = intent.anomalies.get()
    assert anomaly.kind == AnomalyKind.TWICE
    assert "sbx_1" in anomaly.detail
    assert "sbx_2" in anomaly.detail


@pytest.mark.parametrize("status", sorted(NEVER_SENT))
def test_acceptance_of_what_was_not_to_be_sent_is_an_anomaly(status: Status) -> None:
    intent = make_intent(status=status)
    current = make_intent(intent.agent, action=intent.action, status=Status.QUEUED)
    before = intent.fence
    intent = taken(intent, provider_message_id="sbx_1")
    assert (intent.status, intent.fence, intent.accepted_at) == (status, before, None)
    anomaly = intent.anomalies.get()
    assert anomaly.kind == AnomalyKind.ACCEPTED_UNSENT
    assert Status(status).label.lower() in anomaly.detail
    current.refresh_from_db()
    assert current.holds & HOLD_BITS[Hold.ANOMALY]


def test_recipients_that_the_provider_refused_end_refused() -> None:
    intent = make_intent(status=Status.IN_FLIGHT, to=("a@example.org", "B@Example.org"))
    intent = taken(intent, refused=["b@example.ORG"])
    assert states(intent) == [DeliveryState.ACCEPTED, DeliveryState.REFUSED]
    assert intent.status == Status.SUBMITTED


def test_refusals_count_also_when_an_event_was_faster_than_the_answer() -> None:
    intent = taken(make_intent(status=Status.IN_FLIGHT, to=("a@example.org", "b@example.org")))
    intent = taken(intent, refused=["b@example.org"])
    assert states(intent) == [DeliveryState.ACCEPTED, DeliveryState.REFUSED]


def test_all_recipients_refused_is_a_final_dead_letter() -> None:
    intent = taken(make_intent(status=Status.IN_FLIGHT), refused=["customer@example.org"])
    assert intent.status == Status.DEAD_LETTER
    assert intent.accepted_at is not None


K = EventKind


@pytest.mark.parametrize(
    ("kinds", "status", "why"),
    [
        ((K.DELIVERED, K.DELIVERED), Status.DONE, "all ended"),
        ((K.DELIVERED, K.BOUNCED), Status.DONE, "one of two arrived"),
        ((K.DELIVERED, K.DEFERRED), Status.SUBMITTED, "one may still arrive"),
        ((K.BOUNCED, K.BOUNCED), Status.DEAD_LETTER, "none arrived"),
        ((K.REFUSED, K.DROPPED), Status.DEAD_LETTER, "none was mailed"),
        ((K.BOUNCED, K.DEFERRED), Status.SUBMITTED, "one may still arrive"),
        ((K.COMPLAINED, K.BOUNCED), Status.DONE, "a complaint has arrived, and how"),
    ],
)
def test_an_accepted_intent_ends_with_its_deliveries(
    kinds: tuple[EventKind, EventKind], status: Status, why: str
) -> None:
    intent = make_intent(status=Status.IN_FLIGHT, to=("a@example.org", "b@example.org"))
    taken(intent)
    now = database_now()
    with transaction.atomic():
        intent = lock_intent(intent.pk)
        for position, kind in enumerate(kinds):
            reach(intent.deliveries.filter(position=position), kind, reason="", now=now)
        finish(intent, now=now)
    assert intent.status == status, why


def test_what_was_delivered_and_bounces_afterwards_ends_as_a_dead_letter() -> None:
    intent = taken(make_intent(status=Status.IN_FLIGHT))
    now = database_now()
    for kind, status in ((K.DELIVERED, Status.DONE), (K.BOUNCED, Status.DEAD_LETTER)):
        with transaction.atomic():
            intent = lock_intent(intent.pk)
            reach(intent.deliveries.all(), kind, reason="no such user", now=now)
            finish(intent, now=now)
        assert intent.status == status


def test_a_failure_counts_also_where_a_graver_state_hides_it() -> None:
    intent = taken(make_intent(status=Status.IN_FLIGHT))
    now = database_now()
    with transaction.atomic():
        intent = lock_intent(intent.pk)
        for kind in (K.BOUNCED, K.COMPLAINED):
            reach(intent.deliveries.all(), kind, reason="", now=now)
        finish(intent, now=now)
    assert states(intent) == [DeliveryState.COMPLAINED]
    assert intent.status == Status.DEAD_LETTER


def test_a_refusal_that_a_delivery_hides_is_not_forgotten() -> None:
    intent = taken(make_intent(status=Status.IN_FLIGHT, to=("a@example.org", "b@example.org")))
    now = database_now()
    refuse(intent, ["a@example.org"], now=now)
    reach(intent.deliveries.filter(position=0), K.DELIVERED, reason="", now=now)
    assert states(intent) == [DeliveryState.DELIVERED, DeliveryState.ACCEPTED]
    assert intent.deliveries.get(position=0).failed_at == now


ANSWERED = Phase.ANSWERED


@pytest.mark.parametrize(
    ("happened", "direction", "proves", "status"),
    [
        (
            Happened(ANSWERED, status=200, proof="sbx_1"),
            Direction.ACCEPTED,
            True,
            Status.SUBMITTED,
        ),
        (Happened(ANSWERED, status=422), Direction.NOT_ACCEPTED, False, Status.UNCERTAIN),
        (Happened(ANSWERED, status=429), Direction.NOT_ACCEPTED, False, Status.UNCERTAIN),
        (Happened(ANSWERED, status=500), Direction.NEITHER, False, Status.UNCERTAIN),
        (Happened(ANSWERED, status=200), Direction.NEITHER, False, Status.UNCERTAIN),
        (Happened(Phase.SENT, error="reset"), Direction.NEITHER, False, Status.UNCERTAIN),
    ],
)
def test_a_late_answer_is_evidence_and_only_acceptance_is_proof(
    happened: Happened, direction: Direction, proves: bool, status: Status
) -> None:
    intent = make_intent(status=Status.UNCERTAIN)
    attempt = make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True)
    accept_late(intent.pk, attempt.pk, happened, PERSON_ONLY)
    intent.refresh_from_db()
    assert intent.status == status
    evidence = intent.evidence.get()
    assert evidence.kind == EvidenceKind.LATE_ANSWER
    assert (evidence.direction, evidence.proves) == (direction, proves)
    assert evidence.attempt == attempt


def test_a_late_acceptance_overtakes_the_attempt_that_is_on_the_wire() -> None:
    intent = make_intent(status=Status.IN_FLIGHT, in_doubt=True)
    early = make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True)
    running = make_attempt(intent)
    accept_late(intent.pk, early.pk, Happened(ANSWERED, status=200, proof="sbx_1"), PERSON_ONLY)
    intent.refresh_from_db()
    assert intent.status == Status.SUBMITTED
    # Its own worker closes it, and finds that the intent has moved.
    assert Attempt.objects.get(pk=running.pk).closed_at is None


def test_who_read_the_intent_before_it_was_accepted_cannot_move_it() -> None:
    read_before = make_intent(status=Status.IN_FLIGHT)
    taken(read_before)
    with pytest.raises(StaleIntent):
        move(read_before, Status.DEAD_LETTER, now=database_now())


@pytest.mark.parametrize(
    "names", [{"provider_message_id": "sbx_1"}, {"tag": "its tag"}, {"message_id": "its id"}]
)
def test_acceptance_wakes_the_events_that_came_before_it(names: dict[str, str]) -> None:
    intent = make_intent(status=Status.IN_FLIGHT)
    if "tag" in names:
        names = {"tag": intent.pk.hex}
    if "message_id" in names:
        names = {"message_id": intent.message_id}
    mine, foreign = (park(intent, named) for named in (names, {"provider_message_id": "other"}))
    taken(intent, provider_message_id="sbx_1")
    assert ProviderEvent.objects.get(pk=mine.pk).state == EventState.RECEIVED
    assert ProviderEvent.objects.get(pk=foreign.pk).state == EventState.PARKED


def park(intent: SendIntent, names: dict[str, str]) -> ProviderEvent:
    now = database_now()
    return ProviderEvent.objects.create(
        account=intent.account,
        event_id=f"evt_{next(iter(names.values()))}",
        kind=EventKind.DELIVERED,
        occurred_at=now - timedelta(seconds=1),
        received_at=now,
        raw=b"{}",
        state=EventState.PARKED,
        **names,
    )


def test_no_event_is_woken_by_an_id_that_nobody_has() -> None:
    intent = make_intent(status=Status.IN_FLIGHT)
    nameless = park(intent, {"provider_message_id": ""})
    taken(intent)
    assert ProviderEvent.objects.get(pk=nameless.pk).state == EventState.PARKED
