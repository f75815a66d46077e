"""People decide about exactly what they saw; the first wins, and the second learns whose it was."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from sends.lifecycle import cancelling, chain, editing, refusals, review
from sends.lifecycle.approval import approve_by_policy
from sends.lifecycle.requeue import requeue
from sends.lifecycle.transitions import move, set_hold
from sends.models import (
    Agent,
    Anomaly,
    AnomalyKind,
    Approval,
    AuditEntry,
    Membership,
    Payload,
    Person,
    Policy,
    Role,
    SendIntent,
    Suppression,
    SuppressionCause,
    Verdict,
    database_now,
)
from sends.rules.addresses import normal
from sends.rules.outcomes import Outcome
from sends.rules.payloads import Message, thaw
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import (
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_run,
    make_tenant,
)
from tests.lifecycle.races import at_once
from tests.lifecycle.tampering import no_triggers

UNDO_TIME = timedelta(seconds=30)
S = Status


@pytest.fixture
def agent(db: None) -> Agent:
    return make_agent_at(make_tenant(undo_time=UNDO_TIME))


@pytest.fixture
def person(agent: Agent) -> Person:
    return make_person(agent.tenant)


def approve(intent: SendIntent, person: Person, **more: Any) -> SendIntent:
    return review.approve(intent.pk, person=person, digest=intent.digest, **more)


def reject(intent: SendIntent, person: Person, **more: Any) -> SendIntent:
    more = {"note": "", "reason_code": "duplicate", **more}
    return review.reject(intent.pk, person=person, digest=intent.digest, **more)


def ask_for_changes(intent: SendIntent, person: Person, **more: Any) -> SendIntent:
    more = {"note": "Name the order, please", "reason_code": "tone", **more}
    return review.ask_for_changes(intent.pk, person=person, digest=intent.digest, **more)


def edit(intent: SendIntent, person: Person, **more: Any) -> SendIntent:
    more = {"message": reworded(intent), "reason": "the name was wrong", **more}
    return editing.edit(intent.pk, person=person, digest=intent.digest, **more)


def message_of(intent: SendIntent) -> Message:
    return thaw(bytes(Payload.objects.get(intent=intent).body)).message


def reworded(intent: SendIntent) -> Message:
    return replace(message_of(intent), text="Hello, in other words")


def status_of(intent: SendIntent) -> str:
    return SendIntent.objects.values_list("status", flat=True).get(pk=intent.pk)


def suppress(intent: SendIntent, address: str) -> None:
    Suppression.objects.create(
        tenant=intent.tenant,
        normal=normal(address),
        cause=SuppressionCause.BOUNCED,
        since=database_now(),
    )


# Approve


def test_an_approval_queues_what_the_person_saw(agent: Agent, person: Person):
    seen = make_intent(agent)
    now = database_now()

    intent = approve(seen, person, now=now)

    intent.refresh_from_db()
    assert intent.status == S.QUEUED
    assert intent.approved_digest == seen.digest
    assert intent.approved_at == intent.retrying_since == now
    assert intent.next_attempt_at == intent.undo_until == now + UNDO_TIME
    assert intent.approval_expires_at == now + timedelta(days=7)
    assert (intent.retries_counted, intent.tries) == (0, 0)
    approval = Approval.objects.get(intent=intent)
    assert (approval.person, approval.verdict) == (person, Verdict.APPROVE)
    assert (approval.digest, approval.made_at) == (seen.digest, now)
    entry = AuditEntry.objects.get(tenant=agent.tenant)
    assert (entry.actor, entry.verb) == (person.email, "approve")
    assert entry.target == f"message:{intent.action.number}/v1"
    assert chain.check(agent.tenant).broken == ""


def test_it_waits_for_not_before(agent: Agent, person: Person):
    later = database_now() + timedelta(hours=2)
    assert approve(make_intent(agent, not_before=later), person).next_attempt_at == later


def test_it_waits_as_long_as_the_provider_asked(agent: Agent, person: Person):
    later = database_now() + timedelta(hours=2)
    assert approve(make_intent(agent, not_sooner_than=later), person).next_attempt_at == later


def test_policy_approves_without_undo_time(agent: Agent):
    intent, now = make_intent(agent, approvals_needed=0), database_now()
    approve_by_policy(intent, rule="default", now=now)
    intent.refresh_from_db()
    assert (intent.status, intent.next_attempt_at) == (S.QUEUED, now)
    assert intent.approvals.get().rule == "default"
    assert intent.approvals.get().person is None


def test_policy_does_not_approve_what_needs_a_person(agent: Agent):
    with pytest.raises(ValueError, match="needs a person"):
        approve_by_policy(make_intent(agent), rule="default", now=database_now())


def older_version(intent: SendIntent, person: Person) -> None:
    edit(intent, make_person(intent.tenant))


def rejected(intent: SendIntent, person: Person) -> None:
    reject(intent, make_person(intent.tenant, email="lead@example.com"))


def other_digest(intent: SendIntent, person: Person) -> None:
    intent.digest = "0" * 64


def suppressed_bcc(intent: SendIntent, person: Person) -> None:
    suppress(intent, "Hidden@Example.net")


def demoted(intent: SendIntent, person: Person) -> None:
    Membership.objects.filter(person=person).update(role=Role.VIEWER)


def of_another_tenant(intent: SendIntent, person: Person) -> None:
    Membership.objects.filter(person=person).update(tenant=make_tenant())


def switched_off(intent: SendIntent, person: Person) -> None:
    Person.objects.filter(pk=person.pk).update(is_active=False)


def nobody_in_time(intent: SendIntent, person: Person) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(decide_by=database_now())


def withdrawn(intent: SendIntent, person: Person) -> None:
    assert intent.agent is not None
    cancelling.withdraw(intent.pk, agent=intent.agent)


def cancel_asked(intent: SendIntent, person: Person) -> None:
    set_hold(Hold.CANCEL_ASKED, pk=intent.pk)


def window_over(intent: SendIntent, person: Person) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(replay_until=database_now())


REFUSALS: list[tuple[Callable[[SendIntent, Person], None], type[refusals.Refused], str]] = [
    (older_version, refusals.VersionChanged, "sent version 2 at"),
    (rejected, refusals.AlreadyDecided, "lead@example.com rejected it at"),
    (withdrawn, refusals.AlreadyDecided, "the agent withdrew it"),
    (other_digest, refusals.VersionChanged, "not this version"),
    (suppressed_bcc, refusals.Suppressed, "hidden@example.net was suppressed"),
    (demoted, refusals.NotAllowed, "approver"),
    (of_another_tenant, refusals.NotAllowed, "no longer have a role"),
    (switched_off, refusals.NotAllowed, "no longer have a role"),
    (nobody_in_time, refusals.TooLate, "Nobody decided by"),
    (cancel_asked, refusals.NotPossible, "to be cancelled"),
    (window_over, refusals.TooLate, "knows its key is over"),
]


@pytest.mark.parametrize(
    ("happened", "refusal", "words"), REFUSALS, ids=[row[0].__name__ for row in REFUSALS]
)
def test_an_approval_is_refused_and_says_why(
    agent: Agent,
    person: Person,
    happened: Callable[[SendIntent, Person], None],
    refusal: type[refusals.Refused],
    words: str,
):
    intent = make_intent(agent, bcc=("hidden@example.net",))
    happened(intent, person)
    before = SendIntent.objects.values().get(pk=intent.pk)

    with pytest.raises(refusal, match=words):
        approve(intent, person)

    assert SendIntent.objects.values().get(pk=intent.pk) == before
    assert not Approval.objects.filter(verdict=Verdict.APPROVE).exists()


def test_the_second_person_learns_who_decided_and_when(agent: Agent, person: Person):
    first, intent = make_person(agent.tenant), make_intent(agent)
    decided_at = database_now()
    approve(intent, first, now=decided_at)
    with pytest.raises(refusals.AlreadyDecided) as refused:
        approve(intent, person)
    assert (refused.value.who, refused.value.at) == (first.email, decided_at)


def test_stored_bytes_that_differ_open_an_anomaly_and_approve_nothing(agent: Agent, person: Person):
    intent = make_intent(agent)
    with no_triggers(Payload):
        Payload.objects.filter(intent=intent).update(body=b'{"format":1}')

    with pytest.raises(refusals.DigestDiffers):
        approve(intent, person)

    intent.refresh_from_db()
    assert intent.status == S.AWAITING_APPROVAL
    assert Anomaly.objects.get(intent=intent).kind == AnomalyKind.DIGEST_DIFFERS
    assert intent.holds == HOLD_BITS[Hold.ANOMALY]
    assert not Approval.objects.exists()


@pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=29)])
def test_what_cannot_go_out_in_time_is_not_approved(agent: Agent, person: Person, late: timedelta):
    now = database_now()
    intent = make_intent(agent, deadline=now + late)
    with pytest.raises(refusals.TooLate, match="has to go out by"):
        approve(intent, person, now=now)


def test_nothing_of_an_ended_run_is_approved(agent: Agent, person: Person):
    run = make_run(agent, ended_at=database_now())
    with pytest.raises(refusals.RunEnded):
        approve(make_intent(agent, run=run), person)


def test_a_version_is_not_approved_beside_an_active_one(agent: Agent, person: Person):
    first = make_intent(agent, status=S.QUEUED)
    second = make_intent(agent, action=first.action)
    with pytest.raises(refusals.OtherVersionActive, match="Version 1 of this email is approved"):
        approve(second, person)


# Two people


def test_two_people_means_two_different_people(agent: Agent, person: Person):
    intent = make_intent(agent, approvals_needed=2)
    assert approve(intent, person).status == S.AWAITING_APPROVAL
    with pytest.raises(refusals.AlreadyDecided, match="different person"):
        approve(intent, person)
    assert approve(intent, make_person(agent.tenant)).status == S.QUEUED


def test_the_author_is_not_the_only_approver(agent: Agent, person: Person):
    edited = edit(make_intent(agent), person)
    with pytest.raises(refusals.NotAllowed, match="You wrote this version"):
        approve(edited, person)
    assert approve(edited, make_person(agent.tenant)).status == S.QUEUED


def test_the_author_may_be_one_of_two(agent: Agent, person: Person):
    intent = make_intent(agent, author=person, approvals_needed=2)
    assert approve(intent, person).status == S.AWAITING_APPROVAL
    assert approve(intent, make_person(agent.tenant)).status == S.QUEUED


def test_approvals_of_a_superseded_version_do_not_count(agent: Agent, person: Person):
    first = make_intent(agent, approvals_needed=2)
    approve(first, person)
    Policy.objects.filter(tenant=agent.tenant).update(approvals=2)
    second = edit(first, make_person(agent.tenant))
    assert approve(second, person).status == S.AWAITING_APPROVAL
    assert first.approvals.get().undone_at is None  # it stays in the timeline


def test_who_approved_as_the_first_of_two_may_still_say_no(agent: Agent, person: Person):
    intent = make_intent(agent, approvals_needed=2)
    approve(intent, person)
    assert reject(intent, person).status == S.REJECTED
    verdicts = intent.approvals.filter(undone_at=None).values_list("verdict", flat=True)
    assert list(verdicts) == [Verdict.REJECT]


# Send back


@pytest.mark.parametrize(
    ("send_back", "status", "verdict"),
    [
        (reject, S.REJECTED, Verdict.REJECT),
        (ask_for_changes, S.CHANGES_REQUESTED, Verdict.CHANGES),
    ],
)
def test_a_person_sends_it_back_with_a_note(
    agent: Agent,
    person: Person,
    send_back: Callable[..., SendIntent],
    status: Status,
    verdict: Verdict,
):
    intent = make_intent(agent)
    send_back(intent, person, note=" The date is wrong. ", reason_code="wrong_facts")
    intent.refresh_from_db()
    assert (intent.status, intent.end_reason) == (status, "The date is wrong.")
    decision = intent.approvals.get()
    assert (decision.verdict, decision.note) == (verdict, "The date is wrong.")
    assert decision.reason_code == "wrong_facts"
    assert AuditEntry.objects.get().reason == "The date is wrong."


@pytest.mark.parametrize(
    ("send_back", "note", "reason_code"),
    [
        (ask_for_changes, " ", "tone"),
        (ask_for_changes, "too short", "tone"),
        (reject, "", "other"),
        (reject, "x" * 1001, "tone"),
        (reject, "", "no such reason"),
    ],
)
def test_a_note_that_says_nothing_is_refused(
    agent: Agent, person: Person, send_back: Callable[..., SendIntent], note: str, reason_code: str
):
    intent = make_intent(agent)
    with pytest.raises(refusals.Invalid):
        send_back(intent, person, note=note, reason_code=reason_code)
    assert status_of(intent) == S.AWAITING_APPROVAL


# Undo


def test_an_approval_is_undone_until_it_is_claimed(agent: Agent, person: Person):
    intent = make_intent(agent)
    approve(intent, person)
    review.undo(intent.pk, person=person)
    intent.refresh_from_db()
    assert intent.status == S.AWAITING_APPROVAL
    assert (intent.approved_digest, intent.approved_at, intent.next_attempt_at) == ("", None, None)
    assert intent.approvals.get().undone_by == person
    assert approve(intent, person).status == S.QUEUED


def test_an_undo_keeps_the_approvals_of_other_people(agent: Agent, person: Person):
    intent, other = make_intent(agent, approvals_needed=2), make_person(agent.tenant)
    approve(intent, other)
    approve(intent, person)
    assert review.undo(intent.pk, person=person).status == S.AWAITING_APPROVAL
    assert approve(intent, person).status == S.QUEUED
    assert intent.approvals.get(person=other).undone_at is None


def test_the_first_of_two_approvals_is_taken_back(agent: Agent, person: Person):
    intent = make_intent(agent, approvals_needed=2)
    approve(intent, person)
    review.undo(intent.pk, person=person)
    assert approve(intent, make_person(agent.tenant)).status == S.AWAITING_APPROVAL


def test_after_a_claim_it_is_too_late_to_undo(agent: Agent, person: Person):
    intent = approve(make_intent(agent), person)
    started = claim(intent)
    with pytest.raises(refusals.TooLate, match="Sending started at") as refused:
        review.undo(intent.pk, person=person)
    assert refused.value.at == started


def test_after_a_dispatch_it_is_too_late_even_where_it_is_queued_again(
    agent: Agent, person: Person
):
    intent = approve(make_intent(agent), person)
    claim(intent)
    make_attempt(intent, outcome=Outcome.REFUSED, dispatched_at=database_now())
    move(intent, S.DEAD_LETTER, now=database_now())
    operator = make_person(agent.tenant, Role.OPERATOR)
    requeue(intent.pk, person=operator)
    with pytest.raises(refusals.TooLate):
        review.undo(intent.pk, person=person)


def test_a_claim_that_was_released_before_dispatch_can_be_undone(agent: Agent, person: Person):
    intent = approve(make_intent(agent), person)
    claim(intent)
    make_attempt(intent, outcome=Outcome.RELEASED)
    move(intent, S.QUEUED, now=database_now())
    assert review.undo(intent.pk, person=person).status == S.AWAITING_APPROVAL


@pytest.mark.parametrize("send_back", [reject, ask_for_changes])
def test_sending_back_is_undone_within_the_undo_time(
    agent: Agent, person: Person, send_back: Callable[..., SendIntent]
):
    now = database_now()
    intent = make_intent(agent)
    send_back(intent, person, now=now)
    with pytest.raises(refusals.TooLate):
        review.undo(intent.pk, person=person, now=now + UNDO_TIME + timedelta(seconds=1))
    assert review.undo(intent.pk, person=person, now=now + UNDO_TIME).status == S.AWAITING_APPROVAL


def test_the_undo_of_a_rejection_that_the_agent_withdrew_is_refused(agent: Agent, person: Person):
    intent = make_intent(agent)
    reject(intent, person)
    cancelling.withdraw(intent.pk, agent=agent)
    with pytest.raises(refusals.NotPossible, match="to be cancelled"):
        review.undo(intent.pk, person=person)


def test_nobody_undoes_what_another_person_decided(agent: Agent, person: Person):
    intent = make_intent(agent)
    approve(intent, make_person(agent.tenant))
    with pytest.raises(refusals.NotPossible, match="no decision of yours"):
        review.undo(intent.pk, person=person)
    assert status_of(intent) == S.QUEUED


def test_an_undo_restarts_the_time_to_decide_where_it_has_passed(agent: Agent, person: Person):
    now = database_now()
    intent = make_intent(agent, decide_by=now + timedelta(seconds=5))
    approve(intent, person, now=now)
    later = now + timedelta(seconds=20)
    undone = review.undo(intent.pk, person=person, now=later)
    assert undone.decide_by == later + timedelta(days=7)


# Edit and follow up


def test_an_edit_makes_the_next_version_and_supersedes_this_one(agent: Agent, person: Person):
    first = make_intent(agent)
    second = edit(first, person)
    first.refresh_from_db()
    assert (first.status, second.status) == (S.SUPERSEDED, S.AWAITING_APPROVAL)
    assert (second.version, second.author) == (2, person)
    assert second.idempotency_key != first.idempotency_key
    assert second.message_id != first.message_id
    assert message_of(second).text == "Hello, in other words"
    assert AuditEntry.objects.get(tenant=agent.tenant).verb == "edit"


EDITABLE = {S.AWAITING_APPROVAL, S.CHANGES_REQUESTED, S.QUEUED, S.RETRY_SCHEDULED, S.DEAD_LETTER}
UNEDITABLE = {
    S.IN_FLIGHT: refusals.InFlight,
    S.UNCERTAIN: refusals.InDoubt,
    S.SUBMITTED: refusals.AlreadyAccepted,
    S.DONE: refusals.AlreadyAccepted,
    S.REJECTED: refusals.AlreadyDecided,
    S.CANCELLED: refusals.AlreadyDecided,
}


@pytest.mark.parametrize("status", sorted(EDITABLE))
def test_it_may_be_edited_while_nothing_can_have_arrived(
    agent: Agent, person: Person, status: Status
):
    intent = make_intent(agent, status=status)
    edit(intent, person)
    assert status_of(intent) == S.SUPERSEDED


@pytest.mark.parametrize(("status", "refusal"), UNEDITABLE.items())
def test_it_may_not_be_edited(
    agent: Agent, person: Person, status: Status, refusal: type[refusals.Refused]
):
    intent = make_intent(agent, status=status)
    with pytest.raises(refusal):
        edit(intent, person)
    assert status_of(intent) == status


def test_a_retry_in_doubt_may_not_be_edited(agent: Agent, person: Person):
    intent = make_intent(agent, status=S.RETRY_SCHEDULED, in_doubt=True)
    with pytest.raises(refusals.InDoubt) as refused:
        edit(intent, person)
    assert refused.value.offer == "settle"


def test_a_bounced_dead_letter_offers_a_follow_up(agent: Agent, person: Person):
    intent = make_intent(agent, status=S.DONE)
    move(intent, S.DEAD_LETTER, now=database_now())
    with pytest.raises(refusals.AlreadyAccepted) as refused:
        edit(intent, person)
    assert refused.value.offer == "follow_up"


def test_an_edit_of_an_older_version_names_the_newer(agent: Agent, person: Person):
    first = make_intent(agent)
    edit(first, person)
    with pytest.raises(refusals.VersionChanged, match="sent version 2"):
        edit(first, make_person(agent.tenant))


def test_a_follow_up_is_a_new_action_in_the_thread(agent: Agent, person: Person):
    intent = make_intent(agent, status=S.SUBMITTED)
    created = editing.follow_up(
        intent.pk, person=person, message=reworded(intent), reason="one more thing"
    )
    assert created.action.follows == intent.action
    assert created.action != intent.action
    assert (created.status, created.author) == (S.AWAITING_APPROVAL, person)
    message = message_of(created)
    assert (message.in_reply_to, message.references) == (intent.message_id, (intent.message_id,))


def test_what_was_never_sent_is_edited_not_followed_up(agent: Agent, person: Person):
    intent = make_intent(agent)
    with pytest.raises(refusals.NotPossible, match="edit it instead"):
        editing.follow_up(intent.pk, person=person, message=reworded(intent), reason="again")


# Races, each with real threads and connections


def claim(intent: SendIntent) -> datetime:
    """What a worker's claim does to the row."""
    now = database_now()
    intent.refresh_from_db()
    move(
        intent,
        S.IN_FLIGHT,
        now=now,
        lease_token=intent.pk,
        lease_expires_at=now + timedelta(seconds=120),
    )
    return now


