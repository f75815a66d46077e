"""The bytes of an email: what was said is read back from them, whatever it was."""

import email
import email.policy
import re
import smtplib
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, cast

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope, Session
from hypothesis import given, settings
from hypothesis import strategies as st

from sends.rules.addresses import normal
from sends.rules.keys import sha256
from sends.rules.mime import build
from sends.rules.payloads import Attachment, Frozen, Mailbox, Message
from sends.rules.proposals import parse
from sends.rules.strict_json import read_json
from tests.mails import decoded, read, sent
from tests.ports import free_port

CORPUS = Path(__file__).parent.parent / "corpus" / "proposals"
DATE = datetime(2026, 11, 30, 9, 30, tzinfo=UTC)
CONTENTS = {sha256(one): one for one in (b"", b"%PDF-1.7\r\n", b"\x00\xff" * 500, b"--=_x\r\n")}
LEAST = Message(sender=Mailbox("support@example.com"), to=(Mailbox("jo@example.org"),), text="Hi")


def built(message: Message) -> bytes:
    frozen = Frozen(message, "<0190a1b2@example.com>", "k" * 40)
    return build(frozen, date=DATE, contents=CONTENTS)


# Messages of every kind that intake lets through


ODD = "\"\\,;:<>()@=?_ .-%'👩\u200d👧ßあ\u202e\u0301"
USUAL = st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"])
LINES = st.text(USUAL | st.sampled_from(ODD), max_size=90).filter(lambda line: "=?" not in line)
TEXTS = st.builds(
    lambda one, times: one * times,
    st.text(USUAL | st.sampled_from(f"{ODD}\t\r\n\u2028"), max_size=40),
    st.sampled_from([1, 1, 1, 60]),
)
ADDRESSES = st.builds(
    "{}@{}".format,
    st.sampled_from(["jo", "Jo+tag", '"a,b"', '"a\\"b"', "o'hara", "x" * 64, "jö", "用户"]),
    st.sampled_from(["example.org", "Example.ORG", "xn--bcher-kva.example", "a." * 80 + "test"]),
)
BOXES = st.lists(st.builds(Mailbox, ADDRESSES, LINES), max_size=2)
IDS = st.from_regex(r"<[a-z0-9!]{1,60}@[a-z]{1,60}\.example>", fullmatch=True)
FILES = st.builds(
    lambda digest, **fields: Attachment(size=len(CONTENTS[digest]), sha256=digest, **fields),
    st.sampled_from(list(CONTENTS)),
    filename=LINES.filter(bool),
    content_type=st.sampled_from(
        ["application/pdf", "text/html; charset=iso-8859-1", 'text/plain; x="a; b"', "image/x-a+b"]
    ),
    content_id=st.sampled_from(["", "logo@example.com"]),
    inline=st.booleans(),
)
MESSAGES = st.builds(
    Message,
    sender=st.builds(Mailbox, ADDRESSES, LINES),
    to=BOXES.map(tuple),
    cc=BOXES.map(tuple),
    bcc=BOXES.map(tuple),
    reply_to=BOXES.map(tuple),
    subject=LINES,
    text=st.none() | TEXTS,
    html=st.none() | TEXTS,
    headers=st.dictionaries(
        st.from_regex(r"X-[A-Za-z0-9]{1,74}", fullmatch=True), LINES, max_size=2
    ).map(lambda headers: tuple(headers.items())),
    in_reply_to=st.just("") | IDS,
    references=st.lists(IDS, max_size=6).map(tuple),
    attachments=st.lists(FILES, max_size=2).map(tuple),
).filter(lambda message: message.text is not None or message.html is not None)


@settings(max_examples=100)
@given(MESSAGES)
def test_what_was_said_is_read_back(message: Message) -> None:
    assert read(built(message)) == sent(message)


