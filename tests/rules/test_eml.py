"""Emails in MIME: those of tests/corpus/eml, and any that Hypothesis can make."""

import base64
from contextlib import suppress
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, default
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sends.rules.eml import Email, read_email
from sends.rules.proposals import WrongProposal, parse

CORPUS = Path(__file__).parent.parent / "corpus" / "eml"
TO = [{"name": "", "address": "jo@example.org"}]

# What each file says, besides sender and action key. "to" is TO where it is left out.
TAKEN: dict[str, dict[str, Any]] = {
    "plain": {
        "subject": "Your order",
        "text": "Hello\n",
        "headers": {"X-Ticket": "7731", "List-Unsubscribe": "<mailto:off@example.com>"},
    },
    "no-mime": {"text": "Only this.\n"},
    "no-message-id": {"subject": "S", "text": "Hi\n"},
    "alternative-related": {
        "subject": "Your order",
        "text": "Grüße",
        "html": '<p>Grüße <img src="cid:logo%40shop"></p>',
        "attachments": [
            ("logo.gif", "image/gif", b"GIF89a\x01\x00\x01\x00\x00\x00\x00;", "logo@shop", True),
            ("Übersicht.csv", "text/csv; charset=iso-8859-15; header=present", b"a;b"),
        ],
    },
    "crossed-alternatives": {
        "text": "Read it in HTML.",
        "html": "<p>See the file.",
        "attachments": [
            ("rates.pdf", "application/pdf", b"x"),
            ("part-2.html", "text/html", b"<p>After it."),
        ],
    },
    "rfc2231-name": {
        "subject": "Your order",
        "text": "See the file.",
        "attachments": [("€ rates and more.pdf", "application/pdf", b"%PDF-")],
    },
    "message-attached": {
        "subject": "Your order",
        "text": "As you wrote:",
        "attachments": [
            (
                "part-1.eml",
                "message/rfc822",
                (
                    b"From: jo@example.org\nTo: support@mail.example.com\n"
                    b"Subject: Where is it?\nX-Odd:   spaced   out\n\n"
                    b"Dear  all,\nFrom here on it stays as it is.\n"
                ),
            )
        ],
    },
    "two-texts": {
        "subject": "Your order",
        "text": "The email.",
        "attachments": [("part-1.txt", "text/plain", b"-- \nA footer of the list.")],
    },
    "encoded-headers": {
        "to": [
            {"name": "Doe, Jö", "address": "jo@example.org"},
            {"name": "María", "address": "maria@example.org"},
        ],
        "cc": [
            {"name": "", "address": "a@example.org"},
            {"name": "B, C", "address": "b@example.org"},
        ],
        "bcc": [{"name": "", "address": "hidden@example.org"}],
        "reply_to": [{"name": "Antworten", "address": "replies@example.com"}],
        "subject": "Über dünnes Eis – große Schritte",
        "in_reply_to": "<first@example.org>",
        "references": ["<zero@example.org>", "<first@example.org>"],
        "headers": {"Comments": "folded by a tab"},
        "text": "Hi\n",
    },
    "utf8-headers": {
        "to": [{"name": "Jürgen", "address": "juergen@bücher.example"}],
        "subject": "Grüße 🎉",
        "text": "Hi\n",
    },
    "only-bcc": {
        "to": [],
        "bcc": [{"name": "", "address": f"{who}@example.org"} for who in "ab"],
        "text": "Hi\n",
    },
    "windows-1252-as-latin-1": {"subject": "Quotes", "text": "“Hello” – € 5\n"},
    "utf-8-without-label": {"text": "naïve\n"},
    "iso-2022-jp": {"subject": "日本", "text": "日本\n"},
    "flowed": {"subject": "Your order", "text": "One line that \ngoes on.\n"},
}
# Why each other file is refused: pointer and code of the first thing that is wrong.
REFUSED: dict[str, tuple[str, str]] = {
    "broken-base64": ("", "broken"),
    "calendar-alternative": ("", "not_carried"),
    "content-location": ("", "not_carried"),
    "cut-off": ("", "broken"),
    "empty": ("/sender", "required"),
    "encrypted": ("", "not_carried"),
    "external-body": ("/attachments/0/content_type", "content_type"),
    "hidden-line-end": ("/subject", "control_character"),
    "lone-cr": ("", "line_end"),
    "name-with-address": ("/to", "mailbox"),
    "no-boundary": ("", "broken"),
    "no-from": ("/sender", "required"),
    "no-header": ("/sender", "required"),
    "no-recipient": ("/to", "required"),
    "not-its-charset": ("", "charset"),
    "path-as-name": ("/attachments/0/filename", "file_name"),
    "report": ("", "not_carried"),
    "resent": ("/headers/Resent-To", "resent"),
    "signed": ("", "not_carried"),
    "smime": ("", "not_carried"),
    "two-bodies": ("", "second_body"),
    "two-senders": ("/sender", "mailbox"),
    "two-subjects": ("/subject", "header_twice"),
    "unknown-charset": ("", "charset"),
    "unknown-encoding": ("", "transfer_encoding"),
    "unlabelled-8-bit": ("/subject", "charset"),
    "word-in-word": ("/subject", "encoded_word"),
}


