"""The providers' door: what is let in, what is kept, and what is answered."""

import hmac
import json
import time
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from sends.lifecycle import events
from sends.models import Account, EventState, ProviderEvent, SendIntent
from sends.providers.adapter import Event
from sends.providers.sandbox import Sandbox
from sends.rules.deliveries import EventKind
from sends.rules.outcomes import Outcome
from sends.rules.statuses import DeliveryState, Status
from tests.factories import (
    make_account,
    make_agent,
    make_attempt,
    make_intent,
    make_sender,
    make_tenant,
)

pytestmark = pytest.mark.django_db

OLD, NEW = "whsec_old", "whsec_new"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    monkeypatch.setenv("WEBHOOK_OLD", OLD)
    monkeypatch.setenv("WEBHOOK_NEW", NEW)
    return make_account(
        make_tenant(), slug="sandbox", webhook_secrets=["env:WEBHOOK_NEW", "env:WEBHOOK_OLD"]
    )


def an_event(**data: Any) -> dict[str, Any]:
    kind = data.pop("type", "delivered")
    return {
        "id": data.pop("id", "evt_1"),
        "type": kind,
        "created_at": "2026-11-30T12:00:00.000000+00:00",
        "data": {
            "message_id_provider": "sbx_1",
            "message_id": "<one@mail.example.com>",
            "tag": "unknown",
            "recipient": "customer@example.org",
            "reason": "250 OK",
            "hard": None,
            **data,
        },
    }


def signature(body: bytes, *secrets: str, at: float | None = None) -> str:
    moment = int(time.time() if at is None else at)
    marks = [
        hmac.new(secret.encode(), b"%d.%s" % (moment, body), "sha256").hexdigest()
        for secret in secrets
    ]
    return ",".join([f"t={moment}", *(f"v1={mark}" for mark in marks)])


