"""Reads the body of a POST into a message, or says what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .contract import meaning_of
from .faults import Reply, error

KEY_FORMAT = re.compile(r"[A-Za-z0-9._:~-]{1,256}")
LISTS = ("to", "cc", "bcc", "reply_to")
TEXTS = ("subject", "text", "html", "message_id", "tag")
FIELDS = frozenset({"from", "headers", "attachments", *LISTS, *TEXTS})


class UnreadableError(Exception):
    """What was posted is no message; `reply` says why."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.body)
        self.reply = reply


@dataclass(frozen=True)
class Message:
    digest: str
    meaning: str
    recipients: tuple[str, ...]
    subject: str
    message_id: str | None
    tag: str | None


def read_message(raw: bytes) -> Message:
    try:
        body = json.loads(raw, parse_constant=no_constant)
    except (ValueError, RecursionError) as failure:
        reply = error(400, "invalid_json", f"The body is not JSON: {failure}.")
        raise UnreadableError(reply) from failure
    if not isinstance(body, dict):
        raise UnreadableError(error(400, "invalid_json", "The body is not a JSON object."))
    problem = first_problem(body)
    if problem:
        raise UnreadableError(error(422, "invalid_message", problem))
    return Message(
        digest=sha256(raw).hexdigest(),
        meaning=meaning_of(body),
        recipients=tuple(
            dict.fromkeys(
                one["address"] for name in ("to", "cc", "bcc") for one in body.get(name) or ()
            )
        ),
        subject=body.get("subject") or "",
        message_id=body.get("message_id"),
        tag=body.get("tag"),
    )


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def first_problem(body: Mapping[str, Any]) -> str | None:
    if unknown := sorted(set(body) - FIELDS):
        return f"{unknown[0]} is no field of a message; these are: {', '.join(sorted(FIELDS))}."
    if not is_mailbox(body.get("from")):
        return "from must be an object with an address."
    for name in LISTS:
        given = body.get(name)
        if given is not None and not (isinstance(given, list) and all(map(is_mailbox, given))):
            return f"{name} must be a list of objects, each with an address."
    if not body.get("to"):
        return "to must name at least one recipient."
    for name in TEXTS:
        if not isinstance(body.get(name), str | None):
            return f"{name} must be a text."
    headers = body.get("headers")
    if headers is not None and not is_text_map(headers):
        return "headers must be an object of texts."
    if not isinstance(body.get("attachments"), list | None):
        return "attachments must be a list."
    return None


def is_mailbox(value: object) -> bool:
    if not isinstance(value, dict) or not set(value) <= {"name", "address"}:
        return False
    address = value.get("address")
    named = isinstance(value.get("name"), str | None)
    return named and isinstance(address, str) and all(address.rpartition("@")[::2])


def is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