@pytest.mark.django_db(transaction=True)
def test_two_approvals_at_the_same_moment_are_one():
    agent = make_agent_at()
    people = [make_person(agent.tenant), make_person(agent.tenant)]
    intent = make_intent(agent)

    answers = at_once(*[lambda p=p: approve(intent, p) for p in people])

    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert [type(error) for error in refused] == [refusals.AlreadyDecided]
    winner = intent.approvals.get().person
    assert winner is not None
    assert refused[0].who == winner.email
    assert chain.check(agent.tenant).broken == ""


@pytest.mark.django_db(transaction=True)
def test_two_people_who_are_both_needed_approve_at_the_same_moment():
    agent = make_agent_at()
    people = [make_person(agent.tenant), make_person(agent.tenant)]
    intent = make_intent(agent, approvals_needed=2)

    answers = at_once(*[lambda p=p: approve(intent, p).status for p in people])

    assert sorted(answers) == [S.AWAITING_APPROVAL, S.QUEUED]
    assert status_of(intent) == S.QUEUED


@pytest.mark.django_db(transaction=True)
def test_the_same_person_twice_at_the_same_moment_counts_once():
    agent = make_agent_at()
    person, intent = make_person(agent.tenant), make_intent(agent, approvals_needed=2)

    answers = at_once(*[lambda: approve(intent, person)] * 2)

    assert sum(isinstance(answer, refusals.AlreadyDecided) for answer in answers) == 1
    assert status_of(intent) == S.AWAITING_APPROVAL
    assert intent.approvals.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_", range(5))
