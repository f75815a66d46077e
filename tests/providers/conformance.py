"""What every adapter must hold to; the tests of each one inherit it."""

import json
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sends.providers.adapter import (
    KEPT_BYTES,
    WEBHOOK_TOLERANCE,
    AccountFacts,
    Adapter,
    BadOptions,
    BadSignature,
    Event,
    Request,
    SenderFacts,
    Submission,
)
from sends.providers.http import Answer, Http
from sends.rules.deliveries import EventKind
from sends.rules.keys import sha256
from sends.rules.outcomes import DOUBTFUL, TOOK_IT, BlockScope, Happened, Outcome, Phase, classify
from sends.rules.payloads import Attachment, Frozen, Mailbox, Message

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
KEY = "0123456789abcdef0123456789abcdef01234567"
TAG = "0d1c3a5be0f14fd2a7c5a1b2c3d4e5f6"
MESSAGE = Message(
    sender=Mailbox("billing@example.com", "Billing “North”"),
    to=(Mailbox("ann@example.org", "Ann Ö"), Mailbox("Bob.Upper@Example.net")),
    cc=(Mailbox("cleo@example.org"),),
    bcc=(Mailbox("hidden@example.test", "Hidden"),),
    reply_to=(Mailbox("answers@example.com", "Answers"),),
    subject="Rechnung Nr. 7 – überfällig",
    text="Guten Tag\r\n\r\n日本語 🙂",
    html="<p>Guten Tag &amp; 日本語</p>",
    headers=(("X-Order", "17"), ("List-Id", "<orders.example.com>")),
    in_reply_to="<first@example.org>",
    references=("<zero@example.org>", "<first@example.org>"),
)
SAID = (
    *("billing@example.com", "Billing “North”", "ann@example.org", "Ann Ö"),
    *("Bob.Upper@Example.net", "cleo@example.org", "hidden@example.test", "answers@example.com"),
    *("Answers", "Rechnung Nr. 7 – überfällig", "日本語 🙂", "<p>Guten Tag &amp; 日本語</p>"),
    *("X-Order", "17", "List-Id", "<orders.example.com>", "<first@example.org>"),
    *("<zero@example.org> <first@example.org>", "<fixed@example.com>", TAG),
)
ACCOUNT = AccountFacts(
    provider="",
    base_url="https://api.example.com",
    credential="secret-7f3a",
    scope=UUID(int=7),
    request_deadline=timedelta(seconds=5),
)
NASTY = (
    *(
        b"",
        b"null",
        b"[]",
        b"{}",
        b"5",
        b'"id"',
        b"\xff\xfe",
        b"\x00",
        b"{" * 50_000,
        b"[" * 50_000,
    ),
    *(b'{"id": null}', b'{"id": 5, "tag": {}}', b'{"id": ""}', b'{"id": "\\u0000"}'),
    *(b'{"id": "\\ud800"}', b'{"error": null}', b'{"error": []}', b'{"error": {"code": 1}}'),
    *(b'{"error": {"code": {}, "message": []}}', b'{"data": null}', b'{"data": [1]}'),
    *(b'{"id": 1e999}', b'{"id": NaN}', b"<html>Oops</html>", b'{"created_at": 7, "type": []}'),
    *(b'{"created_at": "0001-01-01T00:00:00+23:59"}', b'{"created_at": "yesterday"}'),
)


@dataclass(frozen=True)
class Case:
    """An answer of the provider, and what is to be made of it."""

    why: str
    status: int | None
    outcome: Outcome
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    block: BlockScope | None = None
    error: str = ""
    phase: Phase = Phase.ANSWERED


