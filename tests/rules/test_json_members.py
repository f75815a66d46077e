"""The members of an array are found without reading them, and a broken frame is refused whole."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.json_members import TooMany, members_of
from sends.rules.strict_json import MAX_DEPTH, NotJson

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.lists(anything), st.sampled_from([None, 0, 2]), st.booleans())
def test_each_member_is_found_as_a_whole(
    members: list[Any], indent: int | None, ensure_ascii: bool
) -> None:
    raw = json.dumps(members, indent=indent, ensure_ascii=ensure_ascii).encode(
        "utf-8", "surrogatepass"
    )
    found = [json.loads(raw[place]) for place in members_of(raw, most=1000)]
    assert found == members


@given(st.binary())
def test_bytes_of_any_kind_are_an_array_or_refused(raw: bytes) -> None:
    try:
        members_of(raw, most=10)
    except (NotJson, TooMany):
        return
    assert raw.strip(b" \t\r\n").startswith(b"[")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "too early"),
        (b" ", "too early"),
        (b"{}", "begin with ["),
        (b'{"a": [1]}', "begin with ["),
        (b"\xef\xbb\xbf[]", "begin with ["),
        (b"[", "too early"),
        (b"[1", "too early"),
        (b"[1,", "too early"),
        (b"[1,]", "missing"),
        (b"[,1]", "missing"),
        (b"[1,,2]", "missing"),
        (b"[1 2]", "comma"),
        (b"[{} {}]", "comma"),
        (b"[}]", "comma"),
        (b"[1] 2", "follows"),
        (b"[1]]", "follows"),
        (b'["a]', "no end"),
        (b'["a\\"]', "no end"),
        (b"[" * 100_000, "too deeply"),
        (b'[{"a": [' * 50_000, "too deeply"),
        (b"[[" + b"[]," * 4_000_000, "too many values"),
    ],
)
def test_what_is_no_array(raw: bytes, said: str) -> None:
    with pytest.raises(NotJson, match=said.replace("[", r"\[")):
        members_of(raw, most=500)


def test_a_member_that_is_no_json_is_a_member_all_the_same() -> None:
    raw = b'[{"a":}, nonsense, {"a": 1]]'
    assert [raw[place] for place in members_of(raw, most=5)] == [
        b'{"a":}',
        b"nonsense",
        b'{"a": 1]',
    ]


def test_only_so_many_are_taken() -> None:
    assert len(members_of(b"[1, 2, 3]", most=3)) == 3
    assert members_of(b"[ ]", most=3) == []
    for raw in (b"[1, 2, 3, 4]", b"[1, 2, 3,"):
        with pytest.raises(TooMany):
            members_of(raw, most=3)


def test_as_deep_as_a_member_may_be() -> None:
    raw = b"[" + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"]"
    assert len(members_of(raw, most=1)) == 1
