"""Limits: what is one too much is refused by name, and an installation may say how much that is."""

from dataclasses import fields
from typing import Any

import pytest

from sends.conf import conf
from sends.rules.limits import DEFAULTS, Limits
from sends.rules.proposals import WrongProposal, parse

LEAST: dict[str, Any] = {"action_key": "a", "to": ["jo@example.org"], "text": "Hello"}
FILE = {"filename": "a.txt", "content_type": "text/plain", "content_base64": ""}
FULL: dict[str, tuple[Limits, dict[str, Any], str, str]] = {
    "recipients": (Limits(recipients=1), {"cc": ["al@example.org"]}, "/to", "too_many"),
    "subject": (Limits(subject=3), {"subject": "four"}, "/subject", "too_long"),
    "body": (Limits(body=5), {"html": "<br/>."}, "/html", "too_long"),
    "headers": (Limits(headers=0), {"headers": {"X-A": "1"}}, "/headers", "too_many"),
    "header": (Limits(header=2), {"headers": {"X-A": "123"}}, "/headers/X-A", "too_long"),
    "attachments": (
        Limits(attachments=1),
        {"attachments": [FILE, FILE]},
        "/attachments",
        "too_many",
    ),
    "metadata": (Limits(metadata=9), {"metadata": {"a": "12"}}, "/metadata", "too_large"),
}


def test_every_limit_is_in_the_table() -> None:
    # What an email weighs is asked at intake, and what a request does at the door.
    elsewhere = {"message", "request"}
    assert FULL.keys() == {field.name for field in fields(Limits)} - elsewhere


@pytest.mark.parametrize("name", FULL)
def test_one_too_much_is_refused_with_how_much_is_allowed(name: str) -> None:
    limits, more, pointer, code = FULL[name]
    with pytest.raises(WrongProposal) as refused:
        parse(LEAST | more, limits=limits)
    (wrong,) = refused.value.errors
    assert (wrong.pointer, wrong.code) == (pointer, code)
    assert f"at most {getattr(limits, name)} " in wrong.detail
    parse(LEAST | more)


def test_lengths_are_counted_in_characters_and_metadata_in_bytes() -> None:
    parse(LEAST | {"subject": "👩👩👩"}, limits=Limits(subject=3))
    with pytest.raises(WrongProposal, match="/metadata: at most 10 bytes"):
        parse(LEAST | {"metadata": {"a": "ää"}}, limits=Limits(metadata=10))


def test_an_installation_that_sets_nothing_has_the_defaults() -> None:
    assert conf.limits == DEFAULTS