@settings(max_examples=100)
@given(MESSAGES)
def test_its_bytes_are_such_as_any_server_takes(message: Message) -> None:
    raw = built(message)
    assert raw.endswith(b"\r\n")
    lines = raw.split(b"\r\n")
    assert not any(b"\r" in line or b"\n" in line or b"\x00" in line for line in lines)
    assert max(map(len, lines)) <= 998
    # A longer one has no place to fold it at: one word, beside the name of its header.
    assert all(re.fullmatch(rb"([\w-]+:)? ?[^ ]+", line) for line in lines if len(line) > 78)
    addresses = [message.sender, *message.to, *message.cc, *message.reply_to]
    assert raw.isascii() == all(box.address.isascii() for box in addresses)
    # Each header once, none of them Bcc, and nothing that a reader would have to mend.
    parsed = email.message_from_bytes(raw, policy=email.policy.compat32)
    names = [name for name in parsed if not name.startswith("X-")]
    assert len(names) == len(set(names))
    assert "Bcc" not in names
    assert not [defect for part in parsed.walk() for defect in part.defects]
    assert built(replace(message, bcc=())) == raw


# Single cases, each with its reason


def parsed(message: Message) -> EmailMessage:
    return cast(EmailMessage, email.message_from_bytes(built(message), policy=email.policy.default))


def test_what_a_replay_sends_never_changes() -> None:
    # Written down: other bytes under the same key would be another request.
    message = replace(
        LEAST,
        sender=Mailbox("support@example.com", "Käse & Co"),
        html="<p>Grüße</p>",
        headers=(("X-Order", "7731"),),
        attachments=(Attachment("a.pdf", "application/pdf", 10, sha256(b"%PDF-1.7\r\n")),),
    )
    assert (
        sha256(built(message)) == "89216bb993ba68f2dd354ecd4211553be5b0c949eb66e9631872e6babef93022"
    )


@pytest.mark.parametrize(
    "subject",
    [
        "",
        " ",
        "  two before and after  ",
        "two  between",
        "a" * 300,
        "word " * 60 + "end",
        "👩‍👩‍👧‍👦" * 40,
        "é" * 300,
        "שלום, עולם",
        "\u202eturned",
        "1 =? 2 ?= 3",
        "=",
        'Re: [Ticket #1] "Doe, Jo" <jo@example.org>',
    ],
)
def test_a_subject_comes_back_by_the_newer_parser_too(subject: str) -> None:
    assert parsed(replace(LEAST, subject=subject))["Subject"] == subject


@pytest.mark.parametrize("size", range(200, 320, 7))
def test_an_encoded_word_ends_with_a_whole_character(size: int) -> None:
    raw = built(replace(LEAST, subject=("a" + "€👩" * size)[:size]))
    words = re.findall(rb"=\?utf-8\?b\?[^?]+\?=", raw)
    assert len(words) > 5
    for word in words:
        assert "\ufffd" not in decoded(word.decode())
        assert len(word) <= 75


@pytest.mark.parametrize(
    "name",
    [
        "Doe, Jo",
        'Jo "D" Doe',
        "Back\\slash",
        "Jö",
        "Doe, Jö",
        "ö" * 200,
        "J" * 200,
        "a@b",
        "<>",
        "(",
    ],
)
def test_a_name_stays_beside_the_one_address_it_names(name: str) -> None:
    header = parsed(replace(LEAST, to=(Mailbox("jo@example.org", name),)))["To"]
    assert [one.addr_spec for one in header.addresses] == ["jo@example.org"]
    assert read(built(replace(LEAST, to=(Mailbox("jo@example.org", name),)))).to[0].name == name


def test_recipients_of_the_envelope_alone_are_undisclosed() -> None:
    raw = built(replace(LEAST, to=(), bcc=(Mailbox("secret@example.org", "Secret"),)))
    assert b"secret" not in raw.lower()
    assert b"\r\nTo: undisclosed-recipients:;\r\n" in raw


@pytest.mark.parametrize(
    ("text", "arrives"),
    [
        ("a\nb\n", "a\r\nb\r\n"),
        ("a\r\nb", "a\r\nb"),
        ("a\rb", "a\rb"),
        ("a\r\r\n\n\rb", "a\r\r\n\r\n\rb"),
        ("", ""),
        ("\n", "\r\n"),
        ("trailing  \n\t\nend ", "trailing  \r\n\t\r\nend "),
        (".\n..\nFrom here\n", ".\r\n..\r\nFrom here\r\n"),
        ("=3D =\n", "=3D =\r\n"),
        ("x" * 50_000, "x" * 50_000),
        ("\ufeff\u2028\u0085 e\u0301", "\ufeff\u2028\u0085 e\u0301"),
    ],
)
def test_a_text_arrives_with_the_line_ends_of_mime(text: str, arrives: str) -> None:
    assert read(built(replace(LEAST, text=text))).text == arrives
    both = read(built(replace(LEAST, text=text, html=text)))
    assert (both.text, both.html) == (arrives, arrives)