def corpus(name: str) -> bytes:
    return (CORPUS / f"{name}.eml").read_bytes()


def plain(*lines: str, sender: str | None = None) -> Email:
    """The email of these header fields, with a short text."""
    return read_email("\n".join([*lines, "", "Hi", ""]).encode(), sender=sender)


@pytest.mark.parametrize("name", TAKEN)
def test_an_email_becomes_the_proposal_that_says_the_same(name: str) -> None:
    document = dict(read_email(corpus(name)).document)
    parse(document)
    document["attachments"] = [
        tuple(
            base64.b64decode(value) if member == "content_base64" else value
            for member, value in file.items()
        )
        for file in document.get("attachments", [])
    ]
    del document["action_key"]
    assert document.pop("sender") == "support@mail.example.com"
    assert document == {"to": TO, "headers": {}, "attachments": []} | TAKEN[name]


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_proposal_can_say_is_refused_by_name(name: str) -> None:
    with pytest.raises(WrongProposal) as caught:
        parse(read_email(corpus(name)).document)
    first = caught.value.errors[0]
    assert (first.pointer, first.code) == REFUSED[name]


def test_every_email_of_the_corpus_is_tried() -> None:
    assert {path.stem for path in CORPUS.iterdir()} == TAKEN.keys() | REFUSED.keys()


def test_what_is_of_this_copy_alone_is_left_out_and_said() -> None:
    assert read_email(corpus("plain")).left_out == {
        *("Date", "Dkim-Signature", "Message-Id", "Received"),
        "the name in From",
    }
    assert "Content-Description" in read_email(corpus("alternative-related")).left_out
    assert "names of groups in Cc" in read_email(corpus("encoded-headers")).left_out
    assert "format=flowed" in read_email(corpus("flowed")).left_out


# The key


def test_the_same_email_has_the_same_key_whatever_way_it_took() -> None:
    raw = corpus("plain")
    travelled = b"Received: from x by y\r\n" + raw.replace(b"Received", b"X-Received")
    assert read_email(travelled).document["action_key"] == read_email(raw).document["action_key"]


def test_without_a_message_id_the_key_is_that_of_the_bytes_with_either_line_end() -> None:
    raw = corpus("no-message-id")
    lines = raw.replace(b"\r\n", b"\n")
    key = read_email(raw).document["action_key"]
    assert read_email(lines).document["action_key"] == key
    assert read_email(lines + b"\n").document["action_key"] == key
    assert read_email(lines.replace(b"Hi", b"Ho")).document["action_key"] != key


# The sender


def test_a_sender_takes_the_place_of_whatever_is_in_from() -> None:
    for line in ("From: jo@example.net", "From: nobody at all", "X-From: none"):
        email = plain(line, "To: jo@example.org", sender="support@mail.example.com")
        assert email.document["sender"] == "support@mail.example.com"


# Header fields


@pytest.mark.parametrize(
    ("line", "pointer", "code"),
    [
        ("To: jo@example.org,, kim", "/to", "mailbox"),
        ("To: " + "(" * 5000, "/to", "header"),
        ("Cc: " + "a@example.org, " * 10_000, "/cc", "too_long"),
        ("Reply-To: Jo <>", "/reply_to", "mailbox"),
        ("Subject: =?klingon?q?a?=", "/subject", "charset"),
        ("Subject: =?utf-8?b?*?=", "/subject", "encoded_word"),
        ("Subject: =?utf-8?b?/w==?=", "/subject", "charset"),
        ("X-Note: a\x7f", "/headers/X-Note", "control_character"),
        ("X_Note: a", "/headers/X_Note", "header_name"),
        ("In-Reply-To: <a@example.org> <b@example.org>", "/in_reply_to", "message_id"),
        ("In-Reply-To: <a b@example.org>", "/in_reply_to", "message_id"),
        ("References: <a@example.org> <b c>", "/references/1", "message_id"),
        ("X-Note: a\nX-Note: b", "/headers/X-Note", "header_twice"),
    ],
)
def test_a_header_field_that_cannot_be_carried_is_named(line: str, pointer: str, code: str) -> None:
    with pytest.raises(WrongProposal) as caught:
        parse(plain("From: support@mail.example.com", "Bcc: jo@example.org", line).document)
    assert (pointer, code) in [(wrong.pointer, wrong.code) for wrong in caught.value.errors]


