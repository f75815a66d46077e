"""The clock: what django-q2 calls. Every task may run twice, or never."""

import logging
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec

from django.dispatch import receiver
from django_q.signals import post_execute
from django_q.tasks import async_task

from sends.conf import conf
from sends.lifecycle import beats, letters, retention, watchdog, worker
from sends.models import Program

logger = logging.getLogger("sends.task")

BEAT = "sends.tasks.beat"
DRAIN = "sends.tasks.drain"
TEND = "sends.tasks.tend"
SWEEP = "sends.tasks.sweep"
PURGE = "sends.tasks.purge"
# Well within the time that a task may take; what is left is a task of its own.
PURGE_SLICE = timedelta(seconds=30)


class TaskFailed(Exception):
    """What django-q2 may know of a failure: it logs and keeps the words of every exception."""


P = ParamSpec("P")


def told(task: Callable[P, None]) -> Callable[P, None]:
    """Log why the task failed, ourselves."""

    @wraps(task)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            task(*args, **kwargs)
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
    beats.beat(Program.WORKER)
    watchdog.tend(sweep_too=True)


@told
def mail_reset(email: str) -> None:
    letters.mail_reset(email)


@told
def purge() -> None:
    if not all(purged.is_done for purged in retention.purge(stop_after=PURGE_SLICE)):
        async_task(PURGE)


def beat() -> None:
    """Nothing: that it ran is what counts."""


@receiver(post_execute)
def note_beat(task: dict[str, Any], **kwargs: Any) -> None:
    """In django-q2's monitor: proves that pusher, queue, worker and monitor all work."""
    if task["func"] == BEAT:
        conf.worker_beat.touch()
