"""How many requests somebody may still make: so many at once, and so many more each minute."""

import math
from dataclasses import dataclass

MINUTE = 60.0


@dataclass(frozen=True)
class Rate:
    """At most `burst` at once; what was used comes back at `per_minute`."""

    per_minute: int
    burst: int

    @property
    def window(self) -> float:
        """How many seconds it takes until all of it has come back."""
        return self.burst * MINUTE / self.per_minute


@dataclass(frozen=True)
class Allowance:
    """What is left of a rate. `full_in` is in seconds; `wait` is 0 unless the request is refused.

    `full_at` is all that has to be remembered: the moment, in seconds, at which nothing would
    be missing any more.
    """

    rate: Rate
    full_at: float
    full_in: float
    wait: float

    @property
    def left(self) -> int:
        return max(0, math.floor((self.rate.window - self.full_in) * self.rate.per_minute / MINUTE))


def take(
    rate: Rate, full_at: float, *, requests: int, now: float, owing: bool = False
) -> Allowance:
    """Use so many requests up, or none of them if they are more than are left.

    `owing`: use them up all the same, so that the next ones wait the longer. However much is
    owed, or however far the clock was set back, at most one more window is waited for.
    """
    one = MINUTE / rate.per_minute
    missing = min(max(full_at - now, 0.0), 2 * rate.window)
    wanted = missing + requests * one
    over = wanted - rate.window
    if over > 0 and not owing:
        return Allowance(rate, now + missing, missing, wait=over)
    wanted = min(wanted, 2 * rate.window)
    return Allowance(rate, now + wanted, wanted, wait=0.0)
