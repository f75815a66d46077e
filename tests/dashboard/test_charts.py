"""Columns over time: their steps, their heights, and what is written beside them."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest

from sends.dashboard.charts import BASE, TOP, columns_of, draw, rows_of

START = datetime(2026, 10, 14, 8, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Kind(StrEnum):
    GOOD = "good"
    BAD = "bad"


TONES = {Kind.GOOD: "good", Kind.BAD: "bad"}


def at(*minutes: float) -> list[tuple[datetime, StrEnum]]:
    return [(START + minute * MINUTE, Kind.GOOD) for minute in minutes]


def test_nothing_has_no_columns() -> None:
    assert columns_of([]) is None


@pytest.mark.parametrize(
    ("minutes", "words", "count"),
    [
        ((0,), "minute", 1),
        ((0, 11), "minute", 12),
        ((0, 12), "2 minutes", 7),
        ((0, 44), "5 minutes", 9),
        ((0, 60 * 5), "30 minutes", 11),
        ((0, 60 * 12), "2 hours", 7),
        ((0, 60 * 24 * 10), "day", 11),
        ((0, 60 * 24 * 400), "37 days", 12),
    ],
)
def test_the_step_grows_so_that_there_are_few(
    minutes: tuple[float, ...], words: str, count: int
) -> None:
    columns = columns_of(at(*minutes))
    assert columns is not None
    assert columns.step_words == words
    assert abs(len(columns.columns) - count) <= 1
    assert len(columns.columns) <= 13
    assert sum(column.total for column in columns.columns) == len(minutes)


def test_a_column_is_stacked_from_the_base_and_the_highest_reaches_the_top() -> None:
    columns = columns_of([*at(0, 0, 0, 1), (START, Kind.BAD), (START, Kind.BAD), (START, Kind.BAD)])
    assert columns is not None
    chart = draw(columns, TONES, width=640)
    first, second, last = chart.bars
    assert [bar.tone for bar in chart.bars] == ["good", "bad", "good"]
    assert second.y == TOP
    assert first.y == (BASE + TOP) / 2
    assert last.x > first.x
    assert [line.words for line in chart.lines] == ["0", "2", "4", "6"]


def test_what_happened_is_marked_where_it_happened_if_that_is_shown() -> None:
    columns = columns_of(at(0, 10))
    assert columns is not None
    chart = draw(columns, TONES, width=640, happened=(START + 5.5 * MINUTE, "halted"))
    assert chart.happened is not None
    assert chart.happened.at == pytest.approx(30 + 610 / 2)
    for minutes in (-1, 12):
        later = draw(columns, TONES, width=640, happened=(START + minutes * MINUTE, "halted"))
        assert later.happened is None


def test_a_narrow_drawing_names_every_other_column() -> None:
    columns = columns_of(at(0, 9))
    assert columns is not None
    assert len(draw(columns, TONES, width=640).starts) == 10
    assert len(draw(columns, TONES, width=320).starts) == 5


def test_the_table_says_the_same() -> None:
    columns = columns_of([*at(0, 1), (START, Kind.BAD)])
    assert columns is not None
    assert rows_of(columns, list(Kind)) == [(START, [1, 1]), (START + MINUTE, [1, 0])]
