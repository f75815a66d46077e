"""Erasing a person leaves nothing of them but a suppression, and the record that it was done."""

from typing import Any
from urllib.parse import quote

import pytest
from django.apps import apps
from django.db import transaction

from sends.lifecycle import audit, chain, erasure, requeue, retention
from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.erasure import Erased
from sends.lifecycle.refusals import Invalid
from sends.models import (
    Agent,
    AnomalyKind,
    Approval,
    AuditEntry,
    EventState,
    Evidence,
    Payload,
    ProviderEvent,
    Role,
    SendIntent,
    Suppression,
    database_now,
    new_id,
)
from sends.rules.outcomes import Outcome
from sends.rules.statuses import ENDED, Status
from tests.factories import make_agent_at, make_attempt, make_intent, make_person
from tests.lifecycle.races import at_once

JANE = "Jane.Roe@Example.org"
NORMAL = "jane.roe@example.org"
OTHER = "john@example.net"


@pytest.fixture
def agent(db: None) -> Agent:
    return make_agent_at()


def over(agent: Agent, status: Status = Status.DONE, **fields: Any) -> SendIntent:
    """An email to her that is over, with all that can be beside one."""
    now = database_now()
    if status is Status.DEAD_LETTER:
        fields = {"closed_at": now} | fields
    fields = {"to": (JANE, OTHER), "note": f"{JANE} asked", "subject": "Jane's refund"} | fields
    intent = make_intent(agent, status=status, **fields)
    make_attempt(intent, outcome=Outcome.ACCEPTED, body=f'{{"to": "{JANE}"}}', reason=f"for {JANE}")
    Evidence.objects.create(
        intent=intent,
        kind="event",
        direction="accepted",
        summary=f"Event: delivered, {JANE}.",
        found_at=now,
    )
    Approval.objects.create(
        intent=intent,
        digest=intent.digest,
        verdict="approve",
        note=f"tell {JANE.lower()}",
        made_at=now,
    )
    make_event(intent)
    return intent


def make_event(of: SendIntent, **fields: Any) -> ProviderEvent:
    now = database_now()
    return ProviderEvent.objects.create(
        **{
            "account": of.account,
            "event_id": new_id().hex,
            "fingerprint": "f",
            "kind": "delivered",
            "recipient": JANE,
            "reason": f"{JANE} took it",
            "raw": f'{{"to": "{JANE}"}}'.encode(),
            "state": EventState.APPLIED,
            "intent": of,
            "occurred_at": now,
            "received_at": now,
        }
        | fields
    )


def erase(agent: Agent, address: str = JANE, **more: Any) -> Erased:
    return erasure.erase(agent.tenant, address, **more)


def rows_with(word: str, *, besides: tuple[str, ...] = ()) -> set[str]:
    """The tables in which this stands anywhere, whatever its case."""
    found = set()
    for model in apps.get_app_config("sends").get_models():
        for row in model._default_manager.values():
            text = " ".join(
                bytes(value).decode(errors="replace")
                if isinstance(value, bytes | memoryview)
                else str(value)
                for value in row.values()
            )
            if word.casefold() in text.casefold():
                found.add(model.__name__)
    return found - set(besides)


@pytest.mark.parametrize("status", sorted(ENDED))
def test_nothing_of_the_person_is_left_anywhere(agent: Agent, status: Status) -> None:
    intent = over(agent, status)
    assert "Payload" in rows_with(NORMAL)

    erased = erase(agent)

    assert (erased.emails, erased.events, erased.blocking) == (1, 1, [])
    assert rows_with(NORMAL) == set()
    assert rows_with("Jane") == set()
    intent.refresh_from_db()
    assert intent.purged_at == intent.erased_at is not None
    assert not Payload.objects.filter(intent=intent).exists()


