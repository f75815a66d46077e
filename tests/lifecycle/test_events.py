"""Provider events: kept once, matched, and applied in whatever order they come."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.db import transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from sends.lifecycle import events
from sends.lifecycle.acceptance import accept
from sends.lifecycle.transitions import StaleIntent, lock_intent, move
from sends.models import (
    Account,
    AnomalyKind,
    EventState,
    EvidenceKind,
    MatchedBy,
    ProviderEvent,
    Role,
    SendIntent,
    Suppression,
    SuppressionCause,
    database_now,
    new_id,
)
from sends.providers.adapter import Event, fingerprint
from sends.rules.deliveries import PROVES_TAKEN, EventKind
from sends.rules.outcomes import Outcome
from sends.rules.statuses import HOLD_BITS, NEVER_SENT, DeliveryState, Hold, Status
from tests.factories import (
    make_account,
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_sender,
    make_tenant,
)
from tests.lifecycle.races import at_once

K = EventKind
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
SBX = "sbx_1"


def an_event(
    kind: EventKind = K.DELIVERED,
    *,
    event_id: str | None = None,
    message: str = SBX,
    recipient: str = "customer@example.org",
    at: datetime | None = NOON,
    **fields: Any,
) -> Event:
    return Event(
        event_id=f"evt_{new_id().hex}" if event_id is None else event_id,
        kind=kind,
        recipient=recipient,
        provider_message_id=message,
        tag=fields.pop("tag", ""),
        message_id=fields.pop("message_id", ""),
        reason=fields.pop("reason", ""),
        occurred_at=at,
        fingerprint=fingerprint(
            provider="sandbox",
            message=message,
            recipient=recipient,
            kind=kind,
            occurred_at=at,
            raw=fields.pop("raw", ""),
        ),
    )


def tell(account: Account, *told: Event) -> None:
    """Each event comes in a request of its own, and is applied before the next one comes."""
    for event in told:
        events.store(account, [event], b"{}", database_now())
        events.apply_received()


def on_the_wire(status: Status = Status.IN_FLIGHT, **fields: Any) -> SendIntent:
    """An intent that went through its account once, and has not been answered for."""
    intent = make_intent(status=status, **fields)
    if status is Status.IN_FLIGHT:
        make_attempt(intent)
    else:
        make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True)
    return intent


def accepted(**fields: Any) -> SendIntent:
    intent = on_the_wire(**fields)
    answer(intent)
    intent.refresh_from_db()
    return intent


def answer(intent: SendIntent, message: str = SBX) -> None:
    """The provider's own answer arrives, as settle or a late answer writes it."""
    with transaction.atomic():
        accept(lock_intent(intent.pk), now=database_now(), provider_message_id=message)


def now_is(intent: SendIntent) -> tuple[str, list[str]]:
    intent.refresh_from_db()
    return intent.status, list(
        intent.deliveries.order_by("position").values_list("state", flat=True)
    )


# -- kept once


@pytest.mark.django_db
def test_an_event_told_again_is_kept_once() -> None:
    account = make_account(make_tenant())
    event = an_event(event_id="evt_1")
    now = database_now()
    assert events.store(account, [event, event], b"{}", now) == 1
    assert events.store(account, [event, an_event()], b"{}", now) == 1
    assert ProviderEvent.objects.count() == 2


@pytest.mark.django_db
def test_two_accounts_may_use_the_same_event_id() -> None:
    tenant = make_tenant()
    for account in (make_account(tenant), make_account(tenant)):
        assert events.store(account, [an_event(event_id="evt_1")], b"{}", database_now()) == 1


@pytest.mark.django_db
def test_an_event_without_an_id_is_known_by_its_fingerprint() -> None:
    account = make_account(make_tenant())
    told = [an_event(event_id=""), an_event(K.BOUNCED, event_id=""), an_event(event_id="")]
    assert events.store(account, told, b"{}", database_now()) == 2


