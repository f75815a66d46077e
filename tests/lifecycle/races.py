"""Two calls at the same moment, each in a thread with a connection of its own."""

import threading
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
