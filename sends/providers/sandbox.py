"""The adapter of the built-in sandbox, which mails nobody."""

import base64
import hashlib
import hmac
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import quote

from sends.providers.adapter import (
    WEBHOOK_TOLERANCE,
    AccountFacts,
    Adapter,
    BadOptions,
    BadSignature,
    Event,
    Found,
    LookUp,
    NotSupported,
    Request,
    Submission,
    facts_of,
    fingerprint,
    identifier,
    json_object,
    moment,
    text,
)
from sends.providers.http import Answer, Http
from sends.rules.contracts import Contract, Recovery
from sends.rules.deliveries import EventKind
from sends.rules.outcomes import BlockScope, Happened, Outcome
from sends.rules.payloads import Attachment, Mailbox, Message

SOURCE = "sends/sandbox/README.md"
CHECKED_ON = date(2026, 11, 30)
WINDOW = timedelta(hours=24)
# Two requests at once are documented: the second is told so (409 key_in_progress).
SETTLE_TIME = timedelta(seconds=1)
MAX_BYTES = 40 * 1024 * 1024
MESSAGES = "/v1/messages"
CONTRACTS = ("replay", "none")
OPTIONS = ("contract", "window_seconds", "look_up")

# 409 without a known code may be either of the two: general caution, not a refusal.
SAYS = {
    (409, "key_conflict"): Outcome.KEY_CONFLICT,
    (409, "key_in_progress"): Outcome.KEY_IN_PROGRESS,
    (422, "no_deliverable_recipients"): Outcome.SUPPRESSED,
    (429, "quota_exhausted"): Outcome.BLOCKED,
}
BLOCKS = {"sender_blocked": BlockScope.SENDER}

KINDS = {
    "accepted": EventKind.ACCEPTED,
    "delivered": EventKind.DELIVERED,
    "deferred": EventKind.DEFERRED,
    "bounced": EventKind.BOUNCED,
    "complained": EventKind.COMPLAINED,
    "refused": EventKind.REFUSED,
    "dropped": EventKind.DROPPED,
}
SIGNATURE_PART = re.compile(r"(t|v1)=([0-9a-fA-F]+)")


