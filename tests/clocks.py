"""Clocks that a test moves by hand: the database's, and the one that sees a machine sleep."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sends.models import database_now
from sends.providers.http import clock

# Two readings of a real clock are never the same.
TICK = timedelta(milliseconds=1)


class Clocks:
    """`now` is what the database says; `elapsed` never goes back, and counts for leases."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.now = datetime(2027, 3, 1, 9, 0, tzinfo=UTC)
        self.elapsed = 1000.0

    def forward(self, span: timedelta) -> None:
        self.now += span
        self.elapsed += span.total_seconds()

    def set_back(self, span: timedelta) -> None:
        """The database's clock alone is corrected; the time that has passed has passed."""
        self.now -= span

    def database_now(self) -> datetime:
        self.forward(TICK)
        return self.now

    def clock(self) -> float:
        return self.elapsed


@contextmanager
def by_hand() -> Iterator[Clocks]:
    """Clocks in place of the real ones, in every module of the product that reads them."""
    clocks = Clocks()
    with pytest.MonkeyPatch.context() as patch:
        replace_everywhere(patch, database_now, clocks.database_now)
        replace_everywhere(patch, clock, clocks.clock)
        yield clocks


def replace_everywhere(patch: pytest.MonkeyPatch, function: Any, other: Any) -> None:
    """Put `other` in the place of a function, in each module of the product that has its name."""
    name = function.__name__
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("sends.") and getattr(module, name, None) is function:
            patch.setattr(module, name, other)
