"""Files of emails, read one email after the other: JSON lines, .eml, mbox, and folders of them."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sends.rules.proposals import Wrong

STDIN = "-"
SUFFIXES = (".jsonl", ".eml", ".mbox")
# What the attachments of one email may be, in base64, with its text and HTML.
MAX_BYTES = 64_000_000
MAX_LINE = 1_000_000  # of a mailbox, in one piece
BOM = b"\xef\xbb\xbf"

# A From line has a time in it, and a header field after it: a sentence that begins so has not.
FROM = re.compile(rb"From .*\d\d:\d\d")
FIELD = re.compile(rb"[!-9;-~]+[ \t]*:|>From ")
QUOTED = re.compile(rb">+From ")


class NoSource(Exception):
    """A name on the command line that stands for nothing that can be read."""


@dataclass(frozen=True)
class Item:
    """One email as it lies there, or what is wrong before it was looked at.

    `place` names file and line; `size` is how many bytes were read since the item before.
    """

    place: str
    size: int
    raw: bytes = b""
    is_json: bool = False
    wrong: Wrong | None = None


class Sources:
    """What the names on the command line stand for; "-" is `stdin`, in JSON lines.

    Iterate once or more; never more than one email is in memory. Folders are read with all that
    is in them, sorted, each folder once even where links lead in a circle. `passed_over` counts
    the files in them that are none of ours. `size` is bytes in all; None where nobody can know.
    Raises NoSource at once for a name that is wrong, or a folder that may not be read.
    """

    def __init__(self, names: Sequence[str], stdin: BinaryIO) -> None:
        self.names = names
        self.stdin = stdin
        self.passed_over = 0
        for name in names:
            if name != STDIN:
                _refuse_unknown(Path(name))
        # Every folder is looked into before the first email is taken.
        size = sum(_size(path) for path in self._paths())
        self.size = None if STDIN in names else size

    def __iter__(self) -> Iterator[Item]:
        self.passed_over = 0
        for name in self.names:
            if name == STDIN:
                yield from json_lines("standard input", self.stdin)
            else:
                for path in self._files(Path(name), set()):
                    yield from _items(path)

    def _paths(self) -> Iterator[Path]:
        for name in self.names:
            if name != STDIN:
                yield from self._files(Path(name), set())

    def _files(self, path: Path, seen: set[Path]) -> Iterator[Path]:
        if not path.is_dir():
            yield path
            return
        if (real := path.resolve()) in seen:
            return
        seen.add(real)
        for inside in _inside(path):
            if os.path.isdir(inside):  # noqa: PTH112 (that of Path raises where nobody may know)
                yield from self._files(inside, seen)
            elif inside.suffix.lower() in SUFFIXES:
                yield inside
            else:
                self.passed_over += 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # told of when it is its turn
        return 0


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise NoSource(f"{folder} cannot be read: {error.strerror}.") from None


def _refuse_unknown(path: Path) -> None:
    try:
        is_there, is_folder = path.exists(), path.is_dir()
    except OSError as error:
        raise NoSource(f"{path} cannot be read: {error.strerror}.") from None
    if not is_there:
        raise NoSource(f"There is no {path}.")
    if is_folder:
        return
    if path.suffix.lower() not in SUFFIXES and not _looks_like_mbox(path):
        raise NoSource(f"{path} is none of {', '.join(SUFFIXES)}, by its name.")


def _looks_like_mbox(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(5) == b"From "
    except OSError:
        return False


def _items(path: Path) -> Iterator[Item]:
    name = str(path)
    try:
        with path.open("rb") as file:
            match path.suffix.lower():
                case ".jsonl":
                    yield from json_lines(name, file)
                case ".eml":
                    yield eml(name, file)
                case _:
                    yield from mailbox(name, file)
    except OSError as error:
        yield Item(name, 0, wrong=Wrong("", "unreadable", error.strerror or str(error)))


def eml(name: str, file: BinaryIO) -> Item:
    raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        return Item(name, len(raw), wrong=TOO_LARGE)
    return Item(name, len(raw), raw)


def json_lines(name: str, file: BinaryIO) -> Iterator[Item]:
    """One document a line; a line that is too long is skipped without being held."""
    size = 0
    for number, (line, read) in enumerate(_lines(file), 1):
        size += read
        if number == 1:
            line = line.removeprefix(BOM)
        place = f"{name}:{number}"
        if read > MAX_BYTES:
            yield Item(place, size, wrong=TOO_LARGE)
        elif line.strip():
            yield Item(place, size, line, is_json=True)
        else:
            continue
        size = 0


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each line, cut at one byte more than may be, and how long it really was."""
    while line := file.readline(MAX_BYTES + 1):
        read = len(line)
        rest = line
        while read > MAX_BYTES and rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE)
            read += len(rest)
        yield line, read


def mailbox(name: str, file: BinaryIO) -> Iterator[Item]:
    """The messages of an mbox, the > before From lines taken away (mboxrd).

    A message begins at a From line after an empty one, if a header field follows.
    """
    message: _Message | None = None
    number, starts_line, after_empty = 1, True, True
    held: bytes | None = None
    while line := file.readline(MAX_LINE):
        if held is not None:
            if FIELD.match(line):
                if message is not None:
                    yield message.item(name)
                message = _Message(number - 1, len(held))
            elif message is not None:
                message.add(held)
            held = None
        if starts_line and after_empty and FROM.match(line):
            held = line
        elif message is None:
            yield Item(f"{name}:1", len(line), wrong=NO_MAILBOX)
            return
        else:
            message.add(line)
        after_empty = starts_line and not line.strip(b"\r\n")
        starts_line = line.endswith(b"\n")
        number += starts_line
    if message is not None:
        yield message.item(name)


class _Message:
    """A message of a mailbox, as far as it was read."""

    def __init__(self, line: int, size: int) -> None:
        self.line = line
        self.size = size
        self.text = bytearray()
        self.last = 0  # where in it the last line begins

    def add(self, line: bytes) -> None:
        self.size += len(line)
        if self.size > MAX_BYTES:
            self.text.clear()
        else:
            self.last = len(self.text)
            self.text += line[1:] if line[:1] == b">" and QUOTED.match(line) else line

    def item(self, name: str) -> Item:
        place = f"{name}:{self.line}"
        if self.size > MAX_BYTES:
            return Item(place, self.size, wrong=TOO_LARGE)
        if not self.text[self.last :].strip(b"\r\n"):
            del self.text[self.last :]  # the empty line before the next From line
        return Item(place, self.size, bytes(self.text))


TOO_LARGE = Wrong("", "too_large", f"at most {MAX_BYTES // 1_000_000} MB of one email are read")
NO_MAILBOX = Wrong("", "not_mbox", "is no mailbox: it does not begin with a From line")
