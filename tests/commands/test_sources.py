"""Files of emails: what lies in them, where, and that no more than one is ever held."""

import io
import os
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.management import sources
from sends.management.sources import Item, NoSource, Sources, json_lines, mailbox

NOBODY = 65534  # on every Linux


def of(*names: Path | str) -> list[Item]:
    return list(Sources([str(name) for name in names], io.BytesIO()))


def raws(items: list[Item]) -> list[bytes]:
    return [item.raw for item in items]


# JSON lines


def test_each_line_is_one_document_with_its_number_and_empty_ones_are_none() -> None:
    items = list(json_lines("a.jsonl", io.BytesIO(b'\xef\xbb\xbf{"a":1}\r\n\n \t\n{"b":2}')))
    assert [(item.place, item.raw.strip()) for item in items] == [
        ("a.jsonl:1", b'{"a":1}'),
        ("a.jsonl:4", b'{"b":2}'),
    ]
    assert sum(item.size for item in items) == len(b'\xef\xbb\xbf{"a":1}\r\n\n \t\n{"b":2}')


def test_a_line_that_is_too_long_is_refused_and_the_next_one_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "MAX_BYTES", 10)
    monkeypatch.setattr(sources, "MAX_LINE", 7)
    lines = b"x" * 10 + b"\n" + b"0123456789\n" + b"12345\n" + b"y" * 100
    items = list(json_lines("a.jsonl", io.BytesIO(lines)))
    assert [(item.place, item.wrong and item.wrong.code) for item in items] == [
        ("a.jsonl:1", "too_large"),
        ("a.jsonl:2", "too_large"),
        ("a.jsonl:3", None),
        ("a.jsonl:4", "too_large"),
    ]
    assert all(len(item.raw) <= 10 for item in items)


# Mailboxes

FROM = b"From jo@example.org Mon Nov 30 10:00:00 2026\n"


def messages(raw: bytes) -> list[tuple[str, bytes]]:
    return [(item.place, item.raw) for item in mailbox("m", io.BytesIO(raw))]


def test_a_mailbox_is_cut_at_its_from_lines() -> None:
    raw = FROM + b"Subject: 1\n\nOne\n\n" + FROM + b"Subject: 2\n\nTwo\n"
    assert messages(raw) == [("m:1", b"Subject: 1\n\nOne\n"), ("m:6", b"Subject: 2\n\nTwo\n")]


def test_lines_may_end_in_crlf() -> None:
    raw = (FROM + b"Subject: 1\n\nOne\n\n" + FROM + b"Subject: 2\n\nTwo\n").replace(b"\n", b"\r\n")
    assert [raw for _, raw in messages(raw)] == [
        b"Subject: 1\r\n\r\nOne\r\n",
        b"Subject: 2\r\n\r\nTwo\r\n",
    ]


def test_what_was_quoted_when_it_was_written_is_as_it_was() -> None:
    raw = FROM + b"Subject: 1\n\n>From here\n>>From there\n> From a reply\nFrom me\n"
    assert messages(raw)[0][1].endswith(b"\n\nFrom here\n>From there\n> From a reply\nFrom me\n")


@pytest.mark.parametrize(
    "text",
    [
        b"From now on:\n",
        b"From me at 10:30\nno header field\n",
        b"no empty line before\n" + FROM + b"Subject: forwarded\n",
        FROM,
    ],
    ids=["a sentence", "a sentence with a time", "no empty line", "the last line"],
)
def test_a_line_of_the_text_that_begins_with_from_cuts_nothing(text: bytes) -> None:
    raw = FROM + b"Subject: 1\n\nHello\n\n" + text
    assert len(messages(raw)) == 1


def test_a_message_that_is_too_large_is_refused_and_the_next_one_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "MAX_BYTES", 100)
    monkeypatch.setattr(sources, "MAX_LINE", 60)
    raw = FROM + b"S: 1\n\n" + b"x" * 200 + b"\n\n" + FROM + b"S: 2\n\nTwo\n"
    items = list(mailbox("m", io.BytesIO(raw)))
    assert [(item.place, item.wrong and item.wrong.code) for item in items] == [
        ("m:1", "too_large"),
        ("m:6", None),
    ]


