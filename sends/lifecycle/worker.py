"""The loop of a worker: claim, submit, settle; and when it stops."""

import fcntl
import logging
import os
import queue
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import IO

from django.db import connection

from sends.conf import conf
from sends.lifecycle import restores
from sends.lifecycle.claim import MOST_BYTES, Claimed, claim, dispatch, installation_id
from sends.lifecycle.folder import note_attempt, open_slot
from sends.lifecycle.settle import settle
from sends.lifecycle.submit import Submitted, submit
from sends.models import triggers
from sends.providers.http import Http

logger = logging.getLogger("sends.worker")

# After its slice a drain claims nothing more and frees its slot, so that another can start while
# it waits for its last answers. Slice and longest deadline end well within the task's timeout;
# much shorter, and a few slow answers would keep every process of the cluster waiting.
SLICE = timedelta(seconds=30)
# Results are saved within this time, in small groups.
SAVE_WITHIN = timedelta(milliseconds=30)
# Between two looks for more work while requests are on the wire.
LOOK_AGAIN = timedelta(milliseconds=100)


def drain() -> int:
    """Send what is due until nothing is, or the slice is over; how many attempts were made.

    Safe to run at any time, any number of times: it takes one of the machine's slots, or does
    nothing when all are taken. It returns when the last answer is saved.
    """
    slot = _take_slot()
    if slot is None:
        return 0
    with slot:
        if absent := triggers.missing(connection):
            logger.error("nothing is sent while triggers lack", extra={"triggers": absent})
            return 0
        installation_id.cache_clear()  # a restored database may be another installation's
        restores.notice()
        began = time.monotonic()
        made = _Drain(f"{socket.gethostname()}:{os.getpid()}", slot).run()
        if made:
            seconds = round(time.monotonic() - began, 3)
            logger.info("drained", extra={"count": made, "seconds": seconds})
        return made


def _take_slot() -> IO[str] | None:
    """One of the drains that may claim on this machine; the kernel frees it on any death."""
    for number in range(conf.worker_drains):
        lock = open_slot(number)
        if _is_mine(lock):
            return lock
        lock.close()
    return None


def _is_mine(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@cache
def _http() -> Http:
    """The keep-alive connections of this process."""
    return Http(size=conf.worker_threads)


class _Drain:
    def __init__(self, name: str, slot: IO[str]) -> None:
        self.name = name
        self.slot = slot
        self.parent = os.getppid()
        self.ends_at = time.monotonic() + SLICE.total_seconds()
        self.results: queue.SimpleQueue[Submitted] = queue.SimpleQueue()
        self.on_the_wire = 0
        self.bytes_on_the_wire = 0
        self.made = 0

    def run(self) -> int:
        with ThreadPoolExecutor(conf.worker_threads, "submit") as pool:
            look_at = 0.0
            try:
                while True:
                    if self._is_over():
                        self.slot.close()  # another drain may start
                    elif self._has_room() and time.monotonic() >= look_at:
                        taken = self._start(pool)
                        look_at = 0.0 if taken else time.monotonic() + LOOK_AGAIN.total_seconds()
                    if not self.on_the_wire:
                        return self.made
                    self._save()
            finally:
                # Where asking for more fails, as while the database restarts, the answers that
                # are still to come are saved all the same: nobody can ask for them again.
                while self.on_the_wire:
                    self._save()

    def _has_room(self) -> bool:
        return self.on_the_wire < conf.worker_threads and self.bytes_on_the_wire < MOST_BYTES

    def _is_over(self) -> bool:
        # When its parent is gone this process is an orphan of a cluster that was killed.
        return (
            time.monotonic() >= self.ends_at
            or os.getppid() != self.parent
            or conf.worker_stopping.exists()
        )

    def _start(self, pool: ThreadPoolExecutor) -> int:
        """Claim no more than there are free threads, so that nothing claimed has to wait."""
        claimed = claim(
            self.name,
            at_most=conf.worker_threads - self.on_the_wire,
            room=MOST_BYTES - self.bytes_on_the_wire,
        )
        if claimed:
            note_attempt(self.slot, claimed[-1].attempt_id)
        # First what counts as on the wire already: marking the others may fail.
        self._send(pool, [c for c in claimed if not c.needs_mark])
        self._send(pool, dispatch([c for c in claimed if c.needs_mark]))
        return len(claimed)

    def _send(self, pool: ThreadPoolExecutor, ready: Sequence[Claimed]) -> None:
        for claimed in ready:
            self.on_the_wire += 1
            self.bytes_on_the_wire += claimed.size
            self.made += 1
            pool.submit(self._submit, claimed)

    def _submit(self, claimed: Claimed) -> None:
        self.results.put(submit(claimed, _http()))

    def _save(self) -> None:
        """Save what comes back within a moment of the first answer."""
        results: list[Submitted] = []
        save_at = time.monotonic() + SAVE_WITHIN.total_seconds()
        while len(results) < self.on_the_wire:
            with suppress(queue.Empty):
                results.append(self.results.get(timeout=max(save_at - time.monotonic(), 0)))
                continue
            break
        self.on_the_wire -= len(results)
        self.bytes_on_the_wire -= sum(result.claimed.size for result in results)
        if results:
            settle(results)
