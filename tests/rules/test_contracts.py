"""What a provider promised, and how an operator may tighten it."""

from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta

import pytest

from sends.rules.contracts import ASSUMED_WINDOW, UNKNOWN_SETTLE_TIME, Contract, Recovery

NOW = datetime(2026, 11, 30, 10, 0, tzinfo=UTC)
REPLAY = Contract(
    Recovery.REPLAY, source="a page", checked_on=date(2026, 11, 30), window=timedelta(hours=24)
)


def test_what_is_not_said_is_the_unsafe_fact() -> None:
    bare = Contract(Recovery.PERSON, source="a page", checked_on=date(2026, 11, 30))
    assert not bare.may_replay
    assert bare.safe_window == timedelta()
    assert bare.settle_time == UNKNOWN_SETTLE_TIME
    assert bare.took_nothing == frozenset()
    facts = {field.name: getattr(bare, field.name) for field in fields(bare)}
    assert not facts["tag_echoed"]
    assert not facts["has_look_up"]
    assert facts["failures_remembered"] is facts["message_id_kept"] is facts["key_carrier"] is None


@pytest.mark.parametrize(
    ("recovery", "may_replay"),
    [
        (Recovery.REPLAY, True),
        (Recovery.ONE_SHOT, False),  # its token is repeated, never its key
        (Recovery.LOOK_UP, False),
        (Recovery.PERSON, False),
    ],
)
def test_only_a_promise_about_the_key_allows_a_replay(recovery: Recovery, may_replay: bool) -> None:
    contract = replace(REPLAY, recovery=recovery)
    assert contract.may_replay is may_replay
    assert (contract.replay_until(NOW) > NOW) is may_replay


@pytest.mark.parametrize(
    ("window", "deadline", "margin", "why"),
    [
        (timedelta(hours=24), 20, timedelta(hours=2), "two hours at most"),
        (timedelta(hours=10), 20, timedelta(hours=1), "else a tenth"),
        (timedelta(minutes=1), 20, timedelta(seconds=20), "at least the request deadline"),
        (timedelta(hours=24), 40, timedelta(hours=2), "which a long window holds anyway"),
        (None, 20, timedelta(seconds=90), "a tenth of the assumed window"),
    ],
)
def test_replays_stop_before_the_window_ends(
    window: timedelta | None, deadline: int, margin: timedelta, why: str
) -> None:
    contract = replace(REPLAY, window=window, request_deadline=timedelta(seconds=deadline))
    assert contract.margin == margin, why
    assert contract.replay_until(NOW) == NOW + contract.safe_window - margin


def test_a_window_shorter_than_a_request_allows_no_replay() -> None:
    assert replace(REPLAY, window=timedelta(seconds=5)).replay_until(NOW) == NOW


def test_a_replay_without_documented_retention_gets_an_assumed_window() -> None:
    contract = replace(REPLAY, window=None)
    assert contract.window_is_assumed
    assert contract.safe_window == ASSUMED_WINDOW
    assert not REPLAY.window_is_assumed


@pytest.mark.parametrize(
    ("window", "safe"),
    [
        (timedelta(hours=1), timedelta(hours=1)),
        (timedelta(hours=24), timedelta(hours=24)),
        (timedelta(days=30), timedelta(hours=24)),
        (timedelta(), timedelta()),
        (None, timedelta(hours=24)),
    ],
)
def test_a_window_is_made_shorter_and_never_longer(
    window: timedelta | None, safe: timedelta
) -> None:
    assert REPLAY.tightened(window=window).safe_window == safe


def test_an_assumed_window_is_not_made_longer_either() -> None:
    contract = replace(REPLAY, window=None)
    assert contract.tightened(window=timedelta(hours=1)).safe_window == ASSUMED_WINDOW
    assert contract.tightened(window=timedelta(minutes=5)).safe_window == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("recovery", "has_look_up", "after"),
    [
        (Recovery.REPLAY, False, Recovery.PERSON),
        (Recovery.REPLAY, True, Recovery.LOOK_UP),
        (Recovery.ONE_SHOT, False, Recovery.PERSON),
        (Recovery.LOOK_UP, True, Recovery.LOOK_UP),
        (Recovery.PERSON, False, Recovery.PERSON),
    ],
)
def test_an_operator_may_forbid_replays(
    recovery: Recovery, has_look_up: bool, after: Recovery
) -> None:
    contract = replace(REPLAY, recovery=recovery, has_look_up=has_look_up)
    tight = contract.tightened(no_replay=True)
    assert tight.recovery is after
    assert tight.replay_until(NOW) == NOW
    assert contract.tightened() == contract