def test_an_approval_and_an_edit_at_the_same_moment_leave_one_current_version(round_: int):
    agent = make_agent_at()
    intent = make_intent(agent)
    one, other = make_person(agent.tenant), make_person(agent.tenant)

    approved, edited = at_once(lambda: approve(intent, one), lambda: edit(intent, other))

    # The edit may come after the approval, never the approval after the edit.
    assert isinstance(edited, SendIntent)
    assert isinstance(approved, SendIntent | refusals.VersionChanged)
    assert status_of(intent) == S.SUPERSEDED
    assert status_of(edited) == S.AWAITING_APPROVAL


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_", range(5))
def test_an_undo_and_a_claim_at_the_same_moment_have_one_winner(round_: int):
    agent = make_agent_at()
    person = make_person(agent.tenant)
    intent = approve(make_intent(agent), person)

    undone, claimed = at_once(
        lambda: review.undo(intent.pk, person=person), lambda: claim(fresh(intent))
    )

    if isinstance(undone, SendIntent):
        assert isinstance(claimed, Exception)
        assert status_of(intent) == S.AWAITING_APPROVAL
    else:
        assert isinstance(undone, refusals.TooLate)
        assert status_of(intent) == S.IN_FLIGHT


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_", range(5))
def test_a_withdrawal_and_an_approval_at_the_same_moment_end_cancelled(round_: int):
    agent = make_agent_at()
    person, intent = make_person(agent.tenant), make_intent(agent)

    approved, withdrawn = at_once(
        lambda: approve(intent, person), lambda: cancelling.withdraw(intent.pk, agent=agent)
    )

    assert isinstance(withdrawn, SendIntent)
    assert isinstance(approved, SendIntent | refusals.AlreadyDecided)
    assert status_of(intent) == S.CANCELLED


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_", range(5))
def test_one_of_two_takes_back_what_the_other_completes(round_: int):
    agent = make_agent_at()
    one, other = make_person(agent.tenant), make_person(agent.tenant)
    intent = make_intent(agent, approvals_needed=2)
    approve(intent, one)

    approved, undone = at_once(
        lambda: approve(intent, other), lambda: review.undo(intent.pk, person=one)
    )

    # Whoever comes first: one approval is left, and it is the other's.
    assert isinstance(approved, SendIntent)
    assert isinstance(undone, SendIntent)
    assert status_of(intent) == S.AWAITING_APPROVAL
    assert intent.approvals.get(undone_at=None).person == other


@pytest.mark.django_db(transaction=True)
def test_two_edits_at_the_same_moment_make_one_next_version():
    agent = make_agent_at()
    people = [make_person(agent.tenant), make_person(agent.tenant)]
    intent = make_intent(agent)

    answers = at_once(*[lambda p=p: edit(intent, p) for p in people])

    assert sum(isinstance(answer, SendIntent) for answer in answers) == 1
    assert sum(isinstance(answer, refusals.VersionChanged) for answer in answers) == 1
    intent.action.refresh_from_db()
    assert intent.action.latest_version == 2


def fresh(intent: SendIntent) -> SendIntent:
    return SendIntent.objects.get(pk=intent.pk)
