"""Creating, as every step does that needs a version: whose it is, and whom it needs."""

import pytest

from sends.lifecycle.transitions import lock_action
from sends.lifecycle.versions import Terms, create_action, create_version
from sends.models import Agent, database_now
from sends.rules.payloads import Mailbox, Message, thaw
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


def test_what_a_person_wrote_is_never_approved_by_policy_alone(agent: Agent) -> None:
    agent.tenant.policy.rules.create(position=1, approvals=0)
    first = make_intent(agent)
    message = Message(Mailbox(first.sender.address), (Mailbox("jo@example.org"),), text="Edited")
    second = create_version(
        lock_action(first.action_id),
        message,
        author=make_person(agent.tenant),
        reason="typo",
        now=database_now(),
    )
    assert (second.status, second.approvals_needed) == (Status.AWAITING_APPROVAL, 1)
    assert (second.note, second.agent, second.approval_rule) == (
        "typo",
        agent,
        "a person wrote this version",
    )


def test_a_resend_is_a_new_version_under_a_new_key(agent: Agent) -> None:
    first = make_intent(agent, status=Status.DEAD_LETTER)
    message = thaw(bytes(first.payload.body)).message
    second = create_version(
        lock_action(first.action_id),
        message,
        resend_of=first,
        needs_person=True,
        now=database_now(),
    )
    assert (second.resend_of, second.content_digest) == (first, first.content_digest)
    assert second.idempotency_key != first.idempotency_key
    assert second.approvals_needed == 1


def test_a_follow_up_is_an_action_of_its_own(agent: Agent) -> None:
    first = make_intent(agent)
    message = Message(Mailbox(first.sender.address), (Mailbox("jo@example.org"),), text="And …")
    second = create_action(
        message,
        tenant=agent.tenant,
        action_key="follow-up:1",
        terms=Terms(note="forgot the number"),
        author=make_person(agent.tenant),
        follows=first.action,
        now=database_now(),
    )
    assert (second.action.follows, second.action.number, second.version) == (first.action, 2, 1)
