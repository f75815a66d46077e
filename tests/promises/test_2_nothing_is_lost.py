"""Promise 2: every approved intent comes to an end that somebody can see, whoever dies."""

import signal
import time
from contextlib import suppress
from datetime import datetime, timedelta

import psutil
import pytest
from django.db import connection

from sends.lifecycle import review
from sends.models import SendIntent, database_now
from sends.rules.outcomes import Outcome
from sends.rules.statuses import CLAIMABLE, DeliveryState, Status
from tests.promises.stage import (
    UNDER_WAY,
    Stage,
    WorkerProcess,
    await_that,
    cut_database_connections,
)

pytestmark = pytest.mark.django_db(transaction=True)

S = Status
# What the wake finds within a second, on the busiest machine; the timetable looks once a minute.
SOON = timedelta(seconds=25)


def fresh(intent: SendIntent) -> SendIntent:
    return SendIntent.objects.get(pk=intent.pk)


def all_at_rest() -> bool:
    return not SendIntent.objects.filter(status__in=UNDER_WAY).exists()


def monotonic(moment: datetime) -> float:
    """A moment of the wall clock on the sandbox's own clock."""
    return time.monotonic() + (moment - database_now()).total_seconds()


def test_every_approved_intent_ends_where_it_can_be_seen(stage: Stage) -> None:
    """The whole fault menu that ends quickly, each intent with a reason where it was not sent."""
    stage.policy = {"max_attempts": 3}
    stage.account = {"request_deadline": timedelta(seconds=4)}
    words = [
        "delivered",
        "bounce",
        "complain",
        "refuse-one",
        "lost-answer",
        "no-proof",
        "busy-503",
        "busy-past",
        "busy-nan",
        "http-500-always",
        "http-505",
        "bad-request",
        "unprocessable",
        "too-large",
        "not-found",
        "rejected-body",
        "suppressed",
    ]
    for word in words:
        stage.approved(word)

    stage.work()

    stage.witness.ends(S.SUBMITTED, S.DONE, S.DEAD_LETTER, S.UNCERTAIN)
    assert SendIntent.objects.count() == len(words)


def test_a_provider_that_is_away_loses_nothing(stage: Stage) -> None:
    """Cases A31, E8: what cannot connect was not sent, and goes when the provider is back."""
    intents = [stage.approved() for _ in range(3)]
    stage.sandbox.kill()
    stage.send(len(intents))  # once each: a slow drain would use up all their attempts
    assert {fresh(i).status for i in intents} == {S.RETRY_SCHEDULED}
    assert {i.attempts.first().outcome for i in intents} == {Outcome.NOT_SENT}  # type: ignore[union-attr]

    stage.sandbox.restart()
    stage.work()

    stage.witness.ends(S.SUBMITTED)
    assert len(stage.sandbox.journal()) == 3


def test_while_a_worker_runs_no_lease_is_outlived(stage: Stage) -> None:
    """The lease of a killed worker ends; whoever runs notices, and does what the contract says."""
    stage.policy = {"lease": timedelta(seconds=3)}
    stage.account = {"request_deadline": timedelta(seconds=2)}
    intent = stage.approved()
    stage.puppet_at("dispatched").kill()
    expires_at = fresh(intent).lease_expires_at
    assert expires_at is not None

    stage.worker().is_working()
    could_notice_at = max(expires_at, database_now())
    await_that(lambda: fresh(intent).status != S.IN_FLIGHT)

    # By the wake, which looks five times a second; the timetable would look once a minute.
    assert database_now() - could_notice_at < SOON
    await_that(all_at_rest)
    stage.witness.ends(S.SUBMITTED if stage.contract == "replay" else S.UNCERTAIN)


def test_a_cluster_killed_as_a_whole_loses_nothing(stage: Stage) -> None:
    """Cases A8, A9, A12, H9: what was due goes on, what was on the wire is settled."""
    for number in range(12):
        stage.approved("slow" if number == 0 else f"delivered+{number}")
    first = stage.worker()
    stage.sandbox.await_that(lambda sandbox: sandbox.stats()["accepted"] >= 4)

    first.kill_all()
    stage.witness.look()
    assert SendIntent.objects.filter(status=S.IN_FLIGHT).exists()
    stage.age_leases()
    second = stage.worker(data_dir=first.data_dir)
    await_that(all_at_rest)

    if stage.contract == "replay":
        stage.witness.ends(S.SUBMITTED)
        assert len(stage.sandbox.journal()) == 12
    else:
        stage.witness.ends(S.SUBMITTED, S.UNCERTAIN)
    assert second.stop() == 0