def test_the_digest_the_decision_and_the_others_stay(agent: Agent) -> None:
    intent = over(agent)

    erased = erase(agent)

    fresh = SendIntent.objects.get(pk=intent.pk)
    assert (fresh.digest, fresh.status) == (intent.digest, Status.DONE)
    assert (fresh.subject, fresh.note) == ("(erased)", "")
    first, second = fresh.deliveries.order_by("position")
    assert (first.address, first.normal, first.name) == (erased.pseudonym, erased.pseudonym, "")
    assert second.address == OTHER
    assert fresh.first_recipient == erased.pseudonym
    assert Approval.objects.get().verdict == "approve"


@pytest.mark.parametrize("field", ["to", "cc", "bcc"])
def test_it_finds_the_address_wherever_it_was_and_however_it_was_written(
    agent: Agent, field: str
) -> None:
    others = {} if field == "to" else {"to": OTHER}
    over(agent, **{**others, field: ("JANE.roe@EXAMPLE.ORG",)})

    assert erase(agent, "jane.ROE@example.org").emails == 1
    assert rows_with(NORMAL) == set()


def test_a_second_time_nothing_is_left_to_do_and_nothing_is_written(agent: Agent) -> None:
    over(agent)
    first = erase(agent)
    second = erase(agent)
    assert (second.emails, second.events, second.pseudonym) == (0, 0, first.pseudonym)
    assert AuditEntry.objects.count() == 1


def test_the_record_does_not_name_the_person_and_the_chain_holds(agent: Agent) -> None:
    over(agent)
    erased = erase(agent, reason="asked for by letter")
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.target) == ("erase", f"person:{erased.pseudonym}")
    assert entry.reason == "asked for by letter"
    assert bytes(entry.facts) == b'{"blocking":0,"emails":1,"events":1,"suppressions":0}'
    assert chain.check(agent.tenant).broken == ""


def test_a_reason_with_the_address_is_refused(agent: Agent) -> None:
    over(agent)
    with pytest.raises(Invalid):
        erase(agent, reason=f"{JANE} wrote to us")
    with pytest.raises(Invalid):
        erase(agent, "")
    assert rows_with(NORMAL)


@pytest.mark.parametrize("status", sorted(set(Status) - ENDED))
def test_what_is_not_over_is_left_whole_and_named_with_the_way_out(
    agent: Agent, status: Status
) -> None:
    intent = make_intent(agent, status=status, to=JANE)
    done = over(agent)

    erased = erase(agent)

    (blocking,) = erased.blocking
    assert blocking.what == f"#{intent.action.number} is not over: {Status(status).label.lower()}"
    assert blocking.way_out
    assert Payload.objects.filter(intent=intent).exists()
    assert intent.deliveries.get().address == JANE
    done.refresh_from_db()
    assert done.erased_at


def test_what_still_asks_for_a_person_blocks_too(agent: Agent) -> None:
    make_intent(agent, status=Status.DEAD_LETTER, to=JANE)
    contradicted = make_intent(agent, status=Status.CANCELLED, to=JANE)
    with transaction.atomic():
        open_anomaly(
            contradicted, kind=AnomalyKind.ACCEPTED_UNSENT, detail="taken", now=database_now()
        )
    told = make_intent(agent, status=Status.DONE, to=JANE)
    make_event(told, state=EventState.RECEIVED)

    words = " ".join(blocking.what for blocking in erase(agent).blocking)

    assert "dead letter" in words
    assert "open anomaly" in words
    assert "not applied yet" in words
    assert SendIntent.objects.filter(erased_at=None).count() == 3


def test_a_later_version_that_is_not_over_keeps_the_earlier_one(agent: Agent) -> None:
    first = make_intent(agent, status=Status.SUPERSEDED, to=JANE)
    make_intent(agent, action=first.action, status=Status.QUEUED, to=OTHER)
    assert len(erase(agent).blocking) == 1
    assert Payload.objects.filter(intent=first).exists()


