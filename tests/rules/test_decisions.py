"""What follows an attempt: the design's table row by row, and what holds for every history."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.contracts import Contract, Recovery
from sends.rules.decisions import (
    IN_PROGRESS_PATIENCE,
    Accept,
    Cancel,
    DeadLetter,
    Decision,
    History,
    Hold,
    Release,
    RetryAt,
    RetryPolicy,
    Uncertain,
    decide,
)
from sends.rules.outcomes import COUNTED, DOUBTFUL, TOOK_IT, BlockScope, Outcome

O = Outcome  # noqa: E741 - the tables below are read as tables
NOW = datetime(2027, 3, 1, 12, 0, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
    timedelta(days=1),
)


def contract(recovery: Recovery = Recovery.REPLAY, **facts: object) -> Contract:
    facts = {"window": DAY, "settle_time": 10 * SECOND} | facts
    return Contract(recovery, "https://example.com/docs", date(2026, 9, 1), **facts)  # type: ignore[arg-type]


REPLAY = contract()
PERSON = contract(Recovery.PERSON, window=None)
LOOK_UP = contract(Recovery.LOOK_UP, window=None)
ONE_SHOT = contract(Recovery.ONE_SHOT, window=None)
POLICY = RetryPolicy()
FRESH = History(first_at=NOW)
# One attempt may have been taken, a minute ago.
DOUBT = History(
    counted=1, tries=2, first_at=NOW - MINUTE, in_doubt=True, window_opened_at=NOW - MINUTE
)
# A person found that it was not; the key stays bound by its window.
FOUND = replace(DOUBT, in_doubt=False)


def follows(
    outcome: Outcome,
    history: History = FRESH,
    promise: Contract = REPLAY,
    *,
    policy: RetryPolicy = POLICY,
    chance: float = 0.5,
    asked: timedelta | None = None,
    block: BlockScope | None = None,
    reason: str = "HTTP 400",
) -> Decision:
    """The decision, with the window opened by this attempt where it may be the first."""
    if outcome in DOUBTFUL and history.window_opened_at is None:
        history = replace(history, window_opened_at=NOW - SECOND)
    return decide(
        outcome,
        history,
        promise,
        policy,
        NOW,
        chance=chance,
        asked=asked,
        block=block,
        reason=reason,
    )


# The table of outcomes: what follows when nothing was in doubt before, and when something was.
FOLLOWS: list[tuple[Outcome, BlockScope | None, type, type]] = [
    (O.ACCEPTED, None, Accept, Accept),
    (O.ACCEPTED_IN_PART, None, Accept, Accept),
    (O.NOT_SENT, None, RetryAt, RetryAt),
    (O.RELEASED, None, Release, Release),
    (O.THROTTLED, None, RetryAt, RetryAt),
    (O.TRANSIENT, None, RetryAt, RetryAt),
    (O.AMBIGUOUS, None, RetryAt, RetryAt),
    (O.REFUSED, None, DeadLetter, Uncertain),
    (O.SUPPRESSED, None, DeadLetter, Uncertain),
    (O.BLOCKED, None, DeadLetter, Uncertain),
    (O.BLOCKED, BlockScope.MESSAGE, DeadLetter, Uncertain),
    (O.BLOCKED, BlockScope.SENDER, Hold, Hold),
    (O.BLOCKED, BlockScope.ACCOUNT, Hold, Hold),
    (O.KEY_CONFLICT, None, Uncertain, Uncertain),
    (O.KEY_IN_PROGRESS, None, RetryAt, RetryAt),
    (O.INTERNAL, None, DeadLetter, Uncertain),
]


def test_the_table_has_every_outcome() -> None:
    assert {outcome for outcome, *_ in FOLLOWS} == set(Outcome)


@pytest.mark.parametrize(("outcome", "block", "certain", "doubtful"), FOLLOWS)
def test_each_outcome_has_what_follows_it_with_and_without_doubt(
    outcome: Outcome, block: BlockScope | None, certain: type, doubtful: type
) -> None:
    assert type(follows(outcome, block=block)) is certain
    assert type(follows(outcome, DOUBT, block=block)) is doubtful


@pytest.mark.parametrize("promise", [PERSON, LOOK_UP, ONE_SHOT])
@pytest.mark.parametrize("outcome", sorted({O.AMBIGUOUS, O.KEY_IN_PROGRESS, O.KEY_CONFLICT}))
def test_doubt_without_a_promise_about_repeats_is_uncertain_at_once(
    promise: Contract, outcome: Outcome
) -> None:
    assert isinstance(follows(outcome, promise=promise), Uncertain)


@pytest.mark.parametrize("outcome", sorted(COUNTED | {O.THROTTLED}))
def test_what_surely_took_nothing_is_tried_again_without_any_contract(outcome: Outcome) -> None:
    wanted = Uncertain if outcome in DOUBTFUL else RetryAt
    assert isinstance(follows(outcome, promise=PERSON), wanted)


def test_a_key_known_with_another_request_is_an_anomaly() -> None:
    decision = follows(O.KEY_CONFLICT)
    assert isinstance(decision, Uncertain)
    assert decision.anomaly


def test_no_other_way_into_doubt_is_an_anomaly() -> None:
    decisions = [follows(outcome, DOUBT, PERSON) for outcome in set(Outcome) - {O.KEY_CONFLICT}]
    assert not any(isinstance(d, Uncertain) and d.anomaly for d in decisions)


@pytest.mark.parametrize(("outcome", "reason"), [(O.REFUSED, "HTTP 422 bad"), (O.INTERNAL, "oops")])
def test_a_dead_letter_says_what_the_last_attempt_said(outcome: Outcome, reason: str) -> None:
    assert follows(outcome, reason=reason) == DeadLetter(reason)
    assert follows(outcome, reason="") == DeadLetter(outcome.label)


@pytest.mark.parametrize("scope", [BlockScope.SENDER, BlockScope.ACCOUNT])
def test_a_blocked_scope_holds_and_what_is_in_doubt_does_not_wait_for_it(scope: BlockScope) -> None:
    assert follows(O.BLOCKED, block=scope) == Hold(scope, "HTTP 400", uncertain=False)
    assert follows(O.BLOCKED, DOUBT, block=scope) == Hold(scope, "HTTP 400", uncertain=True)


# A cancel was asked meanwhile
@pytest.mark.parametrize(
    "outcome", [O.REFUSED, O.SUPPRESSED, O.INTERNAL, O.NOT_SENT, O.THROTTLED, O.TRANSIENT]
)
def test_a_cancel_that_was_asked_follows_once_nothing_was_taken(outcome: Outcome) -> None:
    assert isinstance(follows(outcome, replace(FRESH, cancel_asked=True)), Cancel)


@pytest.mark.parametrize("outcome", sorted(set(Outcome)))
def test_a_cancel_that_was_asked_ends_no_doubt(outcome: Outcome) -> None:
    asked = replace(DOUBT, cancel_asked=True)
    assert follows(outcome, asked) == follows(outcome, DOUBT)


def test_what_was_accepted_stays_accepted_whatever_was_asked() -> None:
    late = replace(FRESH, cancel_asked=True, deadline=NOW - HOUR, counted=99)
    assert follows(O.ACCEPTED, late) == Accept()


# How often and how long
@pytest.mark.parametrize(
    ("outcome", "counted", "goes_on", "why"),
    [
        (O.TRANSIENT, 38, True, "the 39th of 40"),
        (O.TRANSIENT, 39, False, "the 40th of 40"),
        (O.NOT_SENT, 39, False, "the 40th of 40"),
        (O.THROTTLED, 39, True, "told to wait is not counted"),
        (O.THROTTLED, 40, False, "a smaller limit than before was set meanwhile"),
    ],
)
def test_only_what_counts_uses_up_the_attempts(
    outcome: Outcome, counted: int, goes_on: bool, why: str
) -> None:
    decision = follows(outcome, replace(FRESH, counted=counted))
    assert isinstance(decision, RetryAt if goes_on else DeadLetter), why


@pytest.mark.parametrize(
    ("outcome", "counted", "goes_on"),
    [(O.AMBIGUOUS, 38, True), (O.AMBIGUOUS, 39, False), (O.KEY_IN_PROGRESS, 39, True)],
)
def test_doubt_with_all_attempts_used_up_is_uncertain(
    outcome: Outcome, counted: int, goes_on: bool
) -> None:
    decision = follows(outcome, replace(DOUBT, counted=counted))
    assert isinstance(decision, RetryAt if goes_on else Uncertain)


@pytest.mark.parametrize(
    ("tried_for", "asked", "goes_on", "why"),
    [
        (23 * HOUR, None, True, "an hour is left"),
        (24 * HOUR, None, False, "the time is over"),
        (30 * HOUR, None, False, "the time is long over"),
        (23 * HOUR, 59 * MINUTE, True, "the provider's wait ends in time"),
        (23 * HOUR, 61 * MINUTE, False, "the provider's wait ends too late: no use to wait"),
    ],
)
def test_an_intent_is_tried_for_24_hours_and_no_attempt_is_planned_after(
    tried_for: timedelta, asked: timedelta | None, goes_on: bool, why: str
) -> None:
    certain = follows(O.TRANSIENT, replace(FRESH, first_at=NOW - tried_for), asked=asked)
    doubtful = follows(
        O.TRANSIENT,
        replace(DOUBT, first_at=NOW - tried_for),
        contract(window=7 * DAY),
        asked=asked,
    )
    assert isinstance(certain, RetryAt if goes_on else DeadLetter), why
    assert isinstance(doubtful, RetryAt if goes_on else Uncertain), why


# Waits
def test_the_wait_doubles_with_full_jitter_up_to_the_cap() -> None:
    waits = []
    for tries in (1, 2, 3, 10, 11, 40):
        decision = follows(O.TRANSIENT, replace(FRESH, tries=tries), chance=1)
        assert isinstance(decision, RetryAt)
        waits.append((decision.at - NOW).total_seconds())
    assert waits == [1, 2, 4, 512, 900, 900]


@pytest.mark.parametrize(
    ("outcome", "asked", "wait", "why"),
    [
        (O.AMBIGUOUS, None, 10 * SECOND, "the provider may still be working on the first"),
        (O.TRANSIENT, None, 10 * SECOND, "also when the last one was clear"),
        (O.AMBIGUOUS, 3 * SECOND, 10 * SECOND, "the settle time is longer"),
        (O.AMBIGUOUS, 30 * SECOND, 30 * SECOND, "the provider asked for more"),
        (O.KEY_IN_PROGRESS, None, 2 * SECOND, "shortly"),
        (O.KEY_IN_PROGRESS, 5 * SECOND, 5 * SECOND, "the provider asked for more"),
    ],
)
def test_a_replay_does_not_come_too_soon(
    outcome: Outcome, asked: timedelta | None, wait: timedelta, why: str
) -> None:
    decision = follows(outcome, DOUBT, asked=asked, chance=0)
    assert isinstance(decision, RetryAt), why
    assert decision.in_doubt
    assert decision.at == decision.not_sooner == NOW + wait, why


@pytest.mark.parametrize(
    ("since", "asked", "goes_on", "why"),
    [
        (None, None, True, "the first such answer"),
        (timedelta(), None, True, "the first such answer"),
        (117 * SECOND, None, True, "the next one comes within the two minutes"),
        (119 * SECOND, None, False, "the next one would come after them"),
        (120 * SECOND, None, False, "they are over"),
        (timedelta(), 3 * MINUTE, False, "the provider asks for a longer wait"),
    ],
)
def test_a_key_in_progress_is_asked_for_two_minutes_at_most(
    since: timedelta | None, asked: timedelta | None, goes_on: bool, why: str
) -> None:
    working = None if since is None else NOW - since
    history = replace(DOUBT, in_progress_since=working, tries=20)
    decision = follows(O.KEY_IN_PROGRESS, history, asked=asked, chance=1)
    assert isinstance(decision, RetryAt if goes_on else Uncertain), why


def test_the_answer_to_a_key_in_progress_is_asked_for_soon_however_many_tries_there_were() -> None:
    decision = follows(O.KEY_IN_PROGRESS, replace(DOUBT, tries=30), chance=1)
    assert isinstance(decision, RetryAt)
    assert decision.at == NOW + 2 * SECOND


# Windows
@pytest.mark.parametrize(
    ("opened", "asked", "goes_on", "why"),
    [
        (HOUR, None, True, "22 hours less a margin of 2 are left"),
        (22 * HOUR - 20 * SECOND, None, True, "the settle time ends inside the window"),
        (22 * HOUR - 5 * SECOND, None, False, "the settle time ends outside"),
        (HOUR, 22 * HOUR, False, "the provider's wait ends outside"),
        (23 * HOUR, None, False, "in the margin"),
        (30 * HOUR, None, False, "long over"),
    ],
)
def test_a_replay_begins_inside_the_window_or_nobody_knows(
    opened: timedelta, asked: timedelta | None, goes_on: bool, why: str
) -> None:
    history = replace(DOUBT, window_opened_at=NOW - opened, tries=12)
    for chance in (0.0, 0.5, 1.0):
        decision = follows(O.TRANSIENT, history, asked=asked, chance=chance)
        assert isinstance(decision, RetryAt if goes_on else Uncertain), why
        if isinstance(decision, RetryAt):
            assert decision.replay_until == NOW - opened + 22 * HOUR


@pytest.mark.parametrize(
    ("opened", "decision_is", "why"),
    [
        (HOUR, RetryAt, "inside"),
        (22 * HOUR + SECOND, DeadLetter, "in the margin"),
        (30 * HOUR, DeadLetter, "long over"),
    ],
)
def test_a_persons_finding_ends_the_doubt_and_not_the_window(
    opened: timedelta, decision_is: type, why: str
) -> None:
    decision = follows(O.TRANSIENT, replace(FOUND, window_opened_at=NOW - opened))
    assert isinstance(decision, decision_is), why
    if isinstance(decision, RetryAt):
        assert not decision.in_doubt
        assert decision.replay_until == NOW - opened + 22 * HOUR


def test_without_a_contract_a_finding_leaves_no_window_in_which_to_retry() -> None:
    assert isinstance(follows(O.TRANSIENT, FOUND, PERSON), DeadLetter)


def test_a_retry_of_what_never_reached_the_provider_has_no_window() -> None:
    decision = follows(O.TRANSIENT, FRESH)
    assert isinstance(decision, RetryAt)
    assert decision.replay_until is None


@pytest.mark.parametrize("history", [DOUBT, FOUND])
def test_while_a_one_shot_token_is_stored_the_window_counts_as_open(history: History) -> None:
    opened = NOW - timedelta(days=300)
    stored = replace(history, token_stored=True, window_opened_at=opened)
    decision = follows(O.TRANSIENT, stored, ONE_SHOT)
    assert isinstance(decision, RetryAt)
    assert decision.replay_until is None
    assert decision.in_doubt == history.in_doubt


def test_a_stored_token_means_nothing_to_a_provider_without_one_shot_tokens() -> None:
    assert isinstance(follows(O.TRANSIENT, replace(DOUBT, token_stored=True), PERSON), Uncertain)


def test_documented_replay_without_documented_retention_is_given_15_minutes() -> None:
    promise = contract(window=None)
    inside = replace(DOUBT, window_opened_at=NOW - 12 * MINUTE)
    outside = replace(DOUBT, window_opened_at=NOW - 14 * MINUTE)
    assert isinstance(follows(O.TRANSIENT, inside, promise), RetryAt)
    assert isinstance(follows(O.TRANSIENT, outside, promise), Uncertain)


def test_doubt_without_a_known_beginning_is_not_replayed() -> None:
    unknown = replace(DOUBT, window_opened_at=None)
    assert isinstance(follows(O.TRANSIENT, unknown), Uncertain)


# Deadlines
@pytest.mark.parametrize(
    ("left", "asked", "certain", "doubtful", "why"),
    [
        (HOUR, None, RetryAt, RetryAt, "there is time"),
        (20 * SECOND, None, RetryAt, RetryAt, "chance alone ends nothing"),
        (5 * SECOND, None, RetryAt, Uncertain, "the settle time ends too late"),
        (HOUR, 2 * HOUR, Cancel, Uncertain, "the provider's wait ends too late"),
        (-SECOND, None, Cancel, Uncertain, "it has passed"),
    ],
)
def test_no_attempt_is_planned_past_the_deadline(
    left: timedelta, asked: timedelta | None, certain: type, doubtful: type, why: str
) -> None:
    for chance in (0.0, 0.5, 1.0):
        fresh = replace(FRESH, deadline=NOW + left, tries=12)
        doubt = replace(DOUBT, deadline=NOW + left, tries=12)
        assert isinstance(follows(O.TRANSIENT, fresh, asked=asked, chance=chance), certain), why
        assert isinstance(follows(O.TRANSIENT, doubt, asked=asked, chance=chance), doubtful), why


# What holds for every history
MOMENTS = st.timedeltas(min_value=-40 * DAY, max_value=40 * DAY).map(lambda span: NOW + span)
PAST = st.timedeltas(min_value=timedelta(), max_value=40 * DAY).map(lambda span: NOW - span)
SPANS = st.timedeltas(min_value=timedelta(), max_value=30 * DAY)

histories = st.builds(
    History,
    counted=st.integers(0, 50),
    tries=st.integers(1, 2000),
    first_at=st.none() | PAST,
    in_doubt=st.booleans(),
    window_opened_at=st.none() | PAST,
    token_stored=st.booleans(),
    in_progress_since=st.none() | PAST | st.just(NOW - MINUTE),
    cancel_asked=st.booleans(),
    deadline=st.none() | MOMENTS,
)
contracts = st.builds(
    contract,
    st.sampled_from(Recovery),
    window=st.none() | SPANS,
    settle_time=st.timedeltas(min_value=timedelta(), max_value=10 * MINUTE),
    request_deadline=st.timedeltas(min_value=SECOND, max_value=660 * SECOND),
)
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 50),
    max_age=st.timedeltas(min_value=SECOND, max_value=30 * DAY),
    base=st.timedeltas(min_value=timedelta(), max_value=MINUTE),
    cap=st.timedeltas(min_value=timedelta(), max_value=DAY),
)
cases = st.fixed_dictionaries(
    {
        "outcome": st.sampled_from(Outcome),
        "history": histories,
        "contract": contracts,
        "policy": policies,
        "now": st.just(NOW),
        "chance": st.floats(0, 1),
        "asked": st.none() | st.timedeltas(min_value=timedelta(microseconds=1), max_value=7 * DAY),
        "reason": st.sampled_from(["", "HTTP 500"]),
        "block": st.none() | st.sampled_from(BlockScope),
    }
)
Case = dict[str, object]


def of(case: Case) -> tuple[Outcome, History, Contract, RetryPolicy, bool]:
    """The typed parts of a case, and whether the intent is in doubt after this outcome."""
    outcome, history = case["outcome"], case["history"]
    promise, policy = case["contract"], case["policy"]
    assert isinstance(outcome, Outcome)
    assert isinstance(history, History)
    assert isinstance(promise, Contract)
    assert isinstance(policy, RetryPolicy)
    return outcome, history, promise, policy, history.in_doubt or outcome in DOUBTFUL


@given(cases)
def test_every_outcome_with_any_history_has_a_decision_and_always_the_same(case: Case) -> None:
    decision = decide(**case)  # type: ignore[arg-type]
    assert isinstance(decision, Decision)
    assert decision == decide(**case)  # type: ignore[arg-type]
    if isinstance(decision, DeadLetter | Cancel | Uncertain):
        assert decision.reason


@given(cases)
def test_only_what_the_provider_took_is_accepted(case: Case) -> None:
    outcome, *_ = of(case)
    accepted = isinstance(decide(**case), Accept)  # type: ignore[arg-type]
    assert accepted == (outcome in TOOK_IT)


@given(cases)
def test_doubt_is_never_rounded_to_a_failure_or_to_certainty(case: Case) -> None:
    outcome, *_, in_doubt = of(case)
    decision = decide(**case)  # type: ignore[arg-type]
    if isinstance(decision, Release):
        assert outcome is Outcome.RELEASED  # whoever acts on it keeps the doubt
    elif in_doubt:
        assert not isinstance(decision, DeadLetter | Cancel)
        if isinstance(decision, RetryAt):
            assert decision.in_doubt
        if isinstance(decision, Hold):
            assert decision.uncertain
    elif isinstance(decision, RetryAt):
        assert not decision.in_doubt


@given(cases)
def test_certainty_is_never_rounded_to_doubt(case: Case) -> None:
    *_, in_doubt = of(case)
    decision = decide(**case)  # type: ignore[arg-type]
    if not in_doubt:
        assert not isinstance(decision, Uncertain)
        assert not (isinstance(decision, Hold) and decision.uncertain)


@given(cases)
def test_doubt_is_only_replayed_inside_a_contract_or_with_a_stored_token(case: Case) -> None:
    _, history, promise, _, in_doubt = of(case)
    decision = decide(**case)  # type: ignore[arg-type]
    if not (in_doubt and isinstance(decision, RetryAt)):
        return
    if promise.recovery is Recovery.ONE_SHOT:
        assert history.token_stored
        assert decision.replay_until is None
    else:
        assert promise.recovery is Recovery.REPLAY
        assert history.window_opened_at is not None
        assert decision.replay_until == promise.replay_until(history.window_opened_at)


@given(cases)
def test_no_retry_comes_too_soon(case: Case) -> None:
    outcome, _, promise, _, in_doubt = of(case)
    decision = decide(**case)  # type: ignore[arg-type]
    if not isinstance(decision, RetryAt):
        return
    asked = case["asked"] or timedelta()
    assert isinstance(asked, timedelta)
    assert NOW <= decision.not_sooner <= decision.at
    assert decision.not_sooner >= NOW + asked
    if in_doubt and outcome is not Outcome.KEY_IN_PROGRESS:
        assert decision.not_sooner >= NOW + promise.settle_time


@given(cases)
def test_no_retry_comes_too_late(case: Case) -> None:
    outcome, history, promise, policy, _ = of(case)
    decision = decide(**case)  # type: ignore[arg-type]
    if not isinstance(decision, RetryAt):
        return
    if decision.replay_until is not None:
        assert decision.at <= decision.replay_until
    if history.window_opened_at is not None and promise.recovery is not Recovery.ONE_SHOT:
        assert decision.at <= promise.replay_until(history.window_opened_at)
    if history.deadline is not None:
        assert decision.at <= history.deadline
    if history.first_at is not None:
        assert decision.at <= history.first_at + policy.max_age
    if outcome is Outcome.KEY_IN_PROGRESS:
        assert decision.at <= (history.in_progress_since or NOW) + IN_PROGRESS_PATIENCE


@given(cases)
def test_no_more_attempts_are_counted_than_allowed(case: Case) -> None:
    outcome, history, _, policy, _ = of(case)
    if isinstance(decide(**case), RetryAt):  # type: ignore[arg-type]
        assert history.counted + (outcome in COUNTED) < policy.max_attempts


@given(cases, st.floats(0, 1))
def test_chance_picks_a_moment_and_nothing_else(case: Case, chance: float) -> None:
    first, second = decide(**case), decide(**case | {"chance": chance})  # type: ignore[arg-type]
    assert type(first) is type(second)
    if not isinstance(first, RetryAt):
        assert first == second


@given(cases)
def test_a_tighter_contract_never_turns_an_end_into_another_attempt(case: Case) -> None:
    _, _, promise, *_ = of(case)
    tight = case | {"contract": promise.tightened(window=HOUR, no_replay=True)}
    if not isinstance(decide(**case), RetryAt):  # type: ignore[arg-type]
        assert not isinstance(decide(**tight), RetryAt)  # type: ignore[arg-type]
