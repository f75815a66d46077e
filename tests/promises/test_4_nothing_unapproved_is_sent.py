"""Promise 4: nothing leaves unapproved, nor after its cancel, supersede, suppression or halt."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction

from sends.lifecycle import cancelling, claim, editing, halts, refusals, review, worker
from sends.lifecycle.anomalies import close_anomaly, open_anomaly
from sends.lifecycle.transitions import lock_intent
from sends.models import (
    Anomaly,
    AnomalyKind,
    Installation,
    Role,
    SendIntent,
    Suppression,
    SuppressionCause,
    database_now,
)
from sends.rules.outcomes import Outcome
from sends.rules.payloads import thaw
from sends.rules.statuses import APPROVED, Status
from tests.factories import make_intent, make_person, make_run
from tests.lifecycle.races import at_once
from tests.promises.stage import Stage, await_that

pytestmark = pytest.mark.django_db(transaction=True)

S = Status
Stop = Callable[[Stage, SendIntent], object]


def fresh(intent: SendIntent) -> SendIntent:
    return SendIntent.objects.get(pk=intent.pk)


# Everything that stops an approved intent, and what becomes of it then.


def cancel(stage: Stage, intent: SendIntent) -> None:
    cancelling.cancel(intent.pk, person=stage.operator, reason="no longer needed")


def withdraw(stage: Stage, intent: SendIntent) -> None:
    cancelling.withdraw(intent.pk, agent=stage.agent)


def undo(stage: Stage, intent: SendIntent) -> None:
    review.undo(intent.pk, person=stage.approver)


def edit(stage: Stage, intent: SendIntent) -> None:
    editing.edit(
        intent.pk,
        person=stage.approver,
        message=thaw(bytes(intent.payload.body)).message,
        digest=intent.digest,
        reason="says it better",
    )


def suppress(stage: Stage, intent: SendIntent) -> None:
    Suppression.objects.create(
        tenant=stage.tenant,
        normal=intent.deliveries.get().normal,
        cause=SuppressionCause.BOUNCED,
        since=database_now(),
    )


def find_an_anomaly(stage: Stage, intent: SendIntent) -> None:
    with transaction.atomic():
        locked = lock_intent(intent.pk)
        open_anomaly(locked, kind=AnomalyKind.TWICE, detail="told so", now=database_now())


def turn_off_tenant(stage: Stage, intent: SendIntent) -> None:
    halts.turn_off(intent.tenant_id, by=stage.approver, reason="stop everything")


def turn_off_account(stage: Stage, intent: SendIntent) -> None:
    halts.turn_off(intent.account_id, by=stage.approver, reason="stop everything")


def turn_off_sender(stage: Stage, intent: SendIntent) -> None:
    halts.turn_off(intent.sender_id, by=stage.approver, reason="stop everything")


def turn_off_installation(stage: Stage, intent: SendIntent) -> None:
    halts.turn_off(Installation.objects.get().pk, by="system", reason="stop everything")


def halt_its_run(stage: Stage, intent: SendIntent) -> None:
    assert intent.run is not None
    halts.halt_run(intent.run, person=stage.approver, reason="stop everything")


def end_its_run(stage: Stage, intent: SendIntent) -> None:
    assert intent.run is not None
    halts.end_run(intent.run, person=stage.operator, reason="not needed")


STOPS: dict[Stop, Status] = {
    cancel: S.CANCELLED,
    withdraw: S.CANCELLED,
    undo: S.AWAITING_APPROVAL,
    edit: S.SUPERSEDED,
    suppress: S.DEAD_LETTER,
    find_an_anomaly: S.QUEUED,
    turn_off_tenant: S.QUEUED,
    turn_off_account: S.QUEUED,
    turn_off_sender: S.QUEUED,
    turn_off_installation: S.QUEUED,
    halt_its_run: S.QUEUED,
    end_its_run: S.CANCELLED,
}


def name(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("stop", "then"), STOPS.items(), ids=name)
def test_once_a_stop_has_committed_nothing_leaves(stage: Stage, stop: Stop, then: Status) -> None:
    intent = stage.approved(run=make_run(stage.agent))

    stop(stage, intent)
    stage.take_turns(2)

    assert fresh(intent).status == then
    assert stage.sandbox.stats()["requests"] == 0
    stage.witness.ends()


# Too late for these: a worker has it, and the screen says so.
IN_FLIGHT_REFUSES = (undo, edit)


@pytest.mark.parametrize("contract", ["none"], indirect=True)
@pytest.mark.parametrize(
    ("stop", "then"),
    [(stop, then) for stop, then in STOPS.items() if stop not in IN_FLIGHT_REFUSES],
    ids=name,
)
def test_a_stop_between_claim_and_dispatch_counts(stage: Stage, stop: Stop, then: Status) -> None:
    """Without a contract the dispatch looks at everything again, and puts the intent back."""
    intent = stage.approved(run=make_run(stage.agent))
    claimed = claim.claim("first", at_most=1)

    stop(stage, intent)
    assert claim.dispatch(claimed) == []
    stage.take_turns(2)

    assert fresh(intent).status == then
    assert intent.attempts.get().outcome == Outcome.RELEASED
    assert stage.sandbox.stats()["requests"] == 0
    stage.witness.ends()


@pytest.mark.parametrize("stop", IN_FLIGHT_REFUSES, ids=name)
def test_what_is_on_the_wire_is_shown_as_such(stage: Stage, stop: Stop) -> None:
    intent = stage.approved()
    puppet = stage.puppet_at("dispatched")

    with pytest.raises((refusals.InFlight, refusals.TooLate)):
        stop(stage, intent)
    cancel(stage, intent)
    assert fresh(intent).status == S.IN_FLIGHT

    puppet.goes_on()
    puppet.has_drained()
    assert fresh(intent).status == S.SUBMITTED
    stage.witness.ends(S.SUBMITTED)


@pytest.mark.parametrize(
    "stop", [cancel, suppress, find_an_anomaly, turn_off_tenant, halt_its_run], ids=name
)
def test_a_stop_while_the_next_attempt_waits(stage: Stage, stop: Stop) -> None:
    """The first attempt took nothing for sure, so the second one is not made at all."""
    intent = stage.approved("busy", run=make_run(stage.agent))
    stage.send(1)
    assert fresh(intent).status == S.RETRY_SCHEDULED
    assert not fresh(intent).in_doubt

    stop(stage, intent)
    SendIntent.objects.filter(pk=intent.pk).update(
        next_attempt_at=database_now(), not_sooner_than=None
    )
    stage.take_turns(2)

    assert stage.sandbox.stats()["requests"] == 1
    assert stage.sandbox.journal() == []
    stage.witness.ends()


def test_what_was_halted_goes_on_where_it_was(stage: Stage) -> None:
    """Cases A12, A13: progress is each intent's own status, so resuming repeats nobody."""
    run = make_run(stage.agent)
    intents = [stage.approved(run=run) for _ in range(6)]
    stage.send(3)
    halts.halt_run(run, person=stage.approver, reason="stop here")
    stage.take_turns(2)
    assert len(stage.sandbox.journal()) == 3
    stage.witness.look()

    halts.resume_run(run, person=stage.operator, reason="go on")
    stage.work()

    stage.witness.ends(S.SUBMITTED)
    assert len(stage.sandbox.journal()) == stage.sandbox.stats()["requests"] == len(intents)


