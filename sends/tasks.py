"""The clock: what django-q2 calls. Every task may run twice, or never."""

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.dispatch import receiver
from django_q.signals import post_execute

from sends.conf import conf
from sends.lifecycle import watchdog, worker

logger = logging.getLogger("sends.task")

BEAT = "sends.tasks.beat"
DRAIN = "sends.tasks.drain"
TEND = "sends.tasks.tend"
SWEEP = "sends.tasks.sweep"


class TaskFailed(Exception):
    """What django-q2 may know of a failure: it logs and keeps the words of every exception."""


def told(task: Callable[[], None]) -> Callable[[], None]:
    """Log why the task failed, ourselves."""

    @wraps(task)
    def run() -> None:
        try:
            task()
        except Exception as error:
            logger.exception("task failed", extra={"task": task.__name__})
            raise TaskFailed(type(error).__name__) from None

    return run


@told
def drain() -> None:
    worker.drain()


@told
def tend() -> None:
    watchdog.tend(sweep_too=False)


@told
def sweep() -> None:
    watchdog.tend(sweep_too=True)


def beat() -> None:
    """Nothing: that it ran is what counts."""


@receiver(post_execute)
def note_beat(task: dict[str, Any], **kwargs: Any) -> None:
    """In django-q2's monitor: proves that pusher, queue, worker and monitor all work."""
    if task["func"] == BEAT:
        conf.worker_beat.touch()