@pytest.mark.django_db
def test_what_a_provider_sends_fits_into_the_database() -> None:
    account = make_account(make_tenant())
    odd = an_event(
        recipient="x\x00" * 400, message="m" * 400, tag="\ud800", message_id="<>", at=None
    )
    now = database_now()
    assert events.store(account, [odd], b"\x00\xff", now) == 1
    kept = ProviderEvent.objects.get()
    assert kept.occurred_at == now
    assert bytes(kept.raw) == b"\x00\xff"
    assert (kept.recipient, kept.message_id) == ("x" * 320, "")


@pytest.mark.django_db
def test_the_last_webhook_is_noted_at_most_once_a_minute() -> None:
    account = make_account(make_tenant())
    for seconds, seen in ((0, 0), (30, 0), (59, 0), (61, 61)):
        events.store(account, [], b"{}", NOON + timedelta(seconds=seconds))
        account.refresh_from_db()
        assert account.webhook_seen_at == NOON + timedelta(seconds=seen)


# -- matched


@pytest.mark.django_db
@pytest.mark.parametrize("by", MatchedBy)
def test_an_event_finds_its_intent(by: MatchedBy) -> None:
    intent = accepted()
    names: dict[str, Any] = {"message": ""}
    if by is MatchedBy.PROVIDER_ID:
        names = {"message": SBX}
    if by is MatchedBy.TAG:
        names["tag"] = intent.pk.hex
    if by is MatchedBy.MESSAGE_ID:
        names["message_id"] = intent.message_id.strip("<>")
    tell(intent.account, an_event(**names))
    event = ProviderEvent.objects.get()
    assert (event.state, event.intent, event.matched_by) == (EventState.APPLIED, intent, by)
    assert now_is(intent) == (Status.DONE, [DeliveryState.DELIVERED])


@pytest.mark.django_db
def test_an_event_finds_its_intent_by_the_id_of_any_attempt() -> None:
    intent = make_intent(status=Status.UNCERTAIN)
    make_attempt(intent, outcome=Outcome.AMBIGUOUS, provider_message_id=SBX)
    tell(intent.account, an_event())
    assert now_is(intent) == (Status.DONE, [DeliveryState.DELIVERED])


@pytest.mark.django_db
@pytest.mark.parametrize(
    "names",
    [
        {"message": "sbx_other"},
        {"message": "", "tag": "unknown"},
        {"message": "", "tag": new_id().hex},
        {"message": "", "message_id": "<unknown@example.net>"},
        {"message": ""},
    ],
)
def test_what_matches_nothing_is_parked(names: dict[str, str]) -> None:
    intent = accepted()
    tell(intent.account, an_event(**names))
    event = ProviderEvent.objects.get()
    assert (event.state, event.intent) == (EventState.PARKED, None)
    assert now_is(intent) == (Status.SUBMITTED, [DeliveryState.ACCEPTED])


@pytest.mark.django_db
def test_an_event_matches_only_what_went_through_its_account() -> None:
    intent = accepted()
    sibling = make_account(intent.tenant)
    stranger = make_account(make_tenant())
    for account in (sibling, stranger):
        tell(
            account,
            an_event(K.BOUNCED),
            an_event(K.BOUNCED, message="", tag=intent.pk.hex),
            an_event(K.BOUNCED, message="", message_id=intent.message_id),
        )
    assert set(ProviderEvent.objects.values_list("state", flat=True)) == {EventState.PARKED}
    assert now_is(intent) == (Status.SUBMITTED, [DeliveryState.ACCEPTED])
    assert not Suppression.objects.exists()


@pytest.mark.django_db
def test_an_event_does_not_match_what_went_through_an_earlier_scope() -> None:
    intent = accepted()
    Account.objects.filter(pk=intent.account_id).update(scope=new_id())
    tell(Account.objects.get(pk=intent.account_id), an_event())
    assert ProviderEvent.objects.get().state == EventState.PARKED


@pytest.mark.django_db
def test_an_id_that_two_intents_have_matches_neither() -> None:
    agent = make_agent_at()
    for _ in range(2):
        accepted(agent=agent)
    tell(agent.sender.account, an_event())  # type: ignore[union-attr]
    assert ProviderEvent.objects.get().state == EventState.PARKED


