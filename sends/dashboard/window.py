"""How long a replay stays safe, as the bar that is drawn of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.dateformat import format as formatted

from sends.lifecycle.resolve import replay_until
from sends.models import Attempt, SendIntent
from sends.rules.contracts import Contract
from sends.templatetags.outbox import in_words


@dataclass(frozen=True)
class Window:
    """What `sends/parts/_window.html` draws: places in percent of the window, and words."""

    label: str
    now_at: float
    safe_at: float
    margin: float
    marks: tuple[float, ...]
    start_words: str
    now_words: str
    safe_words: str
    end_words: str
    left: timedelta
    is_assumed: bool


def window_of(
    intent: SendIntent, attempts: Iterable[Attempt], contract: Contract, now: datetime
) -> Window | None:
    """The window of the intent's key; None where there is none, or nothing opened it."""
    start, safe = intent.window_opened_at, replay_until(intent, contract)
    if start is None or safe is None:
        return None
    end = contract.window_ends(start)
    marks = [_percent(a.opened_at, start, end) for a in attempts if a.may_have_arrived]
    safe_at = _percent(safe, start, end)
    return Window(
        label=_label(start, safe, end, now),
        now_at=_percent(now, start, end),
        safe_at=safe_at,
        margin=round(100 - safe_at, 2),
        marks=tuple(min(mark, 99.0) for mark in marks),
        start_words=_date(start),
        now_words=f"now, {_clock(now)}",
        safe_words=_date(safe),
        end_words=_clock(end),
        left=max(safe - now, timedelta()),
        is_assumed=contract.window_is_assumed,
    )


def in_hours(span: timedelta) -> str:
    """How long a key is kept: "24 hours", as providers say it, not "1 day"."""
    hours = span / timedelta(hours=1)
    if hours < 2 or hours > 72 or hours % 1:
        return in_words(span.total_seconds())
    return f"{hours:g} hours"


def _percent(moment: datetime, start: datetime, end: datetime) -> float:
    part = (moment - start) / max(end - start, timedelta(seconds=1))
    return round(100 * min(max(part, 0), 1), 2)


def _label(start: datetime, safe: datetime, end: datetime, now: datetime) -> str:
    return (
        f"The key is good for {in_hours(end - start)} from the first attempt at "
        f"{_date(start)}. It is now {_clock(now)}, {in_words((now - start).total_seconds())} "
        f"later. The last {in_words((end - safe).total_seconds())}, from {_date(safe)}, are kept "
        "as a safety margin."
    )


def _date(moment: datetime) -> str:
    return formatted(timezone.localtime(moment), "j M, H:i")


def _clock(moment: datetime) -> str:
    return formatted(timezone.localtime(moment), "H:i")
