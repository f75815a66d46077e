"""The adapter of the sandbox: its own words here, and the whole of it against the real one."""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sends.providers.adapter import AccountFacts, BadOptions, NotSupported, Request, Submission
from sends.providers.http import Answer, Http
from sends.providers.sandbox import Sandbox
from sends.rules.contracts import Recovery
from sends.rules.deliveries import EventKind
from sends.rules.outcomes import BlockScope, Outcome, Phase, classify
from sends.rules.payloads import Mailbox, Message
from tests.sandboxes import Sandbox as Server

from .conformance import ACCOUNT, MESSAGE, Case, Conformance
from .servers import serving

O = Outcome  # noqa: E741


def error(code: str, **more: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": "Because.", **more}}).encode()


def event(type_: str, **data: Any) -> bytes:
    said = {
        "message_id_provider": "sbx_1",
        "message_id": "<fixed@example.com>",
        "tag": "tag1",
        "recipient": "ann@example.org",
        "reason": "250 2.0.0 OK",
        "hard": None,
    }
    at = "2026-11-30T19:27:17.441632+00:00"
    whole = {"id": f"evt_{type_}", "type": type_, "created_at": at, "data": said | data}
    return json.dumps(whole).encode()


class TestSandbox(Conformance):
    adapter = Sandbox()
    cases = (
        Case("unreadable JSON", 400, O.REFUSED, error("invalid_json")),
        Case("the key is not known", 401, O.BLOCKED, error("bad_key"), block=BlockScope.ACCOUNT),
        Case("the plan ended", 402, O.BLOCKED, error("payment_required"), block=BlockScope.ACCOUNT),
        Case("the sender", 403, O.BLOCKED, error("sender_blocked"), block=BlockScope.SENDER),
        Case("another 403", 403, O.BLOCKED, error("forbidden"), block=BlockScope.ACCOUNT),
        Case("the quota", 429, O.BLOCKED, error("quota_exhausted"), block=BlockScope.ACCOUNT),
        Case("a redirect", 302, O.BLOCKED, headers={"location": "/"}, block=BlockScope.ACCOUNT),
        Case("nothing here", 404, O.REFUSED, error("not_found")),
        Case("other body, same key", 409, O.KEY_CONFLICT, error("key_conflict")),
        Case("still at work", 409, O.KEY_IN_PROGRESS, error("key_in_progress")),
        Case("a 409 that does not say which", 409, O.AMBIGUOUS, b'{"error": {"co', error="cut"),
        Case("too large", 413, O.REFUSED, error("too_large")),
        Case("no message", 422, O.REFUSED, error("invalid_message")),
        Case("nobody left", 422, O.SUPPRESSED, error("no_deliverable_recipients")),
        Case("too fast", 429, O.THROTTLED, error("rate_limited")),
        Case("too fast, says a gateway", 429, O.THROTTLED, b"<html>"),
        Case("timed out", 408, O.AMBIGUOUS),
        Case("broken", 500, O.AMBIGUOUS, b"<html>"),
        Case("no gateway", 502, O.AMBIGUOUS, b"<html>"),
        Case("unavailable", 503, O.TRANSIENT, error("unavailable")),
        Case("a gateway that knows nothing", 503, O.AMBIGUOUS, b"<html>"),
        Case("rejected, politely", 200, O.REFUSED, b'{"status": "rejected", "id": null}'),
        Case("a page", 200, O.AMBIGUOUS, b"<html>Welcome</html>"),
        Case("nothing", 202, O.AMBIGUOUS),
        Case("an early hint", 103, O.AMBIGUOUS),
        Case("too late for us", None, O.RELEASED, error="too_late", phase=Phase.CONNECTED),
    )
    recorded = (
        (event("delivered"), (EventKind.DELIVERED,)),
        (event("accepted"), (EventKind.ACCEPTED,)),
        (event("deferred"), (EventKind.DEFERRED,)),
        (event("bounced", hard=True), (EventKind.BOUNCED,)),
        (event("bounced", hard=False), (EventKind.SOFT_BOUNCED,)),
        (event("complained"), (EventKind.COMPLAINED,)),
        (event("refused"), (EventKind.REFUSED,)),
        (event("dropped"), (EventKind.DROPPED,)),
        (event("opened"), (EventKind.UNKNOWN,)),
    )

    def success(self, request: Request) -> Answer:
        return accepted(request)

    def signed(self, body: bytes, secrets: tuple[str, ...], at: datetime) -> dict[str, str]:
        stamp = str(int(at.timestamp()))
        marks = [
            hmac.new(one.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
            for one in secrets
        ]
        value = ",".join([f"t={stamp}", *(f"v1={mark}" for mark in marks)])
        return {"X-Sandbox-Signature": value}

    def test_a_replay_is_accepted_and_says_so(self) -> None:
        answer = accepted(self.request(), status=200, replayed=True)
        assert self.outcome(answer) is O.ACCEPTED
        assert self.happened(answer).replayed

    def test_refused_recipients_are_named(self) -> None:
        answer = accepted(self.request(), refused=["cleo@example.org", None, 5])
        assert self.outcome(answer) is O.ACCEPTED_IN_PART
        assert self.happened(answer).refused == ("cleo@example.org",)

    @pytest.mark.parametrize("proof", ["", "a\nb", "x" * 256, None, 5, ["sbx_1"]])
    def test_an_id_that_cannot_be_kept_is_no_proof(self, proof: object) -> None:
        assert self.outcome(accepted(self.request(), id=proof)) is O.AMBIGUOUS

    def test_a_wait_is_read_against_the_date_of_the_answer(self) -> None:
        headers = {
            "date": "Mon, 30 Nov 2026 10:00:00 GMT",
            "retry-after": "Mon, 30 Nov 2026 10:00:07 GMT",
        }
        answer = Answer(Phase.ANSWERED, status=429, headers=headers)
        assert self.happened(answer).retry_after == timedelta(seconds=7)

    def test_a_header_that_is_given_twice_is_refused_by_name(self) -> None:
        message = replace(MESSAGE, headers=(("X-Tag", "1"), ("x-tag", "2")))
        with pytest.raises(NotSupported, match="x-tag"):
            self.adapter.build(self.submission(message), self.account)

    def test_a_message_that_is_too_large_is_refused_with_its_size(self) -> None:
        message = replace(MESSAGE, text="x" * (40 * 1024 * 1024))
        with pytest.raises(NotSupported, match="bytes"):
            self.adapter.build(self.submission(message), self.account)

    def test_a_part_that_is_not_there_is_not_sent(self) -> None:
        empty = replace(MESSAGE, text="", html=None)
        said = json.loads(self.adapter.build(self.submission(empty), self.account).body)
        assert said["text"] == ""
        assert "html" not in said

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"contract": "maybe"}, ["contract", "replay", "none"]),
            ({"window_seconds": 0}, ["window_seconds"]),
            ({"window_seconds": "1"}, ["window_seconds"]),
            ({"window_seconds": True}, ["window_seconds"]),
            ({"window_seconds": float("nan")}, ["window_seconds"]),
            ({"look_up": "no"}, ["look_up"]),
            ({"contract": None, "look_up": 0, "lookup": 1}, ["contract", "look_up", "lookup"]),
        ],
    )
    def test_every_wrong_option_is_named(
        self, options: Mapping[str, Any], words: list[str]
    ) -> None:
        with pytest.raises(BadOptions) as caught:
            self.adapter.check_options(options)
        assert [word for word in words if word not in str(caught.value)] == []

    @pytest.mark.parametrize(
        ("options", "recovery", "window"),
        [
            ({}, Recovery.REPLAY, timedelta(hours=24)),
            ({"window_seconds": 90}, Recovery.REPLAY, timedelta(seconds=90)),
            ({"contract": "none"}, Recovery.LOOK_UP, timedelta()),
            ({"contract": "none", "look_up": False}, Recovery.PERSON, timedelta()),
        ],
    )
    def test_the_contract_follows_the_options(
        self, options: Mapping[str, Any], recovery: Recovery, window: timedelta
    ) -> None:
        contract = self.adapter.contract(options)
        assert (contract.recovery, contract.safe_window) == (recovery, window)

    def test_a_bounce_that_does_not_say_which_is_a_hard_one(self) -> None:
        assert self.events(event("bounced"))[0].kind is EventKind.BOUNCED

    def test_a_changed_id_does_not_make_another_happening(self) -> None:
        one = json.loads(event("delivered"))
        other = json.dumps(one | {"id": "evt_other"}).encode()
        prints = {self.events(body)[0].fingerprint for body in (event("delivered"), other)}
        assert len(prints) == 1

    def test_nulls_are_empty_words(self) -> None:
        nothing = dict.fromkeys(("message_id", "tag", "recipient", "reason", "hard"))
        read = self.events(event("delivered", **nothing))[0]
        assert (read.kind, read.provider_message_id) == (EventKind.DELIVERED, "sbx_1")
        assert (read.recipient, read.tag, read.message_id, read.reason) == ("", "", "", "")

    def test_events_that_name_nothing_are_alike_only_when_they_are_the_same(self) -> None:
        bare = {"message_id_provider": None, "recipient": None}
        first = self.events(event("delivered", **bare))[0].fingerprint
        second = self.events(event("delivered", **bare, reason="another"))[0].fingerprint
        assert first != second


