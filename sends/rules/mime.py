"""A frozen message as the bytes of an email (RFC 5322 and MIME), the same for every attempt.

Written here rather than by the standard library's `email`, whose folding differs from one release
of Python to the next: a replay must send what the first attempt sent, to the byte. Tests read it
back with that library, which is how far its differences go.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import format_datetime
from urllib.parse import quote

from sends.rules.keys import sha256
from sends.rules.payloads import Attachment, Frozen, Mailbox, Message

LINE = 78  # RFC 5322, 2.1.1: as long as a line should be
LONGEST_LINE = 998  # and as long as it may be
PIECE = 39  # bytes in one encoded word: with "Reply-To: " before it, within RFC 2047's 76

CONTROL = re.compile(r"[\x00-\x1f\x7f]")
LOOKS_ENCODED = re.compile(r"=\?")
LONE_LF = re.compile(r"(?<!\r)\n")
# MIME lets nobody encode these (RFC 2045, 6.4), and a file must arrive as it is.
NEVER_ENCODED = ("message/", "multipart/")


def build(frozen: Frozen, *, date: datetime, contents: Mapping[str, bytes]) -> bytes:
    """The email as it goes to a server that takes it whole. Bcc is not in it: see the envelope.

    `date` must be the same for every attempt. `contents` are the attachments' bytes by their
    SHA-256. All of it is ASCII, but for addresses whose local part is not: those need SMTPUTF8.
    In texts a lone LF is a line end, as MIME has it CRLF, and a lone CR is a letter like others.
    """
    message = frozen.message
    return b"".join([*_head(frozen, date), *_content(message, frozen.idempotency_key, contents)])


def _head(frozen: Frozen, date: datetime) -> Iterator[bytes]:
    message = frozen.message
    yield _mailboxes("From", [message.sender])
    if message.to or not message.cc:
        yield _mailboxes("To", message.to)
    if message.cc:
        yield _mailboxes("Cc", message.cc)
    if message.reply_to:
        yield _mailboxes("Reply-To", message.reply_to)
    yield _line("Subject", message.subject)
    yield _header("Date", [f" {format_datetime(date)}"])
    yield _header("Message-ID", [f" {frozen.message_id}"])
    if message.in_reply_to:
        yield _header("In-Reply-To", [f" {message.in_reply_to}"])
    if message.references:
        yield _header("References", [f" {reference}" for reference in message.references])
    for name, value in message.headers:
        yield _line(name, value)
    yield b"MIME-Version: 1.0\r\n"


# Headers


def _header(name: str, words: Iterable[str]) -> bytes:
    """One header, folded before whichever word no longer fits. A word brings its own space.

    The first one stays beside the name, where that is possible at all: some readers look for a
    Message-ID only there.
    """
    start = f"{name}:"
    lines = [start]
    for word in words:
        if found := CONTROL.search(word):
            raise ValueError(f"the header {name} holds U+{ord(found[0]):04X}")
        length = len(f"{lines[-1]}{word}".encode())
        stays = lines[-1] == start and not LOOKS_ENCODED.search(word) and length <= LONGEST_LINE
        if length <= LINE or stays:
            lines[-1] += word
        else:
            lines.append(word)
    return "\r\n".join([*lines, ""]).encode()


def _line(name: str, text: str) -> bytes:
    """A header of free text, in encoded words unless it is itself what its reader will see."""
    words = re.findall(r" +[^ ]+", f" {text}") if text else []
    is_plain = (
        text.isascii()
        and text == text.strip(" ")
        and not LOOKS_ENCODED.search(text)
        and all(len(word) <= LONGEST_LINE for word in words)
    )
    return _header(name, words if is_plain else _encoded_words(text))


def _mailboxes(name: str, boxes: Sequence[Mailbox]) -> bytes:
    """To is there even when all recipients are in the envelope only."""
    if not boxes:
        return _header(name, [" undisclosed-recipients:;"])
    words: list[str] = []
    for box in boxes:
        words += [*_phrase(box.name), f" <{box.address}>," if box.name else f" {box.address},"]
    return _header(name, [*words[:-1], words[-1].removesuffix(",")])


def _phrase(name: str) -> Iterable[str]:
    if not name:
        return []
    if name.isascii() and len(name) < LINE // 2 and not LOOKS_ENCODED.search(name):
        return [f" {_quoted(name)}"]
    return _encoded_words(name)


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _encoded_words(text: str) -> list[str]:
    """All of the text in words of RFC 2047, none of which ends within a character."""
    pieces = [b""]
    for character in text:
        encoded = character.encode()
        if len(pieces[-1]) + len(encoded) > PIECE:
            pieces.append(b"")
        pieces[-1] += encoded
    return [f" =?utf-8?b?{base64.b64encode(piece).decode()}?=" for piece in pieces]


# Content


def _content(message: Message, key: str, contents: Mapping[str, bytes]) -> Iterator[bytes]:
    """The texts as alternatives, with the HTML what it shows, and beside them the other files."""
    shown = [one for one in message.attachments if one.inline and message.html is not None]
    beside = [one for one in message.attachments if one not in shown]
    bodies = []
    if message.text is not None or message.html is None:
        bodies.append(_text("plain", message.text or ""))
    if message.html is not None:
        files = [_file(one, contents) for one in shown]
        bodies.append(_multipart("related", [_text("html", message.html), *files], key))
    body = _multipart("alternative", bodies, key)
    yield _multipart("mixed", [body, *(_file(one, contents) for one in beside)], key)


def _multipart(kind: str, parts: Sequence[bytes], key: str) -> bytes:
    """The parts together, or the one part alone."""
    if len(parts) == 1:
        return parts[0]
    # No encoded body has a line that begins like this: "=_" is not quoted-printable.
    boundary = f"=_{sha256(f'{kind} {key}'.encode())[:40]}"
    root = ' type="text/html";' if kind == "related" else ""
    head = f'Content-Type: multipart/{kind};{root}\r\n boundary="{boundary}"\r\n\r\n'
    between = f"\r\n--{boundary}\r\n".encode()
    first = f"--{boundary}\r\n".encode()
    return head.encode() + first + between.join(parts) + f"\r\n--{boundary}--\r\n".encode()


def _text(kind: str, text: str) -> bytes:
    """A text, quoted-printable or base64, whichever is shorter."""
    text = LONE_LF.sub("\r\n", text)
    encoding, body = min(
        ("quoted-printable", _quoted_printable(text)),
        ("base64", _base64(text.encode())),
        key=lambda encoded: len(encoded[1]),
    )
    head = f'Content-Type: text/{kind}; charset="utf-8"\r\nContent-Transfer-Encoding: {encoding}'
    return head.encode() + b"\r\n\r\n" + body


def _quoted_printable(text: str) -> bytes:
    """Every line end of the text a real one, and a soft one after a text that has none there."""
    lines = [binascii.b2a_qp(line.encode(), istext=False) for line in text.split("\r\n")]
    last = b"=\r\n" if lines[-1] else b""
    return b"\r\n".join(line.replace(b"\n", b"\r\n") for line in lines) + last


def _base64(content: bytes) -> bytes:
    return base64.encodebytes(content).replace(b"\n", b"\r\n")


def _file(attachment: Attachment, contents: Mapping[str, bytes]) -> bytes:
    kind = attachment.content_type
    if kind.lower().startswith(NEVER_ENCODED):
        kind = "application/octet-stream"
    way = "inline" if attachment.inline else "attachment"
    head = [
        _line("Content-Type", kind),
        _header("Content-Disposition", [f" {way};", *_parameter("filename", attachment.filename)]),
        b"Content-Transfer-Encoding: base64\r\n",
    ]
    if attachment.content_id:
        head.append(_header("Content-ID", [f" <{attachment.content_id}>"]))
    return b"".join(head) + b"\r\n" + _base64(contents[attachment.sha256])


def _parameter(name: str, value: str) -> list[str]:
    """A parameter of a header; by RFC 2231 where it is not short and ASCII."""
    if value.isascii() and len(value) < LINE // 2:
        return [f" {name}={_quoted(value)}"]
    whole = f"utf-8''{quote(value, safe='')}"
    pieces = re.findall(r"(?:%..|[^%]){1,50}", whole)
    if len(pieces) == 1:
        return [f" {name}*={whole}"]
    last = len(pieces) - 1
    return [f" {name}*{at}*={piece}{';' * (at < last)}" for at, piece in enumerate(pieces)]
