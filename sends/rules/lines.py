"""On which line of a TOML text each key stands, which the standard library's parser forgets."""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

Path = tuple[str | int, ...]

BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
STRINGS = (
    re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}', re.DOTALL),
    re.compile(r"'''(?:[^']|'(?!''))*'{3,5}"),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)
BARE = re.compile(r"[^,\]}#\r\n]+")
KEY = re.compile(r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^="'\]\n])+""")


def lines_of(text: str) -> dict[Path, int]:
    """The line of every key, table and element, counted from 1.

    The text must be one that `tomllib` has read: this only walks it and checks nothing.
    """
    return _Walk(text).document()


def line_at(lines: Mapping[Path, int], path: Path) -> int:
    """The line of `path`, else that of the nearest table around it, else the first."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Walk:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}  # of the tables so far in each array of tables

    def document(self) -> dict[Path, int]:
        table: Path = ()
        self.take(BLANK)
        while self.at < len(self.text):
            if self.next_is("["):
                table = self.header()
            else:
                self.pair(table)
            self.take(BLANK)
        return self.lines

    def header(self) -> Path:
        line = self.line()
        many = self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        path = self.table(self.key(), is_new_element=many)
        self.at += 2 if many else 1
        self.note(path, line)
        return path

    def table(self, key: tuple[str, ...], *, is_new_element: bool) -> Path:
        """The full path: each array of tables on the way means its last element."""
        path: Path = ()
        for depth, part in enumerate(key, start=1):
            path += (part,)
            if is_new_element and depth == len(key):
                self.counts[path] = self.counts.get(path, 0) + 1
            if path in self.counts:
                path += (self.counts[path] - 1,)
        return path

    def pair(self, table: Path) -> None:
        line = self.line()
        path = (*table, *self.key())
        self.note(path, line)
        self.at += 1  # the equals sign
        self.take(BLANK)
        self.value(path)

    def note(self, path: Path, line: int) -> None:
        """Also for the tables around it that have no line of their own."""
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], line)

    def key(self) -> tuple[str, ...]:
        inner: Any = tomllib.loads(f"{self.take(KEY)} = 0")
        parts = []
        while isinstance(inner, dict):
            ((part, inner),) = inner.items()
            parts.append(part)
        return tuple(parts)

    def value(self, path: Path) -> None:
        if self.next_is("["):
            self.array(path)
        elif self.next_is("{"):
            self.inline_table(path)
        elif not any(self.take(string) for string in STRINGS):
            self.take(BARE)

    def array(self, path: Path) -> None:
        self.at += 1
        index = 0
        while not self.closed_by("]"):
            self.lines[(*path, index)] = self.line()
            self.value((*path, index))
            index += 1

    def inline_table(self, path: Path) -> None:
        self.at += 1
        while not self.closed_by("}"):
            self.pair(path)

    def closed_by(self, bracket: str) -> bool:
        """Step over white space, comments and a comma; then over the bracket, if it is next."""
        self.take(BLANK)
        if self.next_is(","):
            self.at += 1
            self.take(BLANK)
        if not self.next_is(bracket):
            return False
        self.at += 1
        return True

    def next_is(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.at = found.end()
        return found[0]

    def line(self) -> int:
        return bisect_right(self.starts, self.at)
