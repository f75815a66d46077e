"""The clock: what django-q2 calls. Every task may run twice, or never."""

from typing import Any

from django.dispatch import receiver
from django_q.signals import post_execute

from sends.conf import conf
from sends.lifecycle import watchdog, worker

BEAT = "sends.tasks.beat"
DRAIN = "sends.tasks.drain"
TEND = "sends.tasks.tend"
SWEEP = "sends.tasks.sweep"


def drain() -> None:
    worker.drain()


def tend() -> None:
    watchdog.tend(sweep_too=False)


def sweep() -> None:
    watchdog.tend(sweep_too=True)


def beat() -> None:
    """Nothing: that it ran is what counts."""


@receiver(post_execute)
def note_beat(task: dict[str, Any], **kwargs: Any) -> None:
    """In django-q2's monitor: proves that pusher, queue, worker and monitor all work."""
    if task["func"] == BEAT:
        conf.worker_beat.touch()