class TestSandboxWithoutContract(TestSandbox):
    options = {"contract": "none"}


def accepted(request: Request, *, status: int = 201, **changes: object) -> Answer:
    body = {
        "id": "sbx_1",
        "thread_id": "thr_1",
        "status": "accepted",
        "accepted": ["ann@example.org"],
        "refused": [],
        "replayed": False,
        "tag": request.tag,
    }
    return Answer(Phase.ANSWERED, status=status, body=json.dumps(body | changes).encode())


# -- against the real one


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server.start(tmp_path_factory.mktemp("sandbox"), sync="off")
    yield server
    server.stop()


@pytest.fixture
def account(server: Server) -> AccountFacts:
    return replace(
        ACCOUNT,
        provider="sandbox",
        base_url=server.url,
        credential="sandbox_org",
        scope=uuid4(),
        request_deadline=timedelta(seconds=1),
    )


@pytest.fixture(scope="module")
def room() -> Iterator[Http]:
    room = Http()
    yield room
    room.close()


def submission(word: str) -> Submission:
    key = uuid4().hex
    message = Message(
        Mailbox("a@example.com"), (Mailbox(f"{word}@example.org"),), subject="S", text="T"
    )
    filled = TestSandbox().submission(message)
    frozen = replace(filled.frozen, idempotency_key=key, message_id=f"<{key}@example.com>")
    return replace(filled, frozen=frozen, tag=key[::-1], wire_key=key)


