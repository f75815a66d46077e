"""The supervisor of a worker: when it takes a cluster for wedged."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from sends.conf import conf
from sends.management.commands.worker import STALE_AFTER, Supervisor

DAY = timedelta(days=1).total_seconds()


@pytest.fixture
def beat() -> Path:
    conf.worker_beat.touch()
    return conf.worker_beat


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_clock_that_jumps_does_not_make_a_living_cluster_look_wedged(
    beat: Path, jump: float
) -> None:
    supervisor = Supervisor(grace=1)
    now = time.time()
    os.utime(beat, (now + jump, now + jump))

    assert supervisor._silence() < 1


def test_a_cluster_without_a_beat_is_noticed_whatever_the_clock_says(
    beat: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor = Supervisor(grace=1)
    now = time.time()
    os.utime(beat, (now + DAY, now + DAY))
    supervisor._silence()
    later = time.monotonic() + STALE_AFTER + 1

    monkeypatch.setattr("sends.management.commands.worker.time.monotonic", lambda: later)

    assert supervisor._silence() > STALE_AFTER
