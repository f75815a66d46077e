"""So many at once, so many more each minute, whatever the clock does."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sends.rules.allowances import Allowance, Rate, take

RATE = Rate(per_minute=60, burst=10)
START = 1_000_000.0


def taken(*moments: float, rate: Rate = RATE) -> list[Allowance]:
    """What is left after one request at each moment."""
    found, full_at = [], 0.0
    for moment in moments:
        found.append(take(rate, full_at, requests=1, now=START + moment))
        full_at = found[-1].full_at
    return found


def test_a_burst_and_then_one_as_each_comes_back() -> None:
    found = taken(*[0.0] * 12)
    assert [one.wait == 0 for one in found] == [True] * 10 + [False] * 2
    assert [one.left for one in found[:3]] == [9, 8, 7]
    assert found[-1].left == 0
    assert found[-1].wait == 1.0
    later = taken(*[0.0] * 10, 0.5, 1.0, 1.5, 2.0)
    assert [one.wait == 0 for one in later[10:]] == [False, True, False, True]


def test_who_is_refused_has_used_nothing_up() -> None:
    found = taken(*[0.0] * 100, 1.0)
    assert found[-1].wait == 0


def test_owing_makes_the_next_wait_the_longer() -> None:
    owed = take(RATE, 0.0, requests=15, now=START, owing=True)
    assert (owed.wait, owed.left) == (0, 0)
    assert take(RATE, owed.full_at, requests=1, now=START).wait == 6.0
    assert take(RATE, owed.full_at, requests=1, now=START + 6).wait == 0


def test_all_that_is_owed_has_to_come_back() -> None:
    owed = take(RATE, 0.0, requests=10**6, now=START, owing=True)
    assert take(RATE, owed.full_at, requests=1, now=START).wait == 10**6 + 1 - RATE.window


def test_nobody_owes_more_while_something_is_owed() -> None:
    owed = take(RATE, 0.0, requests=15, now=START, owing=True)
    refused = take(RATE, owed.full_at, requests=15, now=START, owing=True)
    assert (refused.wait, refused.full_at) == (6.0, owed.full_at)
    assert take(RATE, owed.full_at, requests=15, now=START + 6, owing=True).wait == 0


def test_a_clock_that_was_set_back_adds_nothing() -> None:
    full = take(RATE, 0.0, requests=10, now=START)
    back = START - 10**6
    refused = take(RATE, full.full_at, requests=1, now=back, seen=START)
    assert refused.wait == 1.0
    assert take(RATE, refused.full_at, requests=1, now=back + 1, seen=back).wait == 0


@given(
    st.lists(st.floats(0, 30), min_size=1, max_size=100).map(sorted),
    st.integers(1, 1000),
    st.integers(1, 50),
)
def test_in_no_span_of_time_are_there_more_than_the_rate_allows(
    moments: list[float], per_minute: int, burst: int
) -> None:
    rate = Rate(per_minute, burst)
    found = taken(*moments, rate=rate)
    allowed = [moment for moment, one in zip(moments, found, strict=True) if not one.wait]
    for index, first in enumerate(allowed):
        for number, last in enumerate(allowed[index:], start=1):
            assert number <= burst + (last - first) * per_minute / 60 + 0.001
    assert all(earlier <= later for earlier, later in pairwise(moments))
