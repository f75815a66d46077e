"""A provider on paper: what it takes, what it answers, and a journal of its own.

It imports nothing of the product and knows only what a request says, so it can be its judge.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Fault(StrEnum):
    """What goes wrong with one request. Those that begin with TAKEN do so after it was taken."""

    NONE = "none"
    # Trouble of the network
    NOT_REACHED = "not_reached"
    CUT_BEFORE = "cut_before"
    CUT_WHILE_WRITING = "cut_while_writing"
    TAKEN_ANSWER_LOST = "taken_answer_lost"
    LANDS_LATER = "lands_later"
    # Answers that say that nothing was taken
    REFUSED = "refused"
    REFUSED_CONTENT = "refused_content"
    NO_RECIPIENTS = "no_recipients"
    THROTTLED = "throttled"
    BUSY = "busy"
    ACCOUNT_BLOCKED = "account_blocked"
    SENDER_BLOCKED = "sender_blocked"
    REJECTED = "rejected"
    # Answers that say nothing
    SERVER_ERROR = "server_error"
    GATEWAY = "gateway"
    IN_PROGRESS = "in_progress"
    CONFLICT = "conflict"
    TAKEN_SERVER_ERROR = "taken_server_error"
    TAKEN_NO_ID = "taken_no_id"
    TAKEN_OTHER_TAG = "taken_other_tag"
    # For some recipients only
    TAKEN_IN_PART = "taken_in_part"


@dataclass(frozen=True)
class Message:
    """What the provider accepted, to be mailed once."""

    id: str
    tag: str
    key: str
    message_id: str
    recipients: tuple[str, ...]
    at: float


@dataclass(frozen=True)
class Reply:
    """What the sending side sees; `reached` says how far its request got without a status."""

    status: int | None = None
    content: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    reached: str = ""
    error: str = ""


@dataclass(frozen=True)
class _Late:
    lands_at: float
    key: str
    body: bytes


class Provider:
    """One account at a provider that keeps keys for `window` seconds, or (None) ignores them."""

    def __init__(self, name: str, window: float | None) -> None:
        self.name = name
        self.window = window
        self.journal: list[Message] = []
        # Every request that came, with its body, by key: the same key must say the same for ever.
        self.bodies: dict[str, set[bytes]] = {}
        self._known: dict[str, tuple[bytes, Message, float]] = {}
        self._late: list[_Late] = []

    def receive(
        self, headers: Mapping[str, str], body: bytes, fault: Fault, *, delay: float, now: float
    ) -> Reply:
        """One request, over the network as it is; `delay` is what LANDS_LATER waits."""
        self.pass_time(now)
        key = headers["Idempotency-Key"]
        if fault is Fault.NOT_REACHED:
            return Reply(reached="connecting", error="refused")
        if fault is Fault.CUT_BEFORE:
            return Reply(reached="connected", error="reset")
        if fault is Fault.CUT_WHILE_WRITING:
            return Reply(reached="partly", error="reset")
        self.bodies.setdefault(key, set()).add(body)
        if fault is Fault.LANDS_LATER:
            self._late.append(_Late(now + delay, key, body))
            return Reply(reached="sent", error="deadline")
        if fault in REFUSALS:
            return REFUSALS[fault]
        reply = self._take(key, body, now)
        if reply.status not in (200, 201):
            return reply
        return self._spoilt(reply, fault, body)

    def pass_time(self, now: float) -> None:
        """Take what was under way for so long, in the order in which it lands."""
        for late in sorted(self._late, key=lambda late: late.lands_at):
            if late.lands_at <= now:
                self._late.remove(late)
                self._take(late.key, late.body, late.lands_at)

    def find(self, by: str, value: str) -> list[dict[str, str]]:
        """The answer to a look-up by "key" or "tag"."""
        found = [m for m in self.journal if value == (m.key if by == "key" else m.tag)]
        return [{"id": m.id, by: value, "tag": m.tag, "message_id": m.message_id} for m in found]

    def _take(self, key: str, body: bytes, now: float) -> Reply:
        content = json.loads(body)
        if self.window is None:
            return Reply(201, self._accept(key, content, now))
        known = self._known.get(key)
        if known is not None and now < known[2] + self.window:
            if known[0] != body:
                return _error(409, "key_conflict")
            message = known[1]
            return Reply(200, {"id": message.id, "tag": message.tag, "replayed": True})
        if any(late.key == key for late in self._late):
            return _error(409, "key_in_progress")
        answer = self._accept(key, content, now)
        self._known[key] = (body, self.journal[-1], now)
        return Reply(201, answer)

    def _accept(self, key: str, content: Mapping[str, Any], now: float) -> dict[str, Any]:
        message = Message(
            id=f"{self.name}_{len(self.journal) + 1}",
            tag=content["tag"],
            key=key,
            message_id=content["message_id"],
            recipients=recipients(content),
            at=now,
        )
        self.journal.append(message)
        return {"id": message.id, "tag": message.tag, "status": "accepted"}

    def _spoilt(self, reply: Reply, fault: Fault, body: bytes) -> Reply:
        content = dict(reply.content or {})
        match fault:
            case Fault.TAKEN_ANSWER_LOST:
                return Reply(reached="sent", error="deadline")
            case Fault.TAKEN_SERVER_ERROR:
                return Reply(500)
            case Fault.TAKEN_NO_ID:
                return Reply(202, {"tag": content["tag"]})
            case Fault.TAKEN_OTHER_TAG:
                return Reply(201, content | {"tag": "0" * 32})
            case Fault.TAKEN_IN_PART:
                return Reply(reply.status, content | {"refused": [recipients(json.loads(body))[0]]})
        return reply


def recipients(content: Mapping[str, Any]) -> tuple[str, ...]:
    """The addresses of the envelope, of a request's body."""
    boxes: Iterable[dict[str, str]] = [*content["to"], *content["cc"], *content["bcc"]]
    return tuple(box["address"] for box in boxes)


