"""Reads an email back into the message that it says, independently of what built it.

By the standard library's older parser: the newer one puts spaces between the encoded words of a
name, before Python 3.13.
"""

import email
import email.policy
import re
from collections.abc import Iterator
from dataclasses import replace
from email.header import decode_header, make_header
from email.message import Message as Parsed
from email.utils import getaddresses
from typing import cast

from sends.rules.keys import sha256
from sends.rules.payloads import Attachment, Mailbox, Message

OURS = ("From", "To", "Cc", "Reply-To", "Subject", "Date", "Message-ID", "In-Reply-To")
OURS += ("References", "MIME-Version")


def read(raw: bytes) -> Message:
    """The message in these bytes; of its attachments the size is what arrived."""
    parsed = email.message_from_bytes(raw, policy=email.policy.compat32)
    headers = [(name, unfolded(value)) for name, value in parsed.raw_items()]
    named = {name.lower(): value for name, value in headers}
    texts: dict[str, str] = {}
    attachments = []
    for part in leaves(parsed):
        if part.get("Content-Disposition") is None:
            payload = cast(bytes, part.get_payload(decode=True))
            texts[part.get_content_subtype()] = payload.decode(part.get_content_charset())
        else:
            attachments.append(attachment(part))
    return Message(
        sender=mailboxes(named["from"])[0],
        to=mailboxes(named.get("to", "")),
        cc=mailboxes(named.get("cc", "")),
        reply_to=mailboxes(named.get("reply-to", "")),
        subject=decoded(named["subject"]),
        text=texts.get("plain"),
        html=texts.get("html"),
        headers=tuple(
            (name, decoded(value))
            for name, value in headers
            if name not in OURS and not name.startswith("Content-")
        ),
        in_reply_to=named.get("in-reply-to", ""),
        references=tuple(named.get("references", "").split()),
        attachments=tuple(attachments),
    )


def unfolded(value: str) -> str:
    octets = str(value).encode("ascii", "surrogateescape")
    return octets.decode().replace("\r\n", "").removeprefix(" ")


def decoded(value: str) -> str:
    return str(make_header(decode_header(value))) if "=?" in value else value


def mailboxes(value: str) -> tuple[Mailbox, ...]:
    pairs = getaddresses([value])
    return tuple(Mailbox(address, decoded(name)) for name, address in pairs if address)


def leaves(parsed: Parsed) -> Iterator[Parsed]:
    return (part for part in parsed.walk() if not part.is_multipart())


def attachment(part: Parsed) -> Attachment:
    content = cast(bytes, part.get_payload(decode=True))
    return Attachment(
        filename=part.get_filename() or "",
        content_type=unfolded(part["Content-Type"]),
        size=len(content),
        sha256=sha256(content),
        content_id=(part["Content-ID"] or "").strip("<> \r\n"),
        inline=part.get_content_disposition() == "inline",
    )


def sent(message: Message) -> Message:
    """What arrives of it: no Bcc, line ends as MIME has them, what is inline before the rest."""
    texts = {
        name: None if body is None else re.sub(r"(?<!\r)\n", "\r\n", body)
        for name, body in (("text", message.text), ("html", message.html))
    }
    inside = sorted(
        message.attachments, key=lambda one: not (one.inline and message.html is not None)
    )
    return replace(message, bcc=(), attachments=tuple(inside), **texts)
