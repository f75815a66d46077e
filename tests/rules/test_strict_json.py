"""Strict JSON: what is no document, and that every other one is read as it was written."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.strict_json import (
    LONGEST_POINTER,
    MAX_DEPTH,
    MAX_VALUES,
    NotJson,
    read_json,
    walk,
)
from tests.rules.documents import JSON


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": 1} {"b": 2}', "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1,}', "not JSON"),
        (b'\xef\xbb\xbf{"a": 1}', "not JSON"),  # a byte order mark is no JSON
        (b'{"a": "\x01"}', "not JSON"),  # a control that is not escaped
        (b'{"a": "\xff"}', "not UTF-8: byte 7"),
        (b'{"a": 1, "a": 1}', '"a" is given twice'),
        (b'{"a": {"b": 1, "\\u0062": 2}}', '"b" is given twice'),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": [Infinity]}', "Infinity is not JSON"),
        (b'{"a": -Infinity}', "-Infinity is not JSON"),
        (b'{"a": 1e999}', "1e999 is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is too large"),
        (b"[" * 40 + b"]" * 40, f"at most {MAX_DEPTH} levels"),
        (b"[" * 100_000 + b"]" * 100_000, f"at most {MAX_DEPTH} levels"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, f"at most {MAX_DEPTH} levels"),
        (b"[" + b"0," * MAX_VALUES + b"0]", f"at most {MAX_VALUES}"),
        (b"{" + b",".join(b'"%d":0' % n for n in range(60_000)) + b"}", f"at most {MAX_VALUES}"),
        # Far more, and no end to it: found out before it is read.
        (b"[" + b"{}," * 4_000_000, f"at most {MAX_VALUES}"),
        (b"[" + b'"",' * 4_000_000, f"at most {MAX_VALUES}"),
        (b"[" + b"0," * MAX_VALUES + b'"' + rb"\"" * 4_000_000, "not JSON"),
    ],
)
def test_what_means_different_things_to_different_readers_is_no_document(
    raw: bytes, said: str
) -> None:
    with pytest.raises(NotJson, match=said):
        read_json(raw)


@given(JSON)
def test_every_other_document_is_read_as_it_was_written(value: Any) -> None:
    assert read_json(json.dumps(value).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with contextlib.suppress(NotJson):
        read_json(raw)


def test_as_many_values_as_may_be_and_any_number_of_commas_in_a_text() -> None:
    document = ["a,[{" * 400_000, *range(MAX_VALUES - 2)]
    assert read_json(json.dumps(document).encode()) == document


def test_every_value_and_every_name_is_met_with_its_pointer() -> None:
    met = [(place.pointer, value) for place, value in walk({"a/b": [1, {"~": None}], "c": "d"})]
    assert [(pointer, value) for pointer, value in met if not isinstance(value, dict | list)] == [
        ("", "a/b"),
        ("", "c"),
        ("/a~1b/0", 1),
        ("/a~1b/1", "~"),
        ("/a~1b/1/~0", None),
        ("/c", "d"),
    ]


def test_a_very_long_pointer_is_that_of_what_is_around() -> None:
    name = "x" * 20_000_000
    document = {"a": {name: [0] * 10_000, "b" * (LONGEST_POINTER - 3): 1}}
    pointers = {place.pointer for place, _ in walk(document)}
    assert pointers == {"", "/a", f"/a/{'b' * (LONGEST_POINTER - 3)}"}
