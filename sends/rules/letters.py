"""Letters that nobody sees, or that turn a line around, made visible."""

import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

JOINER = "\u200d"
PLAIN = "\t\n\r"


class Letters(NamedTuple):
    """A stretch of text; an odd one is the name of a letter that would not be seen."""

    text: str
    is_odd: bool


def letters_of(text: str) -> Iterator[Letters]:
    """The text in stretches, each odd letter in one of its own: "U+202E"."""
    for is_odd, group in groupby(enumerate(text), lambda pair: _is_odd(text, *pair)):
        if is_odd:
            yield from (Letters(f"U+{ord(letter):04X}", True) for _, letter in group)
        else:
            yield Letters("".join(letter for _, letter in group), False)


def _is_odd(text: str, at: int, letter: str) -> bool:
    if letter.isascii():
        return not letter.isprintable() and letter not in PLAIN
    if letter == JOINER:
        # Families and professions among the emoji are joined by it.
        return not (0 < at < len(text) - 1 and _is_picture(text[at - 1]))
    return unicodedata.category(letter) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


def _is_picture(letter: str) -> bool:
    return unicodedata.category(letter) in ("So", "Sk", "Mn")