@pytest.mark.django_db
def test_an_event_that_came_before_the_answer_is_applied_after_it() -> None:
    intent = on_the_wire()
    tell(intent.account, an_event())
    assert ProviderEvent.objects.get().state == EventState.PARKED
    answer(intent)
    events.apply_received()
    assert now_is(intent) == (Status.DONE, [DeliveryState.DELIVERED])


@pytest.mark.django_db
def test_acceptances_saved_in_a_batch_catch_up_with_their_events() -> None:
    agent = make_agent_at()
    intents = [on_the_wire(agent=agent) for _ in range(3)]
    tell(intents[0].account, an_event(message="sbx_0"), an_event(message="sbx_2"))
    for number, intent in enumerate(intents):
        move(
            intent,
            Status.SUBMITTED,
            now=database_now(),
            accepted_at=database_now(),
            provider_message_id=f"sbx_{number}",
        )
    events.catch_up([intent.pk for intent in intents])
    events.apply_received()
    assert [now_is(intent)[0] for intent in intents] == [Status.DONE, Status.SUBMITTED, Status.DONE]


@pytest.mark.django_db
def test_an_event_parked_while_its_id_was_being_committed_is_found_by_the_sweep() -> None:
    intent = on_the_wire()
    tell(intent.account, an_event(), an_event(message="sbx_other"))
    # What a crash between the answer and its aftermath leaves.
    move(
        intent,
        Status.SUBMITTED,
        now=database_now(),
        accepted_at=database_now(),
        provider_message_id=SBX,
    )
    assert events.retry_parked(database_now()) == 1
    events.apply_received()
    assert now_is(intent) == (Status.DONE, [DeliveryState.DELIVERED])
    assert events.retry_parked(database_now()) == 0


# -- applied


@pytest.mark.django_db
@pytest.mark.parametrize(
    "status",
    [Status.QUEUED, Status.IN_FLIGHT, Status.RETRY_SCHEDULED, Status.UNCERTAIN, Status.DEAD_LETTER],
)
@pytest.mark.parametrize("kind", sorted(PROVES_TAKEN - {K.BOUNCED, K.REFUSED, K.DROPPED}))
def test_any_event_about_a_message_proves_that_the_provider_took_it(
    status: Status, kind: EventKind
) -> None:
    intent = on_the_wire(status)
    tell(intent.account, an_event(kind, message=SBX, tag=intent.pk.hex))
    intent.refresh_from_db()
    assert intent.accepted_at is not None
    assert intent.status in (Status.SUBMITTED, Status.DONE)
    assert intent.provider_message_id == SBX
    evidence = intent.evidence.get()
    assert (evidence.kind, evidence.proves) == (EvidenceKind.EVENT, True)


@pytest.mark.django_db
def test_an_unknown_event_is_kept_and_proves_nothing() -> None:
    intent = on_the_wire(Status.UNCERTAIN)
    tell(intent.account, an_event(K.UNKNOWN, tag=intent.pk.hex))
    assert ProviderEvent.objects.get().state == EventState.APPLIED
    assert now_is(intent) == (Status.UNCERTAIN, [DeliveryState.WAITING])
    assert not intent.evidence.exists()


@pytest.mark.django_db
def test_a_bounce_concerns_only_the_recipient_it_names() -> None:
    intent = accepted(to=("A@Example.org", "b@example.org"), cc=("c@example.org",))
    tell(intent.account, an_event(K.BOUNCED, recipient="a@EXAMPLE.org", reason="no such user"))
    assert now_is(intent) == (
        Status.SUBMITTED,
        [DeliveryState.BOUNCED, DeliveryState.ACCEPTED, DeliveryState.ACCEPTED],
    )
    suppression = Suppression.objects.get()
    assert (suppression.normal, suppression.cause) == ("a@example.org", SuppressionCause.BOUNCED)
    assert suppression.reason == "no such user"


