"""What follows an attempt: accept, try again, give up, or say that nobody knows."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sends.rules.backoff import NOTHING, wait_after
from sends.rules.contracts import Contract, Recovery
from sends.rules.outcomes import COUNTED, DOUBTFUL, TOOK_IT, BlockScope, Outcome

# A provider that still works on our key is asked again, the same key, for at most this long.
IN_PROGRESS_PATIENCE = timedelta(minutes=2)
IN_PROGRESS_WAIT = timedelta(seconds=2)
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class RetryPolicy:
    """How long and how often an intent is tried: a tenant's policy."""

    max_attempts: int = 40
    max_age: timedelta = timedelta(hours=24)
    base: timedelta = timedelta(seconds=1)
    cap: timedelta = timedelta(minutes=15)


@dataclass(frozen=True)
class History:
    """What was known of an intent before this attempt's outcome.

    `counted` and `first_at` belong to the period since the last approval, requeue or replay by a
    person; `tries` are all attempts of that period, counted or not. `in_doubt`: an earlier
    attempt may have been accepted. `window_opened_at`: when the earliest attempt that may have
    reached the provider was opened, this one included if it may have; None if none did.
    `token_stored`: a one-shot token of this intent is kept. `in_progress_since`: the first of an
    unbroken row of "still working on this key" answers.
    """

    counted: int = 0
    tries: int = 1
    first_at: datetime | None = None
    in_doubt: bool = False
    window_opened_at: datetime | None = None
    token_stored: bool = False
    in_progress_since: datetime | None = None
    cancel_asked: bool = False
    deadline: datetime | None = None


@dataclass(frozen=True)
class Accept:
    """The provider took it."""


@dataclass(frozen=True)
class RetryAt:
    """Try again at `at`, same request and key; a replay where `in_doubt`.

    `not_sooner` is the wait that nobody may cut short: the provider's, and the settle time.
    """

    at: datetime
    in_doubt: bool
    not_sooner: datetime
    replay_until: datetime | None = None


@dataclass(frozen=True)
class Release:
    """Nothing was dispatched: back to where it was."""


@dataclass(frozen=True)
class DeadLetter:
    """Refused, or spent; certain that nothing was taken."""

    reason: str


@dataclass(frozen=True)
class Cancel:
    """Not sent, and no longer to be sent: a cancel was asked, or it would be too late."""

    reason: str


@dataclass(frozen=True)
class Uncertain:
    """Nobody knows, and no automatic replay is allowed or left."""

    reason: str
    anomaly: bool = False


@dataclass(frozen=True)
class Hold:
    """The account or sender is blocked: it waits, uncounted, until a person mends that.

    An intent in doubt does not wait: `uncertain` is then its next status.
    """

    scope: BlockScope
    reason: str
    uncertain: bool = False


Decision = Accept | RetryAt | Release | DeadLetter | Cancel | Uncertain | Hold


def decide(
    outcome: Outcome,
    history: History,
    contract: Contract,
    policy: RetryPolicy,
    now: datetime,
    *,
    chance: float,
    asked: timedelta | None = None,
    reason: str = "",
    block: BlockScope | None = None,
) -> Decision:
    """What follows this outcome. Pure: the same facts, the same decision.

    `chance`, from 0 to 1, picks the backoff. `asked` is the provider's Retry-After. `reason` is
    the outcome in words. `block` says what a BLOCKED is about.
    """
    if outcome in TOOK_IT:
        return Accept()
    if outcome is Outcome.RELEASED:
        return Release()
    if outcome is Outcome.KEY_CONFLICT:
        return Uncertain("the provider knows our key with another request", anomaly=True)
    in_doubt = history.in_doubt or outcome in DOUBTFUL
    if outcome is Outcome.BLOCKED and block in (BlockScope.ACCOUNT, BlockScope.SENDER):
        return Hold(block, reason, uncertain=in_doubt)
    if outcome in (Outcome.REFUSED, Outcome.SUPPRESSED, Outcome.INTERNAL, Outcome.BLOCKED):
        return _give_up(reason or outcome.label, in_doubt, history)
    if in_doubt:
        return _replay(outcome, history, contract, policy, now, chance, asked or NOTHING)
    return _retry(outcome, history, contract, policy, now, chance, asked or NOTHING)