@pytest.mark.parametrize(
    ("word", "first", "second"),
    [
        ("delivered", O.ACCEPTED, O.ACCEPTED),
        ("lost-answer", O.AMBIGUOUS, O.ACCEPTED),
        ("cut-answer", O.AMBIGUOUS, O.ACCEPTED),
        ("accept-reset", O.AMBIGUOUS, O.ACCEPTED),
        ("drip", O.AMBIGUOUS, O.ACCEPTED),
        ("cut-json", O.AMBIGUOUS, O.ACCEPTED),
        ("non-utf8", O.AMBIGUOUS, O.ACCEPTED),
        ("no-proof", O.AMBIGUOUS, O.ACCEPTED),
        ("http-500", O.AMBIGUOUS, O.ACCEPTED),
        ("http-502-taken", O.AMBIGUOUS, O.ACCEPTED),
        ("reset-after", O.AMBIGUOUS, O.ACCEPTED),
        ("html-200", O.AMBIGUOUS, O.ACCEPTED),
        ("busy", O.THROTTLED, O.ACCEPTED),
        ("busy-503", O.TRANSIENT, O.TRANSIENT),
        ("key-in-progress", O.KEY_IN_PROGRESS, O.KEY_IN_PROGRESS),
        ("quota", O.BLOCKED, O.BLOCKED),
        ("suppressed", O.SUPPRESSED, O.SUPPRESSED),
        ("rejected-body", O.REFUSED, O.REFUSED),
        ("redirect", O.BLOCKED, O.BLOCKED),
    ],
)
def test_a_fault_and_the_same_request_again(
    server: Server, account: AccountFacts, room: Http, word: str, first: Outcome, second: Outcome
) -> None:
    adapter = Sandbox()
    asked = submission(word)
    request = adapter.build(asked, account)
    contract = adapter.contract_for(account)
    outcomes = [classify(adapter.submit(request, account, room), contract) for _ in range(2)]
    assert outcomes == [first, second]
    taken = [entry for entry in server.journal() if entry["key"] == asked.wire_key]
    assert len(taken) == (O.ACCEPTED in outcomes)


