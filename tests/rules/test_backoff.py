"""How long to wait: the jitter, and what a provider may ask for."""

from datetime import UTC, datetime, timedelta

import pytest

from sends.rules.backoff import NOTHING, longest_after, parse_retry_after, wait_after

BASE, CAP = timedelta(seconds=1), timedelta(minutes=15)
NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [(0, 1), (1, 1), (2, 2), (3, 4), (10, 512), (11, 900), (40, 900), (10**9, 900)],
)
def test_the_range_doubles_up_to_its_cap(attempts: int, seconds: int) -> None:
    assert longest_after(attempts, base=BASE, cap=CAP) == timedelta(seconds=seconds)


def test_the_cap_holds_for_the_first_wait_too() -> None:
    assert longest_after(1, base=timedelta(hours=1), cap=CAP) == CAP


@pytest.mark.parametrize(
    ("chance", "asked", "seconds", "why"),
    [
        (0.0, 0, 0, "full jitter begins at nothing"),
        (1.0, 0, 4, "and ends at the whole range"),
        (0.5, 0, 2, "chance picks the point"),
        (0.0, 30, 30, "what is asked for is a floor"),
        (1.0, 3, 4, "of a wait that may be longer"),
        (0.5, 86_400, 86_400, "the cap does not bind the provider"),
    ],
)
def test_the_wait(chance: float, asked: int, seconds: int, why: str) -> None:
    wait = wait_after(3, base=BASE, cap=CAP, chance=chance, asked=timedelta(seconds=asked))
    assert wait == timedelta(seconds=seconds), why


def test_nobody_asking_is_no_wait() -> None:
    assert wait_after(1, base=BASE, cap=CAP, chance=0.0) == NOTHING


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2),
        (" 120 ", 120),
        ("2.5", 2.5),
        ("604800", 604_800),
        ("Mon, 30 Nov 2026 10:00:07 GMT", 7),
        ("Monday, 30-Nov-26 10:00:07 GMT", 7),
        ("Mon Nov 30 10:00:07 2026", 7),
        ("Mon, 30 Nov 2026 12:00:07 +0200", 7),
    ],
)
def test_a_wait_that_is_asked_for(value: str, seconds: float) -> None:
    assert parse_retry_after(value, answered_at=NOW) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", " ", "0", "-5", "+5", "-0", "nan", "inf", "-inf", "1e309", "1e3", "0x10"),
        *("604801", "9" * 400, "1_000", "٣", "soon", "5 minutes", "2;3", "\x00", "é", ",", "GMT"),
        "Mon, 30 Nov 2026 09:00:00 GMT",  # an hour ago
        "Mon, 30 Nov 2026 10:00:00 GMT",  # now
        "Mon, 30 Nov 2099 10:00:00 GMT",
        "Mon, 30 Nov 99999999 10:00:00 GMT",
        "Mon, 30 Nov 2026 99:00:00 GMT",
        "Mon, 30 Nov 2026 10:00:07 +9999999",
        "1 Jan 1 0:0:0 +2359",
    ],
)
def test_what_is_past_negative_unreadable_or_absurd_is_no_hint(value: str | None) -> None:
    assert parse_retry_after(value, answered_at=NOW) is None
