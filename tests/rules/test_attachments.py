"""Files in a proposal: what is taken in whole, and what is refused with its place and a reason."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.keys import sha256
from sends.rules.limits import DEFAULTS, Limits
from sends.rules.payloads import Attachment, Mailbox
from sends.rules.proposals import Proposal, WrongProposal, parse

LEAST: dict[str, Any] = {"action_key": "k", "to": "jo@example.org", "html": "<p>See it"}
FILE: dict[str, Any] = {
    "filename": "receipt.pdf",
    "content_type": "application/pdf",
    "content_base64": "JVBERg==",
}


def attached(*files: Any, limits: Limits = DEFAULTS, **fields: Any) -> Proposal:
    return parse(LEAST | {"attachments": list(files)} | fields, limits=limits)


def wrong(*files: Any, **fields: Any) -> dict[str, str]:
    """The code of each error by its place below /attachments."""
    with pytest.raises(WrongProposal) as caught:
        attached(*files, **fields)
    assert all(error.detail for error in caught.value.errors)
    return {error.pointer.removeprefix("/attachments"): error.code for error in caught.value.errors}


def test_a_file_is_named_measured_and_hashed_in_the_message() -> None:
    inline = FILE | {"filename": "logo.png", "content_type": "image/png", "content_id": "logo"}
    proposal = attached(FILE, inline | {"inline": True})

    assert proposal.message(Mailbox("a@example.com")).attachments == (
        Attachment("receipt.pdf", "application/pdf", 4, sha256(b"%PDF")),
        Attachment("logo.png", "image/png", 4, sha256(b"%PDF"), content_id="logo", inline=True),
    )
    assert proposal.files == {sha256(b"%PDF"): b"%PDF"}


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@given(names, st.binary(max_size=300))
def test_every_name_and_content_is_taken_in_as_it_is_or_refused(name: str, data: bytes) -> None:
    file = FILE | {"filename": name, "content_base64": base64.b64encode(data).decode()}
    try:
        proposal = attached(file)
    except WrongProposal:
        assert set(wrong(file)) == {"/0/filename"}
        return
    [one] = proposal.message(Mailbox("a@example.com")).attachments
    assert one.filename == name
    assert (one.size, one.sha256) == (len(data), sha256(data))
    assert proposal.files[one.sha256] == data


@pytest.mark.parametrize(
    "name",
    [
        "README",
        ".gitignore",
        "no extension ",
        "über die Straße.pdf",
        "請求書.pdf",
        "فاتورة.pdf",
        "می‌خواهم.pdf",
        "a\u200fb.pdf",
        "👩\u200d👧.png",
        'quo"tes; and = signs%.txt',
        "CON",
        "a..b",
        "x" * 255,
        "請" * 255,
    ],
)
def test_odd_names_survive(name: str) -> None:
    assert attached(FILE | {"filename": name}).message(Mailbox("a@b.test")).attachments[0] == (
        Attachment(name, "application/pdf", 4, sha256(b"%PDF"))
    )


def test_an_empty_file_survives() -> None:
    [empty] = attached(FILE | {"content_base64": ""}).message(Mailbox("a@b.test")).attachments
    assert (empty.size, empty.sha256) == (0, sha256(b""))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "file_name"),
        (" ", "file_name"),
        (".", "file_name"),
        ("..", "file_name"),
        ("../../etc/passwd", "file_name"),
        ("C:\\autoexec.bat", "file_name"),
        ("a\u202efdp.exe", "file_name"),
        ("a\u2066b.exe", "file_name"),
        ("a\x00b", "control_character"),
        ("a\r\nBcc: b@example.org", "control_character"),
        ("a\u2028b", "control_character"),
        ("a\x85b", "control_character"),
        ("=?utf-8?q?a=0D=0Ab?=", "control_character"),
        ("=?utf-8?q?a=2Fb?=", "file_name"),
        ("\ud83d", "lone_surrogate"),
        ("x" * 256, "too_long"),
        (7, "wrong_type"),
        (None, "wrong_type"),
    ],
)
def test_names_that_lead_elsewhere_or_are_not_seen_are_refused(name: Any, code: str) -> None:
    assert wrong(FILE | {"filename": name}) == {"/0/filename": code}


@pytest.mark.parametrize(
    "kind",
    [
        "application/pdf",
        "image/svg+xml",
        "Text/Plain",
        "text/plain; charset=utf-8",
        "text/calendar; method=REQUEST;charset=UTF-8",
        'text/x; note="a b"',
        "message/rfc822",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ],
)
def test_media_types_are_kept_as_they_are(kind: str) -> None:
    [one] = attached(FILE | {"content_type": kind}).message(Mailbox("a@b.test")).attachments
    assert one.content_type == kind


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "pdf",
        "application/",
        "/pdf",
        "a/b/c",
        "a b/c",
        "text/plain\r\nX-A: 1",
        "text/plain;",
        "text/plain; charset",
        'text/plain; charset="',
        "text/plain; name=a.exe",
        "text/plain; NAME=a.exe",
        "text/plain; boundary=x",
        "multipart/mixed",
        "MULTIPART/x",
        "message/partial; id=1",
        "message/external-body",
        "tëxt/plain",
        f"text/{'x' * 128}",
        "text/plain\n",
    ],
)
def test_what_is_no_type_of_a_file_is_refused(kind: str) -> None:
    assert wrong(FILE | {"content_type": kind}) == {"/0/content_type": "content_type"}


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("JVBERg", "base64"),
        ("JVBERg=", "base64"),
        ("JVBERg===", "base64"),
        ("JVBERh==", "base64"),
        ("JVBE\r\nRg==", "base64"),
        ("JVBERg==\n", "base64"),
        (" JVBERg==", "base64"),
        ("JVBERg==JVBERg==", "base64"),
        ("-_-_", "base64"),
        ("====", "base64"),
        ("ünlü", "base64"),
        ("JVBE Rg=", "base64"),
        (["JVBERg=="], "wrong_type"),
        (b"%PDF", "wrong_type"),
        (None, "wrong_type"),
    ],
)
def test_base64_that_could_be_read_in_two_ways_is_refused(content: Any, code: str) -> None:
    assert wrong(FILE | {"content_base64": content}) == {"/0/content_base64": code}


@given(st.binary(max_size=50))
def test_of_all_spellings_one_is_taken(data: bytes) -> None:
    spelt = base64.b64encode(data).decode()
    assert attached(FILE | {"content_base64": spelt}).files == {sha256(data): data}
    for other in (spelt.rstrip("="), f"{spelt}=", f"{spelt}\n", spelt[:-1]):
        if other != spelt:
            assert wrong(FILE | {"content_base64": other}) == {"/0/content_base64": "base64"}


@pytest.mark.parametrize("content_id", ["", "a b", "<a@b>", "a\r\nb", "ä", "x" * 256])
def test_a_content_id_is_one_of_a_message(content_id: str) -> None:
    assert wrong(FILE | {"content_id": content_id}) == {"/0/content_id": "content_id"}


def test_what_ties_files_to_the_html_and_to_each_other() -> None:
    logo = FILE | {"content_id": "logo@example.com"}

    assert wrong(logo, FILE, logo) == {"/2/content_id": "duplicate_content_id"}
    assert wrong(FILE | {"inline": True}) == {"/0/content_id": "required"}
    assert wrong(logo | {"inline": True}, html=None, text="Hi") == {"/0/inline": "without_html"}
    assert wrong(FILE | {"inline": 1}) == {"/0/inline": "wrong_type"}
    attached(logo, html=None, text="Hi")  # a name that nothing uses does no harm


def test_how_many_and_how_much_is_asked_before_anything_is_decoded() -> None:
    limits = replace(DEFAULTS, attachments=2, message=16)
    broken = FILE | {"content_base64": "!" * 8}

    with pytest.raises(WrongProposal, match="/attachments: at most 2 are allowed"):
        attached(*[broken] * 3, limits=limits)
    with pytest.raises(WrongProposal, match="/attachments: at most 16 bytes are allowed in all"):
        attached(broken, broken | {"content_base64": "!" * 9}, limits=limits)
    attached(FILE, FILE, limits=limits)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {"": "wrong_type"}),
        ("receipt.pdf", {"": "wrong_type"}),
        ([None], {"/0": "wrong_type"}),
        ([[]], {"/0": "wrong_type"}),
        (["receipt.pdf"], {"/0": "wrong_type"}),
        ([{}], dict.fromkeys(("/0/filename", "/0/content_type", "/0/content_base64"), "required")),
        ([FILE | {"name": "x"}], {"/0/name": "unknown_field"}),
    ],
)
def test_what_is_no_list_of_files(files: Any, expected: dict[str, str]) -> None:
    assert wrong(attachments=files) == expected


def test_none_given_and_none_wanted_differ_only_for_a_new_version() -> None:
    kept = (Attachment("a.txt", "text/plain", 0, sha256(b"")),)
    sender = Mailbox("a@example.com")

    assert parse(LEAST).message(sender, kept=kept).attachments == kept
    assert parse(LEAST | {"attachments": None}).message(sender, kept=kept).attachments == kept
    assert attached().message(sender, kept=kept).attachments == ()
    assert parse(LEAST).message(sender) == attached().message(sender)
