"""An email in MIME as the proposal that says the same, or every reason why none does."""

import re
from dataclasses import dataclass
from typing import Any

from sends.rules.eml_headers import NotCarried, mailboxes, message_ids, unfolded, written_out
from sends.rules.eml_parts import Contents, Part, parsed
from sends.rules.fields import PARSER_FAILS, is_reserved
from sends.rules.keys import sha256
from sends.rules.proposals import Wrong, WrongProposal
from sends.rules.strict_json import escaped

# The header fields that have a place of their own in a proposal.
FIELDS = {
    "from": "sender",
    "to": "to",
    "cc": "cc",
    "bcc": "bcc",
    "reply-to": "reply_to",
    "subject": "subject",
    "in-reply-to": "in_reply_to",
    "references": "references",
}
# What says how these bytes are to be read, and has been obeyed.
FORM = ("mime-version", "content-type", "content-transfer-encoding", "content-disposition")
# More than these are made to make readers stumble, and cost memory before anything is known.
MAX_FIELDS = 1_000
MAX_LINES = 1_500_000
MAX_DELIMITERS = 20_000
RESENT = re.compile(r"resent-(?:from|to|cc|bcc)")
LONE_CR = re.compile(rb"\r(?!\n)")
END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")


@dataclass(frozen=True)
class Email:
    """What an email says: a proposal's document, and the names of what has no place in one."""

    document: dict[str, Any]
    left_out: frozenset[str]


def read_email(raw: bytes, *, sender: str | None = None) -> Email:
    """The proposal in an email, or WrongProposal; its lines end in CRLF or LF.

    `sender` takes the place of its From. The action key is made of the Message-ID, or else of the
    bytes: the same email is the same message, wherever it lies.
    """
    reading = _Reading(sender)
    try:
        _refuse_odd(raw)
        message = parsed(raw)
        reading.read_headers(message)
        contents = Contents(message)
    except NotCarried as error:
        reading.refuse("", error)
    except PARSER_FAILS as error:
        reading.refuse("", NotCarried("broken", f"it cannot be read ({type(error).__name__})"))
    if reading.wrong:
        raise WrongProposal(*reading.wrong)
    document = {"action_key": _key(raw, reading.message_id), **reading.document, **contents.fields}
    return Email(document, frozenset(reading.left_out | contents.left_out))


def _refuse_odd(raw: bytes) -> None:
    if raw.count(b"\n") > MAX_LINES:
        raise NotCarried("too_many", f"at most {MAX_LINES:,} lines are read")
    if raw.count(b"\n--") > MAX_DELIMITERS:
        raise NotCarried("too_many", f"at most {MAX_DELIMITERS:,} lines may begin with --")
    if LONE_CR.search(END_OF_HEADERS.split(raw, maxsplit=1)[0]):
        raise NotCarried("line_end", "a header field holds CR without LF; readers differ")


def _key(raw: bytes, message_id: str) -> str:
    said = message_id.encode() or raw.replace(b"\r\n", b"\n").rstrip(b"\n")
    return f"mail:{sha256(said)[:40]}"


class _Reading:
    """The header fields, one after the other."""

    def __init__(self, sender: str | None) -> None:
        self.document: dict[str, Any] = {"sender": sender, "headers": {}}
        self.message_id = ""
        self.left_out: set[str] = set()
        self.wrong: list[Wrong] = []

    def refuse(self, pointer: str, error: NotCarried) -> None:
        self.wrong.append(Wrong(pointer, error.code, error.detail))

    def read_headers(self, message: Part) -> None:
        if len(message) > MAX_FIELDS:
            raise NotCarried("too_many", f"at most {MAX_FIELDS:,} header fields are read")
        seen: set[str] = set()
        for name, raw in message.raw_items():
            try:
                self._read(name, name.lower(), str(raw), is_first=name.lower() not in seen)
            except NotCarried as error:
                self.refuse(_pointer(name), error)
            seen.add(name.lower())
        if "from" not in seen and self.document["sender"] is None:
            self.refuse("/sender", NotCarried("required", "it has no From"))

    def _read(self, name: str, lower: str, raw: str, *, is_first: bool) -> None:
        if RESENT.fullmatch(lower):
            raise NotCarried("resent", "it was sent on to others than To names; take the original")
        if lower in ("to", "cc", "bcc"):
            self.document.setdefault(lower, []).extend(self._boxes(name, raw))
        elif lower not in FIELDS and is_reserved(lower):
            self._of_this_copy(name, lower, raw)
        elif not is_first:
            raise NotCarried("header_twice", "is there more than once; one of it can be sent")
        else:
            self._once(name, lower, raw)

    def _of_this_copy(self, name: str, lower: str, raw: str) -> None:
        if lower == "message-id":
            self.message_id = unfolded(raw)
        if lower not in FORM:
            self.left_out.add(name.title())

    def _once(self, name: str, lower: str, raw: str) -> None:
        if lower == "from":
            self._sender(name, raw)
        elif lower == "reply-to":
            self.document["reply_to"] = self._boxes(name, raw)
        elif lower == "references":
            self.document["references"] = message_ids(unfolded(raw))
        elif lower == "in-reply-to":
            ids = message_ids(unfolded(raw))
            self.document["in_reply_to"] = ids[0] if len(ids) == 1 else " ".join(ids) or None
        elif lower == "subject":
            self.document["subject"] = written_out(unfolded(raw))
        else:
            self.document["headers"][name] = written_out(unfolded(raw))

    def _boxes(self, name: str, raw: str) -> list[dict[str, str]]:
        boxes, groups = mailboxes(name, raw)
        if groups:
            self.left_out.add(f"names of groups in {name}")
        return boxes

    def _sender(self, name: str, raw: str) -> None:
        if self.document["sender"] is not None:
            self.left_out.add("From")
            return
        boxes = self._boxes(name, raw)
        if len(boxes) != 1:
            raise NotCarried("mailbox", "an email has one sender here")
        if boxes[0]["name"]:
            self.left_out.add("the name in From")
        self.document["sender"] = boxes[0]["address"]


def _pointer(name: str) -> str:
    return f"/{FIELDS[name.lower()]}" if name.lower() in FIELDS else f"/headers/{escaped(name)}"