@pytest.mark.django_db
def test_an_event_that_names_nobody_is_only_evidence_where_there_are_several() -> None:
    intent = on_the_wire(to=("a@example.org", "b@example.org"))
    tell(intent.account, an_event(K.BOUNCED, recipient="", tag=intent.pk.hex))
    assert now_is(intent) == (Status.SUBMITTED, [DeliveryState.ACCEPTED, DeliveryState.ACCEPTED])
    assert not Suppression.objects.exists()


@pytest.mark.django_db
def test_an_event_that_names_nobody_is_about_the_only_recipient() -> None:
    intent = accepted()
    tell(intent.account, an_event(K.BOUNCED, recipient=""))
    assert now_is(intent) == (Status.DEAD_LETTER, [DeliveryState.BOUNCED])
    assert Suppression.objects.get().normal == "customer@example.org"


@pytest.mark.django_db
def test_an_event_about_a_stranger_suppresses_nobody() -> None:
    intent = accepted()
    tell(intent.account, an_event(K.BOUNCED, recipient="forwarded@example.net"))
    assert now_is(intent) == (Status.SUBMITTED, [DeliveryState.ACCEPTED])
    assert not Suppression.objects.exists()


@pytest.mark.django_db
def test_a_soft_bounce_suppresses_nobody() -> None:
    intent = accepted()
    tell(intent.account, an_event(K.SOFT_BOUNCED))
    assert now_is(intent) == (Status.SUBMITTED, [DeliveryState.DEFERRED])
    assert not Suppression.objects.exists()


@pytest.mark.django_db
def test_a_late_delivered_does_not_wipe_out_a_complaint() -> None:
    intent = accepted()
    tell(intent.account, an_event(K.COMPLAINED), an_event(K.DELIVERED))
    assert now_is(intent) == (Status.DONE, [DeliveryState.COMPLAINED])
    assert Suppression.objects.get().cause == SuppressionCause.COMPLAINED


@pytest.mark.django_db
def test_the_same_happening_under_another_id_adds_nothing() -> None:
    intent = on_the_wire(Status.CANCELLED)
    tell(intent.account, *(an_event(tag=intent.pk.hex) for _ in range(3)))
    assert ProviderEvent.objects.filter(state=EventState.APPLIED, intent=intent).count() == 3
    assert intent.evidence.count() == 1


@pytest.mark.django_db
@pytest.mark.parametrize("status", sorted(NEVER_SENT))
def test_an_event_about_a_version_that_was_not_to_be_sent_is_an_anomaly(status: Status) -> None:
    intent = on_the_wire(status)
    next_version = make_intent(intent.agent, action=intent.action, status=Status.QUEUED)
    tell(intent.account, an_event(tag=intent.pk.hex))
    assert now_is(intent)[0] == status
    assert intent.anomalies.get().kind == AnomalyKind.ACCEPTED_UNSENT
    next_version.refresh_from_db()
    assert next_version.holds & HOLD_BITS[Hold.ANOMALY]


@pytest.mark.django_db
def test_an_event_with_another_provider_id_says_that_it_was_taken_twice() -> None:
    intent = accepted()
    tell(intent.account, an_event(message="sbx_2", tag=intent.pk.hex))
    assert intent.anomalies.get().kind == AnomalyKind.TWICE


@pytest.mark.django_db
def test_a_bounce_from_before_a_release_does_not_suppress_again() -> None:
    intent = accepted(to=("a@example.org", "b@example.org"))
    person = make_person(intent.tenant, Role.OPERATOR)
    for normal in ("a@example.org", "b@example.org"):
        Suppression.objects.create(
            tenant=intent.tenant,
            normal=normal,
            cause=SuppressionCause.BOUNCED,
            since=NOON - timedelta(days=1),
            released_at=NOON,
            released_by=person,
        )
    before, after = NOON - timedelta(hours=1), NOON + timedelta(hours=1)
    tell(
        intent.account,
        an_event(K.BOUNCED, recipient="a@example.org", at=before),
        an_event(K.BOUNCED, recipient="b@example.org", at=after),
    )
    assert Suppression.objects.get(released_at=None).normal == "b@example.org"
    assert now_is(intent)[0] == Status.DEAD_LETTER


