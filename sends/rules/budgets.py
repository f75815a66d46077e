"""How well a run goes: its retries against their budget, its failures against their limit."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sends.rules.outcomes import DOUBTFUL, TOOK_IT, Outcome

# The failure rate is that of a run's latest attempts, and means nothing before there are enough.
LATEST = 60
ENOUGH = 20
LIMIT_PERCENT = 40
# The share of its retries after which a run deserves a look.
WARN_PERCENT = 75


class Ended(StrEnum):
    """How an attempt ended, as coarsely as a chart can show it; the words are for its legend."""

    ACCEPTED = "accepted"
    SLOWED = "told to slow down"
    LATER = "refused for now"
    UNREACHED = "not reached"
    REFUSED = "refused"
    UNCLEAR = "no clear answer"


def ended(outcome: str) -> Ended | None:
    """None for an attempt that is open, or was given back before it began."""
    match outcome:
        case "" | Outcome.RELEASED:
            return None
        case Outcome.THROTTLED:
            return Ended.SLOWED
        case Outcome.TRANSIENT:
            return Ended.LATER
        case Outcome.NOT_SENT:
            return Ended.UNREACHED
    if outcome in TOOK_IT:
        return Ended.ACCEPTED
    return Ended.UNCLEAR if outcome in DOUBTFUL else Ended.REFUSED


@dataclass(frozen=True)
class FailureRate:
    """So many of a run's latest attempts failed: whatever was not accepted has."""

    failed: int
    of: int

    @property
    def percent(self) -> int:
        return round(100 * self.failed / self.of) if self.of else 0

    @property
    def is_enough(self) -> bool:
        """Whether so many attempts were made that the rate says something."""
        return self.of >= ENOUGH

    @property
    def is_over(self) -> bool:
        return self.is_enough and 100 * self.failed > LIMIT_PERCENT * self.of


def failure_rate(outcomes: Iterable[str]) -> FailureRate:
    """Of attempts in the order given, the latest first; no more than LATEST count."""
    known = [how for how in map(ended, outcomes) if how is not None][:LATEST]
    return FailureRate(sum(how is not Ended.ACCEPTED for how in known), len(known))


@dataclass(frozen=True)
class RetryBudget:
    """`causes` are the outcomes after which a retry was scheduled, as far as they are known."""

    used: int
    limit: int
    causes: Counter[Ended]

    @property
    def percent(self) -> int:
        return min(100 * self.used // self.limit, 100) if self.limit else 100

    @property
    def is_nearly_used(self) -> bool:
        return self.percent >= WARN_PERCENT
