"""Why not yet: for every unfinished intent one sentence, and a time where it ends by itself."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sends.models import (
    Approval,
    Cause,
    Installation,
    SendIntent,
    Switch,
    SwitchKind,
    Verdict,
    database_now,
)
from sends.reports.waiting import Waiting, why_not_yet, why_not_yet_of
from sends.rules.statuses import CLAIMABLE, HOLD_BITS, UNFINISHED, Hold, Status
from tests.factories import make_agent_at, make_intent, make_person, make_run, make_tenant

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
WAITABLE = sorted(CLAIMABLE)


@pytest.fixture
def now() -> datetime:
    return database_now()


def switch_off(scope_id: uuid.UUID, causes: int = Cause.PAUSED, **fields: Any) -> None:
    reasons = {"pause_reason": "A wrong price", "block_reason": "HTTP 401 bad key"}
    Switch.objects.filter(pk=scope_id).update(causes=causes, **{**reasons, **fields})


def switch_of_everything() -> uuid.UUID:
    """The installation's switch; a migrated database may have its rows already."""
    installation = Installation.objects.first() or Installation.objects.create()
    Switch.objects.get_or_create(pk=installation.pk, kind=SwitchKind.INSTALLATION)
    return installation.pk


# Every status


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (Status.AWAITING_APPROVAL, "Waits for a person to approve it."),
        (Status.CHANGES_REQUESTED, "Waits for the agent to answer with a new version."),
        (Status.QUEUED, "Goes out as soon as a worker is free."),
        (Status.IN_FLIGHT, "A worker is talking to the provider right now."),
        (Status.RETRY_SCHEDULED, "Goes out as soon as a worker is free."),
        (Status.UNCERTAIN, "Waits for an operator to settle it."),
        (Status.SUBMITTED, "Waits for news of its delivery."),
        (Status.REJECTED, None),
        (Status.DONE, None),
        (Status.DEAD_LETTER, None),
        (Status.SUPERSEDED, None),
        (Status.CANCELLED, None),
    ],
)
def test_each_status_says_what_it_waits_for(status: Status, sentence: str | None) -> None:
    intent = make_intent(status=status)

    waiting = why_not_yet(intent, database_now())

    assert (waiting and waiting.sentence) == sentence
    assert status not in UNFINISHED or sentence is not None


@pytest.mark.parametrize("status", [Status.AWAITING_APPROVAL, Status.CHANGES_REQUESTED])
def test_what_nobody_decides_ends_when_it_lapses(status: Status, now: datetime) -> None:
    intent = make_intent(status=status)

    waiting = why_not_yet(intent, now)

    assert waiting is not None
    assert waiting.until == intent.decide_by


def test_what_is_uncertain_does_not_end_by_itself(now: datetime) -> None:
    intent = make_intent(status=Status.UNCERTAIN, replay_until=now + MINUTE)

    assert why_not_yet(intent, now) == Waiting("Waits for an operator to settle it.")


# Approvals


def approve(intent: SendIntent, **fields: Any) -> None:
    Approval.objects.create(
        intent=intent,
        digest=intent.digest,
        verdict=Verdict.APPROVE,
        person=make_person(intent.tenant),
        made_at=database_now(),
        **fields,
    )


@pytest.mark.parametrize(
    ("needed", "approvals", "undone", "sentence"),
    [
        (0, 0, 0, "Waits for a person to approve it."),
        (1, 0, 0, "Waits for a person to approve it."),
        (2, 0, 0, "Waits for two people to approve it."),
        (2, 1, 0, "Waits for a second person to approve it."),
        (2, 0, 1, "Waits for two people to approve it."),
        (2, 1, 1, "Waits for a second person to approve it."),
    ],
)
def test_approval_waits_for_as_many_people_as_are_missing(
    needed: int, approvals: int, undone: int, sentence: str, now: datetime
) -> None:
    intent = make_intent(approvals_needed=needed)
    for _ in range(approvals):
        approve(intent)
    for _ in range(undone):
        approve(intent, undone_at=now)

    assert why_not_yet(intent, now) == Waiting(sentence, intent.decide_by)


# Times


@pytest.mark.parametrize(
    ("status", "columns", "sentence"),
    [
        (
            Status.QUEUED,
            {"next_attempt_at": 1, "undo_until": 1},
            "Goes out when the undo time is over.",
        ),
        (
            Status.QUEUED,
            {"next_attempt_at": 1, "not_before": 1},
            "Goes out at the time the agent asked for.",
        ),
        (
            Status.RETRY_SCHEDULED,
            {"next_attempt_at": 1},
            "Tried again with the same email and the same key.",
        ),
        (
            Status.RETRY_SCHEDULED,
            {"next_attempt_at": 1, "not_before": -1},
            "Tried again with the same email and the same key.",
        ),
        (
            Status.RETRY_SCHEDULED,
            {"next_attempt_at": 1, "not_sooner_than": 1},
            "The provider asked us to wait.",
        ),
        (
            Status.QUEUED,
            {"next_attempt_at": -1, "not_sooner_than": 1},
            "The provider asked us to wait.",
        ),
        (
            Status.RETRY_SCHEDULED,
            {"next_attempt_at": 1, "not_sooner_than": 1, "in_doubt": True},
            "An attempt had no clear answer; asked again with the same key.",
        ),
    ],
)
def test_a_time_that_is_set_is_told_with_its_cause(
    status: Status, columns: dict[str, Any], sentence: str, now: datetime
) -> None:
    moments = {
        name: value if value is True else now + value * MINUTE for name, value in columns.items()
    }
    intent = make_intent(status=status, now=now, **moments)

    assert why_not_yet(intent, now) == Waiting(sentence, now + MINUTE)


