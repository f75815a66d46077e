"""Reads the body of a POST into a message, or says what is wrong with it."""

from __future__ import annotations

import binascii
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
OF_ATTACHMENTS = ("filename", "content_type", "content", "disposition", "content_id")
DISPOSITIONS = ("attachment", "inline")


class UnreadableError(Exception):
    """What was posted is no message; `reply` says why."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.body)
        self.reply = reply


@dataclass(frozen=True)
class Attachment:
    filename: str
    content_type: str
    disposition: str
    content_id: str | None
    size: int
    sha256: str


@dataclass(frozen=True)
class Message:
    digest: str
    meaning: str
    recipients: tuple[str, ...]
    subject: str
    message_id: str | None
    tag: str | None
    attachments: tuple[Attachment, ...]


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
        attachments=tuple(read_attachment(one) for one in body.get("attachments") or ()),
    )


def read_attachment(given: Mapping[str, str]) -> Attachment:
    """What the journal keeps of one that has no problem: all but its bytes."""
    data = binascii.a2b_base64(given["content"], strict_mode=True)
    return Attachment(
        filename=given["filename"],
        content_type=given["content_type"],
        disposition=given.get("disposition") or "attachment",
        content_id=given.get("content_id"),
        size=len(data),
        sha256=sha256(data).hexdigest(),
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
    attachments = body.get("attachments")
    if not isinstance(attachments, list | None):
        return "attachments must be a list."
    return next(filter(None, map(problem_of_attachment, attachments or ())), None)


def problem_of_attachment(given: object) -> str | None:
    if not isinstance(given, dict) or not is_text_map(given):
        return "an attachment must be an object of texts."
    if unknown := sorted(set(given) - set(OF_ATTACHMENTS)):
        names = ", ".join(OF_ATTACHMENTS)
        return f"{unknown[0]} is no field of an attachment; these are: {names}."
    if not given.get("filename") or not given.get("content_type"):
        return "an attachment needs filename and content_type."
    if given.get("disposition", "attachment") not in DISPOSITIONS:
        return f"the disposition of an attachment must be {' or '.join(DISPOSITIONS)}."
    try:
        binascii.a2b_base64(given.get("content", "-"), strict_mode=True)
    except ValueError:
        return "the content of an attachment must be base64."
    return None


def is_mailbox(value: object) -> bool:
    if not isinstance(value, dict) or not set(value) <= {"name", "address"}:
        return False
    address = value.get("address")
    named = isinstance(value.get("name"), str | None)
    return named and isinstance(address, str) and all(address.rpartition("@")[::2])


def is_text_map(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
