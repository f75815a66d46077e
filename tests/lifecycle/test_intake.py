"""Taking in: once by key and by trigger, whatever is repeated, raced or refused."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from sends.lifecycle import editing, halts, intake, review
from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.intake import (
    ActionKeyReuse,
    Taken,
    TriggerReuse,
    propose,
    propose_version,
)
from sends.lifecycle.refusals import (
    AlreadyAccepted,
    InDoubt,
    InFlight,
    NotPossible,
    Refused,
    RunEnded,
    VersionChanged,
)
from sends.lifecycle.versions import BeyondAccount, RejectedBefore, SuppressedRecipient
from sends.models import (
    Action,
    Agent,
    AnomalyKind,
    Approval,
    PolicyRule,
    ReasonCode,
    Role,
    Run,
    SendIntent,
    Suppression,
    SuppressionCause,
    Switch,
    SwitchKind,
    Tenant,
    database_now,
)
from sends.providers.registry import adapter_for
from sends.rules.payloads import Mailbox, Message, content_digest, seal, thaw
from sends.rules.proposals import Proposal, WrongProposal, parse
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import (
    make_account,
    make_agent,
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_sender,
    make_tenant,
)
from tests.lifecycle.races import at_once

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


def proposal(**fields: Any) -> Proposal:
    given = {"action_key": "refund:7731", "to": ["jo@example.org"], "text": "Hello"} | fields
    return parse(given)


def correction(**fields: Any) -> Proposal:
    given = {"to": ["jo@example.org"], "text": "Hello again"} | fields
    return parse(given, needs_key=False)


def took(agent: Agent, **fields: Any) -> SendIntent:
    return propose(proposal(**fields), agent=agent).intent


def suppress(tenant: Tenant, normal: str, **fields: Any) -> Suppression:
    return Suppression.objects.create(
        tenant=tenant,
        normal=normal,
        cause=SuppressionCause.BOUNCED,
        since=database_now(),
        **fields,
    )


def nothing_was_created() -> bool:
    return not Action.objects.exists() and not SendIntent.objects.exists()


# One proposal


def test_a_proposal_becomes_a_frozen_intent_that_awaits_approval(agent: Agent) -> None:
    now = database_now()
    taken = propose(
        proposal(
            to=["Jo <Jo@Example.org>"],
            cc=["al@bücher.example"],
            bcc=["audit@example.net"],
            subject="Your refund",
            run="run-1",
            workflow="refunds",
            template="refund",
            context={"order": 7731},
            triggered_by="evt_1",
            purpose="receipt",
            reason="The parcel was lost",
            metadata={"case": 9},
            deadline="2099-01-01T00:00:00Z",
        ),
        agent=agent,
        now=now,
    )
    intent = SendIntent.objects.get()
    assert taken == Taken(intent, replayed=False, key_derived=False)
    assert (intent.status, intent.version, intent.holds) == (Status.AWAITING_APPROVAL, 1, 0)
    assert (intent.workflow, intent.template, intent.note) == (
        "refunds",
        "refund",
        "The parcel was lost",
    )
    assert intent.decide_by == now + agent.tenant.policy.decide_by
    assert (intent.subject, intent.first_recipient, intent.recipient_count) == (
        "Your refund",
        "Jo@Example.org",
        3,
    )
    action = intent.action
    assert (action.number, action.triggered_by, action.purpose) == (1, "evt_1", "receipt")
    assert action.run is not None
    assert action.run.name == "run-1"

    frozen = thaw(bytes(intent.payload.body))
    assert seal(bytes(intent.payload.body)) == intent.digest
    assert content_digest(frozen.message) == intent.content_digest
    assert frozen.idempotency_key == intent.idempotency_key
    assert frozen.message_id == intent.message_id
    assert bytes(intent.payload.metadata) == b'{"case":9}'
    assert [(d.kind, d.address, d.normal) for d in intent.deliveries.order_by("position")] == [
        ("to", "Jo@Example.org", "jo@example.org"),
        ("cc", "al@xn--bcher-kva.example", "al@xn--bcher-kva.example"),
        ("bcc", "audit@example.net", "audit@example.net"),
    ]


def test_the_message_id_is_made_once_at_the_domain_of_the_sender(agent: Agent) -> None:
    intent = took(agent)
    assert intent.message_id == f"<{intent.pk.hex}@mail.example.com>"


def test_numbers_count_in_each_tenant(agent: Agent) -> None:
    other = make_agent_at()
    assert [took(agent, action_key=key).action.number for key in "abc"] == [1, 2, 3]
    assert took(other).action.number == 1


def test_a_key_that_was_left_out_is_derived_and_the_answer_says_so(agent: Agent) -> None:
    keyless = proposal(action_key=None, run="r", template="t", context_hash="c")
    taken = propose(keyless, agent=agent)
    assert taken.key_derived
    assert taken.intent.action.key_derived
    assert taken.intent.action.action_key.startswith("derived:")
    assert propose(keyless, agent=agent) == Taken(taken.intent, replayed=True, key_derived=True)


# Replays


def test_the_same_again_is_answered_with_the_first_and_its_present_status(agent: Agent) -> None:
    first = took(agent)
    person = make_person(agent.tenant)
    review.approve(first.pk, person=person, digest=first.digest)
    taken = propose(proposal(), agent=agent)
    assert taken.replayed
    assert taken.intent == first
    assert taken.intent.status == Status.QUEUED
    assert SendIntent.objects.count() == 1


def test_a_replay_ignores_every_field_but_the_content(agent: Agent) -> None:
    first = took(agent)
    again = propose(
        proposal(
            run="another",
            workflow="another",
            template="another",
            context={"another": 1},
            triggered_by="evt_9",
            reason="another",
            metadata={"another": 1},
            deadline="2001-01-01T00:00:00Z",
        ),
        agent=agent,
    )
    assert again == Taken(first, replayed=True, key_derived=False)
    assert not Run.objects.exists()
    first.refresh_from_db()
    assert (first.template, first.note) == ("", "")


def test_a_replay_outlives_its_deadline_its_run_and_a_suppression(agent: Agent) -> None:
    now = database_now()
    soon = proposal(run="r", deadline=(now + timedelta(hours=1)).isoformat())
    first = propose(soon, agent=agent, now=now).intent
    suppress(agent.tenant, "jo@example.org")
    halts.end_run(Run.objects.get(), person=make_person(agent.tenant, Role.OPERATOR), reason="over")
    again = propose(soon, agent=agent, now=now + timedelta(hours=2))
    assert again.replayed
    assert again.intent == first


def test_the_same_key_with_other_content_is_refused_and_changes_nothing(agent: Agent) -> None:
    first = took(agent)
    with pytest.raises(ActionKeyReuse, match=rf"message #1.*/intents/{first.pk}/versions") as no:
        took(agent, text="Something else")
    assert no.value.offer == "edit"
    assert SendIntent.objects.count() == 1


def test_other_words_for_what_was_rejected_are_not_invited(agent: Agent) -> None:
    first = took(agent)
    _reject(first)
    with pytest.raises(ActionKeyReuse, match="a person rejected") as refused:
        took(agent, text="Something else")
    assert refused.value.offer == ""


def test_after_a_person_edited_the_agents_repeat_finds_its_own_version(agent: Agent) -> None:
    first = took(agent)
    person = make_person(agent.tenant)
    message = Message(
        Mailbox(first.sender.address), (Mailbox("jo@example.org"),), text="Hello, edited"
    )
    edited = editing.edit(
        first.pk, person=person, message=message, digest=first.digest, reason="typo"
    )
    again = propose(proposal(), agent=agent)
    assert again.replayed
    assert (again.intent, again.intent.status) == (first, Status.SUPERSEDED)
    # And who proposes what the person wrote means that version.
    assert propose(proposal(text="Hello, edited"), agent=agent).intent == edited


def test_a_sender_named_or_left_out_makes_no_other_content(agent: Agent) -> None:
    assert agent.sender is not None
    first = took(agent)
    assert propose(proposal(sender=agent.sender.address.upper()), agent=agent).intent == first
    agent.sender.name = "Renamed"
    agent.sender.save(update_fields=["name"])
    assert propose(proposal(), agent=agent).intent == first
    # The agent's own sender changed: what it left out is still what it was then.
    agent.sender = make_sender(agent.sender.account)
    agent.save(update_fields=["sender"])
    assert propose(proposal(), agent=agent).intent == first
    with pytest.raises(ActionKeyReuse):
        propose(proposal(sender=agent.sender.address), agent=agent)


def test_a_key_belongs_to_its_tenant_alone(agent: Agent) -> None:
    other = make_agent_at()
    assert took(agent) != took(other)


def test_another_agent_of_the_tenant_repeats_rather_than_doubles(agent: Agent) -> None:
    assert agent.sender is not None
    first = took(agent)
    colleague = make_agent(agent.sender)
    assert propose(proposal(), agent=colleague) == Taken(first, replayed=True, key_derived=False)
    with pytest.raises(ActionKeyReuse) as refused:
        propose(proposal(text="Something else"), agent=colleague)
    assert "not this agent's" in refused.value.words  # nor could it write the next version


# Triggers


def test_one_event_is_answered_once_for_each_purpose(agent: Agent) -> None:
    first = took(agent, action_key="a", triggered_by="evt_1", purpose="receipt")
    same = propose(proposal(action_key="b", triggered_by="evt_1", purpose="receipt"), agent=agent)
    assert same == Taken(first, replayed=True, key_derived=False)
    with pytest.raises(TriggerReuse, match=r"evt_1 was answered .* message #1"):
        took(agent, action_key="c", triggered_by="evt_1", purpose="receipt", text="Other")
    other = took(agent, action_key="d", triggered_by="evt_1", purpose="survey")
    assert other != first
    assert SendIntent.objects.count() == 2


def test_an_event_without_a_purpose_is_a_pair_too(agent: Agent) -> None:
    first = took(agent, action_key="a", triggered_by="evt_1")
    assert took(agent, action_key="b", triggered_by="evt_1") == first


def test_messages_without_a_trigger_do_not_meet(agent: Agent) -> None:
    assert took(agent, action_key="a") != took(agent, action_key="b")


def test_a_trigger_belongs_to_its_tenant_alone(agent: Agent) -> None:
    first = took(agent, triggered_by="evt_1")
    assert took(make_agent_at(), triggered_by="evt_1") != first


# Runs


def test_a_run_is_opened_with_its_switch_where_it_is_first_mentioned(agent: Agent) -> None:
    one, two = took(agent, action_key="a", run="r"), took(agent, action_key="b", run="r")
    run = Run.objects.get()
    assert (one.run, two.run) == (run, run)
    assert run.retry_limit == agent.tenant.policy.retry_limit
    switch = Switch.objects.get(pk=run.pk)
    assert (switch.kind, switch.causes) == (SwitchKind.RUN, 0)


def test_two_agents_have_runs_of_the_same_name(agent: Agent) -> None:
    assert agent.sender is not None
    one = took(agent, action_key="a", run="r")
    two = took(make_agent(agent.sender), action_key="b", run="r")
    assert one.run != two.run


def test_nothing_more_is_taken_in_for_an_ended_run(agent: Agent) -> None:
    took(agent, action_key="a", run="r")
    halts.end_run(Run.objects.get(), person=make_person(agent.tenant, Role.OPERATOR), reason="over")
    with pytest.raises(RunEnded, match="The run r was ended"):
        took(agent, action_key="b", run="r")
    assert SendIntent.objects.count() == 1


def test_a_halted_run_still_takes_in(agent: Agent) -> None:
    took(agent, action_key="a", run="r")
    halts.halt_run(Run.objects.get(), person=make_person(agent.tenant), reason="look")
    assert took(agent, action_key="b", run="r").status == Status.AWAITING_APPROVAL


# Refused


def test_a_suppressed_recipient_stops_the_whole_and_nothing_is_created(agent: Agent) -> None:
    suppress(agent.tenant, "al@xn--bcher-kva.example")
    suppress(agent.tenant, "audit@example.net")
    with pytest.raises(SuppressedRecipient) as refused:
        took(agent, cc=["x@example.org", "AL@bücher.example"], bcc=["audit@example.net"], run="r")
    assert [(w.pointer, w.code) for w in refused.value.errors] == [
        ("/bcc/0", "suppressed_recipient"),
        ("/cc/1", "suppressed_recipient"),
    ]
    assert nothing_was_created()
    assert not Run.objects.exists()


def test_recipients_that_the_provider_does_not_take_are_refused(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapter_for("sandbox")
    narrow = replace(adapter.contract({}), max_recipients=2)
    monkeypatch.setattr(type(adapter), "contract", lambda self, options: narrow)

    for code, boxes in (
        ("required", {"to": [], "bcc": ["audit@example.net"]}),
        ("too_many", {"cc": ["al@example.org"], "bcc": ["audit@example.net"]}),
    ):
        with pytest.raises(BeyondAccount) as refused:
            took(agent, **boxes)
        assert [(w.pointer, w.code) for w in refused.value.errors] == [("/to", code)]
    assert nothing_was_created()


def test_a_released_suppression_and_one_of_another_tenant_stop_nobody(agent: Agent) -> None:
    suppress(agent.tenant, "jo@example.org", released_at=database_now())
    suppress(make_tenant(), "jo@example.org")
    suppress(agent.tenant, "jo+x@example.org")
    assert took(agent).status == Status.AWAITING_APPROVAL


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"sender": "nobody@mail.example.com"}, "/sender", "unknown_sender"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "/deadline", "deadline"),
    ],
)
def test_what_only_the_ledger_knows_is_wrong_is_named_too(
    agent: Agent, fields: dict[str, Any], pointer: str, code: str
) -> None:
    with pytest.raises(WrongProposal) as refused:
        took(agent, run="r", **fields)
    assert [(w.pointer, w.code) for w in refused.value.errors] == [(pointer, code)]
    assert nothing_was_created()


def test_a_sender_belongs_to_its_tenant(agent: Agent) -> None:
    foreign = make_agent_at().sender
    assert foreign is not None
    with pytest.raises(WrongProposal, match="is no sender here"):
        took(agent, sender=foreign.address)


def test_another_sender_of_the_tenant_may_be_named(agent: Agent) -> None:
    other = make_sender(make_account(agent.tenant), address="Sales@Mail.example.com", name="Sales")
    intent = took(agent, sender="sales@mail.example.com")
    assert (intent.sender, intent.account) == (other, other.account)
    assert thaw(bytes(intent.payload.body)).message.sender == Mailbox(
        "Sales@Mail.example.com", "Sales"
    )


def test_an_agent_does_not_choose_the_name_of_a_sender(agent: Agent) -> None:
    assert agent.sender is not None
    named = {"address": agent.sender.address, "name": "The Managing Director"}
    with pytest.raises(WrongProposal, match="an admin sets the name"):
        took(agent, sender=named)


def test_an_agent_without_a_sender_has_to_name_one(agent: Agent) -> None:
    address = agent.sender.address if agent.sender else ""
    agent.sender = None
    agent.save(update_fields=["sender"])
    with pytest.raises(WrongProposal, match="/sender: name a sender"):
        took(agent)
    assert took(agent, sender=address)


# Policy


def test_what_policy_asks_nobody_about_is_approved_at_once(agent: Agent) -> None:
    agent.tenant.policy.rules.create(position=1, agent=agent.slug, approvals=0)
    now = database_now()
    intent = propose(proposal(), agent=agent, now=now).intent
    assert (intent.status, intent.approved_digest) == (Status.QUEUED, intent.digest)
    assert intent.next_attempt_at == now  # no undo time: nobody is there to undo it
    approval = Approval.objects.get()
    assert (approval.person, approval.rule) == (None, f"agent {agent.slug}: no approval")


def test_the_rule_that_decided_is_kept_with_the_version(agent: Agent) -> None:
    policy = agent.tenant.policy
    PolicyRule.objects.create(policy=policy, position=1, template="refund", approvals=2)
    PolicyRule.objects.create(
        policy=policy, position=2, recipient_domain="xn--bcher-kva.example", approvals=2
    )
    assert took(agent, action_key="a").approvals_needed == 1
    refund = took(agent, action_key="b", template="refund")
    assert (refund.approvals_needed, refund.approval_rule) == (2, "template refund: two approvals")
    assert took(agent, action_key="c", to=["al@bücher.example"]).approvals_needed == 2


def test_not_before_holds_for_policy_too(agent: Agent) -> None:
    agent.tenant.policy.rules.create(position=1, approvals=0)
    intent = took(agent, not_before="2099-01-01T00:00:00Z")
    assert intent.next_attempt_at == intent.not_before


# Versions


def test_an_agent_answers_requested_changes_with_the_next_version(agent: Agent) -> None:
    first = took(agent, run="r", template="refund", deadline="2099-01-01T00:00:00Z")
    review.ask_for_changes(
        first.pk,
        person=make_person(agent.tenant),
        digest=first.digest,
        note="Be kinder to them",
        reason_code=ReasonCode.TONE,
    )
    taken = propose_version(first.pk, correction(reason="Kinder now"), agent=agent)
    second = taken.intent
    first.refresh_from_db()
    assert not taken.replayed
    assert (first.status, second.status) == (Status.SUPERSEDED, Status.AWAITING_APPROVAL)
    assert (second.action, second.version) == (first.action, 2)
    assert second.action.latest_version == 2
    for name in ("digest", "content_digest", "idempotency_key", "message_id"):
        assert getattr(first, name) != getattr(second, name), name
    # What was left out stays as it was; the note is the new one.
    assert (second.run, second.template, second.deadline) == (
        first.run,
        first.template,
        first.deadline,
    )
    assert second.note == "Kinder now"


def test_the_same_version_again_is_a_replay(agent: Agent) -> None:
    first = took(agent)
    second = propose_version(first.pk, correction(), agent=agent).intent
    again = propose_version(first.pk, correction(), agent=agent)
    assert again == Taken(second, replayed=True, key_derived=False)
    # So is what the current version says already.
    assert propose_version(second.pk, correction(), agent=agent).intent == second
    assert SendIntent.objects.count() == 2


def test_only_the_current_version_has_a_next_one(agent: Agent) -> None:
    first = took(agent)
    second = propose_version(first.pk, correction(), agent=agent).intent
    with pytest.raises(VersionChanged, match=rf"Version 2 .{second.pk}., by the agent"):
        propose_version(first.pk, correction(text="A third"), agent=agent)


def test_a_person_who_edited_is_not_replayed_to_the_agent_as_its_own(agent: Agent) -> None:
    first = took(agent)
    person = make_person(agent.tenant)
    message = Message(Mailbox(first.sender.address), (Mailbox("jo@example.org"),), text="Edited")
    editing.edit(first.pk, person=person, message=message, digest=first.digest, reason="typo")
    with pytest.raises(VersionChanged, match=person.email):
        propose_version(first.pk, correction(text="Edited"), agent=agent)


@pytest.mark.parametrize(
    "fields", [{"action_key": "other"}, {"run": "other"}, {"triggered_by": "other"}]
)
def test_a_version_stays_in_its_action(agent: Agent, fields: dict[str, Any]) -> None:
    first = took(agent)
    with pytest.raises(WrongProposal, match="stays as it is in all versions"):
        propose_version(first.pk, correction(**fields), agent=agent)


def test_what_belongs_to_the_action_may_be_said_again(agent: Agent) -> None:
    first = took(agent, run="r", triggered_by="evt_1", purpose="p")
    again = correction(action_key="refund:7731", run="r", triggered_by="evt_1", purpose="p")
    assert propose_version(first.pk, again, agent=agent).intent.version == 2


def test_nobody_elses_message_has_a_version_by_this_agent(agent: Agent) -> None:
    assert agent.sender is not None
    first = took(agent)
    for other in (make_agent(agent.sender), make_agent_at()):
        with pytest.raises(SendIntent.DoesNotExist):
            propose_version(first.pk, correction(), agent=other)


SUPERSEDES: dict[Status, type[Refused] | None] = {
    Status.AWAITING_APPROVAL: None,
    Status.CHANGES_REQUESTED: None,
    Status.REJECTED: RejectedBefore,
    Status.QUEUED: None,
    Status.IN_FLIGHT: InFlight,
    Status.RETRY_SCHEDULED: None,
    Status.UNCERTAIN: InDoubt,
    Status.SUBMITTED: AlreadyAccepted,
    Status.DONE: AlreadyAccepted,
    Status.DEAD_LETTER: None,
    Status.SUPERSEDED: NotPossible,
    Status.CANCELLED: NotPossible,
}


@pytest.mark.parametrize("status", list(Status))
def test_what_may_be_superseded_and_what_says_no(agent: Agent, status: Status) -> None:
    intent = make_intent(agent, status=status)
    expected = SUPERSEDES[status]
    if expected is None:
        assert propose_version(intent.pk, correction(), agent=agent).intent.version == 2
        intent.refresh_from_db()
        assert intent.status == Status.SUPERSEDED
        return
    with pytest.raises(expected):
        propose_version(intent.pk, correction(), agent=agent)
    assert SendIntent.objects.get().status == status


@pytest.mark.parametrize(
    ("status", "fields", "expected"),
    [
        (Status.RETRY_SCHEDULED, {"in_doubt": True}, InDoubt),
        (Status.DEAD_LETTER, {"accepted_at": "now"}, AlreadyAccepted),
        (Status.QUEUED, {"holds": HOLD_BITS[Hold.CANCEL_ASKED]}, NotPossible),
    ],
)
def test_doubt_acceptance_and_a_cancel_say_no_in_any_status(
    agent: Agent, status: Status, fields: dict[str, Any], expected: type[Refused]
) -> None:
    if "accepted_at" in fields:
        fields = {"accepted_at": database_now()}
    intent = make_intent(agent, status=status, **fields)
    with pytest.raises(expected):
        propose_version(intent.pk, correction(), agent=agent)
    assert SendIntent.objects.count() == 1


def test_no_version_is_taken_in_for_an_ended_run(agent: Agent) -> None:
    first = took(agent, run="r")
    Run.objects.update(ended_at=database_now())
    with pytest.raises(RunEnded):
        propose_version(first.pk, correction(), agent=agent)


def test_a_suppressed_recipient_stops_a_version_and_leaves_the_one_before(agent: Agent) -> None:
    first = took(agent)
    suppress(agent.tenant, "al@example.org")
    with pytest.raises(SuppressedRecipient):
        propose_version(first.pk, correction(to=["al@example.org"]), agent=agent)
    first.refresh_from_db()
    assert (first.status, first.action.latest_version) == (Status.AWAITING_APPROVAL, 1)


@pytest.mark.parametrize(
    ("attempt", "people"),
    [
        ({}, 0),
        ({"dispatched_at": "now"}, 1),
        ({"may_have_arrived": True}, 1),
    ],
)
def test_a_person_sees_a_version_after_one_that_may_have_reached_a_provider(
    agent: Agent, attempt: dict[str, Any], people: int
) -> None:
    agent.tenant.policy.rules.create(position=1, approvals=0)
    first = make_intent(agent, status=Status.DEAD_LETTER)
    if "dispatched_at" in attempt:
        attempt = {"dispatched_at": database_now()}
    make_attempt(first, **attempt)
    second = propose_version(first.pk, correction(), agent=agent).intent
    assert second.approvals_needed == people
    assert second.status == (Status.AWAITING_APPROVAL if people else Status.QUEUED)
    # And every later one too, however many lie between.
    if people:
        third = propose_version(second.pk, correction(text="Third"), agent=agent).intent
        assert third.approvals_needed == people


def test_a_version_is_born_with_the_hold_of_an_open_anomaly(agent: Agent) -> None:
    agent.tenant.policy.rules.create(position=1, approvals=0)
    first = took(agent)
    open_anomaly(first, kind=AnomalyKind.KEY_CONFLICT, detail="told twice", now=database_now())
    second = propose_version(first.pk, correction(), agent=agent).intent
    assert second.holds == HOLD_BITS[Hold.ANOMALY]


# At the same instant


@pytest.mark.django_db(transaction=True)
def test_of_identical_proposals_at_once_one_creates_and_the_others_replay(agent: Agent) -> None:
    agent.tenant.policy.rules.create(position=1, approvals=0)
    same = proposal(run="r", triggered_by="evt_1")
    answers = at_once(*[lambda: propose(same, agent=agent)] * 8)
    assert all(isinstance(answer, Taken) for answer in answers), answers
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 7
    assert {answer.intent.pk for answer in answers} == {SendIntent.objects.get().pk}
    assert Run.objects.count() == Approval.objects.count() == 1
    agent.tenant.refresh_from_db()
    assert agent.tenant.last_number == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_contents_for_one_key_at_once_one_is_refused(agent: Agent) -> None:
    answers = at_once(
        lambda: propose(proposal(), agent=agent),
        lambda: propose(proposal(text="Something else"), agent=agent),
    )
    assert {type(answer) for answer in answers} == {Taken, ActionKeyReuse}
    assert SendIntent.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_keys_for_one_trigger_at_once_one_is_answered_with_the_other(agent: Agent) -> None:
    answers = at_once(
        *[
            lambda key=key: propose(
                proposal(action_key=key, triggered_by="evt_1", purpose="p"), agent=agent
            )
            for key in "abcd"
        ]
    )
    assert all(isinstance(answer, Taken) for answer in answers), answers
    assert sorted(answer.replayed for answer in answers) == [False, True, True, True]
    assert SendIntent.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_different_proposals_at_once_open_one_run_and_count_without_gaps(agent: Agent) -> None:
    answers = at_once(
        *[
            lambda key=key: propose(proposal(action_key=key, run="r"), agent=agent)
            for key in "abcdef"
        ]
    )
    assert all(isinstance(answer, Taken) for answer in answers), answers
    assert sorted(answer.intent.action.number for answer in answers) == [1, 2, 3, 4, 5, 6]
    assert Run.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_identical_versions_at_once_one_creates_and_the_other_replays(agent: Agent) -> None:
    first = took(agent)
    answers = at_once(*[lambda: propose_version(first.pk, correction(), agent=agent)] * 4)
    assert all(isinstance(answer, Taken) for answer in answers), answers
    assert sorted(answer.replayed for answer in answers) == [False, True, True, True]
    assert SendIntent.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_run_that_ends_at_the_same_instant_leaves_nothing_to_be_sent(agent: Agent) -> None:
    agent.tenant.policy.rules.create(position=1, approvals=0)
    took(agent, action_key="first", run="r")
    run = Run.objects.get()
    operator = make_person(agent.tenant, Role.OPERATOR)
    answers = at_once(
        *[lambda key=key: propose(proposal(action_key=key, run="r"), agent=agent) for key in "abc"],
        lambda: halts.end_run(run, person=operator, reason="over"),
    )
    assert {type(answer) for answer in answers[:3]} <= {Taken, RunEnded}
    assert set(SendIntent.objects.values_list("status", flat=True)) == {Status.CANCELLED}


@pytest.mark.django_db(transaction=True)
def test_a_correction_and_an_approval_at_once_never_send_the_old_version(agent: Agent) -> None:
    first = took(agent)
    person = make_person(agent.tenant)
    answers = at_once(
        lambda: propose_version(first.pk, correction(), agent=agent),
        lambda: review.approve(first.pk, person=person, digest=first.digest),
    )
    assert isinstance(answers[0], Taken)
    first.refresh_from_db()
    assert first.status == Status.SUPERSEDED
    assert SendIntent.objects.get(version=2).status == Status.AWAITING_APPROVAL


def test_a_contradiction_that_does_not_go_away_is_raised(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constraint that no other request explains is our mistake, and is not looked at for ever."""
    monkeypatch.setattr(intake, "_replayed", lambda *_: None)
    took(agent)
    with pytest.raises(Exception, match=r"(?i)unique"):
        took(agent)
    assert connection.is_usable()


def _reject(intent: SendIntent) -> None:
    review.reject(
        intent.pk,
        person=make_person(intent.tenant),
        digest=intent.digest,
        note="Not needed",
        reason_code=ReasonCode.NOT_NEEDED,
    )