def post(
    account: Account | str, content: object, *secrets: str, at: float | None = None, **headers: str
) -> HttpResponse:
    """As the provider posts: signed with these secrets, or with the new one."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    name = account if isinstance(account, str) else str(account.pk)
    headers.setdefault("X-Sandbox-Signature", signature(body, *(secrets or (NEW,)), at=at))
    client = Client(enforce_csrf_checks=True)
    return client.post(  # type: ignore[return-value]
        f"/webhooks/{name}", body, content_type="application/json", headers=headers
    )


def test_a_signed_event_is_kept_and_answered_at_once(account: Account) -> None:
    answer = post(account, an_event())
    assert answer.status_code == 200
    assert json.loads(answer.content) == {"new": 1}
    event = ProviderEvent.objects.get()
    assert (event.account, event.event_id, event.kind) == (account, "evt_1", EventKind.DELIVERED)
    assert event.state == EventState.RECEIVED  # applying it is the worker's
    assert json.loads(bytes(event.raw)) == an_event()
    account.refresh_from_db()
    assert account.webhook_seen_at is not None


def test_an_event_told_again_is_answered_the_same_and_kept_once(account: Account) -> None:
    told = [post(account, an_event()) for _ in range(5)]
    assert {answer.status_code for answer in told} == {200}
    assert ProviderEvent.objects.count() == 1


def test_an_account_is_found_by_its_slug_where_only_one_has_it(account: Account) -> None:
    assert post("sandbox", an_event()).status_code == 200
    make_account(make_tenant(), slug="sandbox")
    assert post("sandbox", an_event(id="evt_2")).status_code == 404
    assert post(account, an_event(id="evt_2")).status_code == 200


def test_a_body_without_a_length_is_not_taken_for_an_empty_one(account: Account) -> None:
    headers = {"Transfer-Encoding": "chunked"}
    answer = Client().generic("POST", f"/webhooks/{account.pk}", headers=headers)
    assert answer.status_code == 411


@pytest.mark.parametrize("name", ["nobody", "0196a5d2-0000-7000-8000-000000000000"])
def test_an_unknown_account_is_not_found(account: Account, name: str) -> None:
    assert post(name, an_event()).status_code == 404


@pytest.mark.parametrize("method", ["get", "put", "delete", "head"])
def test_only_a_post_is_answered(account: Account, method: str) -> None:
    assert getattr(Client(), method)(f"/webhooks/{account.pk}").status_code == 405


# -- signatures


@pytest.mark.parametrize("secrets", [(NEW,), (OLD,), (OLD, "whsec_of_nobody"), ("x", NEW)])
def test_any_active_secret_lets_an_event_in(account: Account, secrets: tuple[str, ...]) -> None:
    assert post(account, an_event(), *secrets).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Sandbox-Signature": ""},
        {"X-Sandbox-Signature": "t=,v1="},
        {"X-Sandbox-Signature": "v1=00"},
        {"X-Sandbox-Signature": f"t={int(time.time())}"},
        {"X-Sandbox-Signature": signature(b"another body", NEW)},
        {"X-Sandbox-Signature": signature(json.dumps(an_event()).encode(), "whsec_of_nobody")},
    ],
)
def test_what_is_not_signed_is_turned_away_without_a_word(
    account: Account, headers: dict[str, str]
) -> None:
    answer = post(account, an_event(), **headers)
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert json.loads(answer.content) == {
        "type": "about:blank",
        "title": "The signature is missing or wrong",
        "status": 401,
    }
    assert not ProviderEvent.objects.exists()
    account.refresh_from_db()
    assert account.webhook_seen_at is None


@pytest.mark.parametrize(("seconds", "status"), [(-290, 200), (290, 200), (-310, 401), (310, 401)])
def test_a_signature_is_good_for_five_minutes(account: Account, seconds: int, status: int) -> None:
    assert post(account, an_event(), at=time.time() + seconds).status_code == status


def test_the_signature_is_over_the_bytes_as_they_came(account: Account) -> None:
    body = b'{ "id":"evt_1",\n"type" : "delivered", "data": {"reason": "a\\/b", "n": 1.0} }'
    assert post(account, body).status_code == 200
    assert bytes(ProviderEvent.objects.get().raw) == body
    rewritten = json.dumps(json.loads(body)).encode()
    assert (
        post(account, rewritten, **{"X-Sandbox-Signature": signature(body, NEW)}).status_code == 401
    )


def test_the_signature_of_one_account_opens_no_other(account: Account) -> None:
    other = make_account(make_tenant(), webhook_secrets=["env:WEBHOOK_OLD"])
    assert post(other, an_event(), NEW).status_code == 401


def test_an_account_without_secrets_lets_nothing_in() -> None:
    account = make_account(make_tenant())
    assert post(account, an_event(), "").status_code == 401


def test_a_secret_that_cannot_be_read_does_not_shut_out_the_other(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WEBHOOK_OLD")
    assert post(account, an_event(), NEW).status_code == 200
    monkeypatch.delenv("WEBHOOK_NEW")
    assert post(account, an_event(id="evt_2"), NEW).status_code == 401


# -- bodies


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not JSON",
        b"[1, 2]",
        b"null",
        b'{"id": 7, "type": [], "data": "x"}',
        b'{"data": {"recipient": {"a": 1}, "tag": null}}',
        b'{"id": "evt_1", "type": "deliv\xff"}',
        b"\x00\x01\x02",
        b'{"id": "evt\\u0000", "data": {"reason": "\\u0000", "recipient": "\\ud800"}}',
        b"[" * 100_000,
        b'{"id": "' + b"x" * 1_000 + b'"}',
        b'{"created_at": "yesterday"}',
        b'{"created_at": "9999-12-31T23:59:59-23:59"}',
    ],
)
def test_what_is_signed_and_unreadable_is_kept_once_as_unknown(
    account: Account, body: bytes
) -> None:
    assert [post(account, body).status_code for _ in range(2)] == [200, 200]
    event = ProviderEvent.objects.get()
    assert event.kind == EventKind.UNKNOWN
    assert event.event_id
    assert bytes(event.raw) == body
    assert events.apply_received() == 1
    assert ProviderEvent.objects.get().state == EventState.PARKED


def test_an_adapter_that_fails_makes_no_provider_repeat_itself(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Sandbox, raw_body: bytes) -> list[Event]:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(Sandbox, "events", fail)
    assert post(account, an_event()).status_code == 200
    event = ProviderEvent.objects.get()
    assert (event.kind, json.loads(bytes(event.raw))) == (EventKind.UNKNOWN, an_event())


def test_texts_that_no_column_holds_are_kept_without_what_does_not_fit(account: Account) -> None:
    odd = an_event(
        reason="no\u0000such\ud800user" + "x" * 9_000,
        recipient="a" * 1_000 + "@example.org",
        tag="t" * 1_000,
        message_id="<" + "m" * 1_000 + ">",
        message_id_provider="p" * 1_000,
    )
    assert post(account, odd).status_code == 200
    event = ProviderEvent.objects.get()
    assert event.kind == EventKind.DELIVERED
    assert event.reason.startswith("nosuch?user")


def test_a_body_that_is_too_large_is_turned_away(account: Account) -> None:
    answer = post(account, b" " * (3 * 1024 * 1024))
    assert answer.status_code == 413
    assert not ProviderEvent.objects.exists()


def test_a_kind_we_do_not_know_is_kept_as_unknown(account: Account) -> None:
    assert post(account, an_event(type="reticulated")).status_code == 200
    assert ProviderEvent.objects.get().kind == EventKind.UNKNOWN


# -- all the way


def on_the_wire(account: Account) -> SendIntent:
    intent = make_intent(make_agent(make_sender(account)), status=Status.UNCERTAIN)
    make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True)
    return intent


@pytest.mark.parametrize(
    ("type_", "hard", "state", "status"),
    [
        ("accepted", None, DeliveryState.ACCEPTED, Status.SUBMITTED),
        ("delivered", None, DeliveryState.DELIVERED, Status.DONE),
        ("deferred", None, DeliveryState.DEFERRED, Status.SUBMITTED),
        ("bounced", True, DeliveryState.BOUNCED, Status.DEAD_LETTER),
        ("bounced", False, DeliveryState.DEFERRED, Status.SUBMITTED),
        ("complained", None, DeliveryState.COMPLAINED, Status.DONE),
        ("refused", None, DeliveryState.REFUSED, Status.DEAD_LETTER),
        ("dropped", None, DeliveryState.DROPPED, Status.DEAD_LETTER),
        ("reticulated", None, DeliveryState.WAITING, Status.UNCERTAIN),
    ],
)
def test_an_event_by_our_tag_settles_an_uncertain_intent(
    account: Account, type_: str, hard: bool | None, state: DeliveryState, status: Status
) -> None:
    intent = on_the_wire(account)
    assert post(account, an_event(type=type_, hard=hard, tag=intent.pk.hex)).status_code == 200
    assert events.apply_received() == 1
    intent.refresh_from_db()
    assert (intent.status, intent.deliveries.get().state) == (status, state)