@pytest.mark.parametrize("status", [s for s in S if s not in APPROVED])
def test_no_other_status_sends_anything(stage: Stage, status: Status) -> None:
    make_intent(stage.agent, status=status, to="delivered@example.org")

    stage.take_turns(1)

    assert stage.sandbox.stats()["requests"] == 0


@pytest.mark.parametrize("stop", [cancel, undo, edit, suppress, halt_its_run], ids=name)
def test_operators_and_workers_race(stage: Stage, stop: Stop) -> None:
    """Each intent either left once, or was stopped and never leaves: nothing in between."""
    intents = [
        stage.approved(f"delivered+{number}", run=make_run(stage.agent)) for number in range(8)
    ]

    def stop_all() -> None:
        for intent in intents:
            try:
                stop(stage, intent)
            except refusals.Refused:
                continue  # the worker was first

    assert [a for a in at_once(stop_all, worker.drain) if isinstance(a, Exception)] == []
    stage.witness.look()
    stage.take_turns(2)

    stage.witness.ends()
    journal = {message["tag"] for message in stage.sandbox.journal()}
    for intent in intents:
        was_sent = fresh(intent).status in (S.SUBMITTED, S.DONE)
        assert was_sent == (intent.pk.hex in journal)


def test_an_approval_that_is_too_old_is_asked_for_again(stage: Stage) -> None:
    """Case B6."""
    intent = stage.approved()
    SendIntent.objects.filter(pk=intent.pk).update(approval_expires_at=database_now())

    stage.take_turns(2)

    assert fresh(intent).status == S.AWAITING_APPROVAL
    assert stage.sandbox.stats()["requests"] == 0
    stage.witness.ends()


def test_what_would_come_too_late_does_not_leave(stage: Stage) -> None:
    """Cases A20, A24: after days without a worker nothing old goes out."""
    soon = database_now() + timedelta(seconds=2)
    intent = stage.approved(deadline=soon)
    await_that(lambda: database_now() > soon)

    stage.take_turns(2)

    assert fresh(intent).status == S.CANCELLED
    assert stage.sandbox.stats()["requests"] == 0
    stage.witness.ends()


def test_nothing_leaves_within_the_undo_time(stage: Stage) -> None:
    stage.policy = {"undo_time": timedelta(minutes=1)}
    intent = stage.approved()

    stage.take_turns(2)
    assert stage.sandbox.stats()["requests"] == 0
    review.undo(intent.pk, person=stage.approver)
    SendIntent.objects.filter(pk=intent.pk).update(next_attempt_at=database_now())
    stage.take_turns(1)

    assert fresh(intent).status == S.AWAITING_APPROVAL
    assert stage.sandbox.stats()["requests"] == 0
    stage.witness.ends()


def test_a_hold_ends_with_its_cause_and_not_before(stage: Stage) -> None:
    intent = stage.approved()
    find_an_anomaly(stage, intent)
    stage.take_turns(1)
    assert stage.sandbox.stats()["requests"] == 0

    admin = make_person(stage.tenant, Role.ADMIN)
    close_anomaly(Anomaly.objects.get().pk, person=admin, reason="it was a test of theirs")
    stage.work()

    stage.witness.ends(S.SUBMITTED)
    assert len(stage.sandbox.journal()) == 1
