"""What is done to a running installation; it has to heal by itself."""

import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta

import psutil
from django.db import connection
from django_q.models import Schedule
from django_q.tasks import async_task

from sends.models import database_now
from sends.tasks import DRAIN, SWEEP
from tests.chaos.world import LEASE, World
from tests.promises.puppet import POINTS
from tests.promises.stage import cut_database_connections

Fault = Callable[[World], None]

# Whoever slept for so long wakes up with a lease that is somebody else's.
SLEEP_SECONDS = LEASE.total_seconds() + 2
# Longer than anybody waits for SQLite's pen: see DATABASES in the settings.
LOCKED_SECONDS = 8


def kill_a_cluster(world: World) -> None:
    """SIGKILL to a worker and all its processes; started again, as by a supervisor."""
    number = world.chance.randrange(len(world.workers))
    world.workers[number].kill_all()
    world.start_worker(number)


def kill_a_supervisor(world: World) -> None:
    """SIGKILL to the first process of a worker; its cluster notices that it is an orphan."""
    number = world.chance.randrange(len(world.workers))
    world.workers[number].kill_supervisor()
    world.start_worker(number)


def kill_one_process(world: World) -> None:
    """SIGKILL to any one process of a worker: sentinel, pusher, monitor, or one that sends."""
    family = world.a_worker().family()
    if family:
        with suppress(psutil.NoSuchProcess):
            world.chance.choice(family).kill()


def kill_at_a_point(world: World) -> None:
    """SIGKILL to a worker that has come to a point between its claim and its save."""
    stage, point = world.a_stage(), world.chance.choice(POINTS)
    puppet = stage.puppet(point)
    stage.approved()
    puppet.drain()
    puppet.reaches_or_ends(point)
    puppet.kill()


def sleep_past_the_lease(world: World) -> None:
    """SIGSTOP to all of a worker; when it wakes up the others have taken its leases over."""
    sleepers = world.a_worker().family()
    for process in sleepers:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    time.sleep(SLEEP_SECONDS)
    for process in sleepers:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def deploy(world: World) -> None:
    """SIGTERM under load, and the next one when it has stopped."""
    number = world.chance.randrange(len(world.workers))
    code = world.workers[number].stop()
    # One that had only just started dies of the signal itself.
    assert code in (0, -signal.SIGTERM), f"a worker that was asked to stop ended with {code}"
    world.start_worker(number)


def kill_the_provider(world: World) -> None:
    """SIGKILL to a provider; after a moment it is back, with its journal."""
    sandbox = world.a_stage().sandbox
    sandbox.kill()
    time.sleep(world.chance.uniform(0, 2))
    sandbox.restart()


def take_the_database_away(world: World) -> None:
    """All connections to PostgreSQL end at once; SQLite's pen is held for longer than a wait."""
    if connection.vendor == "postgresql":
        cut_database_connections()
        return
    path = connection.settings_dict["NAME"]
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        time.sleep(LOCKED_SECONDS)
        other.execute("ROLLBACK")


def deliver_tasks_again(world: World) -> None:
    for _ in range(world.chance.randrange(2, 10)):
        async_task(world.chance.choice((DRAIN, SWEEP)))


def spoil_the_timetable(world: World) -> None:
    """The scheduler's rows edited into nonsense, or gone: the wake asks the ledger itself."""
    rows = Schedule.objects.filter(name__startswith="outbox: ")
    match world.chance.randrange(3):
        case 0:
            rows.update(next_run=database_now() + timedelta(days=30_000))
        case 1:
            rows.update(func="sends.tasks.gone")
        case _:
            rows.delete()


FAULTS: tuple[Fault, ...] = (
    kill_a_cluster,
    kill_a_supervisor,
    kill_one_process,
    kill_at_a_point,
    sleep_past_the_lease,
    deploy,
    kill_the_provider,
    take_the_database_away,
    deliver_tasks_again,
    spoil_the_timetable,
)
