"""Which domains may be mistaken for others, and which are simply not Latin."""

import pytest

from sends.rules.addresses import domain_of
from sends.rules.lookalikes import why_mistaken


@pytest.mark.parametrize(
    ("domain", "why"),
    [
        ("p\u0430ypal.example", "mixes Cyrillic and Latin letters"),
        ("mail.g\u03bfogle.example", "mixes Greek and Latin letters"),
        ("\u043e\u0561.example", "mixes Armenian and Cyrillic letters"),
        ("日本\u0430.example", "mixes Chinese and Cyrillic letters"),
        # No alphabet is mixed, and yet it reads "apple".
        (
            "\u0430\u0440\u0440\u04cf\u0435.example",
            "is in Cyrillic letters that look like Latin ones",
        ),
        ("\u03bd\u03bf\u03c4\u03b1.example", "is in Greek letters that look like Latin ones"),
    ],
)
def test_a_domain_that_poses_as_another_is_named(domain: str, why: str) -> None:
    assert why_mistaken(domain) == why_mistaken(domain_of(domain)) == f"{domain} {why}"


@pytest.mark.parametrize(
    "domain",
    [
        "example.org",
        "bücher.example",
        "xn--bcher-kva.example",
        "faß.example",
        "почта.example",  # Cyrillic, and it looks like nothing else
        "\u0430\u0440\u0440\u04cf\u0435.рф",  # where all domains are Cyrillic, nobody reads Latin
        "例え.テスト",
        "東京カラオケ-live.example",
        "한국abc.example",
        "עברית.example",
        "हिन्दी.example",
        "abc123.example",
        "xn--zzzzz9999.example",
        "",
    ],
)
def test_a_domain_in_letters_of_its_own_is_none(domain: str) -> None:
    assert why_mistaken(domain) == ""
