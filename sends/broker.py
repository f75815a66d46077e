"""The wake: django-q2's poll also asks the ledger what is due.

Nothing is enqueued for an email, so no wake can be lost and none costs a write: a task without a
receipt is made in memory whenever the ledger has work.
"""

import logging
import os
import signal
import time
from typing import Any

import psutil
from django import db
from django_q.brokers import Broker
from django_q.brokers.orm import ORM
from django_q.tasks import async_task

from sends.lifecycle import claim, watchdog
from sends.tasks import BEAT, DRAIN, SWEEP, TEND

logger = logging.getLogger("sends.broker")

LOOK_EVERY = 0.2
BEAT_EVERY = 5.0
SWEEP_EVERY = watchdog.SWEEP_EVERY.total_seconds()
TASK_TIMEOUT = 90
SUPERVISOR = "OUTBOX_WORKER_SUPERVISOR"

Packages = list[tuple[None, str]]


class _Capture(Broker):
    """Keeps the package that `async_task` makes, so that we need not know its format."""

    def enqueue(self, task: str) -> None:
        self.package = task


def package(func: str) -> str:
    capture = _Capture()
    async_task(func, broker=capture, save=False, timeout=TASK_TIMEOUT)
    return capture.package


class LedgerWake:
    """Over a broker of django-q2: hands out work of the ledger before that of the queue."""

    _looked_at = 0.0
    _beat_at = 0.0
    _swept_at = 0.0

    def dequeue(self) -> Any:
        try:
            self._stop_without_supervisor()
            return self._due() or super().dequeue()  # type: ignore[misc]
        except Exception:
            # The stock pusher would sleep for ten seconds and die: a database that restarts is
            # back sooner.
            logger.exception("the ledger could not be asked; trying again")
            db.connections.close_all()
            time.sleep(0.5)
            return None

    def _due(self) -> Packages:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY:
            return []
        self._looked_at = now
        db.close_old_connections()
        if now - self._beat_at >= BEAT_EVERY:
            self._beat_at = now
            return [(None, package(BEAT))]
        if now - self._swept_at >= SWEEP_EVERY:
            self._swept_at = now
            return [(None, package(SWEEP))]
        due = [DRAIN] if claim.anything_due() else []
        if watchdog.anything_to_tend():
            due.append(TEND)
        return [(None, package(func)) for func in due]

    def _stop_without_supervisor(self) -> None:
        """Stop the cluster when who started it was killed: nobody would watch over it."""
        supervisor = os.environ.get(SUPERVISOR)
        if supervisor and not psutil.pid_exists(int(supervisor)):
            os.kill(os.getpgrp(), signal.SIGTERM)  # its leader is the cluster's main process
            time.sleep(LOOK_EVERY)


class LedgerORM(LedgerWake, ORM):
    """The ledger's wake over django-q2's queue in the database."""
