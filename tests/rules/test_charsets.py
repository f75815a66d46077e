"""Bytes as text: by their label, by the set that includes it, or not at all."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.charsets import NotText, read_text


@pytest.mark.parametrize(
    ("raw", "charset", "text"),
    [
        (b"hello", "", "hello"),
        (b"hello", "us-ascii", "hello"),
        (b"hello", " US-ASCII ", "hello"),
        (b"hello", '"utf-8"', "hello"),
        ("grüße".encode(), "utf-8", "grüße"),
        ("grüße".encode(), "us-ascii", "grüße"),  # who writes no label today writes UTF-8
        ("grüße".encode(), "unknown-8bit", "grüße"),
        ("grüße".encode("latin-1"), "iso-8859-1", "grüße"),
        (b"\x93hello\x94", "iso-8859-1", "“hello”"),  # as every reader takes it
        ("€".encode("iso-8859-15"), "iso-8859-15", "€"),
        ("привет".encode("koi8-r"), "KOI8-R", "привет"),
        ("日本".encode("iso-2022-jp"), "iso-2022-jp", "日本"),
        ("①".encode("cp932"), "shift_jis", "①"),
        ("镕".encode("gbk"), "gb2312", "镕"),
        ("שלום".encode("iso8859-8"), "iso-8859-8-i", "שלום"),
        ("x".encode("utf-16"), "utf-16", "x"),
    ],
)
def test_bytes_are_read_as_what_they_are(raw: bytes, charset: str, text: str) -> None:
    assert read_text(raw, charset) == text


@pytest.mark.parametrize(
    ("raw", "charset"),
    [
        (b"caf\xe9", ""),
        (b"caf\xe9", "utf-8"),
        (b"\x81", "iso-8859-1"),  # no letter in Windows 1252 either
        (b"\x81", "shift_jis"),
        (b"x", "klingon"),
        (b"x", "a\x00b"),
        (b"x", "caf\xe9"),
        (b"x", "rot13"),
        (b"x", "zip"),
        (b"x", "undefined"),
        (b"\\u0041", "unicode_escape"),
        (b"xn--a", "idna"),
        (b"x", "x" * 1000),
    ],
)
def test_what_is_not_of_its_charset_is_refused_and_never_guessed(raw: bytes, charset: str) -> None:
    with pytest.raises(NotText) as caught:
        read_text(raw, charset)
    assert len(str(caught.value)) < 120


@given(st.binary(max_size=50), st.text(max_size=20))
def test_no_bytes_and_no_label_raise_anything_else(raw: bytes, charset: str) -> None:
    with suppress(NotText):
        read_text(raw, charset)


@given(
    st.text(max_size=50),
    st.sampled_from(["utf-8", "utf-16", "utf-7", "gb18030", "iso-2022-jp", "koi8-r", "cp1252"]),
)
def test_a_right_label_gives_back_the_text(text: str, charset: str) -> None:
    try:
        raw = text.encode(charset)
    except UnicodeEncodeError:
        return
    assert read_text(raw, charset) == text