class Canned(Http):
    """The HTTP room with its network taken out: it gives one answer, and keeps what was asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.canned = answer
        self.asked: dict[str, Any] = {}

    def send(self, method: str, url: str, **options: Any) -> Answer:
        self.asked = {"method": method, "url": url, **options}
        return self.canned


class Conformance(ABC):
    """Inherit, set the samples, and add what is the provider's own."""

    adapter: Adapter
    options: Mapping[str, Any] = {}
    cases: tuple[Case, ...] = ()
    # Recorded bodies, and the kinds of the events in each.
    recorded: tuple[tuple[bytes, tuple[EventKind, ...]], ...] = ()

    @abstractmethod
    def success(self, request: Request) -> Answer:
        """The provider's answer when it took the whole request."""

    @abstractmethod
    def signed(self, body: bytes, secrets: tuple[str, ...], at: datetime) -> dict[str, str]:
        """The headers that sign this body with each of the secrets, and no others."""

    def said(self, request: Request) -> str:
        """The body as readable text."""
        return json.dumps(json.loads(request.body), ensure_ascii=False)

    def message_headers(self, request: Request) -> Mapping[str, str]:
        """The headers of the message as the provider is told them."""
        headers: Mapping[str, str] = json.loads(request.body)["headers"]
        return headers

    # -- what the tests use

    @property
    def account(self) -> AccountFacts:
        return replace(ACCOUNT, provider=self.adapter.name, options=self.options)

    def submission(self, message: Message = MESSAGE) -> Submission:
        frozen = Frozen(message, "<fixed@example.com>", KEY)
        return Submission(
            frozen, SenderFacts("billing@example.com"), TAG, self.adapter.wire_key(KEY)
        )

    def carrying(self, files: Mapping[str, bytes]) -> Submission:
        """The message with these files by their names."""
        attached = tuple(
            Attachment(name, "application/octet-stream", len(data), sha256(data))
            for name, data in files.items()
        )
        contents = {sha256(data): data for data in files.values()}
        return replace(self.submission(replace(MESSAGE, attachments=attached)), contents=contents)

    def request(self) -> Request:
        return self.adapter.build(self.submission(), self.account)

    def happened(self, answer: Answer) -> Happened:
        return self.adapter.submit(self.request(), self.account, Canned(answer))

    def outcome(self, answer: Answer) -> Outcome:
        return classify(self.happened(answer), self.adapter.contract_for(self.account))

    # -- the request

    def test_the_same_intent_gives_the_same_bytes(self) -> None:
        first, second = self.request(), self.request()
        assert first == second
        assert first.digest == second.digest

    def test_the_digest_is_over_all_that_goes_out_but_the_credential(self) -> None:
        request = self.request()
        others = [
            replace(request, method="PUT"),
            replace(request, url=request.url + "?a"),
            replace(request, body=request.body + b" "),
            replace(request, headers={**request.headers, "X-Other": "1"}),
        ]
        digests = {request.digest, *(other.digest for other in others)}
        assert len(digests) == len(others) + 1
        changed = replace(self.account, credential="another")
        assert self.adapter.build(self.submission(), changed).digest == request.digest

    def test_another_key_is_another_request_where_a_key_is_sent(self) -> None:
        changed = replace(self.submission(), wire_key="f" * 40)
        digest = self.adapter.build(changed, self.account).digest
        has_key = self.adapter.contract(self.options).key_carrier is not None
        assert (digest != self.request().digest) or not has_key

    def test_the_body_says_everything(self) -> None:
        said = self.said(self.request()).replace("\\r\\n", "\r\n")
        assert [one for one in SAID if one not in said] == []

    def test_attachments_go_out_whole_or_the_contract_says_that_they_cannot(self) -> None:
        contract = self.adapter.contract(self.options)
        if not contract.takes_attachments:
            assert not contract.takes_inline
            return
        carrying = self.carrying({"Rechnung März.pdf": b"\x00\xff%PDF", "leer.txt": b""})
        request = self.adapter.build(carrying, self.account)
        other = self.adapter.build(self.carrying({"Rechnung März.pdf": b"?"}), self.account)

        said = self.said(request)
        assert b64encode(b"\x00\xff%PDF").decode() in said
        assert "Rechnung März.pdf" in said
        assert "leer.txt" in said
        assert len({request.digest, other.digest, self.request().digest}) == 3

    def test_a_bcc_is_in_no_header(self) -> None:
        request = self.request()
        headers = [*self.message_headers(request).items(), *request.headers.items()]
        assert [name for name, _ in headers if name.lower() == "bcc"] == []
        assert [value for _, value in headers if "hidden@" in value] == []

    def test_the_credential_is_sent_and_is_nowhere_else(self) -> None:
        request, account = self.request(), self.account
        room = Canned(Answer(Phase.CONNECTING, error="refused"))
        self.adapter.submit(request, account, room)
        sent = " ".join(room.asked["headers"].values())
        assert account.credential in sent
        assert account.credential not in repr(account)
        assert account.credential not in repr(request)

    def test_the_request_deadline_is_the_account_s(self) -> None:
        room = Canned(Answer(Phase.CONNECTING, error="refused"))
        self.adapter.submit(self.request(), self.account, room, not_after=5.0)
        assert room.asked["not_after"] == 5.0
        assert room.asked["connect_seconds"] == 5.0
        assert room.asked["account"] == self.account.scope

    def test_kept_connections_are_reused_only_with_a_contract(self) -> None:
        room = Canned(Answer(Phase.CONNECTING, error="refused"))
        self.adapter.submit(self.request(), self.account, room)
        assert room.asked["reuse_idle"] is self.adapter.contract(self.options).may_replay
        self.adapter.submit(self.request(), replace(self.account, no_replay=True), room)
        assert room.asked["reuse_idle"] is False

    @pytest.mark.parametrize("url", ["http://api.example.com", "api.example.com", ""])
    def test_a_base_url_that_is_not_safe_is_refused(self, url: str) -> None:
        with pytest.raises(BadOptions, match="base URL"):
            self.adapter.build(self.submission(), replace(self.account, base_url=url))

    def test_the_wire_key_is_a_pure_function_of_ours(self) -> None:
        keys = [self.adapter.wire_key(KEY) for _ in range(2)]
        assert keys[0] == keys[1]
        assert keys[0] != self.adapter.wire_key("f" * 40)
        assert len(keys[0]) <= 255

    # -- the contract

    def test_the_contract_names_its_facts_and_their_source(self) -> None:
        contract = self.adapter.contract(self.options)
        assert contract.source
        assert contract.endpoints
        assert contract.checked_on <= NOW.date()
        if contract.may_replay:
            facts = {
                name: getattr(contract, name)
                for name in ("key_carrier", "key_format", "scope", "window_from", "replay_mark")
            }
            assert [name for name, fact in facts.items() if not fact] == []
            assert contract.replay_until(NOW) > NOW

    def test_an_operator_can_only_tighten_it(self) -> None:
        strict = replace(self.account, replay_window=timedelta(minutes=5), no_replay=True)
        assert not self.adapter.contract_for(strict).may_replay
        loose = replace(self.account, replay_window=timedelta(days=400))
        declared = self.adapter.contract(self.options).safe_window
        assert self.adapter.contract_for(loose).safe_window == declared

    def test_an_option_that_it_does_not_know_is_named(self) -> None:
        self.adapter.check_options(self.options)
        with pytest.raises(BadOptions, match="no_such_option"):
            self.adapter.check_options({**self.options, "no_such_option": 1})

    # -- answers

    def test_each_answer_has_its_outcome(self) -> None:
        found = {}
        for case in self.cases:
            answer = Answer(
                case.phase,
                error=case.error,
                status=case.status,
                headers=case.headers,
                body=case.body,
            )
            found[case.why] = (self.outcome(answer), self.happened(answer).block)
        assert found == {case.why: (case.outcome, case.block) for case in self.cases}

    def test_a_success_with_proof_is_accepted(self) -> None:
        answer = self.success(self.request())
        happened = self.happened(answer)
        assert self.outcome(answer) is Outcome.ACCEPTED
        assert happened.proof

    def test_a_success_without_proof_is_not(self) -> None:
        whole = self.success(self.request())
        assert whole.status is not None
        for cut in range(0, len(whole.body), 7):
            answer = replace(whole, body=whole.body[:cut], headers={}, error="cut")
            assert self.outcome(answer) in DOUBTFUL, whole.body[:cut]

    def test_a_success_for_another_message_is_not_ours(self) -> None:
        other = replace(self.request(), tag="f" * 32)
        assert self.outcome(self.success(other)) in DOUBTFUL

    def test_every_blocked_answer_says_what_is_blocked(self) -> None:
        for status in (301, 302, 307, 401, 402, 403):
            happened = self.happened(Answer(Phase.ANSWERED, status=status))
            assert happened.block is not None, status

    @pytest.mark.parametrize("body", NASTY, ids=lambda body: repr(body[:24]))
    def test_no_answer_is_too_broken_to_read(self, body: bytes) -> None:
        for status in (100, 200, 201, 204, 302, 401, 403, 404, 409, 422, 429, 500, 503, 599, 999):
            happened = self.happened(Answer(Phase.ANSWERED, status=status, body=body))
            assert happened.error != "unreadable"
            outcome = classify(happened, self.adapter.contract_for(self.account))
            assert outcome not in TOOK_IT, (status, body[:40])
            json.dumps([happened.body, happened.code, happened.message]).encode()
            assert "\x00" not in happened.body + happened.code + happened.message

    @pytest.mark.parametrize("phase", list(Phase)[:-1])
    def test_without_a_status_only_how_far_it_got_counts(self, phase: Phase) -> None:
        outcome = self.outcome(Answer(phase, error="reset"))
        expected = Outcome.NOT_SENT if phase < Phase.DISPATCHED else Outcome.AMBIGUOUS
        assert outcome is expected

    def test_an_answer_that_repeats_the_credential_is_kept_without_it(self) -> None:
        account = self.account
        said = f"bad {account.credential} " + "x" * 3 * KEPT_BYTES
        happened = self.happened(Answer(Phase.ANSWERED, status=400, body=said.encode()))
        assert account.credential not in happened.body
        assert len(happened.body.encode()) <= KEPT_BYTES

    # -- webhooks

    def verify(
        self, headers: Mapping[str, str], body: bytes, *secrets: str, now: datetime = NOW
    ) -> None:
        self.adapter.verify_webhook(headers, body, secrets, now)

    def test_a_signed_body_is_let_through(self) -> None:
        body = self.recorded[0][0]
        headers = self.signed(body, ("new",), NOW)
        self.verify(headers, body, "new")
        self.verify({name.upper(): value for name, value in headers.items()}, body, "new")

    def test_while_secrets_rotate_either_side_may_be_ahead(self) -> None:
        body = self.recorded[0][0]
        self.verify(self.signed(body, ("old",), NOW), body, "new", "old")
        self.verify(self.signed(body, ("new", "old"), NOW), body, "old")

    def test_a_body_that_was_touched_is_not(self) -> None:
        body = self.recorded[0][0]
        headers = self.signed(body, ("new",), NOW)
        for touched in (body + b" ", b" " + body, body.replace(b":", b" :", 1), b""):
            with pytest.raises(BadSignature):
                self.verify(headers, touched, "new")

    def test_the_clock_may_be_300_seconds_off_and_no_more(self) -> None:
        body = self.recorded[0][0]
        for off in (-WEBHOOK_TOLERANCE, WEBHOOK_TOLERANCE):
            self.verify(self.signed(body, ("new",), NOW + off), body, "new")
            too_far = NOW + off * 1.01
            with pytest.raises(BadSignature):
                self.verify(self.signed(body, ("new",), too_far), body, "new")

    def test_nothing_unsigned_is_let_through(self) -> None:
        body = self.recorded[0][0]
        headers = self.signed(body, ("new",), NOW)
        with pytest.raises(BadSignature):
            self.verify({}, body, "new")
        with pytest.raises(BadSignature):
            self.verify(headers, body)
        with pytest.raises(BadSignature):
            self.verify(headers, body, "another")
        with pytest.raises(BadSignature):
            self.verify(self.signed(body, (), NOW), body, "new")
        for name in headers:
            for value in ("", "t=,v1=", "t=x,v1=00", "v1=" + "0" * 64, "é", "t=1" + "0" * 400):
                with pytest.raises(BadSignature):
                    self.verify({**headers, name: value}, body, "new")

    # -- events

    def test_recorded_events_mean_what_they_say(self) -> None:
        found = [tuple(event.kind for event in self.events(body)) for body, _ in self.recorded]
        assert found == [kinds for _, kinds in self.recorded]

    def events(self, body: bytes) -> list[Event]:
        return self.adapter.events(body)

    def test_a_recorded_event_names_its_message_recipient_and_moment(self) -> None:
        for event in self.events(self.recorded[0][0]):
            assert event.event_id
            assert event.provider_message_id or event.tag
            assert event.recipient
            assert event.occurred_at is not None
            assert event.occurred_at.tzinfo is not None

    def test_the_same_event_told_twice_has_one_fingerprint(self) -> None:
        prints = [
            [event.fingerprint for event in self.events(body)]
            for body, _ in self.recorded
            for _ in range(2)
        ]
        assert prints[0::2] == prints[1::2]
        flat = [one for several in prints[0::2] for one in several]
        assert len(flat) == len(set(flat))

    @pytest.mark.parametrize("body", NASTY, ids=lambda body: repr(body[:24]))
    def test_no_event_is_too_broken_to_read(self, body: bytes) -> None:
        for event in self.events(body):
            assert event.kind is EventKind.UNKNOWN
            assert event.fingerprint
