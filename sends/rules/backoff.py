"""How long to wait before the next attempt."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

NOTHING = timedelta()
# A provider that asks for more than this has sent nonsense: as good as no hint.
LONGEST_HINT = timedelta(days=7)
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")


def wait_after(
    attempts: int, *, base: timedelta, cap: timedelta, chance: float, asked: timedelta = NOTHING
) -> timedelta:
    """The wait after `attempts` attempts have failed; 1 after the first.

    Full jitter: anything from nothing to `base` doubled per further attempt, at most `cap`,
    so that intents which failed together do not come back together. `chance`, from 0 to 1,
    picks the point. `asked` is the provider's Retry-After: we may come later, never earlier.
    """
    return max(longest_after(attempts, base=base, cap=cap) * chance, asked)


def longest_after(attempts: int, *, base: timedelta, cap: timedelta) -> timedelta:
    """The upper end of the range from which `wait_after` picks."""
    doublings = min(max(attempts - 1, 0), 30)  # 30 pass any cap, and cannot overflow
    longest: timedelta = min(base * 2**doublings, cap)
    return longest


def parse_retry_after(value: str | None, *, answered_at: datetime) -> timedelta | None:
    """The wait a Retry-After header asks for (RFC 9110, 10.2.3), in seconds or as an HTTP date.

    A date is read against `answered_at`, the answer's own Date header where it has one, so that
    a wrong clock on either side does not matter. Past, negative, unreadable or absurd values
    (`nan`, `1e309`, years) are no hint: None.
    """
    if not value:
        return None
    value = value.strip()
    wait = float(value) if _SECONDS.fullmatch(value) else _until(value, answered_at)
    if wait is None or not 0 < wait <= LONGEST_HINT.total_seconds():
        return None
    return timedelta(seconds=wait)


def _until(value: str, answered_at: datetime) -> float | None:
    try:
        date = parsedate_to_datetime(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)  # the oldest of the three forms names no zone
    return (date - answered_at).total_seconds()
