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
    rate: Rate,
    full_at: float,
    *,
    requests: int,
    now: float,
    seen: float = 0.0,
    owing: bool = False,
) -> Allowance:
    """Use so many requests up, or none of them if they are more than are left.

    `owing`: use them up if nothing is owed yet, however few are left; the next ones wait until
    they have come back. `seen` is when `full_at` was told: where the clock was set back since,
    no more is missing than was then.
    """
    one = MINUTE / rate.per_minute
    missing = max(full_at - max(now, seen), 0.0)
    wanted = missing + requests * one
    over = (missing if owing else wanted) - rate.window
    if over > 0:
        return Allowance(rate, now + missing, missing, wait=over + one if owing else over)
    return Allowance(rate, now + wanted, wanted, wait=0.0)