def event(
    message: Message, kind: str, recipient: str, *, event_id: str, at: str, names: Iterable[str]
) -> bytes:
    """The body of a webhook about one recipient; `names` are the ids that it carries."""
    ids = {"message_id_provider": message.id, "tag": message.tag, "message_id": message.message_id}
    about = {name: ids[name] for name in names}
    data = {"recipient": recipient, "reason": kind, **about}
    return json.dumps({"id": event_id, "type": kind, "created_at": at, "data": data}).encode()


def what_it_tells(letter: bytes, provider: Provider) -> tuple[str, str, str]:
    """Of which message, to whom, and what: as the provider knows it."""
    data = json.loads(letter)["data"]
    [message] = [
        message
        for message in provider.journal
        if data.get("message_id_provider") == message.id
        or data.get("tag") == message.tag
        or data.get("message_id") == message.message_id
    ]
    return message.tag, data["recipient"], json.loads(letter)["type"]


def named(letter: bytes) -> set[str]:
    """By what an event names its message."""
    return set(json.loads(letter)["data"]) & {"message_id_provider", "tag", "message_id"}


def id_in(letter: bytes) -> str:
    return str(json.loads(letter)["data"].get("message_id_provider"))


def written(content: Any) -> bytes:
    return json.dumps(content).encode()


def _error(status: int, code: str, **headers: str) -> Reply:
    return Reply(status, {"error": {"code": code, "message": code}}, headers)


REFUSALS = {
    Fault.REFUSED: _error(422, "invalid"),
    Fault.REFUSED_CONTENT: _error(400, "invalid"),
    Fault.NO_RECIPIENTS: _error(422, "no_deliverable_recipients"),
    Fault.THROTTLED: _error(429, "slow_down", **{"retry-after": "90"}),
    Fault.BUSY: _error(503, "overloaded"),
    Fault.ACCOUNT_BLOCKED: _error(401, "bad_credential"),
    Fault.SENDER_BLOCKED: _error(403, "sender_blocked"),
    Fault.REJECTED: Reply(200, {"status": "rejected"}),
    Fault.SERVER_ERROR: Reply(500),
    Fault.GATEWAY: Reply(502),
    Fault.IN_PROGRESS: _error(409, "key_in_progress"),
    Fault.CONFLICT: _error(409, "key_conflict"),
}