class Sandbox(Adapter):
    name = "sandbox"

    def contract(self, options: Mapping[str, Any]) -> Contract:
        has_look_up = options.get("look_up", True)
        known = Contract(
            recovery=Recovery.LOOK_UP if has_look_up else Recovery.PERSON,
            source=SOURCE,
            checked_on=CHECKED_ON,
            took_nothing=frozenset({503}),
            tag_carrier="body field tag",
            tag_echoed=True,
            has_look_up=has_look_up,
            message_id_kept=True,
            endpoints=(f"POST {MESSAGES}",),
            max_bytes=MAX_BYTES,
            takes_attachments=True,
            takes_inline=True,
        )
        if options.get("contract", "replay") == "none":
            return known
        return replace(
            known,
            recovery=Recovery.REPLAY,
            window=timedelta(seconds=options.get("window_seconds", WINDOW.total_seconds())),
            window_from="the completion of the first request with the key",
            settle_time=SETTLE_TIME,
            scope="organisation",
            key_carrier="header Idempotency-Key",
            key_format="1 to 256 of A-Z a-z 0-9 . _ : ~ -",
            same_key_same_request="200 with the first answer",
            same_key_other_request="409 key_conflict",
            two_at_once="409 key_in_progress",
            replay_mark="body field replayed",
            failures_remembered=False,
        )

    def check_options(self, options: Mapping[str, Any]) -> None:
        wrong = [
            f"{name} is no option of the sandbox; these are: {', '.join(OPTIONS)}."
            for name in sorted(set(options) - set(OPTIONS))
        ]
        if options.get("contract", "replay") not in CONTRACTS:
            wrong.append(f"contract is {options['contract']!r}; give {' or '.join(CONTRACTS)}.")
        if not _is_span(options.get("window_seconds", 1)):
            given = options["window_seconds"]
            wrong.append(f"window_seconds is {given!r}; give a number of seconds above 0.")
        if not isinstance(options.get("look_up", True), bool):
            wrong.append(f"look_up is {options['look_up']!r}; give true or false.")
        if wrong:
            raise BadOptions(" ".join(wrong))

    def compose(
        self, submission: Submission, account: AccountFacts
    ) -> tuple[str, str, Mapping[str, str], bytes]:
        headers = {"Content-Type": "application/json", "Idempotency-Key": submission.wire_key}
        content = _content(submission.frozen.message)
        content |= {"message_id": submission.frozen.message_id, "tag": submission.tag}
        if attachments := submission.frozen.message.attachments:
            content["attachments"] = [_attached(one, submission.contents) for one in attachments]
        body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        if len(body) > MAX_BYTES:
            raise NotSupported(f"the message has {len(body)} bytes; the sandbox takes {MAX_BYTES}")
        return "POST", MESSAGES, headers, body

    def authorization(self, account: AccountFacts) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {account.credential}"}

    def read(self, answer: Answer, request: Request) -> Happened:
        facts = facts_of(answer)
        if answer.status is None:
            return facts
        content = json_object(answer.body)
        if 200 <= answer.status < 300:
            return _taken(facts, content, request.tag)
        return _turned_away(facts, answer.status, content)

    def look_up(
        self,
        account: AccountFacts,
        http: Http,
        *,
        tag: str,
        wire_key: str,
    ) -> LookUp:
        contract = self.contract_for(account)
        if not contract.has_look_up:
            raise NotSupported("this account of the sandbox has no look-up")
        # Without a contract too the sandbox keeps the key in its books, but only the tag is ours
        # by its promise there.
        by, value = ("key", wire_key) if contract.key_carrier else ("tag", tag)
        url = f"{account.base_url.rstrip('/')}{MESSAGES}?{by}={quote(value, safe='')}"
        answer = self._ask("GET", url, account, http, headers={})
        messages = json_object(answer.body).get("messages")
        if answer.status != 200 or not isinstance(messages, list):
            return LookUp(by, value, error=answer.error or f"status {answer.status}")
        return LookUp(by, value, tuple(_found(one) for one in messages if _is(one, by, value)))

    def verify_webhook(
        self, headers: Mapping[str, str], raw_body: bytes, secrets: Sequence[str], now: datetime
    ) -> None:
        given = {name.lower(): value for name, value in headers.items()}
        parts = SIGNATURE_PART.findall(given.get("x-sandbox-signature", ""))
        times = [value for name, value in parts if name == "t"]
        marks = [value.lower() for name, value in parts if name == "v1"]
        if len(times) != 1 or not marks or not times[0].isdecimal() or len(times[0]) > 12:
            raise BadSignature("X-Sandbox-Signature is missing, or not t=…,v1=…")
        signed = times[0].encode() + b"." + raw_body
        known = [hmac.new(one.encode(), signed, hashlib.sha256).hexdigest() for one in secrets]
        if not any(hmac.compare_digest(mark, one) for mark in marks for one in known):
            raise BadSignature("no webhook secret of this account signed this body")
        if abs(now.timestamp() - int(times[0])) > WEBHOOK_TOLERANCE.total_seconds():
            raise BadSignature("signed more than 300 seconds ago, or ahead of our clock")

    def events(self, raw_body: bytes) -> list[Event]:
        content = json_object(raw_body)
        data = content.get("data")
        return [_event(content, data if isinstance(data, dict) else {}, raw_body)]


