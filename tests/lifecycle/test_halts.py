"""Stopping is easy, starting is deliberate; and an ended run leaves nothing to be sent."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sends.lifecycle import audit, chain, halts
from sends.lifecycle import settle as settle_module
from sends.lifecycle.claim import claim
from sends.lifecycle.editing import edit
from sends.lifecycle.refusals import AlreadyDecided, Invalid, NotAllowed, Refused, RunEnded
from sends.lifecycle.submit import Submitted
from sends.lifecycle.transitions import move
from sends.models import (
    Agent,
    AuditEntry,
    Cause,
    Installation,
    Payload,
    Person,
    Role,
    Run,
    SendIntent,
    Switch,
    database_now,
)
from sends.rules.outcomes import Happened, Phase
from sends.rules.payloads import thaw
from sends.rules.statuses import ACCEPTED, HOLD_BITS, UNFINISHED, Hold, Status
from tests.factories import make_agent_at, make_intent, make_person, make_run, make_tenant
from tests.lifecycle.races import (
    PATIENCE_SECONDS,
    at_once,
    wait_until_someone_waits_for_a_lock,
)

S = Status
ASKED = HOLD_BITS[Hold.CANCEL_ASKED]


@pytest.fixture
def agent(db: None) -> Agent:
    return make_agent_at()


@pytest.fixture
def approver(agent: Agent) -> Person:
    return make_person(agent.tenant)


@pytest.fixture
def operator(agent: Agent) -> Person:
    return make_person(agent.tenant, Role.OPERATOR)


@pytest.fixture
def run(agent: Agent) -> Run:
    return make_run(agent)


def switch_of(scope: Any) -> Switch:
    return Switch.objects.get(pk=scope.pk)


def is_off(scope: Any) -> bool:
    return Switch.objects.off(database_now()).filter(pk=scope.pk).exists()


# Switches


def test_an_approver_stops_and_an_operator_starts(agent: Agent, approver: Person, operator: Person):
    account = agent.sender.account
    now = database_now()
    halts.turn_off(account.pk, by=approver, reason="wrong texts", now=now)
    switch = switch_of(account)
    assert is_off(account)
    assert (switch.paused_by, switch.pause_reason) == (approver.email, "wrong texts")
    assert switch.paused_at == now

    with pytest.raises(NotAllowed):
        halts.turn_on(account.pk, by=approver, reason="it is mended")
    halts.turn_on(account.pk, by=operator, reason="it is mended")
    switch = switch_of(account)
    assert not is_off(account)
    assert (switch.paused_at, switch.paused_by, switch.pause_reason) == (None, "", "")

    entries = AuditEntry.objects.filter(tenant=agent.tenant).order_by("sequence")
    assert [(e.actor, e.verb, e.reason) for e in entries] == [
        (approver.email, "turn_off", "wrong texts"),
        (operator.email, "turn_on", "it is mended"),
    ]
    assert entries[0].target == f"switch:account:{account.pk}"


def test_a_viewer_and_a_person_of_another_tenant_stop_nothing(agent: Agent):
    for person in (make_person(agent.tenant, Role.VIEWER), make_person(make_tenant(), Role.ADMIN)):
        with pytest.raises(NotAllowed):
            halts.turn_off(agent.sender.pk, by=person, reason="because")
    assert not is_off(agent.sender)


@pytest.mark.parametrize("turn", [halts.turn_off, halts.turn_on])
def test_it_takes_a_reason(agent: Agent, operator: Person, turn: Callable[..., Switch]):
    with pytest.raises(Invalid):
        turn(agent.tenant_id, by=operator, reason=" ")


def test_each_cause_is_cleared_by_itself_only(agent: Agent, operator: Person):
    account = agent.sender.account
    halts.turn_off(account.pk, by=operator, reason="wrong texts")
    halts.turn_off(account.pk, by="system", reason="401", cause=Cause.BLOCKED)
    halts.turn_on(account.pk, by=operator, reason="it is mended")
    assert switch_of(account).causes == Cause.BLOCKED
    assert switch_of(account).block_reason == "401"
    halts.turn_on(account.pk, by=operator, reason="a new key", cause=Cause.BLOCKED)
    assert (switch_of(account).causes, switch_of(account).block_reason) == (0, "")


def test_off_already_keeps_the_first_reason(agent: Agent, approver: Person):
    halts.turn_off(agent.tenant_id, by=approver, reason="first")
    halts.turn_off(agent.tenant_id, by=make_person(agent.tenant), reason="second")
    assert switch_of(agent.tenant).pause_reason == "first"
    assert AuditEntry.objects.count() == 1


def test_on_already_changes_nothing(agent: Agent, operator: Person):
    halts.turn_on(agent.tenant_id, by=operator, reason="just in case")
    assert not AuditEntry.objects.exists()


def test_a_throttle_of_the_provider_is_left_alone(agent: Agent, operator: Person):
    later = database_now() + timedelta(hours=1)
    Switch.objects.filter(pk=agent.sender.pk).update(resume_at=later)
    halts.turn_off(agent.sender.pk, by=operator, reason="wrong texts")
    halts.turn_on(agent.sender.pk, by=operator, reason="it is mended")
    assert switch_of(agent.sender).resume_at == later


def test_all_sending_is_in_the_log_of_every_tenant(agent: Agent, approver: Person):
    installation = Installation.objects.get()
    other = make_tenant()
    halts.turn_off(installation.pk, by=approver, reason="emergency")
    assert is_off(installation)
    for tenant in (agent.tenant, other):
        assert AuditEntry.objects.get(tenant=tenant).reason == "emergency"
        assert chain.check(tenant).broken == ""
    with pytest.raises(NotAllowed):
        halts.turn_on(installation.pk, by=approver, reason="it is over")


@pytest.mark.django_db(transaction=True)
def test_of_turning_off_and_on_at_the_same_moment_neither_is_lost():
    agent = make_agent_at()
    operator = make_person(agent.tenant, Role.OPERATOR)
    account = agent.sender.account
    halts.turn_off(account.pk, by=operator, reason="paused")

    answers = at_once(
        lambda: halts.turn_on(account.pk, by=operator, reason="resumed"),
        lambda: halts.turn_off(account.pk, by="system", reason="401", cause=Cause.BLOCKED),
    )

    assert all(isinstance(answer, Switch) for answer in answers)
    switch = switch_of(account)
    assert switch.causes == Cause.BLOCKED
    assert (switch.paused_by, switch.block_reason) == ("", "401")
    assert chain.check(agent.tenant).broken == ""


# Runs


def test_a_run_is_halted_by_an_approver_and_resumed_by_an_operator(
    run: Run, approver: Person, operator: Person
):
    halts.halt_run(run, person=approver, reason="too many failures")
    assert is_off(run)
    with pytest.raises(NotAllowed):
        halts.resume_run(run, person=approver, reason="it is mended")
    halts.resume_run(run, person=operator, reason="it is mended", add_retries=25)
    assert not is_off(run)
    run.refresh_from_db()
    assert run.retry_limit == 65
    targets = set(AuditEntry.objects.values_list("target", flat=True))
    assert targets == {audit.run_target(run)}


def test_who_comes_second_learns_who_halted_and_who_resumed(
    run: Run, approver: Person, operator: Person
):
    halts.halt_run(run, person=approver, reason="too many failures")
    with pytest.raises(AlreadyDecided, match="too many failures") as refused:
        halts.halt_run(run, person=operator, reason="me too")
    assert refused.value.who == approver.email
    halts.resume_run(run, person=operator, reason="it is mended")
    with pytest.raises(AlreadyDecided, match="it is mended") as refused:
        halts.resume_run(run, person=operator, reason="again", add_retries=5)
    assert refused.value.who == operator.email
    run.refresh_from_db()
    assert run.retry_limit == 40


@pytest.mark.parametrize("status", sorted(Status))
def test_ending_a_run_cancels_what_may_be_and_asks_it_of_the_rest(
    agent: Agent, run: Run, operator: Person, status: Status
):
    intent = make_intent(agent, run=run, status=status)

    ended = halts.end_run(run, person=operator, reason="wrong list")

    intent.refresh_from_db()
    waits = status in (S.IN_FLIGHT, S.UNCERTAIN)
    cancelled = status in (UNFINISHED | {S.DEAD_LETTER}) and not waits
    assert intent.status == (S.CANCELLED if cancelled else status)
    assert bool(intent.holds & ASKED) == (cancelled or waits)
    assert (ended.cancelled, ended.waiting) == (int(cancelled), int(waits))


def test_ending_a_run_is_recorded_once(run: Run, operator: Person):
    now = database_now()
    halts.end_run(run, person=operator, reason="wrong list", now=now)
    run.refresh_from_db()
    assert (run.ended_at, run.end_reason) == (now, "wrong list")
    with pytest.raises(RunEnded, match="wrong list"):
        halts.end_run(run, person=operator, reason="again")
    with pytest.raises(RunEnded):
        halts.halt_run(run, person=operator, reason="again")
    with pytest.raises(RunEnded):
        halts.resume_run(run, person=operator, reason="again")
    assert AuditEntry.objects.get().verb == "end_run"


def test_ending_a_run_takes_an_operator(run: Run, approver: Person):
    with pytest.raises(NotAllowed):
        halts.end_run(run, person=approver, reason="wrong list")
    run.refresh_from_db()
    assert run.ended_at is None


def test_other_runs_and_what_was_accepted_are_left_alone(agent: Agent, run: Run, operator: Person):
    elsewhere = make_intent(agent, run=make_run(agent), status=S.QUEUED)
    bounced = make_intent(agent, run=run, status=S.DONE)
    move(bounced, S.DEAD_LETTER, now=database_now())
    assert halts.end_run(run, person=operator, reason="wrong list") == halts.Ended(0, 0)
    elsewhere.refresh_from_db()
    assert (elsewhere.status, elsewhere.holds) == (S.QUEUED, 0)


def test_what_turns_out_not_taken_is_cancelled_by_the_sweep(
    agent: Agent, run: Run, operator: Person
):
    intent = make_intent(agent, run=run, status=S.UNCERTAIN)
    halts.end_run(run, person=operator, reason="wrong list")
    intent.refresh_from_db()
    move(intent, S.DEAD_LETTER, now=database_now(), in_doubt=False)
    assert halts.cancel_asked(database_now()) == 1
    intent.refresh_from_db()
    assert (intent.status, intent.end_reason) == (S.CANCELLED, "its run was ended: wrong list")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_", range(5))
def test_a_version_written_while_its_run_ends_is_not_left_to_be_sent(round_: int):
    agent = make_agent_at()
    run = make_run(agent)
    operator, approver = make_person(agent.tenant, Role.OPERATOR), make_person(agent.tenant)
    intent = make_intent(agent, run=run)
    message = thaw(bytes(Payload.objects.get(intent=intent).body)).message

    ended, edited = at_once(
        lambda: halts.end_run(run, person=operator, reason="wrong list"),
        lambda: edit(
            intent.pk, person=approver, message=message, digest=intent.digest, reason="better"
        ),
    )

    assert isinstance(ended, halts.Ended)
    assert isinstance(edited, SendIntent | Refused)
    left = SendIntent.objects.filter(run=run).exclude(status__in={*ACCEPTED, S.SUPERSEDED})
    assert set(left.values_list("status", flat=True)) == {S.CANCELLED}


@pytest.mark.django_db(transaction=True)
def test_a_run_ends_while_a_result_of_it_is_being_saved(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SANDBOX_KEY", "sandbox_test_key")
    agent = make_agent_at(options={"contract": "replay"})
    run = make_run(agent)
    operator = make_person(agent.tenant, Role.OPERATOR)
    intent = make_intent(agent, run=run, status=S.QUEUED)
    [claimed] = claim("test", at_most=1)
    no_answer = Submitted(claimed, Happened(phase=Phase.SENT, error="deadline"))
    locked = threading.Event()
    decide = settle_module.settle_attempt

    def wait_and_decide(*args: Any, **kwargs: Any) -> None:
        locked.set()
        wait_until_someone_waits_for_a_lock()
        decide(*args, **kwargs)

    def end_the_run() -> halts.Ended:
        assert locked.wait(PATIENCE_SECONDS)
        return halts.end_run(run, person=operator, reason="wrong list")

    monkeypatch.setattr(settle_module, "settle_attempt", wait_and_decide)

    saved, ended = at_once(lambda: settle_module.settle([no_answer]), end_the_run)

    assert saved is None
    assert ended == halts.Ended(cancelled=0, waiting=1)
    intent.refresh_from_db()
    assert (intent.status, intent.holds) == (S.RETRY_SCHEDULED, ASKED)
    assert Run.objects.get(pk=run.pk).retries_used == 1
