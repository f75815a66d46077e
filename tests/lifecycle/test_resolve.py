"""An uncertain intent becomes certain: who may bring that about, by what, and what follows."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from http.client import HTTPConnection
from json import dumps, loads
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import transaction

from sends.lifecycle import audit, chain, resolve
from sends.lifecycle.acceptance import accept
from sends.lifecycle.refusals import (
    AlreadyDecided,
    DigestDiffers,
    InFlight,
    Invalid,
    NotAllowed,
    NotPossible,
    Refused,
    Suppressed,
    TooLate,
)
from sends.lifecycle.transitions import lock_intent, move
from sends.models import (
    Account,
    Agent,
    AuditEntry,
    Direction,
    EvidenceKind,
    Membership,
    Payload,
    Person,
    Policy,
    Role,
    SendIntent,
    Suppression,
    SuppressionCause,
    database_now,
    new_id,
)
from sends.rules.outcomes import Outcome
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import (
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_tenant,
)
from tests.lifecycle.races import at_once
from tests.lifecycle.tampering import no_triggers
from tests.sandboxes import Sandbox
from tests.sending import make_agent_of, sandbox_with

HOUR = timedelta(hours=1)


@pytest.fixture
def uncertain(db: None) -> SendIntent:
    """In doubt since an hour, at a provider that knows its key for a day."""
    return make_uncertain()


def make_uncertain(agent: Agent | None = None, **fields: Any) -> SendIntent:
    now = database_now()
    opened = fields.pop("window_opened_at", now - HOUR)
    fields.setdefault("replay_until", opened + timedelta(hours=22))
    fields.setdefault("tries", 7)
    fields.setdefault("retries_counted", 7)
    intent = make_intent(
        agent, status=Status.UNCERTAIN, now=now - HOUR, window_opened_at=opened, **fields
    )
    make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True, opened_at=opened)
    return intent


def operator(intent: SendIntent) -> Person:
    return make_person(intent.tenant, Role.OPERATOR)


def entries(intent: SendIntent) -> list[tuple[str, str]]:
    assert chain.check(intent.tenant).broken == ""
    return list(
        AuditEntry.objects.filter(target=audit.message_target(intent))
        .order_by("sequence")
        .values_list("actor", "verb")
    )


# -- who may


WAYS: dict[str, Callable[[SendIntent, Person], Any]] = {
    "replay": lambda intent, person: resolve.replay(intent.pk, person=person),
    "ask_provider": lambda intent, person: resolve.ask_provider(intent.pk, person=person),
    "mark_accepted": lambda intent, person: resolve.mark_accepted(
        intent.pk, person=person, value="log line 7", note="support said so"
    ),
    "mark_not_accepted": lambda intent, person: resolve.mark_not_accepted(
        intent.pk, person=person, value="log line 7", note="support said so"
    ),
    "confirm_not_accepted": lambda intent, person: resolve.confirm_not_accepted(
        intent.pk, person=person
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER, None])
def test_only_an_operator_resolves(uncertain: SendIntent, way: str, role: Role | None) -> None:
    tenant = uncertain.tenant if role else make_tenant()
    person = make_person(tenant, role or Role.ADMIN)
    with pytest.raises(NotAllowed):
        WAYS[way](uncertain, person)
    uncertain.refresh_from_db()
    assert uncertain.status == Status.UNCERTAIN
    assert not uncertain.evidence.exists()
    assert entries(uncertain) == []


@pytest.mark.parametrize("way", WAYS)
def test_who_comes_after_it_was_settled_is_told_what_settled_it(
    uncertain: SendIntent, way: str
) -> None:
    first, second = operator(uncertain), operator(uncertain)
    resolve.mark_accepted(uncertain.pk, person=first, value="sbx_1", note="seen in their log")
    with pytest.raises(AlreadyDecided, match="seen in their log") as refused:
        WAYS[way](uncertain, second)
    assert refused.value.who == first.email
    assert "accepted" in refused.value.words


# -- replay


def test_a_replay_lets_the_same_intent_go_once_more(uncertain: SendIntent) -> None:
    person, now = operator(uncertain), database_now()
    resolve.replay(uncertain.pk, person=person, now=now)
    intent = SendIntent.objects.get(pk=uncertain.pk)
    assert intent.status == Status.RETRY_SCHEDULED
    assert intent.in_doubt
    assert intent.next_attempt_at == intent.retrying_since == now
    assert intent.replay_until == uncertain.replay_until
    assert (intent.tries, intent.retries_counted) == (0, 0)
    assert intent.asked_by == person
    assert intent.idempotency_key == uncertain.idempotency_key
    assert SendIntent.objects.due(now).filter(pk=intent.pk).exists()
    assert entries(intent) == [(person.email, "replay")]


@pytest.mark.parametrize("floor", ["not_sooner_than", "not_before"])
def test_a_replay_never_cuts_a_wait_short(floor: str, db: None) -> None:
    at = database_now() + timedelta(minutes=5)
    intent = make_uncertain(**{floor: at})
    assert resolve.replay(intent.pk, person=operator(intent)).next_attempt_at == at


def change(intent: SendIntent, **columns: Any) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(**columns)


def hold(intent: SendIntent) -> None:
    change(intent, holds=HOLD_BITS[Hold.ANOMALY])


def no_contract(intent: SendIntent) -> None:
    Account.objects.filter(pk=intent.account_id).update(options={"contract": "none"})


def forbidden(intent: SendIntent) -> None:
    Account.objects.filter(pk=intent.account_id).update(no_replay=True)


def tightened(intent: SendIntent) -> None:
    Account.objects.filter(pk=intent.account_id).update(replay_window=timedelta(minutes=30))


def other_organisation(intent: SendIntent) -> None:
    Account.objects.filter(pk=intent.account_id).update(scope=new_id())


def window_over(intent: SendIntent) -> None:
    change(intent, replay_until=database_now() - timedelta(seconds=1))


def wait_past_the_window(intent: SendIntent) -> None:
    change(intent, not_sooner_than=database_now() + timedelta(days=2))


def never_dispatched(intent: SendIntent) -> None:
    change(intent, window_opened_at=None)


def suppressed(intent: SendIntent) -> None:
    Suppression.objects.create(
        tenant=intent.tenant,
        normal=intent.deliveries.get().normal,
        cause=SuppressionCause.COMPLAINED,
        since=database_now(),
    )


def open_attempt(intent: SendIntent) -> None:
    make_attempt(intent)


def altered(intent: SendIntent) -> None:
    with no_triggers(Payload):
        Payload.objects.filter(intent=intent).update(body=b'{"format": 1}')


@pytest.mark.parametrize(
    ("obstacle", "error", "words"),
    [
        (hold, NotPossible, "anomaly"),
        (no_contract, NotPossible, "no promise"),
        (forbidden, NotPossible, "no promise"),
        (tightened, TooLate, "only good until"),
        (other_organisation, NotPossible, "another organisation"),
        (window_over, TooLate, "only good until"),
        (wait_past_the_window, TooLate, "only good until"),
        (never_dispatched, NotPossible, "no promise"),
        (suppressed, Suppressed, "was suppressed"),
        (open_attempt, InFlight, "still open"),
        (altered, DigestDiffers, "not what was approved"),
    ],
)
def test_a_replay_is_refused_where_it_could_be_a_second_email(
    uncertain: SendIntent,
    obstacle: Callable[[SendIntent], None],
    error: type[Refused],
    words: str,
) -> None:
    obstacle(uncertain)
    with pytest.raises(error, match=words):
        resolve.replay(uncertain.pk, person=operator(uncertain))
    fresh = SendIntent.objects.get(pk=uncertain.pk)
    assert (fresh.status, fresh.fence) == (Status.UNCERTAIN, uncertain.fence)
    assert resolve.may_replay(fresh, database_now()) is not None


def test_a_replay_is_refused_past_the_deadline(db: None) -> None:
    intent = make_uncertain(deadline=database_now() - timedelta(minutes=1))
    with pytest.raises(TooLate, match="deadline"):
        resolve.replay(intent.pk, person=operator(intent))


@pytest.mark.django_db(transaction=True)
def test_of_two_that_replay_at_once_one_does() -> None:
    intent = make_uncertain()
    people = [operator(intent), operator(intent)]
    answers = at_once(
        *(lambda person=person: resolve.replay(intent.pk, person=person) for person in people)
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyDecided", "SendIntent"]
    assert len(entries(intent)) == 1


@pytest.mark.django_db(transaction=True)
def test_a_replay_and_the_proof_of_acceptance_that_race_end_accepted() -> None:
    intent = make_uncertain()
    person = operator(intent)

    def proof_comes() -> None:
        with transaction.atomic():
            accept(lock_intent(intent.pk), now=database_now(), provider_message_id="sbx_1")

    answers = at_once(proof_comes, lambda: resolve.replay(intent.pk, person=person))
    assert answers[0] is None
    assert isinstance(answers[1], SendIntent | AlreadyDecided)
    intent.refresh_from_db()
    assert (intent.status, intent.in_doubt) == (Status.SUBMITTED, False)


# -- findings


def test_a_finding_of_acceptance_settles_it(uncertain: SendIntent) -> None:
    person = operator(uncertain)
    intent = resolve.mark_accepted(
        uncertain.pk,
        person=person,
        value="their log, line 7",
        note="support confirmed it",
        provider_message_id="sbx_1",
    )
    assert (intent.status, intent.provider_message_id) == (Status.SUBMITTED, "sbx_1")
    evidence = intent.evidence.get()
    assert (evidence.kind, evidence.direction) == (EvidenceKind.PERSON, Direction.ACCEPTED)
    assert (evidence.proves, evidence.person) == (True, person)
    assert (evidence.value, evidence.summary) == ("their log, line 7", "support confirmed it")
    assert entries(intent) == [(person.email, "mark_accepted")]


@pytest.mark.parametrize("mark", [resolve.mark_accepted, resolve.mark_not_accepted])
@pytest.mark.parametrize(("value", "note"), [("", "a note"), ("a value", " \n "), ("", "")])
def test_a_finding_needs_evidence_and_a_note(
    uncertain: SendIntent, mark: Callable[..., Any], value: str, note: str
) -> None:
    with pytest.raises(Invalid):
        mark(uncertain.pk, person=operator(uncertain), value=value, note=note)
    assert not uncertain.evidence.exists()


def mark_not_accepted(intent: SendIntent, person: Person, **facts: Any) -> SendIntent:
    return resolve.mark_not_accepted(
        intent.pk, person=person, value="not in their log", note="asked support", **facts
    )


def test_not_accepted_waits_for_a_second_operator(uncertain: SendIntent) -> None:
    first, second = operator(uncertain), operator(uncertain)
    intent = mark_not_accepted(uncertain, first)
    assert (intent.status, intent.in_doubt) == (Status.UNCERTAIN, True)
    waiting = resolve.awaiting_confirmation(intent)
    assert waiting is not None
    assert (waiting.person, waiting.proves) == (first, False)

    intent = resolve.confirm_not_accepted(intent.pk, person=second)
    assert (intent.status, intent.in_doubt) == (Status.DEAD_LETTER, False)
    assert first.email in intent.end_reason
    assert second.email in intent.end_reason
    proof = intent.evidence.get(proves=True)
    assert (proof.confirms, proof.person) == (waiting, second)
    assert entries(intent) == [
        (first.email, "mark_not_accepted"),
        (second.email, "confirm_not_accepted"),
    ]


def test_a_finding_is_not_forgotten_when_the_clock_was_set_back(uncertain: SendIntent) -> None:
    now = uncertain.status_at - timedelta(seconds=3)
    finding = {"value": "their log", "note": "not in their log", "now": now}
    marked = resolve.mark_not_accepted(uncertain.pk, person=operator(uncertain), **finding)

    assert resolve.awaiting_confirmation(marked) is not None

    again = resolve.confirm_not_accepted(marked.pk, person=operator(marked), now=now)
    assert (again.status, again.in_doubt) == (Status.DEAD_LETTER, False)


def test_nobody_confirms_their_own_finding(uncertain: SendIntent) -> None:
    person = operator(uncertain)
    mark_not_accepted(uncertain, person)
    with pytest.raises(NotAllowed, match="another operator"):
        resolve.confirm_not_accepted(uncertain.pk, person=person)


def test_a_second_finding_is_no_confirmation(uncertain: SendIntent) -> None:
    first = operator(uncertain)
    mark_not_accepted(uncertain, first)
    with pytest.raises(AlreadyDecided, match="another operator has to confirm") as refused:
        mark_not_accepted(uncertain, operator(uncertain))
    assert refused.value.who == first.email


def test_there_is_nothing_to_confirm_without_a_finding(uncertain: SendIntent) -> None:
    with pytest.raises(NotPossible):
        resolve.confirm_not_accepted(uncertain.pk, person=operator(uncertain))


def test_a_finding_from_before_a_replay_cannot_be_confirmed_after_it(uncertain: SendIntent) -> None:
    first, second = operator(uncertain), operator(uncertain)
    mark_not_accepted(uncertain, first)
    intent = resolve.replay(uncertain.pk, person=second)
    move(
        intent,
        Status.IN_FLIGHT,
        now=database_now(),
        lease_token=new_id(),
        lease_expires_at=database_now() + HOUR,
    )
    make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True)
    move(intent, Status.UNCERTAIN, now=database_now())
    with pytest.raises(NotPossible):
        resolve.confirm_not_accepted(intent.pk, person=second)


def test_one_operator_is_enough_where_policy_says_so(uncertain: SendIntent) -> None:
    Policy.objects.filter(tenant=uncertain.tenant).update(second_operator=False)
    intent = mark_not_accepted(uncertain, operator(uncertain))
    assert (intent.status, intent.in_doubt) == (Status.DEAD_LETTER, False)
    assert intent.evidence.get().proves


def test_the_window_goes_on_binding_the_key_after_a_finding(uncertain: SendIntent) -> None:
    intent = found_not_accepted(uncertain)
    assert intent.window_opened_at == uncertain.window_opened_at
    assert intent.replay_until == uncertain.replay_until
    assert intent.attempts.get().may_have_arrived


def found_not_accepted(intent: SendIntent) -> SendIntent:
    mark_not_accepted(intent, operator(intent))
    return resolve.confirm_not_accepted(intent.pk, person=operator(intent))


def test_proof_that_comes_after_a_finding_still_counts(uncertain: SendIntent) -> None:
    intent = found_not_accepted(uncertain)
    with transaction.atomic():
        accept(lock_intent(intent.pk), now=database_now(), provider_message_id="sbx_1")
    intent.refresh_from_db()
    assert (intent.status, intent.end_reason) == (Status.SUBMITTED, "")


@pytest.mark.django_db(transaction=True)
def test_of_two_opposite_findings_at_once_one_stands() -> None:
    intent = make_uncertain(make_agent_at(make_tenant(second_operator=False)))
    people = [operator(intent), operator(intent)]
    answers = at_once(
        lambda: mark_not_accepted(intent, people[0]),
        lambda: resolve.mark_accepted(intent.pk, person=people[1], value="v", note="n"),
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyDecided", "SendIntent"]
    assert intent.evidence.count() == 1


# -- sending again


def test_inside_the_window_the_same_version_goes_again(uncertain: SendIntent) -> None:
    intent = found_not_accepted(uncertain)
    person = operator(intent)
    again = resolve.resend(intent.pk, person=person, reason="still needed")
    assert again.pk == intent.pk
    assert again.status == Status.QUEUED
    assert again.replay_until == uncertain.replay_until


def test_after_the_window_it_is_a_new_version_under_a_new_key(db: None) -> None:
    now = database_now()
    old = found_not_accepted(
        make_uncertain(window_opened_at=now - timedelta(hours=30), replay_until=now - 8 * HOUR)
    )
    person = operator(old)
    new = resolve.resend(old.pk, person=person, reason="still needed")
    old.refresh_from_db()
    assert old.status == Status.SUPERSEDED
    assert (new.version, new.resend_of) == (old.version + 1, old)
    assert (new.status, new.approvals_needed) == (Status.AWAITING_APPROVAL, 1)
    assert new.content_digest == old.content_digest
    assert new.idempotency_key != old.idempotency_key
    assert (person.email, "resend") in entries(old)


def test_without_a_contract_sending_again_is_always_a_new_version(uncertain: SendIntent) -> None:
    change(uncertain, replay_until=None)
    no_contract(uncertain)
    intent = found_not_accepted(uncertain)
    again = resolve.resend(intent.pk, person=operator(intent), reason="still needed")
    assert again.resend_of == intent


def test_a_resend_needs_a_person_s_approval_where_policy_asks_nobody(db: None) -> None:
    agent = make_agent_at(make_tenant(approvals=0))
    old = found_not_accepted(make_uncertain(agent, replay_until=database_now()))
    again = resolve.resend(old.pk, person=operator(old), reason="still needed")
    assert again.status == Status.AWAITING_APPROVAL


def test_what_is_in_doubt_is_not_sent_again(uncertain: SendIntent) -> None:
    with pytest.raises(Refused):
        resolve.resend(uncertain.pk, person=operator(uncertain), reason="still needed")
    uncertain.refresh_from_db()
    assert uncertain.status == Status.UNCERTAIN


def test_what_was_accepted_is_not_sent_again(uncertain: SendIntent) -> None:
    intent = resolve.mark_accepted(
        uncertain.pk, person=operator(uncertain), value="sbx_1", note="seen"
    )
    with pytest.raises(Refused):
        resolve.resend(intent.pk, person=operator(intent), reason="still needed")


def test_only_an_operator_sends_again(uncertain: SendIntent) -> None:
    intent = found_not_accepted(uncertain)
    with pytest.raises(NotAllowed):
        resolve.resend(intent.pk, person=make_person(intent.tenant), reason="still needed")


# -- asking the provider


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with sandbox_with("replay") as started:
        yield started


def send(intent: SendIntent, key: str = "") -> str:
    """What a request of this intent did at the provider, its answer lost; the provider's id."""
    body = {
        "from": {"address": "support@example.com"},
        "to": [{"address": "customer@example.org"}],
        "tag": intent.pk.hex,
    }
    headers = {"Authorization": "Bearer sandbox_test_key"}
    if key:
        headers["Idempotency-Key"] = key
    server = urlsplit(intent.account.base_url)
    connection = HTTPConnection(str(server.hostname), server.port, timeout=10)
    try:
        connection.request("POST", "/v1/messages", dumps(body), headers)
        return str(loads(connection.getresponse().read())["id"])
    finally:
        connection.close()


