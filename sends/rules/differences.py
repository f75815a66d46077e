"""What changed between two versions of an email, line by line and word by word."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from sends.rules.payloads import Attachment, Mailbox, Message

WORD = re.compile(r"\s+|\w+|[^\w\s]")
# A body of HTML is often one line: between two tags is where it is cut.
LINES = re.compile(r"\n|(?<=>)(?=<)")
PLAIN_WORDS = re.compile(r"\w+(?: \w+)*")
# Comparing takes the product of both lengths; beyond this a stretch counts as replaced.
MOST_PAIRS = 4_000_000
LABELS = ("From", "To", "Cc", "Bcc", "Reply-To", "Subject", "Plain text", "HTML", "Attachments")
AROUND = 2  # lines shown before and after a change
FEW = 3  # lines that are not worth leaving out


class Piece(NamedTuple):
    text: str
    changed: bool


class Row(NamedTuple):
    """A line before, in pieces, and after; None where there is none. `alike`: lines left out."""

    before: list[Piece] | None
    after: list[Piece] | None
    alike: int = 0

    @property
    def is_changed(self) -> bool:
        return any(piece.changed for piece in [*(self.before or []), *(self.after or [])])


class Part(NamedTuple):
    """One part of an email, compared."""

    label: str
    rows: list[Row]
    changes: int


def compare(before: Message, after: Message) -> list[Part]:
    """Every part that both or one of them has; a part that stayed the same has no changes."""
    pairs = [(label, lines_of(before, label), lines_of(after, label)) for label in LABELS]
    return [_part(label, old, new) for label, old, new in pairs if old or new]


def lines_of(message: Message, label: str) -> list[str]:
    boxes = {
        "From": (message.sender,),
        "To": message.to,
        "Cc": message.cc,
        "Bcc": message.bcc,
        "Reply-To": message.reply_to,
    }
    if label in boxes:
        return [written(box) for box in boxes[label]]
    if label == "Attachments":
        return [_file(one) for one in message.attachments]
    if label == "Subject":
        return [message.subject]
    body = message.text if label == "Plain text" else message.html
    return [] if body is None else LINES.split(body.replace("\r\n", "\n"))


def _file(one: Attachment) -> str:
    """An attachment in a line: two that differ in anything differ here."""
    shown = f" (in the HTML as {one.content_id})" if one.inline else f" ({one.content_id})"
    where = shown if one.content_id else ""
    return f"{one.filename}{where}: {one.content_type}, {one.size} bytes, SHA-256 {one.sha256}"


def written(box: Mailbox) -> str:
    """A mailbox as people write it."""
    return f"{box.name} <{box.address}>" if box.name else box.address


def quoted(box: Mailbox) -> str:
    """The same as one string of a proposal: its name in quotes, unless it is plain words."""
    if not box.name or PLAIN_WORDS.fullmatch(box.name):
        return written(box)
    name = re.sub(r'(["\\])', r"\\\1", box.name)
    return f'"{name}" <{box.address}>'


def _part(label: str, before: Sequence[str], after: Sequence[str]) -> Part:
    rows: list[Row] = []
    steps = _opcodes(before, after)
    for place, (kind, i, j, k, m) in enumerate(steps):
        if kind == "equal":
            follows, is_followed = place > 0, place + 1 < len(steps)
            rows += _alike(before[i:j], AROUND * follows, AROUND * is_followed)
        else:
            rows += _changed(before[i:j], after[k:m])
    return Part(label, rows, sum(kind != "equal" for kind, *_ in steps))


def _alike(lines: Sequence[str], head: int, tail: int) -> Iterator[Row]:
    """Of a stretch that stayed the same, so many lines at its head and tail, and a count."""
    if len(lines) <= head + tail + FEW:
        head, tail = len(lines), 0
    end = len(lines) - tail
    yield from (_same(line) for line in lines[:head])
    if head < end:
        yield Row(None, None, end - head)
    yield from (_same(line) for line in lines[end:])


def _same(line: str) -> Row:
    pieces = [Piece(line, False)]
    return Row(pieces, pieces)


def _changed(before: Sequence[str], after: Sequence[str]) -> Iterator[Row]:
    both = min(len(before), len(after))
    for old, new in zip(before, after, strict=False):
        yield Row(*_words(old, new))
    for old in before[both:]:
        yield Row([Piece(old, True)], None)
    for new in after[both:]:
        yield Row(None, [Piece(new, True)])


def _words(before: str, after: str) -> tuple[list[Piece], list[Piece]]:
    old, new = WORD.findall(before), WORD.findall(after)
    left: list[Piece] = []
    right: list[Piece] = []
    for kind, i, j, k, m in _opcodes(old, new):
        for pieces, words in ((left, old[i:j]), (right, new[k:m])):
            if words:
                pieces.append(Piece("".join(words), kind != "equal"))
    return left, right


def _opcodes(
    before: Sequence[str], after: Sequence[str]
) -> Sequence[tuple[str, int, int, int, int]]:
    if len(before) * len(after) > MOST_PAIRS:
        kind = "equal" if before == after else "replace"
        return [(kind, 0, len(before), 0, len(after))]
    return SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
