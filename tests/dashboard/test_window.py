"""How long a replay stays safe, as a bar: its places and its words."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sends.dashboard.window import in_hours, window_of
from sends.lifecycle.accounts import contract_of
from sends.models import Attempt, SendIntent
from sends.rules.contracts import Recovery
from tests.factories import make_account, make_tenant

START = datetime(2026, 10, 14, 9, 14, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def contract(db):
    return contract_of(make_account(make_tenant()))


def window(contract, now=START + 6 * HOUR, opened_at=START, **fields):
    intent = SendIntent(window_opened_at=opened_at, **fields)
    attempts = [
        Attempt(opened_at=START, may_have_arrived=True),
        Attempt(opened_at=START + 3 * HOUR, may_have_arrived=False),
    ]
    return window_of(intent, attempts, contract, now)


def test_it_has_its_places_in_percent_of_the_whole(contract):
    drawn = window(contract)
    assert (drawn.now_at, drawn.safe_at, drawn.margin) == (25.0, 91.67, 8.33)
    assert drawn.marks == (0.0,)  # only of what may have arrived
    assert drawn.left == 16 * HOUR


def test_it_says_in_one_sentence_what_it_draws(contract):
    assert window(contract).label == (
        "The key is good for 24 hours from the first attempt at 14 Oct, 09:14. It is now 15:14, "
        "6 h later. The last 2 h, from 15 Oct, 07:14, are kept as a safety margin."
    )


def test_past_its_end_nothing_is_left(contract):
    drawn = window(contract, now=START + 30 * HOUR)
    assert (drawn.now_at, drawn.left) == (100, timedelta())


def test_a_window_that_was_made_shorter_for_this_email_ends_sooner(contract):
    drawn = window(contract, replay_until=START + 12 * HOUR)
    assert (drawn.safe_at, drawn.left) == (50.0, 6 * HOUR)


def test_where_nobody_documented_it_a_short_one_is_assumed_and_said(contract):
    drawn = window(replace(contract, window=None), now=START)
    assert drawn.is_assumed
    assert drawn.left < timedelta(minutes=15)


def test_without_a_contract_or_a_beginning_there_is_none(contract):
    assert window(replace(contract, recovery=Recovery.PERSON)) is None
    assert window(contract, opened_at=None) is None


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (24 * HOUR, "24 hours"),
        (48 * HOUR, "48 hours"),
        (15 * HOUR / 60, "15 min"),
        (7 * 24 * HOUR, "7 days"),
        (90 * HOUR / 60, "1 h 30 min"),
    ],
)
def test_a_key_is_kept_for_hours_as_providers_say_it(span, words):
    assert in_hours(span) == words