@pytest.mark.parametrize("contract", ["replay", "none"])
def test_one_hit_with_our_key_or_tag_settles_it(db: None, sandbox: Sandbox, contract: str) -> None:
    intent = make_uncertain(make_agent_of(sandbox, contract=contract))
    provider_id = send(intent, key=intent.idempotency_key if contract == "replay" else "")
    person = operator(intent)
    evidence = resolve.ask_provider(intent.pk, person=person)
    intent.refresh_from_db()
    assert (intent.status, intent.provider_message_id) == (Status.SUBMITTED, provider_id)
    assert (evidence.kind, evidence.direction) == (EvidenceKind.LOOK_UP, Direction.ACCEPTED)
    assert evidence.proves
    assert entries(intent) == [(person.email, "ask_provider")]


def test_finding_nothing_is_never_proof(db: None, sandbox: Sandbox) -> None:
    intent = make_uncertain(make_agent_of(sandbox))
    evidence = resolve.ask_provider(intent.pk, person=operator(intent))
    assert (evidence.direction, evidence.proves) == (Direction.NOT_ACCEPTED, False)
    intent.refresh_from_db()
    assert intent.status == Status.UNCERTAIN


def test_two_hits_are_for_a_person_to_judge(db: None, sandbox: Sandbox) -> None:
    intent = make_uncertain(make_agent_of(sandbox, contract="none"))
    for _ in range(2):
        send(intent)
    evidence = resolve.ask_provider(intent.pk, person=operator(intent))
    assert (evidence.direction, evidence.proves) == (Direction.ACCEPTED, False)
    intent.refresh_from_db()
    assert intent.status == Status.UNCERTAIN