def test_short_lines_take_no_more_memory_than_long_ones() -> None:
    body = b"x\n" * 500_000
    mail = io.BytesIO(FROM + b"S: 1\n\n" + body)
    tracemalloc.start()
    try:
        [item] = mailbox("m", mail)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert item.raw == b"S: 1\n\n" + body
    assert peak < 5 * len(body)


@pytest.mark.parametrize(
    "raw", [b"Subject: x\n\nHi\n", b"\n", b"From x\n", FROM + b"not a field\n"]
)
def test_a_file_that_does_not_begin_as_a_mailbox_is_none(raw: bytes) -> None:
    [item] = mailbox("m", io.BytesIO(raw))
    assert item.wrong is not None
    assert item.wrong.code == "not_mbox"


def test_an_empty_mailbox_has_no_messages() -> None:
    assert list(mailbox("m", io.BytesIO())) == []


@given(
    st.lists(st.sampled_from([FROM, b"A: b\n", b"\n", b">From x\n", b"\r"]) | st.binary(max_size=5))
)
def test_no_bytes_are_too_odd_for_a_mailbox_or_for_json_lines(pieces: list[bytes]) -> None:
    raw = b"".join(pieces)
    list(mailbox("m", io.BytesIO(raw)))
    assert sum(item.size for item in json_lines("l", io.BytesIO(raw))) <= len(raw)


# Folders and names


def test_a_folder_is_read_with_all_folders_in_it_sorted(tmp_path: Path) -> None:
    for name in ("b/2.eml", "b/1.EML", "a.eml", "c.jsonl", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    found = Sources([str(tmp_path)], io.BytesIO())
    assert [item.raw.decode() for item in found] == ["a.eml", "b/1.EML", "b/2.eml", "c.jsonl"]
    assert found.passed_over == 1
    assert found.size == sum(len(name) for name in ("b/2.eml", "b/1.EML", "a.eml", "c.jsonl"))


def test_links_that_lead_in_a_circle_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.eml").write_bytes(b"one")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert raws(of(tmp_path)) == [b"one"]


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.eml").symlink_to(tmp_path / "gone")
    (tmp_path / "b.eml").write_bytes(b"two")
    first, second = of(tmp_path)
    assert first.wrong is not None
    assert (first.place, first.wrong.code) == (str(tmp_path / "a.eml"), "unreadable")
    assert second.raw == b"two"


def test_a_mailbox_needs_no_suffix(tmp_path: Path) -> None:
    (tmp_path / "jo").write_bytes(FROM + b"Subject: 1\n\nOne\n")
    assert raws(of(tmp_path / "jo")) == [b"Subject: 1\n\nOne\n"]


@contextmanager
def half_shut(rights: int) -> Iterator[Path]:
    """An email, and another in a folder with these rights, for somebody who is not root."""
    before = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        folder, shut = Path(name), Path(name, "shut")
        shut.mkdir()
        for file in (folder / "a.eml", shut / "b.eml"):
            file.write_bytes(b"Subject: x\n\nx")
        folder.chmod(0o755)
        shut.chmod(rights)
        os.seteuid(before or NOBODY)
        try:
            yield folder
        finally:
            os.seteuid(before)
            shut.chmod(0o700)


def test_a_folder_that_may_not_be_read_stops_it_before_it_begins() -> None:
    with (
        half_shut(0o000) as folder,
        pytest.raises(NoSource, match=r"shut cannot be read: Permission denied\.$"),
    ):
        of(folder)


def test_a_file_that_may_not_be_read_is_refused_alone() -> None:
    with half_shut(0o444) as folder:  # the names in it may be read, and no more
        codes = [item.wrong and item.wrong.code for item in of(folder)]
    assert codes == [None, "unreadable"]


@pytest.mark.parametrize(("name", "said"), [("gone.eml", "There is no "), ("a.txt", "is none of")])
def test_a_name_that_stands_for_nothing_is_refused_at_once(
    tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(NoSource, match=said):
        Sources([str(tmp_path / name)], io.BytesIO())


def test_standard_input_is_json_lines_of_unknown_length() -> None:
    found = Sources(["-"], io.BytesIO(b"{}\n"))
    assert found.size is None
    assert [item.place for item in found] == ["standard input:1"]
