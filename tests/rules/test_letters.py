"""Letters that nobody sees are named, and no others."""

import pytest

from sends.rules.letters import letters_of


@pytest.mark.parametrize(
    ("text", "odd"),
    [
        ("Grüße, 你好, שלום!\n\tNew line", []),
        ("pay\u202elive.exe", ["U+202E"]),
        ("zero\u200bwidth \ufeff", ["U+200B", "U+FEFF"]),
        ("soft\u00adhyphen", ["U+00AD"]),
        ("bell\x07", ["U+0007"]),
        ("line\u2028end", ["U+2028"]),
        ("👩\u200d💻", []),  # a profession is joined from two pictures
        ("a\u200db", ["U+200D"]),
        ("", []),
    ],
)
def test_odd_letters(text, odd):
    found = list(letters_of(text))
    assert [letters.text for letters in found if letters.is_odd] == odd
    by_name = {f"U+{ord(letter):04X}": letter for letter in text}
    assert "".join(by_name[part.text] if part.is_odd else part.text for part in found) == text
