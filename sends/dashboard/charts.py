"""Stacked columns over time, as the numbers of an SVG: no script, no inline style."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Any

from django.utils import dateformat, timezone

MINUTES = (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440)
MOST_COLUMNS = 12
HEIGHT, TOP, BASE = 170, 14, 144
LINES = 3  # across, above the base
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Column:
    """What happened from `start` on, for one step of time."""

    start: datetime
    counts: Counter[StrEnum]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Columns:
    step: timedelta
    columns: list[Column]

    @property
    def most(self) -> int:
        return max((column.total for column in self.columns), default=0)

    @property
    def step_words(self) -> str:
        minutes = int(self.step.total_seconds()) // 60
        for size, word in ((1440, "day"), (60, "hour"), (1, "minute")):
            if minutes % size == 0:
                count = minutes // size
                return f"{count} {word}s" if count > 1 else word
        return f"{minutes} minutes"


def columns_of(things: Iterable[tuple[datetime, StrEnum]]) -> Columns | None:
    """Counted in steps of time so long that there are few; None where there is nothing."""
    found = sorted(things, key=lambda thing: thing[0])
    if not found:
        return None
    step = _step(found[0][0], found[-1][0])
    first, last = _place(found[0][0], step), _place(found[-1][0], step)
    counts: dict[int, Counter[StrEnum]] = {n: Counter() for n in range(first, last + 1)}
    for at, what in found:
        counts[_place(at, step)][what] += 1
    return Columns(step, [Column(EPOCH + n * step, counted) for n, counted in counts.items()])


def _step(first: datetime, last: datetime) -> timedelta:
    for minutes in MINUTES:
        step = timedelta(minutes=minutes)
        if _place(last, step) - _place(first, step) < MOST_COLUMNS:
            return step
    days = ceil((last - first) / timedelta(days=1) / (MOST_COLUMNS - 1))
    return timedelta(days=days)


def _place(at: datetime, step: timedelta) -> int:
    return (at - EPOCH) // step


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    tone: str


@dataclass(frozen=True)
class Mark:
    """A word at a place: on an axis, or beside the line of something that happened."""

    at: float
    words: str


@dataclass(frozen=True)
class Chart:
    width: int
    left: int
    bars: list[Bar]
    lines: list[Mark]
    starts: list[Mark]
    happened: Mark | None
    is_narrow: bool
    height: int = HEIGHT
    base: int = BASE


def draw(
    columns: Columns,
    tones: Mapping[Any, str],
    *,
    width: int,
    happened: tuple[datetime, str] | None = None,
) -> Chart:
    """The columns on paper of this width, each stacked in the order of `tones`."""
    is_narrow = width < 500
    left = 26 if is_narrow else 30
    room = (width - left) / len(columns.columns)
    thick = round(min(0.66 * room, 44), 1)
    top = _round_up(columns.most)
    bars: list[Bar] = []
    for number, column in enumerate(columns.columns):
        x = round(left + room * number + (room - thick) / 2, 1)
        bars += _stack(column, tones, x, thick, top)
    every = 2 if is_narrow and len(columns.columns) > 5 else 1
    starts = [
        Mark(round(left + room * (number + 0.5), 1), _clock(column.start, columns.step))
        for number, column in enumerate(columns.columns)
        if number % every == 0
    ]
    lines = [
        Mark(round(BASE - (BASE - TOP) * part / LINES, 1), str(top * part // LINES))
        for part in range(LINES + 1)
    ]
    mark = _mark(columns, happened, left, room) if happened else None
    return Chart(width, left, bars, lines, starts, mark, is_narrow)


def _round_up(most: int) -> int:
    """The number at the top of the axis: one that its lines divide evenly."""
    return max(ceil(most / LINES), 1) * LINES


def _stack(column: Column, tones: Mapping[Any, str], x: float, thick: float, top: int) -> list[Bar]:
    bars, y = [], float(BASE)
    for what, tone in tones.items():
        count = column.counts[what]
        if not count:
            continue
        tall = (BASE - TOP) * count / top
        y -= tall
        bars.append(Bar(x, round(y, 1), thick, round(max(tall - 1, 0.5), 1), tone))
    return bars


def _mark(columns: Columns, happened: tuple[datetime, str], left: int, room: float) -> Mark | None:
    """A line where it happened, if that is within the columns."""
    at, words = happened
    place = (at - columns.columns[0].start) / columns.step
    if not 0 <= place <= len(columns.columns):
        return None
    return Mark(round(left + room * place, 1), words)


def _clock(at: datetime, step: timedelta) -> str:
    local = timezone.localtime(at)
    return dateformat.format(local, "j M" if step >= timedelta(days=1) else "H:i")


def rows_of(columns: Columns, kinds: Sequence[StrEnum]) -> list[tuple[datetime, list[int]]]:
    """The same as a table: when, and how many of each kind."""
    return [(column.start, [column.counts[kind] for kind in kinds]) for column in columns.columns]
