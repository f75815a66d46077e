"""A run's failures and retries against their limits."""

from collections import Counter

import pytest

from sends.rules.budgets import Ended, FailureRate, RetryBudget, ended, failure_rate
from sends.rules.outcomes import Outcome

O = Outcome  # noqa: E741 - the table below is read as a table


@pytest.mark.parametrize(
    ("outcome", "how"),
    [
        ("", None),
        (O.RELEASED, None),
        (O.ACCEPTED, Ended.ACCEPTED),
        (O.ACCEPTED_IN_PART, Ended.ACCEPTED),
        (O.THROTTLED, Ended.SLOWED),
        (O.TRANSIENT, Ended.LATER),
        (O.NOT_SENT, Ended.UNREACHED),
        (O.AMBIGUOUS, Ended.UNCLEAR),
        (O.KEY_CONFLICT, Ended.UNCLEAR),
        (O.KEY_IN_PROGRESS, Ended.UNCLEAR),
        (O.REFUSED, Ended.REFUSED),
        (O.SUPPRESSED, Ended.REFUSED),
        (O.BLOCKED, Ended.REFUSED),
        (O.INTERNAL, Ended.REFUSED),
    ],
)
def test_every_outcome_has_its_place_in_the_chart(outcome: str, how: Ended | None) -> None:
    assert ended(outcome) is how


def test_no_outcome_is_forgotten() -> None:
    assert all(ended(outcome) for outcome in set(Outcome) - {O.RELEASED})


@pytest.mark.parametrize(
    ("failed", "of", "percent", "is_over"),
    [
        (0, 0, 0, False),
        (19, 19, 100, False),  # too few to judge
        (8, 20, 40, False),  # at the limit
        (9, 20, 45, True),
        (25, 60, 42, True),
        (24, 60, 40, False),
    ],
)
def test_the_rate_is_judged_from_enough_attempts_on(
    failed: int, of: int, percent: int, is_over: bool
) -> None:
    rate = FailureRate(failed, of)
    assert rate.percent == percent
    assert rate.is_over is is_over


def test_only_the_latest_attempts_count_and_only_those_that_ended() -> None:
    outcomes = [O.RELEASED, "", *[O.ACCEPTED] * 50, *[O.TRANSIENT] * 50]
    assert failure_rate(outcomes) == FailureRate(10, 60)


@pytest.mark.parametrize(
    ("used", "limit", "percent", "is_nearly_used"),
    [
        (0, 40, 0, False),
        (29, 40, 72, False),
        (30, 40, 75, True),
        (50, 40, 100, True),
        (0, 0, 100, True),
    ],
)
def test_a_budget_warns_before_it_is_used(
    used: int, limit: int, percent: int, is_nearly_used: bool
) -> None:
    budget = RetryBudget(used, limit, Counter())
    assert budget.percent == percent
    assert budget.is_nearly_used is is_nearly_used
