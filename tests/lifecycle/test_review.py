"""People decide about exactly what they saw; the first wins, and the second learns whose it was."""

from datetime import timedelta

import pytest

from sends.lifecycle import audit, review
from sends.models import (
    Approval,
    AuditEntry,
    Verdict,
    database_now,
)
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person, make_tenant


@pytest.mark.django_db
def test_an_approval_queues_what_the_person_saw():
    agent = make_agent_at(make_tenant(undo_time=timedelta(seconds=30)))
    person = make_person(agent.tenant)
    seen = make_intent(agent)
    now = database_now()

    intent = review.approve(seen.pk, person=person, digest=seen.digest, now=now)

    intent.refresh_from_db()
    assert intent.status == Status.QUEUED
    assert intent.approved_digest == seen.digest
    assert intent.approved_at == intent.retrying_since == now
    assert intent.next_attempt_at == intent.undo_until == now + timedelta(seconds=30)
    assert intent.approval_expires_at == now + timedelta(days=7)
    approval = Approval.objects.get(intent=intent)
    assert (approval.person, approval.verdict, approval.digest) == (
        person,
        Verdict.APPROVE,
        seen.digest,
    )
    entry = AuditEntry.objects.get(tenant=agent.tenant)
    assert (entry.actor, entry.verb) == (person.email, "approve")
    assert entry.target == f"message:{intent.action.number}/v1"
    assert audit.verify(agent.tenant) == []