@pytest.mark.django_db
def test_a_person_s_suppression_stays_a_person_s() -> None:
    intent = accepted()
    Suppression.objects.create(
        tenant=intent.tenant,
        normal="customer@example.org",
        cause=SuppressionCause.PERSON,
        since=NOON,
    )
    tell(intent.account, an_event(K.COMPLAINED))
    assert Suppression.objects.get().cause == SuppressionCause.PERSON


@pytest.mark.django_db
def test_the_error_of_one_event_stays_with_it() -> None:
    agent = make_agent_at()
    good, bad = (on_the_wire(agent=agent) for _ in range(2))
    told = [an_event(message=f"m_{i.pk.hex}", tag=i.pk.hex) for i in (bad, good)]
    events.store(good.account, told, b"{}", database_now())
    real = events.accept

    def accept_one(intent: SendIntent, **facts: Any) -> None:
        if intent.pk == bad.pk:
            raise RuntimeError("a mistake of ours")
        real(intent, **facts)

    with patch.object(events, "accept", accept_one):
        assert events.apply_received() == 2
    assert now_is(good)[0] == Status.DONE
    assert now_is(bad)[0] == Status.IN_FLIGHT
    failed = ProviderEvent.objects.get(tag=bad.pk.hex)
    assert (failed.state, failed.intent) == (EventState.FAILED, None)
    assert failed.error == "RuntimeError: a mistake of ours"
    assert events.apply_received() == 0  # it is set aside, not met for ever


@pytest.mark.django_db
def test_no_more_than_the_limit_are_applied_and_the_oldest_first() -> None:
    account = make_account(make_tenant())
    events.store(account, [an_event(event_id=f"evt_{n}") for n in range(5)], b"{}", database_now())
    assert events.apply_received(limit=2) == 2
    left = ProviderEvent.objects.to_apply().values_list("event_id", flat=True)
    assert list(left) == ["evt_2", "evt_3", "evt_4"]


# -- silence


@pytest.mark.django_db
def test_an_intent_without_news_for_seven_days_is_done() -> None:
    now = database_now()
    silent = accepted(to=("a@example.org", "b@example.org"))
    tell(silent.account, an_event(recipient="a@example.org"))
    recent = accepted(agent=make_agent_at())
    later = now + timedelta(days=7, minutes=1)
    # Accepted just now too, but heard of lately.
    recent.deliveries.update(changed_at=later - timedelta(days=1))
    assert events.close_without_news(later) == 1
    assert now_is(silent) == (Status.DONE, [DeliveryState.DELIVERED, DeliveryState.NO_NEWS])
    assert now_is(recent)[0] == Status.SUBMITTED
    assert events.close_without_news(now) == 0


@pytest.mark.django_db
def test_a_bounce_that_comes_after_the_silence_still_counts() -> None:
    intent = accepted()
    events.close_without_news(database_now() + timedelta(days=8))
    assert now_is(intent) == (Status.DONE, [DeliveryState.NO_NEWS])
    tell(intent.account, an_event(K.BOUNCED))
    assert now_is(intent) == (Status.DEAD_LETTER, [DeliveryState.BOUNCED])


# -- order


RECIPIENTS = ("a@example.org", "b@example.org")
ANSWER = "the provider's answer"
FACTS = st.lists(
    st.tuples(
        st.sampled_from(EventKind),
        st.sampled_from([*RECIPIENTS, "", "stranger@example.net"]),
        st.sampled_from(["id", "tag", "both"]),
        st.sampled_from([NOON, NOON + timedelta(seconds=1)]),
    ),
    max_size=6,
)


class Undone(Exception):
    """Ends a trial and rolls back all it wrote."""


