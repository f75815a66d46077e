"""One form in which addresses are sent, one in which they are compared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.addresses import (
    as_sent,
    domain_of,
    has_plain_letters,
    in_letters,
    normal,
    of_person,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Reader@Example.ORG", "reader@example.org"),
        ("reader@example.org.", "reader@example.org"),
        ("reader@bücher.example", "reader@xn--bcher-kva.example"),
        ("reader@BÜCHER.example", "reader@xn--bcher-kva.example"),
        ("STRASSE@example.org", "straße@example.org"),
        ('"reader"@example.org', "reader@example.org"),  # quotes that nothing needs
        ('"re\\ader.x"@example.org', "reader.x@example.org"),
        ('"a\\ b"@example.org', '"A b"@example.org'),
        (
            "jose\u0301@example.org",
            "jos\u00e9@example.org",
        ),  # one letter, or a letter and its accent
    ],
)
def test_two_spellings_of_one_mailbox_have_one_normal_form(one: str, other: str) -> None:
    assert normal(one) == normal(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("jo+orders@example.org", "jo@example.org"),  # a tag may be another person's filter
        ("j.o@example.org", "jo@example.org"),
        ("jo@mail.example.org", "jo@example.org"),
        ("jo@faß.example", "jo@fass.example"),  # two domains in IDNA 2008
        ('"jo."@example.org', "jo@example.org"),
        ('"j o"@example.org', "jo@example.org"),
        ('"\\"jo\\""@example.org', "jo@example.org"),  # these quotes are part of the name
        ("ﬁn@example.org", "fin.@example.org"),
    ],
)
def test_two_mailboxes_are_not_taken_for_one(one: str, other: str) -> None:
    assert normal(one) != normal(other)


@pytest.mark.parametrize(
    ("address", "domain"),
    [
        ("reader@Mail.Example.ORG", "mail.example.org"),
        ('"a@b"@example.org', "example.org"),
        ("reader@bücher.example", "xn--bcher-kva.example"),
        ("reader@not_a_domain", "not_a_domain"),  # intake refuses it; comparing must not fail
        ("reader@", ""),
        ("reader", "reader"),
    ],
)
def test_a_domain_is_read_from_any_address(address: str, domain: str) -> None:
    assert domain_of(address) == domain


@given(
    st.text(st.sampled_from('aZ."\\ @ßİ\u0301\u0390é+üﬁ,'), max_size=12),
    st.sampled_from(["@BÜCHER.Example.", "@xn--bcher-kva.example", "@not_a_domain", ""]),
)
def test_a_normal_form_is_its_own_normal_form(local: str, domain: str) -> None:
    once = normal(local + domain)
    assert normal(once) == once


LOCALS = st.text(st.sampled_from("abzXYZ019+.!#$%&'*/=?^_`{|}~-üé用ñ"), min_size=1, max_size=64)


@given(LOCALS, st.sampled_from(["example.org", "EXAMPLE.org", "bücher.example", "例え.テスト"]))
def test_a_local_part_is_never_rewritten(local: str, domain: str) -> None:
    try:
        sent = as_sent(f"{local}@{domain}")
    except ValueError:
        return
    assert sent.rpartition("@")[0] == local
    assert sent.rpartition("@")[2].isascii()
    assert normal(sent) == normal(f"{local}@{domain}")
    assert len(normal(sent)) <= 320  # what its column takes


@pytest.mark.parametrize(
    ("address", "letters"),
    [
        ("jo@xn--bcher-kva.example", "bücher.example"),
        ("jo@bücher.example", "bücher.example"),
        ("jo@example.org", ""),
        ("jo@xn--zzzzz9999.example", ""),
        ("jo", ""),
    ],
)
def test_people_read_a_domain_in_its_letters(address: str, letters: str) -> None:
    assert in_letters(address) == letters


@pytest.mark.parametrize(
    ("address", "kept", "plain"),
    [
        (" Jo.Smith+Box@Example.COM ", "jo.smith+box@example.com", True),
        ("jo@BÜCHER.example", "jo@bücher.example", True),
        ("\N{KELVIN SIGN}im@example.com", "\N{KELVIN SIGN}im@example.com", False),
        (
            "je\N{LATIN SMALL LETTER LONG S}@example.com",
            "je\N{LATIN SMALL LETTER LONG S}@example.com",
            False,
        ),
        ("no address", "@no address", True),
        ("", "@", True),
    ],
)
def test_only_ascii_capitals_of_a_persons_address_are_folded(
    address: str, kept: str, plain: bool
) -> None:
    assert of_person(address) == kept
    assert has_plain_letters(address) == plain
