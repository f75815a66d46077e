"""Strict JSON: what is no document, and that every other one is read as it was written."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.strict_json import MAX_DEPTH, NotJson, read_json
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
