"""The header fields of an email, in Unicode and on one line; and what some of them are made of."""

import base64
import binascii
import re
from email.errors import NonASCIILocalPartDefect, ObsoleteHeaderDefect
from email.policy import default as email_policy
from typing import Any, NamedTuple

from sends.rules.charsets import NotText, read_text
from sends.rules.fields import BETWEEN_ENCODED_WORDS, ENCODED_WORD, PARSER_FAILS

MAX_HEADER = 65_536  # the parser takes its time over longer ones
HARMLESS = (ObsoleteHeaderDefect, NonASCIILocalPartDefect)

FOLD = re.compile(r"\r?\n([ \t]+)")
WORDS = re.compile(rf"(?:{ENCODED_WORD.pattern})+")
# A quoted string that is no local part, and no extended parameter (RFC 2231).
QUOTED = r'(?<!\*=)"(?:[^"\\]|\\.)*"(?!@)'
SPOKEN = re.compile(rf"{QUOTED}|{WORDS.pattern}")
QUOTED_PAIR = re.compile(r"\\(.)")
FIRST_STAND_IN = 0x100000  # of the last private plane: no text has these
STAND_INS = re.compile("[\U00100000-\U0010ffff]")
IDS = re.compile(r"<[^<>\s]+>")


class NotCarried(Exception):
    """Something that an email says and a proposal cannot; nothing of it was left out in silence."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Mailboxes(NamedTuple):
    boxes: list[dict[str, str]]  # as a proposal has them
    groups: list[str]  # names of groups, which a proposal cannot have


def unfolded(raw: str) -> str:
    """The value on one line. Bytes that are neither ASCII nor UTF-8 are not guessed at."""
    if len(raw) > MAX_HEADER:
        raise NotCarried("too_long", f"at most {MAX_HEADER:,} bytes of a header field are read")
    line = FOLD.sub(lambda fold: fold[1].replace("\t", " "), raw).strip(" \t\r\n")
    try:
        return line.encode("ascii", "surrogateescape").decode("utf-8")
    except UnicodeError:
        raise NotCarried(
            "charset", "holds bytes that are neither ASCII, nor UTF-8, nor an encoded word"
        ) from None


def written_out(line: str) -> str:
    """The line as people read it, its encoded words (RFC 2047) decoded."""
    joined = BETWEEN_ENCODED_WORDS.sub(r"\1", line)
    text = WORDS.sub(lambda run: _decoded(run[0]), joined)
    if ENCODED_WORD.search(text):
        raise NotCarried("encoded_word", "holds an encoded word inside another")
    return text


class Structured(NamedTuple):
    """A field as the standard library takes it apart, and what stands for its spoken parts."""

    header: Any
    spoken: list[str]

    def filled(self, text: str) -> str:
        if any(
            ord(found) - FIRST_STAND_IN >= len(self.spoken) for found in STAND_INS.findall(text)
        ):
            raise PRIVATE
        return STAND_INS.sub(lambda found: self.spoken[ord(found[0]) - FIRST_STAND_IN], text)


PRIVATE = NotCarried("header", "holds characters of the last private plane of Unicode")


def structured(name: str, raw: str) -> Structured:
    """The field, for the parser of the standard library, which does not see all of it.

    That puts U+FFFD where it cannot decode, cannot join letters that were cut in two by the end
    of an encoded word, and makes several spaces one. So a letter stands in for each quoted string
    and run of encoded words, and `filled` puts back what they say.
    """
    line = BETWEEN_ENCODED_WORDS.sub(r"\1", unfolded(raw))
    if STAND_INS.search(line):
        raise PRIVATE
    spoken: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        is_quoted = found[0].startswith('"')
        said = QUOTED_PAIR.sub(r"\1", found[0][1:-1]) if is_quoted else found[0]
        spoken.append(written_out(said))
        return chr(FIRST_STAND_IN + len(spoken) - 1)

    try:
        return Structured(email_policy.header_factory(name, SPOKEN.sub(stand_in, line)), spoken)
    except PARSER_FAILS:
        raise NotCarried("header", f"cannot be read: {line[:80]}") from None


def mailboxes(name: str, raw: str) -> Mailboxes:
    field = structured(name, raw)
    boxes = [
        {"name": field.filled(box.display_name), "address": box.addr_spec}
        for box in field.header.addresses
    ]
    wrong = [found for found in field.header.defects if not isinstance(found, HARMLESS)]
    if wrong or any(STAND_INS.search(box["address"]) for box in boxes):
        why = f" ({wrong[0]})" if wrong else ""
        raise NotCarried("mailbox", f"is no list of mailboxes{why}: {unfolded(raw)[:80]}")
    groups = [group.display_name for group in field.header.groups]
    return Mailboxes(boxes, [field.filled(group) for group in groups if group is not None])


def message_ids(line: str) -> list[str]:
    """The Message-IDs of a thread; words between them mean nothing (RFC 5322, 4.5.4)."""
    if "<" in (between := IDS.sub("", line)) or ">" in between:
        return line.split()  # brackets that belong to no id: to be refused as what they are
    return IDS.findall(line)


def _decoded(run: str) -> str:
    """The text of adjacent encoded words. Those of one charset are joined as bytes."""
    text = ""
    raw, last = b"", ""
    for charset, encoding, data in ENCODED_WORD.findall(run):
        charset = charset.partition("*")[0].lower()  # RFC 2231 adds a language
        if charset != last:
            text += _text(raw, last)
            raw, last = b"", charset
        raw += _bytes(encoding, data)
    return text + _text(raw, last)


def _bytes(encoding: str, data: str) -> bytes:
    try:
        if encoding in "qQ":
            return binascii.a2b_qp(data.encode("ascii"), header=True)
        return base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
    except ValueError:
        raise NotCarried("encoded_word", "holds an encoded word that cannot be read") from None


def _text(raw: bytes, charset: str) -> str:
    try:
        return read_text(raw, charset) if raw else ""
    except NotText as error:
        raise NotCarried("charset", f"an encoded word of it {error}") from None
