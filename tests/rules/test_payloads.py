"""Frozen messages: their bytes come back as they were, and their digests tell what must be told."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.payloads import (
    Attachment,
    Frozen,
    Mailbox,
    Message,
    content_digest,
    freeze,
    seal,
    thaw,
)

text = st.text(st.characters(codec="utf-8"), max_size=30)
mailboxes = st.builds(Mailbox, address=text, name=text)
several = st.lists(mailboxes, max_size=3).map(tuple)
messages = st.builds(
    Message,
    sender=mailboxes,
    to=several,
    cc=several,
    bcc=several,
    reply_to=several,
    subject=text,
    text=st.none() | text,
    html=st.none() | text,
    headers=st.lists(st.tuples(text, text), max_size=3).map(tuple),
    in_reply_to=text,
    references=st.lists(text, max_size=3).map(tuple),
    attachments=st.lists(
        st.builds(
            Attachment,
            filename=text,
            content_type=text,
            size=st.integers(min_value=0),
            sha256=text,
            content_id=text,
            inline=st.booleans(),
        ),
        max_size=3,
    ).map(tuple),
)
MESSAGE = Message(
    sender=Mailbox("support@mail.example.com", "Support"),
    to=(Mailbox("jo@example.org", "Jo"),),
    cc=(Mailbox("al@example.org"),),
    bcc=(Mailbox("audit@example.org"),),
    reply_to=(Mailbox("help@example.com"),),
    subject="Your refund",
    text="Hello",
    html="<p>Hello</p>",
    headers=(("X-Order", "7731"),),
    in_reply_to="<a@example.org>",
    references=("<a@example.org>",),
    attachments=(
        Attachment("logo.png", "image/png", 3, "a" * 64, content_id="logo", inline=True),
        Attachment("", "text/plain", 0, "b" * 64),
    ),
)
FROZEN = Frozen(MESSAGE, "<0190a1b2@mail.example.com>", "k" * 40)


@given(st.builds(Frozen, message=messages, message_id=text, idempotency_key=text))
def test_what_was_frozen_thaws_as_it_was(frozen: Frozen) -> None:
    assert thaw(freeze(frozen)) == frozen
    assert freeze(thaw(freeze(frozen))) == freeze(frozen)


def test_the_bytes_and_digests_of_a_message_never_change() -> None:
    # Written down: other bytes would break the seal of everything approved before an upgrade.
    assert (
        seal(freeze(FROZEN)) == "fdcde40c598a4d20fcd1f78cf06458b76c0125f80af88cfe6a8d3f31864aa747"
    )
    assert (
        content_digest(MESSAGE)
        == "19875e7abf32a16e87f2ce682154d55e6b40371f43bd4e765311f34056ed45e0"
    )


OTHER: list[dict[str, Any]] = [
    {"sender": Mailbox("sales@mail.example.com", "Support")},
    {"to": (Mailbox("jo@example.org"),)},
    {"to": (Mailbox("Jo@example.org", "Jo"),)},
    {"to": (), "cc": (Mailbox("jo@example.org", "Jo"), Mailbox("al@example.org"))},
    {"cc": ()},
    {"bcc": ()},
    {"reply_to": ()},
    {"subject": "Your Refund"},
    {"text": "Hello "},
    {"text": ""},
    {"text": None},
    {"html": None},
    {"headers": ()},
    {"headers": (("X-Order", "7732"),)},
    {"in_reply_to": ""},
    {"references": ()},
    {"attachments": ()},
    {"attachments": MESSAGE.attachments[::-1]},
    *(
        {"attachments": (replace(MESSAGE.attachments[0], **change), MESSAGE.attachments[1])}
        for change in (
            {"filename": "Logo.png"},
            {"content_type": "image/jpeg"},
            {"size": 4},
            {"sha256": "c" * 64},
            {"content_id": ""},
            {"inline": False},
        )
    ),
]


@pytest.mark.parametrize("change", OTHER)
def test_every_change_of_the_content_changes_both_digests(change: dict[str, Any]) -> None:
    other = replace(MESSAGE, **change)
    assert content_digest(other) != content_digest(MESSAGE)
    assert seal(freeze(replace(FROZEN, message=other))) != seal(freeze(FROZEN))


def test_an_empty_text_is_not_a_missing_one() -> None:
    empty, missing = replace(MESSAGE, text=""), replace(MESSAGE, text=None)
    assert content_digest(empty) != content_digest(missing)


@pytest.mark.parametrize(
    "change",
    [
        {"message_id": "<other@mail.example.com>"},
        {"idempotency_key": "l" * 40},
        {"message": replace(MESSAGE, sender=Mailbox("support@mail.example.com", "Help"))},
    ],
)
def test_the_seal_also_covers_what_the_caller_did_not_choose(change: dict[str, Any]) -> None:
    assert seal(freeze(replace(FROZEN, **change))) != seal(freeze(FROZEN))


def test_a_sender_that_got_another_name_meanwhile_makes_no_other_content() -> None:
    renamed = replace(MESSAGE, sender=Mailbox("support@mail.example.com", "Help"))
    assert content_digest(renamed) == content_digest(MESSAGE)


def test_the_recipients_are_to_then_cc_then_bcc() -> None:
    assert [box.address for box in MESSAGE.recipients] == [
        "jo@example.org",
        "al@example.org",
        "audit@example.org",
    ]
