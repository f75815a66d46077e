"""Two versions compared: nothing that changed is left out, nothing that did not is marked."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.differences import Piece, compare, quoted
from sends.rules.payloads import Attachment, Mailbox, Message
from sends.rules.proposals import parse
from tests.rules.test_mime import LINES


def message(**fields):
    return Message(
        **{
            "sender": Mailbox("support@mail.example.com", "Support"),
            "to": (Mailbox("a@example.org"),),
            **fields,
        }
    )


def part(before, after, label):
    (found,) = [part for part in compare(before, after) if part.label == label]
    return found


def test_a_changed_word_is_marked_on_both_sides():
    found = part(message(text="due on 9 October"), message(text="due on 19 October"), "Plain text")
    (row,) = found.rows
    assert row.before == [Piece("due on ", False), Piece("9", True), Piece(" October", False)]
    assert row.after == [Piece("due on ", False), Piece("19", True), Piece(" October", False)]
    assert found.changes == 1


def test_an_added_recipient_is_a_line_of_its_own():
    found = part(message(), message(to=(Mailbox("a@example.org"), Mailbox("b@example.org"))), "To")
    assert [(row.before, row.after) for row in found.rows] == [
        ([Piece("a@example.org", False)], [Piece("a@example.org", False)]),
        (None, [Piece("b@example.org", True)]),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"filename": "Offer.pdf"},
        {"content_type": "application/octet-stream"},
        {"size": 8},
        {"sha256": "b" * 64},
        {"content_id": "x"},
        {"inline": False},
    ],
)
def test_nothing_of_an_attachment_changes_unseen(change):
    file = Attachment("offer.pdf", "application/pdf", 7, "a" * 64, "offer", inline=True)
    before, after = message(attachments=(file,)), message(attachments=(replace(file, **change),))
    assert part(before, after, "Attachments").changes == 1
    assert part(before, before, "Attachments").changes == 0
    assert part(before, message(), "Attachments").changes == 1


def test_a_part_that_one_version_lacks_is_all_new():
    found = part(message(), message(html="<p>Hi</p>"), "HTML")
    assert found.changes == 1
    assert all(row.before is None for row in found.rows)


def test_what_neither_has_is_not_shown():
    labels = [part.label for part in compare(message(), message())]
    assert labels == ["From", "To", "Subject"]


def test_long_stretches_that_are_alike_are_counted_not_shown():
    lines = [f"line {number}" for number in range(30)]
    found = part(
        message(text="\n".join(lines)), message(text="\n".join([*lines, "last"])), "Plain text"
    )
    assert [row.alike for row in found.rows] == [28, 0, 0, 0]


def test_html_on_one_line_is_compared_tag_by_tag():
    found = part(message(html="<p>One</p><p>Two</p>"), message(html="<p>One</p><p>2</p>"), "HTML")
    assert [row.is_changed for row in found.rows] == [False, True]


def test_line_ends_are_no_change():
    assert not part(message(text="a\r\nb"), message(text="a\nb"), "Plain text").changes


def test_two_megabytes_on_one_line_are_compared_at_once():
    before, after = "word " * 400_000, "other " * 400_000
    found = part(message(text=before), message(text=after), "Plain text")
    assert found.changes == 1


@given(st.text("ab \n", max_size=40), st.text("ab \n", max_size=40))
def test_every_side_can_be_read_off_the_rows(before, after):
    found = part(message(text=before), message(text=after), "Plain text")
    assert bool(found.changes) == (before != after)
    if any(row.alike for row in found.rows):
        return
    for side, text in (("before", before), ("after", after)):
        lines = [getattr(row, side) for row in found.rows if getattr(row, side) is not None]
        assert "\n".join("".join(piece.text for piece in line) for line in lines) == text


@given(LINES)
def test_a_mailbox_written_for_an_editor_is_read_as_it_was(name):
    box = Mailbox("jo@example.org", name)
    assert parse({"to": [quoted(box)], "text": "Hello"}, needs_key=False).to[0].mailbox == box