def test_a_provider_that_does_not_answer_proves_nothing(db: None) -> None:
    agent = make_agent_at(base_url="http://127.0.0.1:9", credential="env:PATH")
    intent = make_uncertain(agent)
    evidence = resolve.ask_provider(intent.pk, person=operator(intent))
    assert (evidence.direction, evidence.proves) == (Direction.NEITHER, False)


@pytest.mark.parametrize(
    ("account", "words"),
    [
        ({"options": {"look_up": False}}, "cannot be asked"),
        ({"credential": "env:NO_SUCH_VARIABLE"}, "NO_SUCH_VARIABLE"),
        ({"scope": new_id()}, "another organisation"),
    ],
)
def test_where_there_is_no_look_up_one_is_told_so(
    uncertain: SendIntent, monkeypatch: pytest.MonkeyPatch, account: dict[str, Any], words: str
) -> None:
    monkeypatch.setenv("SANDBOX_KEY", "sandbox_test_key")
    Account.objects.filter(pk=uncertain.account_id).update(**account)
    with pytest.raises(NotPossible, match=words):
        resolve.ask_provider(uncertain.pk, person=operator(uncertain))
    assert not uncertain.evidence.exists()


def test_a_person_who_lost_the_role_meanwhile_decides_nothing(uncertain: SendIntent) -> None:
    person = operator(uncertain)
    Membership.objects.filter(person=person).update(role=Role.VIEWER)
    with pytest.raises(NotAllowed):
        resolve.replay(uncertain.pk, person=person)
