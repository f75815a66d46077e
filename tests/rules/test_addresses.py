"""One normal form in which addresses are compared."""

import pytest

from sends.rules.addresses import domain_of, normal


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Reader@Example.ORG", "reader@example.org"),
        ("reader@example.org.", "reader@example.org"),
        ("reader@bücher.example", "reader@xn--bcher-kva.example"),
        ("reader@BÜCHER.example", "reader@xn--bcher-kva.example"),
        ("STRASSE@example.org", "straße@example.org"),
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


def test_a_normal_form_is_its_own_normal_form() -> None:
    once = normal("Ünïcode+Tag@BÜCHER.Example.")
    assert normal(once) == once