def test_stopping_a_worker_finishes_what_is_on_the_wire(stage: Stage) -> None:
    """Case H19: after a polite stop nothing is claimed, and every answer is saved."""
    slow = stage.approved("slow")
    running = stage.worker()
    stage.sandbox.await_that(lambda sandbox: sandbox.stats()["accepted"])
    assert fresh(slow).status == S.IN_FLIGHT
    stopped_at = time.monotonic()
    running.ask_to_stop()
    await_that(lambda: (running.data_dir / "worker.stopping").exists())
    late = stage.approved("delivered")

    assert running.has_stopped() == 0

    assert fresh(slow).status == S.SUBMITTED
    assert fresh(late).status == S.QUEUED
    assert time.monotonic() - stopped_at < SOON.total_seconds()  # its grace is 30 seconds
    assert not SendIntent.objects.filter(status=S.IN_FLIGHT).exists()
    assert running.family() == []
    stage.witness.look()
    stage.work()
    stage.witness.ends(S.SUBMITTED)


def test_what_becomes_due_is_sent_then_and_does_not_wait_for_the_timetable(stage: Stage) -> None:
    running = stage.worker()
    running.is_working()
    tenant = stage.tenant.policy
    tenant.undo_time = timedelta(seconds=1)
    tenant.save()

    fresh_ones = [stage.approved(f"delivered+{number}") for number in range(3)]
    again = stage.approved("busy")  # with Retry-After: 2
    await_that(all_at_rest)

    lateness = []
    for intent in fresh_ones:
        [request] = [r for r in stage.sandbox.requests() if r["tag"] == intent.pk.hex]
        assert intent.undo_until is not None
        lateness.append(request["received_mono"] - monotonic(intent.undo_until))
    first = again.attempts.get(number=1)
    second = [r for r in stage.sandbox.requests() if r["tag"] == again.pk.hex][1]
    assert first.next_attempt_at is not None
    lateness.append(second["received_mono"] - monotonic(first.next_attempt_at))
    assert min(lateness) > -0.05  # never early
    assert max(lateness) < SOON.total_seconds(), lateness
    stage.witness.ends(S.SUBMITTED)


@pytest.mark.parametrize("contract", ["replay"], indirect=True)
def test_a_wedged_cluster_is_restarted(stage: Stage) -> None:
    """Case H9: the idle process that holds the queue's lock is killed, and nothing runs again.

    The cluster looks alive. The supervisor sees that nothing was finished, and starts another.
    """
    running = stage.worker("-m", "tests.promises.impatient")
    running.is_working()
    await_that(lambda: wedge(running))

    intent = stage.approved()

    await_that(all_at_rest, seconds=60)
    assert "finished no task" in running.log.read_text()
    assert fresh(intent).status == S.SUBMITTED
    stage.witness.ends(S.SUBMITTED)


def wedge(running: WorkerProcess) -> bool:
    """Kill the idle task processes at once, and with them the one that holds the lock."""
    idle = [p for p in running.family() if is_idle_task_process(p)]
    if not idle:
        return False
    for process in idle:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    return True


def is_idle_task_process(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        title = " ".join(process.cmdline())
        return "Process-" in title and "idle" in title
    return False


def test_a_database_that_restarts_costs_no_answer(stage: Stage) -> None:
    """Case H14: saving is repeated, the call to the provider is not."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has no connections to cut")
    intents = [stage.approved("slow"), stage.approved("slow+2")]
    puppet = stage.puppet()
    puppet.drain()
    stage.sandbox.await_that(lambda sandbox: sandbox.stats()["accepted"] == len(intents))

    cut_database_connections()
    with suppress(AssertionError):  # it may end with the error, once its answers are saved
        puppet.has_drained()

    assert {fresh(i).status for i in intents} == {S.SUBMITTED}
    assert stage.sandbox.stats()["requests"] == len(intents)
    stage.witness.ends(S.SUBMITTED)


def test_news_of_deliveries_reaches_its_end(stage: Stage) -> None:
    """Accepted is not the end: each recipient's own end is shown."""
    intent = stage.approved("refuse-one", cc=("delivered@example.net",))

    stage.work()

    states = set(intent.deliveries.values_list("state", flat=True))
    assert DeliveryState.REFUSED in states
    assert fresh(intent).accepted_at is not None
    stage.witness.ends(S.SUBMITTED)


def test_a_row_that_fails_stays_behind_alone(stage: Stage) -> None:
    """Case D18: what cannot be built is a dead letter with the error's text; the others leave."""
    broken = stage.proposed("delivered@example.org", text=None, html=None)
    others = [stage.approved() for _ in range(3)]
    review.approve(broken.pk, person=stage.approver, digest=broken.digest)

    stage.work()

    assert {fresh(i).status for i in others} == {S.SUBMITTED}
    assert fresh(broken).status in (S.SUBMITTED, S.DEAD_LETTER)
    assert not SendIntent.objects.filter(status__in=CLAIMABLE).exists()
    stage.witness.ends(S.SUBMITTED, S.DEAD_LETTER)
