"""Action keys and idempotency keys: the same facts, the same key, and nothing else in it."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.keys import (
    ACTION_KEY,
    canonical,
    derived_action_key,
    idempotency_key,
    sha256,
)

FACTS: dict[str, Any] = {
    "tenant": "0190a1b2-0000-7000-8000-000000000001",
    "action_key": "refund:7731",
    "version": 1,
    "run": "run-1",
    "recipients": ["al@example.org", "jo@example.org"],
    "template": "refund",
    "context_hash": "abc",
}


def test_an_idempotency_key_never_changes() -> None:
    # Written down: were it computed otherwise, a retry after an upgrade would be a second message.
    assert idempotency_key(**FACTS) == "286bfb5578dd6fd48adca3214d55bed1d946e450"


def test_its_form_fits_every_provider() -> None:
    assert re.fullmatch(r"[0-9a-f]{40}", idempotency_key(**FACTS))


def test_the_order_of_the_recipients_means_nothing() -> None:
    turned = FACTS | {"recipients": FACTS["recipients"][::-1]}
    assert idempotency_key(**turned) == idempotency_key(**FACTS)


@pytest.mark.parametrize(
    "change",
    [
        {"tenant": "0190a1b2-0000-7000-8000-000000000002"},
        {"action_key": "refund:7732"},
        {"version": 2},
        {"run": "run-2"},
        {"recipients": ["al@example.org"]},
        {"recipients": ["al@example.org", "Jo@example.org"]},
        {"recipients": ["al@example.org", "jo@example.org", "jo@example.org"]},
        {"template": "reminder"},
        {"context_hash": "abd"},
        {"run": "", "template": "run-1refund"},  # facts do not run into each other
    ],
)
def test_each_fact_makes_another_key(change: dict[str, Any]) -> None:
    assert idempotency_key(**FACTS | change) != idempotency_key(**FACTS)


def test_a_derived_action_key_is_an_action_key_and_never_changes() -> None:
    key = derived_action_key(
        run="run-1", template="refund", context_hash="abc", recipients=["Jo@Example.org"]
    )
    assert key == "derived:e561bb0647d1de07c6d70aceb95658a3207595b5"
    assert ACTION_KEY.fullmatch(key)


def test_a_derived_action_key_folds_case_and_order_of_the_recipients() -> None:
    def derived(*recipients: str) -> str:
        return derived_action_key(run="r", template="t", context_hash="c", recipients=recipients)

    assert derived("Jo@Example.org", "al@example.org") == derived(
        "AL@example.org", "jo@EXAMPLE.ORG"
    )
    assert derived("jo@example.org") != derived("jo@example.org", "al@example.org")


def test_a_derived_key_can_be_told_from_a_given_one() -> None:
    key = derived_action_key(run="", template="", context_hash="", recipients=[])
    assert key.startswith("derived:")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=5))
def test_canonical_json_has_one_spelling(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert canonical(value) == canonical(turned)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [1, 2]}, b'{"a":[1,2],"b":1}'),
        ("Grüße", '"Grüße"'.encode()),
        (None, b"null"),
        ({}, b"{}"),
    ],
)
def test_canonical_json_is_sorted_tight_and_utf_8(value: Any, expected: bytes) -> None:
    assert canonical(value) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800"])
def test_what_has_no_spelling_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(ValueError, match=r"compliant|surrogates"):
        canonical(value)


def test_sha256_is_written_in_lower_case_hexadecimal() -> None:
    assert sha256(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