def end_state(order: Iterable[Any], recipients: tuple[str, ...]) -> tuple[Any, ...]:
    """What an intent on the wire becomes when these events, and the answer, come in this order."""
    state: tuple[Any, ...] = ()
    try:
        with transaction.atomic():
            intent = on_the_wire(to=recipients)
            for fact in order:
                if fact == ANSWER:
                    answer(intent)
                else:
                    kind, recipient, named, at = fact
                    event = an_event(
                        kind,
                        recipient=recipient,
                        message="" if named == "tag" else SBX,
                        tag="" if named == "id" else intent.pk.hex,
                        at=at,
                    )
                    tell(intent.account, event)
            # An answer makes known what parked events were waiting for.
            events.apply_received()
            suppressed = Suppression.objects.filter(tenant=intent.tenant)
            state = (
                *now_is(intent),
                intent.provider_message_id,
                sorted(suppressed.values_list("normal", "cause")),
                sorted(ProviderEvent.objects.values_list("state", flat=True)),
                intent.anomalies.count(),
            )
            raise Undone
    except Undone:
        return state


@pytest.mark.django_db
@settings(max_examples=40)
@given(facts=FACTS, data=st.data(), one=st.booleans())
def test_the_order_and_number_of_events_never_matter(
    facts: list[Any], data: st.DataObject, one: bool
) -> None:
    recipients = RECIPIENTS[:1] if one else RECIPIENTS
    straight = end_state([ANSWER, *facts], recipients)
    shuffled = data.draw(st.permutations([ANSWER, *facts]))
    assert end_state(shuffled, recipients) == straight
    repeated = data.draw(st.permutations([ANSWER, *facts, *facts]))
    *facts_of_it, _, anomalies = end_state(repeated, recipients)
    assert [*facts_of_it, anomalies] == [*straight[:4], straight[5]]


# -- races


@pytest.mark.django_db(transaction=True)
def test_two_that_apply_at_once_apply_each_event_once() -> None:
    intent = accepted(to=tuple(f"r{n}@example.org" for n in range(6)))
    told = [
        an_event(kind, recipient=delivery.address)
        for delivery in intent.deliveries.all()
        for kind in (K.DEFERRED, K.BOUNCED)
    ]
    events.store(intent.account, told, b"{}", database_now())
    at_once(events.apply_received, events.apply_received)
    assert now_is(intent) == (Status.DEAD_LETTER, [DeliveryState.BOUNCED] * 6)
    assert Suppression.objects.count() == 6
    assert set(ProviderEvent.objects.values_list("state", flat=True)) == {EventState.APPLIED}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_number", range(5))
def test_of_an_event_and_a_refusal_that_race_the_event_stands(round_number: int) -> None:
    intent = on_the_wire()
    events.store(intent.account, [an_event(tag=intent.pk.hex)], b"{}", database_now())

    def settle_as_refused() -> None:
        with transaction.atomic():
            move(intent, Status.DEAD_LETTER, now=database_now(), end_reason="refused")

    applied, settled = at_once(events.apply_received, settle_as_refused)
    assert applied == 1
    assert settled is None or isinstance(settled, StaleIntent)
    assert now_is(intent) == (Status.DONE, [DeliveryState.DELIVERED])


@pytest.mark.django_db(transaction=True)
def test_one_event_stored_by_two_requests_at_once_is_kept_once() -> None:
    account = make_account(make_tenant())
    told = [an_event(event_id=f"evt_{number}") for number in range(20)]

    def store() -> int:
        return events.store(account, told, b"{}", database_now())

    assert sum(at_once(store, store)) == 20
    assert ProviderEvent.objects.count() == 20


@pytest.mark.django_db
def test_a_sender_s_other_account_is_not_asked() -> None:
    """Two accounts of one tenant with the same provider id: each event finds its own."""
    tenant = make_tenant()
    intents = []
    for _ in range(2):
        sender = make_sender(make_account(tenant))
        agent = make_agent_at(tenant)
        agent.sender = sender
        agent.save(update_fields=["sender"])
        intents.append(accepted(agent=agent))
    tell(intents[1].account, an_event())
    assert [now_is(intent)[0] for intent in intents] == [Status.SUBMITTED, Status.DONE]