def test_what_was_told_in_one_request_loses_its_bytes_too(agent: Agent) -> None:
    hers, his = over(agent), make_intent(agent, status=Status.DONE, to=OTHER)
    raw = f"{JANE} and {OTHER}".encode()
    now = database_now()
    make_event(hers, raw=raw, received_at=now)
    sibling = make_event(his, raw=raw, received_at=now, recipient=OTHER, reason="")

    erase(agent)

    sibling.refresh_from_db()
    assert (bytes(sibling.raw), sibling.recipient) == (b"", OTHER)
    assert rows_with(NORMAL) == set()


def test_what_was_told_in_one_request_with_an_unfinished_email_waits_for_it(agent: Agent) -> None:
    hers = over(agent)
    his = make_intent(agent, status=Status.SUBMITTED, to=OTHER)
    raw, now = b"both", database_now()
    make_event(hers, raw=raw, received_at=now)
    make_event(his, raw=raw, received_at=now, recipient=OTHER)

    (blocking,) = erase(agent).blocking

    assert f"#{his.action.number}" in blocking.what
    assert rows_with(NORMAL)


def test_news_of_no_email_of_ours_is_erased_too(agent: Agent) -> None:
    intent = make_intent(agent, status=Status.DONE, to=OTHER)
    make_event(intent, intent=None, state=EventState.FOREIGN)
    erased = erase(agent)
    assert (erased.emails, erased.events) == (0, 1)
    assert rows_with(NORMAL) == set()


def test_news_of_no_email_is_erased_with_all_that_shares_its_request(agent: Agent) -> None:
    his = make_intent(agent, status=Status.DONE, to=OTHER)
    raw, now = f"{JANE} and {OTHER}".encode(), database_now()
    make_event(his, raw=raw, received_at=now, intent=None, state=EventState.PARKED)
    sibling = make_event(his, raw=raw, received_at=now, recipient=OTHER, reason="")

    assert erase(agent).events == 2

    sibling.refresh_from_db()
    assert (bytes(sibling.raw), sibling.recipient) == (b"", OTHER)
    assert rows_with(NORMAL) == set()


def test_news_of_no_email_waits_for_what_shares_its_request(agent: Agent) -> None:
    his = make_intent(agent, status=Status.SUBMITTED, to=OTHER)
    raw, now = f"{JANE} and {OTHER}".encode(), database_now()
    make_event(his, raw=raw, received_at=now, intent=None, state=EventState.PARKED)
    make_event(his, raw=raw, received_at=now, recipient=OTHER, reason="")
    make_event(his, intent=None, state=EventState.RECEIVED)

    erased = erase(agent)

    first, second = (blocking.what for blocking in erased.blocking)
    assert f"in one request with #{his.action.number}" in first
    assert second == "The address has news that is not applied yet"
    assert erased.events == 0
    assert ProviderEvent.objects.exclude(raw=b"").count() == 3
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("recipient", ["", OTHER])
@pytest.mark.parametrize(
    "raw",
    [f"{{{JANE}", f"to={quote(JANE)}", rf'{{"to": "\ud83d\ude00 \u004A{JANE[1:]}"}}'],
    ids=["plain", "form", "escaped JSON"],
)
def test_news_of_no_email_is_erased_if_its_bytes_name_the_person(
    agent: Agent, raw: str, recipient: str
) -> None:
    intent = make_intent(agent, status=Status.DONE, to=OTHER)
    parked = {"intent": None, "state": EventState.PARKED, "recipient": recipient, "reason": ""}
    hers = make_event(intent, raw=raw.encode(), **parked)
    his = make_event(intent, raw=rf"{{{OTHER} \ud83d \xff".encode("latin-1"), **parked)

    assert erase(agent).events == 1

    left = ProviderEvent.objects.exclude(raw=b"").values_list("pk", flat=True)
    assert list(left) == [his.pk]
    hers.refresh_from_db()
    assert hers.purged_at