@pytest.mark.parametrize("status", WAITABLE)
def test_at_its_time_an_intent_waits_for_a_worker_only(status: Status, now: datetime) -> None:
    intent = make_intent(status=status, next_attempt_at=now, not_sooner_than=now)

    assert why_not_yet(intent, now) == Waiting("Goes out as soon as a worker is free.")


# Holds of one intent


@pytest.mark.parametrize("status", WAITABLE)
@pytest.mark.parametrize("hold", Hold)
def test_a_hold_is_told_before_any_time(hold: Hold, status: Status, now: datetime) -> None:
    intent = make_intent(status=status, holds=HOLD_BITS[hold], next_attempt_at=now + MINUTE)
    switch_off(intent.account_id)

    assert why_not_yet(intent, now) == Waiting(hold.label)


@pytest.mark.parametrize(("in_doubt", "hold"), [(True, Hold.CANCEL_ASKED), (False, Hold.ANOMALY)])
def test_of_several_holds_one_is_told(in_doubt: bool, hold: Hold, now: datetime) -> None:
    both = HOLD_BITS[Hold.ANOMALY] | HOLD_BITS[Hold.CANCEL_ASKED]
    intent = make_intent(status=Status.RETRY_SCHEDULED, holds=both, in_doubt=in_doubt)

    assert why_not_yet(intent, now) == Waiting(hold.label)


# Switches


@pytest.mark.parametrize("status", WAITABLE)
@pytest.mark.parametrize(
    ("scope", "sentence"),
    [
        ("tenant_id", "Sending is paused: A wrong price"),
        ("account_id", "Sending through mailer is paused: A wrong price"),
        ("sender_id", "Sending from {sender} is paused: A wrong price"),
        ("run_id", "Its run is halted: A wrong price"),
    ],
)
def test_a_scope_that_is_paused_is_named_with_the_reason(
    scope: str, sentence: str, status: Status, now: datetime
) -> None:
    agent = make_agent_at(slug="mailer")
    intent = make_intent(agent, run=make_run(agent), status=status)
    switch_off(getattr(intent, scope))

    said = sentence.format(sender=intent.sender.address)
    assert why_not_yet(intent, now) == Waiting(said)


@pytest.mark.parametrize(
    ("scope", "sentence"),
    [
        ("account_id", "The provider blocks account mailer: HTTP 401 bad key"),
        ("sender_id", "The provider blocks sender {sender}: HTTP 401 bad key"),
    ],
)
@pytest.mark.parametrize("causes", [Cause.BLOCKED, Cause.BLOCKED | Cause.PAUSED])
def test_what_the_provider_blocks_is_named_with_its_answer(
    scope: str, sentence: str, causes: int, now: datetime
) -> None:
    intent = make_intent(make_agent_at(slug="mailer"), status=Status.QUEUED)
    switch_off(getattr(intent, scope), causes)

    said = sentence.format(sender=intent.sender.address)
    assert why_not_yet(intent, now) == Waiting(said)


def test_a_wait_of_a_whole_scope_ends_by_itself(now: datetime) -> None:
    intent = make_intent(status=Status.QUEUED, now=now)
    switch_off(intent.account_id, causes=0, resume_at=now + MINUTE)

    assert why_not_yet(intent, now) == Waiting(
        "The provider asked everybody to wait.", now + MINUTE
    )
    assert why_not_yet(intent, now + MINUTE) == Waiting("Goes out as soon as a worker is free.")


def test_the_emergency_brake_is_told_before_every_other_switch(now: datetime) -> None:
    intent = make_intent(status=Status.QUEUED)
    switch_off(intent.account_id)
    switch_off(switch_of_everything(), pause_reason="Wrong prices everywhere")

    assert why_not_yet(intent, now) == Waiting("Sending is paused: Wrong prices everywhere")


def test_the_switches_of_others_stop_nothing(now: datetime) -> None:
    intent = make_intent(status=Status.QUEUED, now=now)
    other = make_agent_at(make_tenant())
    assert other.sender is not None
    for scope_id in (other.tenant_id, other.sender.account_id, other.sender_id):
        switch_off(scope_id)
    switch_off(make_run(intent.agent).pk)

    assert why_not_yet(intent, now) == Waiting("Goes out as soon as a worker is free.")


@pytest.mark.parametrize("status", sorted(UNFINISHED - CLAIMABLE))
def test_a_switch_is_no_news_to_what_waits_for_somebody_else(status: Status, now: datetime) -> None:
    intent = make_intent(status=status)
    before = why_not_yet(intent, now)
    switch_off(intent.account_id)

    assert why_not_yet(intent, now) == before


# A page of them


def test_a_page_of_intents_costs_one_query(now: datetime) -> None:
    agent = make_agent_at()
    made = [make_intent(agent, status=status) for status in (Status.QUEUED, Status.DONE) * 3]
    switch_off(made[0].account_id)
    page = list(SendIntent.objects.select_related("account", "sender"))

    with CaptureQueriesContext(
        connection,
    ) as queries:
        found = why_not_yet_of(page, now)

    assert len(queries) == 1
    assert found.keys() == {intent.pk for intent in made if intent.status == Status.QUEUED}
