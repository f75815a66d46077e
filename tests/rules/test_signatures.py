"""Which dead letters are alike: classes, and messages without what differs."""

import pytest

from sends.rules.outcomes import Outcome
from sends.rules.signatures import (
    REPEATABLE,
    SENTENCES,
    Death,
    Ending,
    blanked,
    class_of,
    signature_of,
)
from sends.rules.signatures import DeadClass as C


def died(ending: Ending = Ending.ATTEMPT, said: str = "", **more: object) -> Death:
    return Death("sandbox", ending, said, **more)  # type: ignore[arg-type]


def refused(status: int) -> Death:
    return died(outcome=Outcome.REFUSED, http_status=status)


@pytest.mark.parametrize(
    ("death", "kind"),
    [
        (died(Ending.DELIVERY, outcome=Outcome.ACCEPTED), C.BOUNCED),
        (died(Ending.FINDING, outcome=Outcome.AMBIGUOUS), C.FOUND),
        (died(Ending.SUPPRESSION), C.POLICY),
        (died(Ending.SUPPRESSION, outcome=Outcome.TRANSIENT), C.POLICY),  # tried before that
        (died(Ending.WINDOW, outcome=Outcome.TRANSIENT), C.SPENT),
        (refused(400), C.CONTENT),
        (refused(413), C.CONTENT),
        (refused(415), C.CONTENT),
        (refused(404), C.CONTENT),  # of what it asked for, at least not of whom
        (refused(422), C.POLICY),
        (died(outcome=Outcome.SUPPRESSED, http_status=422), C.POLICY),
        (died(outcome=Outcome.BLOCKED, http_status=403), C.POLICY),  # of this message alone
        (died(outcome=Outcome.INTERNAL), C.OURS),
        (died(outcome=Outcome.THROTTLED, http_status=429), C.SPENT),
        (died(outcome=Outcome.TRANSIENT, http_status=503), C.SPENT),
        (died(outcome=Outcome.NOT_SENT), C.SPENT),
    ],
)
def test_the_class_says_what_can_be_done(death: Death, kind: C) -> None:
    assert class_of(death) is kind


def test_every_class_is_explained() -> None:
    assert set(SENTENCES) == set(C)
    assert not {C.BOUNCED, C.CONTENT} & REPEATABLE


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("Too many requests", "Too many requests"),
        ("Unknown user customer-4711@example.org", "Unknown user …"),
        ("Unknown user <customer-4711@example.org>.", "Unknown user …"),
        ("Message 0199e2b0-0000-7000-8000-000000000000 was refused", "Message … was refused"),
        (
            "request req_8fK2: quota of 1,000 a day is used up",
            "request … quota of … a day is used up",
        ),
        ("try again in 30 s", "try again in … s"),
        ("from 198.51.100.7 at 2026-10-14T12:04:11Z", "from … at …"),
        ("host mx1.example.org said no", "host … said no"),
        ("1 2, 3", "…"),
        ("KeyError: order_number", "KeyError: order_number"),
        ("  two\n lines ", "two lines"),
        ("", ""),
    ],
)
def test_numbers_ids_and_addresses_are_blanked(said: str, left: str) -> None:
    assert blanked(said) == left


def test_a_long_message_takes_no_long_time_and_is_cut() -> None:
    assert len(blanked("a" * 1_000_000)) == 300


@pytest.mark.parametrize(
    ("death", "title"),
    [
        (died(Ending.DELIVERY, "550 5.1.1 User unknown"), "550 5.1.1 User unknown"),
        (died(Ending.DELIVERY, "550-5.1.1 <a@example.org> unknown"), "550 5.1.1 … unknown"),
        (died(Ending.DELIVERY, "552 mailbox of a@example.org is full"), "552 Mailbox of … is full"),
        (died(Ending.DELIVERY, "mailbox full"), "Mailbox full"),
        (died(Ending.DELIVERY), "Bounced, recipient"),
        (
            died(
                said="HTTP 429 rate_limited: Too many requests",
                outcome=Outcome.THROTTLED,
                http_status=429,
                code="rate_limited",
            ),
            "429 Too many requests",
        ),
        (died(said="HTTP 400", outcome=Outcome.REFUSED, http_status=400), "400 Refused, content"),
        (
            died(said="HTTP 400 bad", outcome=Outcome.REFUSED, http_status=400, code="bad"),
            "400 Bad",
        ),
        (
            died(said="refused: connection refused", outcome=Outcome.NOT_SENT, code="refused"),
            "Connection refused",
        ),
        (died(Ending.FINDING, "asked them; ticket 311"), "Found not accepted, by a person"),
    ],
)
def test_the_title_says_what_went_wrong(death: Death, title: str) -> None:
    assert signature_of(death).title == title


def test_alike_is_who_differs_only_in_numbers_and_addresses() -> None:
    one = died(Ending.DELIVERY, "550 5.1.1 a@example.org unknown (id 17)")
    two = died(Ending.DELIVERY, "550 5.1.1 b@example.net unknown (id 18)")
    assert signature_of(one) == signature_of(two)
    assert signature_of(one).id == signature_of(two).id
    assert len(signature_of(one).id) == 16


@pytest.mark.parametrize(
    "other",
    [
        Death("resend", Ending.ATTEMPT, "HTTP 400: no", Outcome.REFUSED, 400),
        died(said="HTTP 422: no", outcome=Outcome.REFUSED, http_status=422),
        died(said="HTTP 400: why", outcome=Outcome.REFUSED, http_status=400),
        died(said="HTTP 400 x: no", outcome=Outcome.REFUSED, http_status=400, code="x"),
        died(said="HTTP 400: no", outcome=Outcome.TRANSIENT, http_status=400),
    ],
    ids=["provider", "status", "message", "code", "class"],
)
def test_not_alike_is_who_differs_in_anything_else(other: Death) -> None:
    death = died(said="HTTP 400: no", outcome=Outcome.REFUSED, http_status=400)
    assert signature_of(death).id != signature_of(other).id