def test_a_suppression_alone_is_recorded_once(agent: Agent) -> None:
    Suppression.objects.create(
        tenant=agent.tenant, normal=NORMAL, cause="bounced", reason=JANE, since=database_now()
    )
    assert [erase(agent).suppressions for _ in range(2)] == [1, 0]
    entry = AuditEntry.objects.get()
    assert bytes(entry.facts) == b'{"blocking":0,"emails":0,"events":0,"suppressions":1}'


def test_a_suppression_stays_and_a_released_one_does_not(agent: Agent) -> None:
    over(agent)
    now = database_now()
    for released in (None, now):
        Suppression.objects.create(
            tenant=agent.tenant,
            normal=NORMAL,
            cause="bounced",
            reason=f"550 {JANE} unknown",
            since=now,
            released_at=released,
        )

    erased = erase(agent)

    assert erased.is_suppressed
    standing = Suppression.objects.get(released_at=None)
    assert (standing.normal, standing.reason) == (NORMAL, "")
    assert Suppression.objects.get(released_at=now).normal == erased.pseudonym
    assert rows_with(NORMAL) == {"Suppression"}


def test_entries_of_the_log_that_name_the_person_are_said(agent: Agent) -> None:
    dead = make_intent(agent, status=Status.DEAD_LETTER, to=JANE)
    operator = make_person(agent.tenant, Role.OPERATOR)
    requeue.close(dead.pk, person=operator, reason=f"{JANE} was called instead")

    erased = erase(agent)

    assert erased.mentions == [1]
    assert rows_with(NORMAL) == {"AuditEntry"}


def test_entries_by_the_person_and_about_the_person_are_said(agent: Agent) -> None:
    with transaction.atomic():
        for actor, target in ((JANE, "x"), ("system", f"person:{NORMAL}"), ("system", "x")):
            audit.record(
                tenant=agent.tenant, actor=actor, verb="add", target=target, now=database_now()
            )
    assert erase(agent).mentions == [1, 2]


def test_what_retention_purged_before_is_erased_too(agent: Agent) -> None:
    intent = over(agent)
    retention.purge(now=database_now() + 2 * agent.tenant.policy.keep_done)
    assert rows_with(NORMAL)

    assert erase(agent).emails == 1
    intent.refresh_from_db()
    assert rows_with(NORMAL) == set()


def test_another_tenant_keeps_its_own(agent: Agent) -> None:
    over(agent)
    other = over(make_agent_at())
    erase(agent)
    assert Payload.objects.filter(intent=other).exists()
    assert erasure.pseudonym_of(agent.tenant, NORMAL) != erasure.pseudonym_of(other.tenant, NORMAL)


def test_a_dry_run_counts_and_changes_nothing(agent: Agent) -> None:
    over(agent)
    make_intent(agent, status=Status.QUEUED, to=JANE)
    before = rows_with(NORMAL)

    erased = erase(agent, dry_run=True)

    assert (erased.emails, erased.events, len(erased.blocking)) == (1, 1, 1)
    assert rows_with(NORMAL) == before
    assert not AuditEntry.objects.exists()


def test_a_second_recipient_is_erased_after_the_first(agent: Agent) -> None:
    intent = over(agent)
    erase(agent)
    assert erase(agent, OTHER).emails == 1
    assert rows_with(OTHER) == set()
    assert intent.deliveries.filter(address__endswith="@erased.invalid").count() == 2


@pytest.mark.django_db(transaction=True)
def test_erasing_while_the_purge_runs_and_twice_at_once() -> None:
    agent = make_agent_at()
    intents = [over(agent) for _ in range(6)]
    later = database_now() + 2 * agent.tenant.policy.keep_done

    answers = at_once(
        lambda: erase(agent), lambda: erase(agent), lambda: retention.purge(now=later)
    )

    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert sum(answer.emails for answer in answers[:2]) == len(intents)
    assert rows_with(NORMAL) == set()
    assert chain.check(agent.tenant).broken == ""
