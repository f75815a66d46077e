"""What time alone brings about: lost workers, closed windows, deadlines, silence."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from sends.lifecycle import watchdog
from sends.models import Attempt, SendIntent, database_now
from sends.rules.outcomes import Outcome
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import make_agent_at, make_attempt, make_intent

pytestmark = pytest.mark.django_db

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


def in_flight(
    contract: str, *, dispatched: bool, lease_ends: datetime, **fields: Any
) -> SendIntent:
    """An intent whose worker is lost, its attempt opened a minute ago."""
    agent = make_agent_at(options={"contract": contract})
    intent = make_intent(
        agent, status=Status.IN_FLIGHT, lease_expires_at=lease_ends, tries=1, **fields
    )
    opened = database_now() - timedelta(minutes=1)
    make_attempt(intent, opened_at=opened, dispatched_at=opened if dispatched else None)
    return intent


def twice(now: datetime) -> int:
    """Two passes, far enough apart."""
    return watchdog.expire_leases(now) + watchdog.expire_leases(now + 2 * SECOND)


@pytest.mark.parametrize(
    ("contract", "dispatched", "status", "outcome", "in_doubt", "why"),
    [
        ("replay", True, Status.RETRY_SCHEDULED, Outcome.AMBIGUOUS, True, "a replay heals it"),
        ("none", True, Status.UNCERTAIN, Outcome.AMBIGUOUS, True, "nobody knows"),
        ("none", False, Status.RETRY_SCHEDULED, Outcome.NOT_SENT, False, "its mark is missing"),
    ],
)
def test_what_a_lost_worker_leaves_is_decided_by_the_contract(
    contract: str, dispatched: bool, status: Status, outcome: Outcome, in_doubt: bool, why: str
) -> None:
    now = database_now()
    intent = in_flight(contract, dispatched=dispatched, lease_ends=now - SECOND)

    assert twice(now) == 1

    intent.refresh_from_db()
    attempt = intent.attempts.get()
    assert (intent.status, intent.in_doubt) == (status, in_doubt), why
    assert (attempt.outcome, attempt.error) == (outcome, "lost")
    assert intent.lease_token is None
    # Counted either way: an email that kills its worker each time must end some day.
    assert intent.retries_counted == 1
    if in_doubt:
        assert intent.window_opened_at == attempt.opened_at


def test_a_lease_seen_expired_once_is_left_alone() -> None:
    now = database_now()
    intent = in_flight("replay", dispatched=True, lease_ends=now - SECOND)

    assert watchdog.expire_leases(now) == 0
    assert watchdog.expire_leases(now + SECOND / 2) == 0

    intent.refresh_from_db()
    assert intent.status == Status.IN_FLIGHT


def test_a_lease_that_has_not_ended_is_left_alone() -> None:
    now = database_now()
    in_flight("replay", dispatched=True, lease_ends=now + HOUR)

    assert twice(now) == 0


def test_one_that_cannot_be_tended_does_not_stop_the_others() -> None:
    now = database_now()
    broken = in_flight("replay", dispatched=True, lease_ends=now - SECOND)
    Attempt.objects.filter(intent=broken).update(
        closed_at=now, outcome=Outcome.RELEASED
    )  # no open attempt: impossible, so it raises
    healthy = in_flight("replay", dispatched=True, lease_ends=now - SECOND)

    assert twice(now) == 1

    healthy.refresh_from_db()
    assert healthy.status == Status.RETRY_SCHEDULED


@pytest.mark.parametrize("holds", [0, HOLD_BITS[Hold.ANOMALY]])
def test_doubt_past_its_window_becomes_uncertain_also_while_held(holds: int) -> None:
    now = database_now()
    intent = make_intent(
        status=Status.RETRY_SCHEDULED,
        in_doubt=True,
        window_opened_at=now - HOUR,
        replay_until=now - SECOND,
        holds=holds,
    )

    watchdog.sweep(now)

    intent.refresh_from_db()
    assert (intent.status, intent.in_doubt) == (Status.UNCERTAIN, True)


def test_certainty_past_its_window_becomes_a_dead_letter() -> None:
    now = database_now()
    intent = make_intent(
        status=Status.QUEUED, window_opened_at=now - HOUR, replay_until=now - SECOND
    )

    watchdog.sweep(now)

    intent.refresh_from_db()
    assert intent.status == Status.DEAD_LETTER


@pytest.mark.parametrize(
    ("status", "in_doubt", "after"),
    [
        (Status.QUEUED, False, Status.CANCELLED),
        (Status.RETRY_SCHEDULED, False, Status.CANCELLED),
        (Status.RETRY_SCHEDULED, True, Status.UNCERTAIN),
    ],
)
def test_past_its_deadline_nothing_is_sent_and_doubt_is_said_aloud(
    status: Status, in_doubt: bool, after: Status
) -> None:
    now = database_now()
    late = {"in_doubt": True, "replay_until": now + HOUR} if in_doubt else {}
    intent = make_intent(status=status, deadline=now - SECOND, now=now - HOUR, **late)

    watchdog.sweep(now)

    intent.refresh_from_db()
    assert intent.status == after


def test_an_attempt_whose_worker_is_lost_is_closed_once_its_intent_went_on() -> None:
    now = database_now()
    intent = in_flight("replay", dispatched=True, lease_ends=now - SECOND)
    columns = {"accepted_at": now, "lease_token": None, "lease_expires_at": None}
    SendIntent.objects.filter(pk=intent.pk).update(
        status=Status.SUBMITTED, fence=intent.fence + 1, **columns
    )

    assert watchdog.close_orphans(now) == 0  # it may still answer
    assert watchdog.close_orphans(now + 2 * HOUR) == 1

    intent.refresh_from_db()
    assert intent.status == Status.SUBMITTED
    assert intent.attempts.get().error == "lost"


def test_only_one_pass_runs_at_a_time_on_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[str] = []

    def expire_leases() -> None:
        passes.append("outer")
        watchdog.tend(sweep_too=False)

    monkeypatch.setattr(watchdog, "expire_leases", expire_leases)

    watchdog.tend(sweep_too=False)

    assert passes == ["outer"]
