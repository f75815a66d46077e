"""An anomaly stops every unsent version of its action until an admin has looked."""

import pytest
from django.db import transaction

from sends.lifecycle.anomalies import close_anomaly, has_open_anomaly, open_anomaly
from sends.lifecycle.refusals import AlreadyDecided, Invalid, NotAllowed
from sends.lifecycle.transitions import lock_action, move, set_hold
from sends.models import (
    Agent,
    Anomaly,
    AnomalyKind,
    AuditEntry,
    Person,
    Role,
    SendIntent,
    database_now,
)
from sends.rules.statuses import ACCEPTED, HOLD_BITS, Hold, Status
from tests.factories import make_agent_at, make_intent, make_person

S = Status
ANOMALY, CANCEL_ASKED = HOLD_BITS[Hold.ANOMALY], HOLD_BITS[Hold.CANCEL_ASKED]


@pytest.fixture
def agent(db: None) -> Agent:
    return make_agent_at()


@pytest.fixture
def admin(agent: Agent) -> Person:
    return make_person(agent.tenant, Role.ADMIN)


def opened(intent: SendIntent, kind: AnomalyKind = AnomalyKind.TWICE) -> Anomaly:
    with transaction.atomic():
        lock_action(intent.action_id)
        return open_anomaly(intent, kind=kind, detail="it was seen", now=database_now())


def holds_of(intent: SendIntent) -> int:
    return SendIntent.objects.values_list("holds", flat=True).get(pk=intent.pk)


@pytest.mark.parametrize("status", sorted(Status))
def test_it_holds_what_may_still_be_sent(agent: Agent, status: Status):
    intent = make_intent(agent, status=status)
    opened(intent)
    ended = ACCEPTED | {S.SUPERSEDED, S.CANCELLED}
    assert holds_of(intent) == intent.holds == (0 if status in ended else ANOMALY)


def test_it_holds_the_other_versions_of_the_action_and_nothing_else(agent: Agent):
    first = make_intent(agent, status=S.SUPERSEDED)
    second = make_intent(agent, action=first.action, status=S.QUEUED)
    elsewhere = make_intent(agent, status=S.QUEUED)
    opened(first, AnomalyKind.ACCEPTED_UNSENT)
    assert [holds_of(i) for i in (first, second, elsewhere)] == [0, ANOMALY, 0]


def test_what_was_accepted_is_not_held(agent: Agent):
    intent = make_intent(agent, status=S.DONE)
    move(intent, S.DEAD_LETTER, now=database_now())
    opened(intent)
    assert holds_of(intent) == 0


def test_the_same_contradiction_told_again_is_one_anomaly(agent: Agent):
    intent = make_intent(agent)
    assert opened(intent) == opened(intent)
    assert opened(intent, AnomalyKind.KEY_CONFLICT) != opened(intent)


def test_closing_takes_an_admin_and_a_reason(agent: Agent, admin: Person):
    anomaly = opened(make_intent(agent))
    with pytest.raises(Invalid):
        close_anomaly(anomaly.pk, person=admin, reason=" ")
    operator = make_person(agent.tenant, Role.OPERATOR)
    with pytest.raises(NotAllowed):
        close_anomaly(anomaly.pk, person=operator, reason="seen")
    assert has_open_anomaly(anomaly.action)


def test_closing_the_last_one_clears_its_own_hold_only(agent: Agent, admin: Person):
    intent = make_intent(agent, status=S.QUEUED)
    set_hold(Hold.CANCEL_ASKED, pk=intent.pk)
    first, second = opened(intent), opened(intent, AnomalyKind.KEY_CONFLICT)

    close_anomaly(first.pk, person=admin, reason="looked at it")
    assert holds_of(intent) == ANOMALY | CANCEL_ASKED
    close_anomaly(second.pk, person=admin, reason="looked at it, too")
    assert holds_of(intent) == CANCEL_ASKED

    first.refresh_from_db()
    assert (first.closed_by, first.close_reason) == (admin, "looked at it")
    verbs = AuditEntry.objects.filter(tenant=agent.tenant).values_list("verb", flat=True)
    assert list(verbs) == ["close_anomaly"] * 2


def test_an_anomaly_of_another_version_keeps_the_hold(agent: Agent, admin: Person):
    first = make_intent(agent, status=S.SUPERSEDED)
    second = make_intent(agent, action=first.action)
    opened(first)
    anomaly = opened(second)
    close_anomaly(anomaly.pk, person=admin, reason="looked at it")
    assert holds_of(second) == ANOMALY


def test_the_second_admin_learns_who_closed_it(agent: Agent, admin: Person):
    anomaly = opened(make_intent(agent))
    close_anomaly(anomaly.pk, person=admin, reason="looked at it")
    with pytest.raises(AlreadyDecided, match="looked at it") as refused:
        close_anomaly(anomaly.pk, person=make_person(agent.tenant, Role.ADMIN), reason="me too")
    assert refused.value.who == admin.email


def test_it_opens_again_when_it_happens_again(agent: Agent, admin: Person):
    intent = make_intent(agent)
    anomaly = opened(intent)
    close_anomaly(anomaly.pk, person=admin, reason="looked at it")
    assert opened(intent) != anomaly
    assert holds_of(intent) == ANOMALY