@pytest.mark.parametrize("field", ["subject", "name", "header", "id", "reference", "file name"])
@pytest.mark.parametrize("forged", ["a\r\nBcc: x@example.org", "a\nb", "a\rb", "a\x00b", "a\x7f"])
def test_no_control_gets_into_a_header_whoever_let_it_in(field: str, forged: str) -> None:
    changes: dict[str, Any] = {
        "subject": {"subject": forged},
        "name": {"to": (Mailbox("jo@example.org", forged),)},
        "header": {"headers": (("X-Note", forged),)},
        "id": {"in_reply_to": forged},
        "reference": {"references": (forged,)},
        "file name": {
            "attachments": (Attachment(forged, "text/plain", 0, sha256(b""), content_id=forged),)
        },
    }
    with pytest.raises(ValueError, match=r"holds U\+00"):
        built(replace(LEAST, **changes[field]))


def test_the_parts_are_nested_as_readers_expect_them() -> None:
    digest = sha256(b"")
    files = (
        Attachment("logo.png", "image/png", 0, digest, content_id="logo", inline=True),
        Attachment("mail.eml", "message/rfc822", 0, digest),
    )
    whole = parsed(replace(LEAST, html="<img src=cid:logo>", attachments=files))
    assert [part.get_content_type() for part in whole.walk()] == [
        "multipart/mixed",
        "multipart/alternative",
        "text/plain",
        "multipart/related",
        "text/html",
        "image/png",
        "application/octet-stream",  # a message may not be encoded, and must arrive as it is
    ]
    assert [part.get_filename() for part in whole.iter_attachments()] == ["mail.eml"]
    assert parsed(LEAST).get_content_type() == "text/plain"


def test_the_head_says_when_and_who() -> None:
    head = parsed(replace(LEAST, in_reply_to="<a@example.org>", references=("<a@example.org>",)))
    assert head["Message-ID"] == "<0190a1b2@example.com>"
    assert head["In-Reply-To"] == head["References"] == "<a@example.org>"
    assert parsedate_to_datetime(head["Date"]) == DATE
    assert head["MIME-Version"] == "1.0"


# Over a real connection


class Kept:
    """What a mail server of another house took: senders, recipients and bytes, as they came."""

    def __init__(self) -> None:
        self.emails: list[Envelope] = []

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.emails.append(envelope)
        return "250 OK"


@pytest.fixture(scope="module")
def mail_server() -> Iterator[Controller]:
    controller = Controller(
        Kept(), hostname="127.0.0.1", port=free_port(), ready_timeout=60, enable_SMTPUTF8=True
    )
    controller.start()
    yield controller
    controller.stop()


@pytest.mark.parametrize("name", tomllib.loads((CORPUS / "verdicts.toml").read_text())["accepted"])
def test_a_mail_server_gets_the_bytes_and_a_reader_the_message(
    mail_server: Controller, name: str
) -> None:
    proposal = parse(read_json((CORPUS / f"{name}.json").read_bytes()))
    message = proposal.message(Mailbox("support@example.com", "Käse, Brot & Co"))
    raw = build(Frozen(message, "<1@example.com>", name), date=DATE, contents=proposal.files)
    sender, recipients = message.sender.address, [box.address for box in message.recipients]
    beyond_ascii = [] if raw.isascii() else ["SMTPUTF8", "BODY=8BITMIME"]

    with smtplib.SMTP(mail_server.hostname, mail_server.port, timeout=60) as client:
        client.sendmail(sender, recipients, raw, mail_options=beyond_ascii)

    taken = mail_server.handler.emails.pop()
    assert taken.mail_from == sender
    # The client of the standard library takes off the quotes that a local part does not need.
    assert list(map(normal, taken.rcpt_tos)) == list(map(normal, recipients))
    assert taken.original_content == raw
    assert read(raw) == sent(message)