def _give_up(reason: str, in_doubt: bool, history: History) -> Decision:
    if in_doubt:
        return Uncertain(f"an earlier attempt may have been accepted; the last one: {reason}")
    if history.cancel_asked:
        return Cancel("a cancel was asked, and nothing was taken")
    return DeadLetter(reason)


def _retry(
    outcome: Outcome,
    history: History,
    contract: Contract,
    policy: RetryPolicy,
    now: datetime,
    chance: float,
    asked: timedelta,
) -> Decision:
    if history.cancel_asked:
        return Cancel("a cancel was asked, and nothing was taken")
    earliest = now + asked
    spent = _spent(outcome, history, policy, now, earliest)
    if spent:
        return DeadLetter(f"{spent}; nothing was taken")
    until = None
    if history.window_opened_at is not None and not _keeps_token(history, contract):
        # A person found an earlier attempt not accepted; the key is still bound by its window.
        until = contract.replay_until(history.window_opened_at)
    at = _jittered(history, policy, until, now, earliest, chance)
    if until is not None and at > until:
        return DeadLetter("the time in which the provider knows our key is over")
    if history.deadline is not None and at > history.deadline:
        return Cancel("the next attempt would come after the deadline")
    return RetryAt(at, False, earliest, until)


def _replay(
    outcome: Outcome,
    history: History,
    contract: Contract,
    policy: RetryPolicy,
    now: datetime,
    chance: float,
    asked: timedelta,
) -> Decision:
    if _keeps_token(history, contract):
        until = None
    elif not contract.may_replay:
        return Uncertain("this provider gives no promise about a repeated request")
    elif history.window_opened_at is None:
        return Uncertain("nobody knows since when the provider may know our key")
    else:
        until = contract.replay_until(history.window_opened_at)
    in_progress = outcome is Outcome.KEY_IN_PROGRESS
    earliest = now + max(asked, IN_PROGRESS_WAIT if in_progress else contract.settle_time)
    spent = _spent(outcome, history, policy, now, earliest)
    if spent:
        return Uncertain(f"{spent}, and no answer was clear")
    if in_progress and earliest > (history.in_progress_since or now) + IN_PROGRESS_PATIENCE:
        return Uncertain("the provider works on our key for longer than two minutes")
    at = earliest
    if not in_progress:
        at = _jittered(history, policy, until, now, earliest, chance)
    if until is not None and at > until:
        return Uncertain("the time in which a replay is safe is over")
    if history.deadline is not None and at > history.deadline:
        return Uncertain("the next replay would come after the deadline")
    return RetryAt(at, True, earliest, until)


def _keeps_token(history: History, contract: Contract) -> bool:
    """While a one-shot token is kept its window counts as open."""
    return contract.recovery is Recovery.ONE_SHOT and history.token_stored


def _jittered(
    history: History,
    policy: RetryPolicy,
    until: datetime | None,
    now: datetime,
    earliest: datetime,
    chance: float,
) -> datetime:
    """The usual wait, or a point in the time left: chance alone never ends the attempts."""
    wait = wait_after(history.tries, base=policy.base, cap=policy.cap, chance=chance)
    at, last = max(now + wait, earliest), _last(history, policy, until)
    return at if at <= last else earliest + max(last - earliest, NOTHING) * chance


def _last(history: History, policy: RetryPolicy, until: datetime | None) -> datetime:
    """The last moment at which another attempt may begin, as far as there is one."""
    ends = [until, history.deadline]
    if history.first_at is not None:
        ends.append(history.first_at + policy.max_age)
    return min((end for end in ends if end is not None), default=NEVER)


def _spent(
    outcome: Outcome, history: History, policy: RetryPolicy, now: datetime, earliest: datetime
) -> str:
    counted = history.counted + (outcome in COUNTED)
    if counted >= policy.max_attempts:
        return f"all {policy.max_attempts} attempts are used up"
    if history.first_at is None:
        return ""
    end = history.first_at + policy.max_age
    if now >= end:
        return f"tried for {_hours(policy.max_age)}"
    if earliest > end:
        return f"the next attempt would come after {_hours(policy.max_age)} of trying"
    return ""


def _hours(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours:g} hours" if hours >= 1 else f"{span.total_seconds():g} seconds"
