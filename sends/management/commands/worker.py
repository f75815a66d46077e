"""Run a worker: a django-q2 cluster, and a supervisor that restarts one that wedged."""

import fcntl
import logging
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError
from django.db import connections

from sends.broker import BEAT_EVERY, SUPERVISOR
from sends.conf import conf
from sends.lifecycle import beats, restores
from sends.management.ledger import require_ledger
from sends.models import Program

logger = logging.getLogger("sends.worker")

# A cluster that finished no task for so long is wedged, however alive it looks: django-q2 #23.
STALE_AFTER = 6 * BEAT_EVERY
RESTART_AFTER = 0.5
GRACE = 30.0
STOPPING = (signal.SIGTERM, signal.SIGINT)


class Command(BaseCommand):
    help = "Send what is due, apply events, and look after what was left in flight."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--grace",
            type=float,
            default=GRACE,
            help="seconds in which what is on the wire may finish when it is asked to stop",
        )

    def handle(self, *args: Any, grace: float, **options: Any) -> None:
        require_ledger()
        with (conf.data_dir / "worker.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CommandError(
                    f"A worker runs with {conf.data_dir} already. "
                    "Give each worker a data folder of its own: OUTBOX_DATA_DIR."
                ) from None
            conf.worker_stopping.unlink(missing_ok=True)
            restores.notice()
            beats.beat(Program.WORKER)
            connections.close_all()
            Supervisor(grace).run()


class Supervisor:
    def __init__(self, grace: float) -> None:
        self.grace = grace
        self.asked = 0
        self.beat = 0.0
        self.heard_at = time.monotonic()

    def run(self) -> None:
        for number in STOPPING:
            signal.signal(number, self._ask)
        while not self.asked:
            cluster = self._start()
            logger.info("worker started")
            why = self._watch(cluster)
            kill_group(cluster)  # orphans of a cluster that died would go on
            if not self.asked:
                logger.error("cluster ended", extra={"error": why})
                time.sleep(RESTART_AFTER)
        logger.info("worker stopped")

    def _ask(self, *_: Any) -> None:
        self.asked += 1
        conf.worker_stopping.touch()  # drains claim nothing more from now on

    def _start(self) -> subprocess.Popen[bytes]:
        self.heard_at = time.monotonic()
        return subprocess.Popen(
            [sys.executable, str(settings.BASE_DIR / "manage.py"), "qcluster"],
            env=os.environ | {SUPERVISOR: str(os.getpid())},
            start_new_session=True,
        )

    def _watch(self, cluster: subprocess.Popen[bytes]) -> str:
        """Why it is over: it ended, it is wedged, or we were asked to stop."""
        while not self.asked:
            if cluster.poll() is not None:
                return f"the cluster ended with code {cluster.returncode}"
            if self._silence() > STALE_AFTER:
                return f"the cluster finished no task for {STALE_AFTER:g} s"
            time.sleep(0.1)
        return self._stop(cluster)

    def _silence(self) -> float:
        """Seconds since the cluster last finished a task, or was started.

        By a clock that nobody sets, and that stands still while the machine sleeps: a jump of
        the other one would end a healthy cluster in the middle of its requests.
        """
        with suppress(FileNotFoundError):
            beat = conf.worker_beat.stat().st_mtime
            if beat != self.beat:
                self.beat, self.heard_at = beat, time.monotonic()
        return time.monotonic() - self.heard_at

    def _stop(self, cluster: subprocess.Popen[bytes]) -> str:
        """Let it finish what is on the wire. SIGTERM goes to its main process only.

        To the group it would kill running tasks and leave the main process waiting for ever.
        """
        cluster.terminate()
        deadline = time.monotonic() + self.grace
        while cluster.poll() is None and time.monotonic() < deadline and self.asked < 2:
            time.sleep(0.05)
        return "asked to stop"


def kill_group(cluster: subprocess.Popen[bytes]) -> None:
    """End whatever is left of the cluster's session."""
    with suppress(ProcessLookupError):
        os.killpg(cluster.pid, signal.SIGKILL)
    cluster.wait()
