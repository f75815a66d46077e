"""Domains that may be mistaken for others: of mixed alphabets, or of one that poses as Latin.

What browsers go by before they show a domain in letters; a list of all domains worth posing as
would be another matter.
"""

import re
import unicodedata

from sends.rules.addresses import in_letters

# Written side by side, also with Latin, by those who use them.
ASIAN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})
# Letters that could be Latin ones in most typefaces.
POSING = {
    "CYRILLIC": frozenset("аысԁеԍһіюјӏорԗԛѕԝхуъьҽпгѵѡ"),
    "GREEK": frozenset("αικνρυωηοτ"),
}


def why_mistaken(domain: str) -> str:
    """For what reason the domain may be taken for another, in words; "" where there is none."""
    written = in_letters(domain)
    labels = written.split(".")
    for label in labels:
        alphabets = _alphabets(label)
        others = alphabets - ASIAN
        if len(others) > 1 or (others != alphabets and others - {"LATIN"}):
            names = [name.capitalize() if name != "CJK" else "Chinese" for name in alphabets]
            return f"{written} mixes {' and '.join(sorted(names))} letters"
        for name, posing in POSING.items():
            if alphabets == {name} and labels[-1].isascii() and posing.issuperset(_letters(label)):
                return f"{written} is in {name.capitalize()} letters that look like Latin ones"
    return ""


def _alphabets(label: str) -> set[str]:
    """As Unicode names them: "CYRILLIC SMALL LETTER A"."""
    first = {re.split("[ -]", unicodedata.name(letter, ""))[0] for letter in _letters(label)}
    return {"CJK" if name == "IDEOGRAPHIC" else name for name in first} - {"", "MODIFIER"}


def _letters(label: str) -> list[str]:
    return [letter for letter in label if letter.isalpha()]