def _is_span(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and 0 < value < 1e9  # type: ignore[arg-type,operator]


def _content(message: Message) -> dict[str, Any]:
    content: dict[str, Any] = {
        "from": _mailbox(message.sender),
        "to": [_mailbox(one) for one in message.to],
        "cc": [_mailbox(one) for one in message.cc],
        "bcc": [_mailbox(one) for one in message.bcc],
        "reply_to": [_mailbox(one) for one in message.reply_to],
        "subject": message.subject,
        "headers": _headers(message),
    }
    parts = {"text": message.text, "html": message.html}
    return content | {name: part for name, part in parts.items() if part is not None}


def _attached(attachment: Attachment, contents: Mapping[str, bytes]) -> dict[str, str]:
    attached = {
        "filename": attachment.filename,
        "content_type": attachment.content_type,
        "content": base64.b64encode(contents[attachment.sha256]).decode("ascii"),
        "disposition": "inline" if attachment.inline else "attachment",
    }
    named = {"content_id": attachment.content_id} if attachment.content_id else {}
    return attached | named


def _mailbox(mailbox: Mailbox) -> dict[str, str]:
    named = {"name": mailbox.name} if mailbox.name else {}
    return {"address": mailbox.address, **named}


def _headers(message: Message) -> dict[str, str]:
    given = list(message.headers)
    if message.in_reply_to:
        given.append(("In-Reply-To", message.in_reply_to))
    if message.references:
        given.append(("References", " ".join(message.references)))
    names = [name.lower() for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            raise NotSupported(f"the sandbox takes a header once; {name} is given more often")
    return dict(given)


def _taken(facts: Happened, content: Mapping[str, Any], tag: str) -> Happened:
    proof = identifier(content.get("id"))
    if content.get("status") == "rejected" and not proof:
        return replace(facts, says=Outcome.REFUSED, code="rejected")
    # An answer that names another message is not about ours, whatever it says.
    if content.get("tag") != tag:
        return facts
    refused = content.get("refused")
    return replace(
        facts,
        proof=proof,
        thread=identifier(content.get("thread_id")),
        replayed=content.get("replayed") is True,
        refused=tuple(filter(None, map(text, refused if isinstance(refused, list) else ()))),
    )


def _turned_away(facts: Happened, status: int, content: Mapping[str, Any]) -> Happened:
    error = content.get("error")
    error = error if isinstance(error, dict) else {}
    code = text(error.get("code"))
    says = SAYS.get((status, code))
    if status == 409 and says is None:
        says = Outcome.AMBIGUOUS
    if status == 503 and not code:
        # Only the sandbox itself knows that nothing was taken, not a gateway before it.
        says = Outcome.AMBIGUOUS
    block = None
    if says is Outcome.BLOCKED or status in (401, 402, 403) or 300 <= status < 400:
        block = BLOCKS.get(code, BlockScope.ACCOUNT)
    message = "a redirect" if 300 <= status < 400 else text(error.get("message"))
    return replace(facts, code=code, message=message, says=says, block=block)


def _is(one: object, by: str, value: str) -> bool:
    return isinstance(one, dict) and one.get(by) == value and bool(identifier(one.get("id")))


def _found(one: Mapping[str, Any]) -> Found:
    return Found(
        provider_message_id=identifier(one.get("id")),
        tag=text(one.get("tag")),
        message_id=text(one.get("message_id")),
        accepted_at=moment(one.get("accepted_at")),
    )


def _event(content: Mapping[str, Any], data: Mapping[str, Any], raw_body: bytes) -> Event:
    kind = KINDS.get(text(content.get("type")), EventKind.UNKNOWN)
    if kind is EventKind.BOUNCED and data.get("hard") is False:
        kind = EventKind.SOFT_BOUNCED
    provider_message_id = identifier(data.get("message_id_provider"))
    recipient = text(data.get("recipient"))
    occurred_at = moment(content.get("created_at"))
    return Event(
        event_id=identifier(content.get("id")),
        kind=kind,
        recipient=recipient,
        provider_message_id=provider_message_id,
        tag=text(data.get("tag")),
        message_id=text(data.get("message_id")),
        reason=text(data.get("reason")),
        occurred_at=occurred_at,
        fingerprint=fingerprint(
            provider=Sandbox.name,
            message=provider_message_id,
            recipient=recipient,
            kind=kind,
            occurred_at=occurred_at,
            raw=hashlib.sha256(raw_body).hexdigest(),
        ),
    )
