"""Two calls at the same moment, each in a thread with a connection of its own."""

import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connection

PATIENCE_SECONDS = 30


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Start the calls together; what each returned, or the exception it raised."""
    gate = threading.Barrier(len(calls))
    answers: list[Any] = [TimeoutError("did not end")] * len(calls)

    def run(place: int, call: Callable[[], Any]) -> None:
        try:
            gate.wait(PATIENCE_SECONDS)
            answers[place] = call()
        except Exception as error:
            answers[place] = error
        finally:
            connection.close()

    threads = [
        threading.Thread(target=run, args=(place, call), daemon=True)
        for place, call in enumerate(calls)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return answers


def wait_until_someone_waits_for_a_lock() -> None:
    """On PostgreSQL, until another connection to this database waits for a row that we hold.

    SQLite lets one transaction write at a time: there nobody can hold what we need.
    """
    if connection.vendor != "postgresql":
        return
    waiting = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock')"
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(waiting)
            if cursor.fetchone()[0]:
                return
        time.sleep(0.01)
    raise TimeoutError("nobody waits for a lock")
