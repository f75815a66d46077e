"""What is no longer to be sent ends cancelled, but never while it may have been taken."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.db import connection
from django.db.models import QuerySet

from sends.lifecycle import approval, cancelling, refusals, review
from sends.lifecycle.transitions import move, set_hold
from sends.models import Agent, AuditEntry, Role, SendIntent, database_now
from sends.rules.statuses import CLAIMABLE, HOLD_BITS, UNDECIDED, Hold, Status
from tests.factories import make_agent_at, make_intent, make_person, make_run, make_tenant

S = Status
AT_ONCE = [S.AWAITING_APPROVAL, S.CHANGES_REQUESTED, S.QUEUED, S.RETRY_SCHEDULED, S.DEAD_LETTER]
ASKED = HOLD_BITS[Hold.CANCEL_ASKED]


@pytest.fixture
def agent(db: None) -> Agent:
    return make_agent_at(make_tenant())


def status_of(intent: SendIntent) -> str:
    return SendIntent.objects.values_list("status", flat=True).get(pk=intent.pk)


# Withdrawn by the agent, cancelled by an operator


@pytest.mark.parametrize("status", AT_ONCE)
def test_an_agent_takes_back_what_was_never_sent(agent: Agent, status: Status):
    intent = make_intent(agent, status=status)
    cancelling.withdraw(intent.pk, agent=agent, reason="the customer called")
    intent.refresh_from_db()
    assert intent.status == S.CANCELLED
    assert intent.end_reason == "the agent withdrew it: the customer called"
    entry = AuditEntry.objects.get(tenant=agent.tenant)
    assert (entry.actor, entry.verb) == (f"agent:{agent.slug}", "withdraw")


@pytest.mark.parametrize("status", [S.IN_FLIGHT, S.UNCERTAIN, S.REJECTED])
def test_what_may_be_out_or_may_come_back_is_asked_to_end(agent: Agent, status: Status):
    intent = make_intent(agent, status=status)
    answer = cancelling.withdraw(intent.pk, agent=agent)
    intent.refresh_from_db()
    assert (intent.status, intent.holds) == (status, ASKED)
    assert answer.holds == ASKED


def test_a_retry_in_doubt_is_asked_to_end(agent: Agent):
    intent = make_intent(agent, status=S.RETRY_SCHEDULED, in_doubt=True)
    assert cancelling.withdraw(intent.pk, agent=agent).holds == ASKED
    assert status_of(intent) == S.RETRY_SCHEDULED


@pytest.mark.parametrize("status", [S.SUBMITTED, S.DONE])
def test_what_was_accepted_cannot_be_taken_back(agent: Agent, status: Status):
    intent = make_intent(agent, status=status)
    with pytest.raises(refusals.AlreadyAccepted, match="accepted it at"):
        cancelling.withdraw(intent.pk, agent=agent)


def test_a_bounced_dead_letter_cannot_be_taken_back(agent: Agent):
    intent = make_intent(agent, status=S.DONE)
    move(intent, S.DEAD_LETTER, now=database_now())
    with pytest.raises(refusals.AlreadyAccepted):
        cancelling.withdraw(intent.pk, agent=agent)


@pytest.mark.parametrize("status", [S.AWAITING_APPROVAL, S.UNCERTAIN])
def test_withdrawing_again_changes_nothing(agent: Agent, status: Status):
    intent = make_intent(agent, status=status)
    cancelling.withdraw(intent.pk, agent=agent)
    before = SendIntent.objects.values().get(pk=intent.pk)
    cancelling.withdraw(intent.pk, agent=agent)
    assert SendIntent.objects.values().get(pk=intent.pk) == before
    assert AuditEntry.objects.count() == 1


def test_an_agent_withdraws_only_its_own(agent: Agent):
    intent = make_intent(agent)
    with pytest.raises(refusals.NotAllowed):
        cancelling.withdraw(intent.pk, agent=make_agent_at(agent.tenant))
    assert status_of(intent) == S.AWAITING_APPROVAL


def test_withdrawing_an_older_version_names_the_newer(agent: Agent):
    first = make_intent(agent, status=S.SUPERSEDED)
    make_intent(agent, action=first.action)
    with pytest.raises(refusals.VersionChanged, match="version 2"):
        cancelling.withdraw(first.pk, agent=agent)


def test_an_operator_cancels_with_a_reason(agent: Agent):
    intent, operator = make_intent(agent, status=S.QUEUED), make_person(agent.tenant, Role.OPERATOR)
    with pytest.raises(refusals.Invalid):
        cancelling.cancel(intent.pk, person=operator, reason=" ")
    with pytest.raises(refusals.NotAllowed):
        cancelling.cancel(intent.pk, person=make_person(agent.tenant), reason="not needed")
    assert cancelling.cancel(intent.pk, person=operator, reason="not needed").status == S.CANCELLED
    assert AuditEntry.objects.get().reason == "not needed"


# The sweep


@pytest.mark.parametrize("status", sorted(Status))
def test_only_what_nobody_decided_lapses(agent: Agent, status: Status):
    now = database_now()
    intent = make_intent(agent, status=status, decide_by=now - timedelta(seconds=1))
    assert cancelling.lapse(now) == (status in UNDECIDED)
    assert status_of(intent) == (S.CANCELLED if status in UNDECIDED else status)


def test_a_decision_in_time_does_not_lapse(agent: Agent):
    now = database_now()
    make_intent(agent, decide_by=now + timedelta(seconds=1))
    assert cancelling.lapse(now) == 0


@pytest.mark.parametrize("status", sorted(Status))
def test_only_what_waits_to_be_sent_can_be_too_late(agent: Agent, status: Status):
    now = database_now()
    intent = make_intent(agent, status=status, deadline=now - timedelta(seconds=1))
    assert cancelling.cancel_too_late(now) == (status in CLAIMABLE)
    assert status_of(intent) == (S.CANCELLED if status in CLAIMABLE else status)


@pytest.mark.parametrize("status", sorted(Status))
def test_only_an_approval_that_waits_to_be_used_expires(agent: Agent, status: Status):
    now = database_now()
    past = now - timedelta(seconds=1)
    intent = make_intent(agent, status=status, approval_expires_at=past)
    assert cancelling.expire_approvals(now) == (status in CLAIMABLE)
    assert status_of(intent) == (S.AWAITING_APPROVAL if status in CLAIMABLE else status)


def test_what_may_have_been_taken_neither_expires_nor_is_too_late(agent: Agent):
    now = database_now()
    past = now - timedelta(seconds=1)
    intent = make_intent(
        agent, status=S.RETRY_SCHEDULED, in_doubt=True, deadline=past, approval_expires_at=past
    )
    assert cancelling.cancel_too_late(now) == cancelling.expire_approvals(now) == 0
    assert status_of(intent) == S.RETRY_SCHEDULED


def test_an_expired_approval_no_longer_counts_and_the_same_person_may_approve_again(agent: Agent):
    person, intent = make_person(agent.tenant), make_intent(agent)
    review.approve(intent.pk, person=person, digest=intent.digest)
    now = database_now() + timedelta(days=8)
    assert cancelling.expire_approvals(now) == 1
    dropped = intent.approvals.get()
    assert (dropped.undone_at, dropped.undone_by) == (now, None)
    intent.refresh_from_db()
    assert intent.decide_by == now + timedelta(days=7)
    again = review.approve(intent.pk, person=person, digest=intent.digest, now=now)
    assert again.status == S.QUEUED


def test_what_policy_approved_too_long_ago_needs_a_person(agent: Agent):
    now = database_now()
    intent = make_intent(agent, approvals_needed=0)
    approval.approve_by_policy(intent, rule="default", now=now - timedelta(days=8))
    assert cancelling.expire_approvals(now) == 1
    assert status_of(intent) == S.AWAITING_APPROVAL
    person = make_person(agent.tenant)
    assert review.approve(intent.pk, person=person, digest=intent.digest).status == S.QUEUED


@pytest.mark.parametrize("status", AT_ONCE)
def test_an_asked_cancel_happens_as_soon_as_it_is_certain(agent: Agent, status: Status):
    intent = make_intent(agent, status=status)
    set_hold(Hold.CANCEL_ASKED, pk=intent.pk)
    assert cancelling.cancel_asked(database_now()) == 1
    assert status_of(intent) == S.CANCELLED


@pytest.mark.parametrize("status", sorted(set(Status) - set(AT_ONCE)))
def test_an_asked_cancel_waits_or_comes_too_late(agent: Agent, status: Status):
    intent = make_intent(agent, status=status)
    set_hold(Hold.CANCEL_ASKED, pk=intent.pk)
    assert cancelling.cancel_asked(database_now()) == 0
    assert status_of(intent) == status


def test_another_hold_is_no_cancel(agent: Agent):
    intent = make_intent(agent)
    set_hold(Hold.ANOMALY, pk=intent.pk)
    assert cancelling.cancel_asked(database_now()) == 0


def test_a_row_that_fails_keeps_the_others_going(
    agent: Agent, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    past = database_now() - timedelta(hours=1)
    broken = make_intent(agent, decide_by=past)
    fine = make_intent(agent, decide_by=past)

    def step(intent: SendIntent, now: object) -> bool:
        if intent.pk == broken.pk:
            raise RuntimeError("this one is broken")
        return lapse(intent, now)

    lapse = cancelling._lapse
    monkeypatch.setattr(cancelling, "_lapse", step)
    with caplog.at_level(logging.ERROR):
        assert cancelling.lapse(database_now()) == 1
    assert status_of(fine) == S.CANCELLED
    assert vars(caplog.records[-1])["intent"] == broken.pk


def test_the_sweep_takes_no_more_than_its_limit(agent: Agent):
    past = database_now() - timedelta(hours=1)
    for _ in range(3):
        make_intent(agent, decide_by=past)
    assert [cancelling.lapse(database_now(), limit=2) for _ in range(3)] == [2, 1, 0]


SWEEPS = [
    (SendIntent.objects.too_late, "deadline", "intent_deadline"),
    (SendIntent.objects.approval_expired, "approval_expires_at", "intent_expiry"),
    (SendIntent.objects.lapsed, "decide_by", "intent_lapse"),
]


@pytest.mark.parametrize(("question", "order", "index"), SWEEPS, ids=[row[1] for row in SWEEPS])
def test_a_sweep_does_not_read_the_whole_table(
    db: None,
    database_kind: str,
    question: Callable[[datetime], QuerySet[SendIntent]],
    order: str,
    index: str,
):
    if database_kind == "postgresql":
        with connection.cursor() as cursor:  # a table of a few rows is read whole by choice
            cursor.execute("SET LOCAL enable_seqscan = off")
    else:
        index = "intent_status"
    plan = question(database_now()).order_by(order).values_list("pk")[:100].explain()
    assert index in plan


def test_no_sweep_touches_what_another_one_ended(agent: Agent):
    past = database_now() - timedelta(hours=1)
    intent = make_intent(
        agent, status=S.QUEUED, deadline=past, approval_expires_at=past, run=make_run(agent)
    )
    now = database_now()
    assert cancelling.cancel_too_late(now) == 1
    assert cancelling.expire_approvals(now) == cancelling.lapse(now) == 0
    assert status_of(intent) == S.CANCELLED
