"""A dead letter comes back only where a repeat can do no harm."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sends.lifecycle.refusals import (
    AlreadyAccepted,
    AlreadyDecided,
    InFlight,
    Invalid,
    NotAllowed,
    NotPossible,
    OtherVersionActive,
    Refused,
    RunEnded,
    Suppressed,
    TooLate,
    VersionChanged,
)
from sends.lifecycle.requeue import (
    close,
    may_requeue,
    may_requeue_each,
    reopen,
    requeue,
    retry_now,
)
from sends.lifecycle.transitions import move, set_hold
from sends.models import (
    Agent,
    AuditEntry,
    Direction,
    Evidence,
    EvidenceKind,
    Person,
    Role,
    SendIntent,
    Suppression,
    SuppressionCause,
    database_now,
)
from sends.rules.outcomes import Outcome
from sends.rules.statuses import Hold, Status
from tests.factories import make_agent_at, make_attempt, make_intent, make_person, make_run
from tests.lifecycle.races import at_once

S = Status
HOUR = timedelta(hours=1)


@pytest.fixture
def agent(db: None) -> Agent:
    return make_agent_at()


@pytest.fixture
def operator(agent: Agent) -> Person:
    return make_person(agent.tenant, Role.OPERATOR)


def dead_letter(agent: Agent, **fields: Any) -> SendIntent:
    """One that may be requeued, but for what `fields` say."""
    fields = {
        "approval_expires_at": database_now() + HOUR,
        "retries_counted": 40,
        "tries": 40,
        "end_reason": "all 40 attempts are used up",
        **fields,
    }
    return make_intent(agent, status=S.DEAD_LETTER, **fields)


def found_not_accepted(intent: SendIntent, person: Person, **fields: Any) -> None:
    Evidence.objects.create(
        intent=intent,
        kind=EvidenceKind.PERSON,
        direction=Direction.NOT_ACCEPTED,
        summary="Not in the provider's log",
        person=person,
        **{"proves": True, "found_at": database_now(), **fields},
    )


def test_it_is_queued_again_with_a_new_count_of_retries(agent: Agent, operator: Person):
    intent = dead_letter(agent, closed_at=database_now())
    make_attempt(intent, outcome=Outcome.NOT_SENT)
    now = database_now()

    requeue(intent.pk, person=operator, reason="their server is back", now=now)

    intent.refresh_from_db()
    assert (intent.status, intent.next_attempt_at, intent.retrying_since) == (S.QUEUED, now, now)
    assert (intent.retries_counted, intent.tries) == (0, 0)
    assert intent.asked_by == operator
    assert (intent.closed_at, intent.end_reason) == (None, "")
    entry = AuditEntry.objects.get(tenant=agent.tenant)
    assert (entry.actor, entry.verb, entry.reason) == (
        operator.email,
        "requeue",
        "their server is back",
    )


def test_it_waits_as_long_as_the_provider_asked(agent: Agent, operator: Person):
    later = database_now() + HOUR
    intent = requeue(dead_letter(agent, not_sooner_than=later).pk, person=operator)
    assert intent.next_attempt_at == later


def test_it_takes_an_operator(agent: Agent):
    with pytest.raises(NotAllowed, match="operator"):
        requeue(dead_letter(agent).pk, person=make_person(agent.tenant))


def a_newer_version(intent: SendIntent, person: Person) -> None:
    make_intent(intent.agent, action=intent.action)


def suppressed(intent: SendIntent, person: Person) -> None:
    Suppression.objects.create(
        tenant=intent.tenant,
        normal="customer@example.org",
        cause=SuppressionCause.COMPLAINED,
        since=database_now(),
    )


def cancel_asked(intent: SendIntent, person: Person) -> None:
    set_hold(Hold.CANCEL_ASKED, pk=intent.pk)


def approval_too_old(intent: SendIntent, person: Person) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(approval_expires_at=database_now())


def content_refused(intent: SendIntent, person: Person) -> None:
    make_attempt(intent, outcome=Outcome.REFUSED, http_status=413)


def failure_remembered(intent: SendIntent, person: Person) -> None:
    contract = {"failures_remembered": True}
    make_attempt(intent, outcome=Outcome.REFUSED, http_status=422, contract=contract)


def maybe_arrived(intent: SendIntent, person: Person) -> None:
    make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True)


def still_open(intent: SendIntent, person: Person) -> None:
    make_attempt(intent)


def maybe_arrived_and_window_over(intent: SendIntent, person: Person) -> None:
    maybe_arrived(intent, person)
    found_not_accepted(intent, person)
    SendIntent.objects.filter(pk=intent.pk).update(replay_until=database_now())


def maybe_arrived_without_contract(intent: SendIntent, person: Person) -> None:
    maybe_arrived(intent, person)
    found_not_accepted(intent, person)


def window_open(intent: SendIntent) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(replay_until=database_now() + HOUR)


def finding_not_confirmed(intent: SendIntent, person: Person) -> None:
    window_open(intent)
    maybe_arrived(intent, person)
    found_not_accepted(intent, person, proves=False)


def finding_before_the_last_attempt(intent: SendIntent, person: Person) -> None:
    window_open(intent)
    found_not_accepted(intent, person)
    maybe_arrived(intent, person)


REFUSALS: list[tuple[Callable[[SendIntent, Person], None], type[Refused], str]] = [
    (a_newer_version, VersionChanged, ""),
    (suppressed, Suppressed, "edit"),
    (cancel_asked, NotPossible, ""),
    (approval_too_old, TooLate, "edit"),
    (content_refused, NotPossible, "edit"),
    (failure_remembered, NotPossible, "resend"),
    (maybe_arrived, NotPossible, "resend"),
    (still_open, NotPossible, "resend"),
    (maybe_arrived_and_window_over, TooLate, "resend"),
    (maybe_arrived_without_contract, TooLate, "resend"),
    (finding_not_confirmed, NotPossible, "resend"),
    (finding_before_the_last_attempt, NotPossible, "resend"),
]


@pytest.mark.parametrize(
    ("happened", "refusal", "offer"), REFUSALS, ids=[row[0].__name__ for row in REFUSALS]
)
def test_it_is_refused_and_says_what_is_offered_instead(
    agent: Agent,
    operator: Person,
    happened: Callable[[SendIntent, Person], None],
    refusal: type[Refused],
    offer: str,
):
    intent = dead_letter(agent)
    happened(intent, operator)
    before = SendIntent.objects.values().get(pk=intent.pk)

    with pytest.raises(refusal) as refused:
        requeue(intent.pk, person=operator)

    assert refused.value.offer == offer
    assert SendIntent.objects.values().get(pk=intent.pk) == before
    shown = may_requeue(SendIntent.objects.get(pk=intent.pk))
    assert type(shown) is refusal


def test_of_a_whole_list_each_is_answered_as_if_asked_alone_in_five_queries(
    agent: Agent, operator: Person, asks_at_most: Any
):
    happenings = (content_refused, failure_remembered, maybe_arrived, approval_too_old)
    for happened in happenings:
        happened(dead_letter(agent, to="other@example.org"), operator)
    suppressed(dead_letter(agent), operator)
    free = dead_letter(agent, to="other@example.org")
    intents = list(SendIntent.objects.select_related("action", "run").order_by("pk"))

    # Active versions, suppressed recipients, their suppressions, attempts, findings.
    with asks_at_most(5):
        together = may_requeue_each(intents, database_now())

    alone = {intent.pk: may_requeue(intent) for intent in intents}
    assert {pk: str(said) for pk, said in together.items()} == {
        pk: str(said) for pk, said in alone.items()
    }
    assert [pk for pk, said in together.items() if said is None] == [free.pk]


def test_a_finding_lets_it_go_again_while_the_window_is_open(agent: Agent, operator: Person):
    intent = dead_letter(agent)
    maybe_arrived(intent, operator)
    found_not_accepted(intent, operator)
    window_open(intent)
    assert may_requeue(SendIntent.objects.get(pk=intent.pk)) is None
    assert requeue(intent.pk, person=operator).status == S.QUEUED


def test_nothing_of_an_ended_run_is_requeued(agent: Agent, operator: Person):
    intent = dead_letter(agent, run=make_run(agent, ended_at=database_now()))
    with pytest.raises(RunEnded):
        requeue(intent.pk, person=operator)


def test_what_had_to_go_out_by_now_is_not_requeued(agent: Agent, operator: Person):
    intent = dead_letter(agent, deadline=database_now())
    with pytest.raises(TooLate, match="had to go out by"):
        requeue(intent.pk, person=operator)


def test_it_is_not_requeued_beside_an_active_version(agent: Agent, operator: Person):
    first = make_intent(agent, status=S.QUEUED)
    second = dead_letter_of(first)
    with pytest.raises(OtherVersionActive, match="Version 1"):
        requeue(second.pk, person=operator)


def dead_letter_of(active: SendIntent) -> SendIntent:
    """A later version that is a dead letter while the earlier one is active: only by mistake."""
    move(active, S.AWAITING_APPROVAL, now=database_now())
    later = make_intent(
        active.agent,
        action=active.action,
        status=S.DEAD_LETTER,
        approval_expires_at=database_now() + HOUR,
    )
    move(
        active,
        S.QUEUED,
        now=database_now(),
        approved_digest=active.digest,
        next_attempt_at=database_now(),
    )
    return later


def test_a_bounced_one_was_accepted_and_offers_a_follow_up(agent: Agent, operator: Person):
    intent = make_intent(agent, status=S.DONE)
    move(intent, S.DEAD_LETTER, now=database_now())
    with pytest.raises(AlreadyAccepted) as refused:
        requeue(intent.pk, person=operator)
    assert refused.value.offer == "follow_up"


@pytest.mark.parametrize("status", sorted(set(Status) - {S.DEAD_LETTER}))
def test_only_a_dead_letter_is_requeued(agent: Agent, operator: Person, status: Status):
    intent = make_intent(agent, status=status)
    with pytest.raises(Refused):
        requeue(intent.pk, person=operator)
    intent.refresh_from_db()
    assert intent.status == status


def test_it_is_closed_with_a_reason_and_opened_again(agent: Agent, operator: Person):
    intent, now = dead_letter(agent), database_now()
    with pytest.raises(Invalid):
        close(intent.pk, person=operator, reason="")
    with pytest.raises(NotAllowed):
        close(intent.pk, person=make_person(agent.tenant), reason="the order was cancelled")

    assert close(intent.pk, person=operator, reason="not needed", now=now).closed_at == now
    with pytest.raises(AlreadyDecided):
        close(intent.pk, person=operator, reason="not needed")
    assert reopen(intent.pk, person=operator).closed_at is None
    with pytest.raises(AlreadyDecided):
        reopen(intent.pk, person=operator)

    intent.refresh_from_db()
    assert (intent.status, intent.closed_at) == (S.DEAD_LETTER, None)
    verbs = AuditEntry.objects.order_by("sequence").values_list("verb", flat=True)
    assert list(verbs) == ["close", "reopen"]


def test_only_a_dead_letter_is_closed(agent: Agent, operator: Person):
    intent = make_intent(agent)
    with pytest.raises(AlreadyDecided, match="no longer a dead letter"):
        close(intent.pk, person=operator, reason="not needed")


@pytest.mark.django_db(transaction=True)
def test_requeued_twice_at_the_same_moment_it_is_queued_once():
    agent = make_agent_at()
    operators = [make_person(agent.tenant, Role.OPERATOR) for _ in range(2)]
    intent = dead_letter(agent)

    answers = at_once(*[lambda p=p: requeue(intent.pk, person=p) for p in operators])

    assert sum(isinstance(answer, SendIntent) for answer in answers) == 1
    assert sum(isinstance(answer, Refused) for answer in answers) == 1
    assert AuditEntry.objects.filter(verb="requeue").count() == 1


def scheduled(agent: Agent, **fields: Any) -> SendIntent:
    fields.setdefault("next_attempt_at", database_now() + HOUR)
    return make_intent(agent, status=S.RETRY_SCHEDULED, **fields)


def test_a_retry_is_made_now_and_nothing_else_changes(agent: Agent, operator: Person):
    intent = scheduled(agent, retries_counted=3, tries=3)
    before = SendIntent.objects.values().get(pk=intent.pk)
    now = database_now()

    retry_now(intent.pk, person=operator, now=now)

    after = SendIntent.objects.values().get(pk=intent.pk)
    assert after == before | {"next_attempt_at": now, "asked_by_id": operator.pk}
    entry = AuditEntry.objects.get(tenant=agent.tenant)
    assert (entry.actor, entry.verb) == (operator.email, "retry_now")


@pytest.mark.parametrize("wait", ["not_sooner_than", "not_before"])
def test_a_retry_comes_no_sooner_than_it_may(agent: Agent, operator: Person, wait: str):
    now = database_now()
    may_go = now + HOUR / 2
    intent = scheduled(agent, **{wait: may_go})
    assert retry_now(intent.pk, person=operator, now=now).next_attempt_at == may_go
    with pytest.raises(NotPossible, match="may not be tried before") as refused:
        retry_now(intent.pk, person=operator, now=now)
    assert refused.value.at == may_go


def test_a_retry_in_doubt_is_made_now_only_inside_the_window(agent: Agent, operator: Person):
    now = database_now()
    window = {"in_doubt": True, "window_opened_at": now, "replay_until": now + HOUR}
    inside = scheduled(agent, **window)
    assert retry_now(inside.pk, person=operator, now=now).in_doubt
    closing = scheduled(agent, not_sooner_than=now + HOUR, **window)
    with pytest.raises(TooLate):
        retry_now(closing.pk, person=operator, now=now)


def to_be_cancelled(agent: Agent) -> SendIntent:
    intent = scheduled(agent)
    set_hold(Hold.CANCEL_ASKED, pk=intent.pk)
    return intent


@pytest.mark.parametrize(
    ("make", "refusal"),
    [
        (lambda agent: make_intent(agent, status=S.IN_FLIGHT), InFlight),
        (lambda agent: make_intent(agent, status=S.UNCERTAIN), AlreadyDecided),
        (lambda agent: make_intent(agent, status=S.QUEUED), AlreadyDecided),
        (lambda agent: make_intent(agent, status=S.SUBMITTED), AlreadyDecided),
        (lambda agent: scheduled(agent, next_attempt_at=database_now()), NotPossible),
        (to_be_cancelled, NotPossible),
    ],
    ids=["sending", "uncertain", "undo_time", "accepted", "due", "to_be_cancelled"],
)
def test_only_a_scheduled_retry_is_made_sooner(
    agent: Agent, operator: Person, make: Callable[[Agent], SendIntent], refusal: type[Refused]
):
    intent = make(agent)
    before = SendIntent.objects.values().get(pk=intent.pk)
    with pytest.raises(refusal):
        retry_now(intent.pk, person=operator)
    assert SendIntent.objects.values().get(pk=intent.pk) == before


def test_an_approver_makes_no_retry_sooner(agent: Agent):
    intent = scheduled(agent)
    with pytest.raises(NotAllowed):
        retry_now(intent.pk, person=make_person(agent.tenant))
