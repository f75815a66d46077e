"""Public bug reports about queues, answers and waits, as they would meet our own worker."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.conf import settings
from django.db import connection
from django_q.models import Schedule
from django_q.timeout import TimeoutException

from sends import broker, schedule
from sends.lifecycle import watchdog, worker
from sends.models import Account, Policy, SendIntent, database_now
from sends.rules.outcomes import Outcome
from sends.rules.statuses import Status
from tests.factories import make_intent
from tests.lifecycle.races import at_once
from tests.sandboxes import Sandbox
from tests.sending import make_agent_of, sandbox_with

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def shared() -> Iterator[Sandbox]:
    with sandbox_with("replay") as started:
        yield started


@pytest.fixture
def sandbox(shared: Sandbox) -> Sandbox:
    shared.reset()
    return shared


def queued(sandbox: Sandbox, word: str, **fields: object) -> SendIntent:
    agent = make_agent_of(sandbox)
    return make_intent(agent, status=Status.QUEUED, to=f"{word}@example.org", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "least", "most"),
    [
        ("busy", 1.9, 3.1),
        ("busy-date", 0.5, 3.1),  # a date has no fractions of a second
        # No hint at all: the usual backoff, whose base is a second.
        ("busy-none", 0.0, 1.1),
        ("busy-past", 0.0, 1.1),
        ("busy-negative", 0.0, 1.1),
        ("busy-nan", 0.0, 1.1),
        ("busy-huge", 0.0, 1.1),
    ],
)
def test_the_wait_that_a_provider_asks_for(
    sandbox: Sandbox, word: str, least: float, most: float
) -> None:
    """Cases E1, E3: a date is read, nonsense is no hint, and the worker never sleeps for it."""
    intent = queued(sandbox, word)

    worker.drain()

    attempt = intent.attempts.get(number=1)  # by chance a next one is due at once
    assert attempt.outcome == Outcome.THROTTLED
    assert attempt.closed_at is not None
    assert attempt.next_attempt_at is not None
    wait = (attempt.next_attempt_at - attempt.closed_at).total_seconds()
    assert least <= wait <= most


def test_a_wait_past_the_deadline_ends_the_retries_now(sandbox: Sandbox) -> None:
    """Case E3: what could only come too late is not kept waiting."""
    # The provider asks for two seconds, from its answer on: whenever that is, it is past this.
    intent = queued(sandbox, "busy", deadline=database_now() + timedelta(seconds=2))

    worker.drain()

    intent.refresh_from_db()
    assert intent.status == Status.CANCELLED
    assert "deadline" in intent.end_reason


def test_a_success_without_proof_is_no_success(sandbox: Sandbox) -> None:
    """Case E6: 200 that says "rejected" is a refusal, 200 that says nothing is nothing."""
    rejected, silent = queued(sandbox, "rejected-body"), queued(sandbox, "html-200")

    worker.drain()

    assert rejected.attempts.get().outcome == Outcome.REFUSED
    assert silent.attempts.get().outcome == Outcome.AMBIGUOUS
    rejected.refresh_from_db()
    silent.refresh_from_db()
    assert rejected.status == Status.DEAD_LETTER
    assert silent.status == Status.RETRY_SCHEDULED
    assert silent.in_doubt


def test_the_times_of_queue_task_and_request_fit_into_each_other() -> None:
    """Cases H1, H5: no task comes back while it runs, no request outlives its task."""
    queue = settings.Q_CLUSTER
    longest = timedelta(seconds=40)  # the most that an account may ask for
    slice_and_request = worker.SLICE + longest
    assert queue["timeout"] < queue["retry"]
    assert queue["timeout"] >= broker.TASK_TIMEOUT
    assert slice_and_request < timedelta(seconds=broker.TASK_TIMEOUT)
    assert Policy._meta.get_field("lease").default > timedelta(seconds=broker.TASK_TIMEOUT)
    assert Account._meta.get_field("request_deadline").default <= longest
    assert queue["ack_failures"]
    assert not queue["catch_up"]


def test_the_timetable_has_one_row_a_job() -> None:
    """Cases H7, H11: made by code, as often as it runs."""
    schedule.sync()
    at_once(schedule.sync, schedule.sync)
    assert sorted(Schedule.objects.values_list("name", flat=True)) == sorted(schedule.TIMETABLE)


def test_the_alarm_of_the_queue_does_not_undo_the_attempt(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case H6: it comes between the provider's answer and our saving, and no `except` sees it."""
    intent = queued(sandbox, "delivered")

    def alarm(results: object) -> None:
        raise TimeoutException("Task exceeded maximum timeout value")

    with monkeypatch.context() as patched:
        patched.setattr(worker, "settle", alarm)
        with pytest.raises(TimeoutException):
            worker.drain()

    attempt = intent.attempts.get()
    assert attempt.closed_at is None
    assert attempt.dispatched_at is not None
    intent.refresh_from_db()
    assert intent.status == Status.IN_FLIGHT

    long_ago = database_now() - timedelta(minutes=1)
    SendIntent.objects.update(lease_expires_at=long_ago, lease_seen_expired_at=long_ago)
    watchdog.expire_leases()
    intent.refresh_from_db()
    assert intent.attempts.get().outcome == Outcome.AMBIGUOUS
    assert intent.status == Status.RETRY_SCHEDULED
    assert intent.in_doubt


def test_answers_are_saved_also_where_asking_for_more_fails(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case H14: a database that is away for a moment costs no answer that was already given."""
    intent = queued(sandbox, "delivered")
    claim, calls = worker.claim, []

    def claim_once(name: str, *, at_most: int, room: int) -> list[worker.Claimed]:
        calls.append(at_most)
        if len(calls) > 1:
            raise ConnectionError("the database is away")
        return claim(name, at_most=at_most, room=room)

    monkeypatch.setattr(worker, "claim", claim_once)
    sandbox.script("slow", tag=intent.pk.hex)
    with pytest.raises(ConnectionError):
        worker.drain()

    intent.refresh_from_db()
    assert intent.status == Status.SUBMITTED
    assert sandbox.stats()["requests"] == 1


def test_many_writers_at_once_are_never_told_that_the_database_is_locked(
    sandbox: Sandbox,
) -> None:
    """Case H12: immediate transactions wait for their turn, on SQLite too."""
    for number in range(16):
        queued(sandbox, f"delivered+{number}")

    def write() -> None:
        worker.drain()
        watchdog.tend(sweep_too=True)

    assert at_once(*[write] * 6) == [None] * 6

    worker.drain()
    assert set(SendIntent.objects.values_list("status", flat=True)) == {Status.SUBMITTED}
    assert sandbox.stats()["requests"] == 16
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            modes = [
                cursor.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("journal_mode", "synchronous", "foreign_keys")
            ]
        assert modes == ["wal", 2, 1]