@pytest.mark.parametrize("options", [{}, {"contract": "none"}])
@pytest.mark.parametrize(("word", "is_found"), [("silent-found", True), ("silent", False)])
def test_a_look_up_finds_what_was_taken_in_silence(
    account: AccountFacts, room: Http, word: str, is_found: bool, options: Mapping[str, Any]
) -> None:
    adapter = Sandbox()
    account = replace(account, options=options, request_deadline=timedelta(seconds=0.3))
    asked = submission(word)
    adapter.submit(adapter.build(asked, account), account, room)
    patient = replace(account, request_deadline=timedelta(seconds=5))
    answer = adapter.look_up(patient, room, tag=asked.tag, wire_key=asked.wire_key)
    assert (answer.error, answer.proves is not None) == ("", is_found)
    if answer.proves:
        assert answer.proves.tag == asked.tag
        assert answer.proves.message_id == asked.frozen.message_id
        assert answer.proves.accepted_at is not None
    assert ("1 message found" if is_found else "no messages found") in answer.summary


def test_a_look_up_that_gets_no_answer_says_so(
    account: AccountFacts, room: Http, free_port: int
) -> None:
    nobody = replace(account, base_url=f"http://127.0.0.1:{free_port}")
    answer = Sandbox().look_up(nobody, room, tag="t", wire_key="k")
    assert (answer.error, answer.proves) == ("refused", None)
    stranger = replace(account, credential="not-a-token")
    assert Sandbox().look_up(stranger, room, tag="t", wire_key="k").error == "status 401"


def test_a_look_up_that_the_account_does_not_have_is_refused_by_name(
    account: AccountFacts, room: Http
) -> None:
    without = replace(account, options={"look_up": False})
    with pytest.raises(NotSupported, match="look-up"):
        Sandbox().look_up(without, room, tag="t", wire_key="k")


def test_a_webhook_of_the_real_one_is_verified_and_read(
    tmp_path: Path, account: AccountFacts, room: Http
) -> None:
    with serving(lambda peer: peer.answer(b"HTTP/1.1 204 No Content\r\n\r\n")) as hook:
        options = {"webhook": hook.url, "webhook_secret": "s3", "deliver_after": 0}
        server = Server.start(tmp_path / "sandbox", sync="off", **options)
        try:
            adapter, account = Sandbox(), replace(account, base_url=server.url)
            asked = submission("bounce")
            happened = adapter.submit(adapter.build(asked, account), account, room)
            head, _, body = hook.received()[0].partition(b"\r\n\r\n")
        finally:
            server.stop()
    lines = [line.partition(b": ") for line in head.split(b"\r\n")[1:]]
    headers = {name.decode(): value.decode() for name, _, value in lines}
    adapter.verify_webhook(headers, body, ["other", "s3"], datetime.now().astimezone())
    (read,) = adapter.events(body)
    assert (read.kind, read.tag) == (EventKind.BOUNCED, asked.tag)
    assert read.provider_message_id == happened.proof
    assert read.event_id == {k.lower(): v for k, v in headers.items()}["x-sandbox-event-id"]