@pytest.mark.parametrize(
    "raw",
    [
        b"A: b\n" * 2_000 + b"\nHi\n",
        b"A: b\n\n" + b"\n" * 1_600_000,
        b"Content-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\n" * 30_000,
    ],
    ids=["header fields", "lines", "parts"],
)
def test_what_is_made_to_exhaust_its_reader_is_refused_before_it_is_read(raw: bytes) -> None:
    with pytest.raises(WrongProposal) as caught:
        read_email(raw)
    assert [wrong.code for wrong in caught.value.errors] == ["too_many"]


def test_parts_within_parts_without_end_are_refused() -> None:
    lines = [f'Content-Type: multipart/mixed; boundary="{n}"\n\n--{n}\n' for n in range(3_000)]
    with pytest.raises(WrongProposal) as caught:
        read_email("".join(lines).encode())
    assert caught.value.errors[-1].code == "broken"


def test_to_may_be_there_twice() -> None:
    email = plain("From: support@mail.example.com", "To: a@example.org", "To: b@example.org")
    assert [box["address"] for box in email.document["to"]] == ["a@example.org", "b@example.org"]


# Any email, any bytes

LETTERS = st.characters(exclude_categories=("Cc", "Cs", "Cn", "Co", "Zl", "Zp"))
NAMES = st.text(LETTERS, max_size=20).map(str.strip)
TEXTS = st.text(LETTERS | st.sampled_from("\n\t"), min_size=1, max_size=60)
LOCALS = st.text(st.sampled_from("abcXYZ019.+_-"), min_size=1, max_size=20).filter(
    lambda local: local[0] != "." and local[-1] != "." and ".." not in local
)
ADDRESSES = st.builds(Address, NAMES, LOCALS, st.sampled_from(["example.org", "shop.example.com"]))
FILES = st.tuples(
    st.text(LETTERS, min_size=1, max_size=20).map(str.strip).filter(bool), st.binary(max_size=20)
)


@st.composite
def messages(draw: st.DrawFn) -> EmailMessage:
    # Header fields as they are: the library's own folding loses commas between long names.
    policy = draw(st.sampled_from([default, SMTP])).clone(utf8=True, max_line_length=9_999)
    message = EmailMessage(policy=policy)
    message["From"] = "support@mail.example.com"
    message["To"] = draw(st.lists(ADDRESSES, min_size=1, max_size=4))
    message["Subject"] = draw(NAMES)
    message.set_content(draw(TEXTS), cte=draw(st.sampled_from(["quoted-printable", "base64"])))
    if draw(st.booleans()):
        message.add_alternative(draw(TEXTS), subtype="html")
    for name, content in draw(st.lists(FILES, max_size=3)):
        message.add_attachment(content, "application", "pdf", filename=name)
    return message


@settings(max_examples=60)
@given(messages())
def test_any_email_says_the_same_as_a_proposal(message: EmailMessage) -> None:
    document = read_email(message.as_bytes()).document

    said = [(box["name"], box["address"]) for box in document["to"]]
    assert said == [(box.display_name, box.addr_spec) for box in message["To"].addresses]
    assert document["subject"] == message["Subject"].strip()
    for kind, member in (("plain", "text"), ("html", "html")):
        body = message.get_body((kind,))
        content = body.get_content().replace("\r\n", "\n") if body else None
        assert document.get(member) == content
    files = [
        (f["filename"], base64.b64decode(f["content_base64"]))
        for f in document.get("attachments", [])
    ]
    assert files == [(f.get_filename(), f.get_content()) for f in message.iter_attachments()]


@given(st.text(LETTERS, max_size=20), st.integers(0, 80))
def test_encoded_words_say_their_text_wherever_their_bytes_were_cut(text: str, cut: int) -> None:
    halves = text.encode()[:cut], text.encode()[cut:]
    words = " ".join(f"=?utf-8?b?{base64.b64encode(half).decode()}?=" for half in halves)
    email = plain("From: a@example.org", "Bcc: jo@example.org", f"Subject: Re: {words}")
    assert email.document["subject"] == f"Re: {text}"


PIECES = st.sampled_from(
    [
        *(b"From: a@example.org\n", b"To: ", b"Subject: =?utf-8?b?", b"?=", b"\n", b"\r\n", b"\r"),
        *(b"Content-Type: multipart/mixed; boundary=b\n", b"\n--b\n", b"\n--b--\n", b"; charset="),
        *(b"Content-Type: text/plain", b"Content-Transfer-Encoding: base64\n", b"name*0*=utf-8''"),
        *(
            b"Content-Disposition: attachment; filename=",
            b"Content-Type: message/rfc822\n",
            b"\x00",
        ),
        *(b"Content-Type: multipart/related; start=x; boundary=b\n", b"<", b">", b"(", b'"', b","),
    ]
)


@settings(max_examples=300)
@given(st.lists(PIECES | st.binary(max_size=10), max_size=30).map(b"".join))
def test_no_bytes_raise_anything_but_what_is_wrong_with_them(raw: bytes) -> None:
    with suppress(WrongProposal):
        parse(read_email(raw).document)
