"""Workers in processes of their own, a sandbox as their provider, and intents for them to send."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.db import connection

from sends.lifecycle import claim, review, settle, submit, watchdog, worker
from sends.models import Agent, Person, Role, SendIntent, Tenant, database_now
from sends.providers.http import Http
from sends.rules.statuses import CLAIMABLE, Status
from tests.factories import make_intent, make_person, make_tenant
from tests.promises.witness import Witness
from tests.sandboxes import Sandbox
from tests.sending import make_agent_of

PATIENCE_SECONDS = 40.0
UNDER_WAY = (*CLAIMABLE, Status.IN_FLIGHT)


def await_that(condition: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> Any:
    """What the condition returns as soon as that is true."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < end, f"not true within {seconds:g} s"
        time.sleep(0.02)
    return result


class Puppet:
    """A process with one worker that stops at named points; see `tests.promises.puppet`."""

    def __init__(self, env: dict[str, str], *points: str) -> None:
        self.log = Path(env["OUTBOX_DATA_DIR"]) / "puppet.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.promises.puppet", *points],
                cwd=settings.BASE_DIR,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def reaches(self, point: str) -> None:
        """Wait until it stands there."""
        self._expect(f"reached {point}")

    def reaches_or_ends(self, point: str) -> None:
        """Wait until it stands there, or has found nothing to do since others were quicker."""
        said = self._next()
        assert said == f"reached {point}" or said.startswith("ended "), said

    def is_ready(self) -> None:
        self._expect("ready")

    def drain(self) -> None:
        """Let it begin; `has_drained` awaits the end."""
        self._write("drain")

    def tend(self) -> None:
        self._write("tend")
        self._expect("ended None")

    def goes_on(self) -> None:
        self._write("go")

    def has_drained(self) -> int:
        """How many attempts it made."""
        said = self._next()
        assert said.startswith("ended "), f"{said}: {self.log.read_text()}"
        return int(said.split()[1])

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def freeze(self) -> None:
        """SIGSTOP, and wait until it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        process = psutil.Process(self.pid)
        await_that(lambda: process.status() == psutil.STATUS_STOPPED)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def _write(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put("over")

    def _expect(self, words: str) -> None:
        said = self._next()
        assert said == words, f"{said}, not {words}: {self.log.read_text()}"

    def _next(self) -> str:
        try:
            return self._lines.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise AssertionError(f"the puppet says nothing; {self.log.read_text()}") from None


class WorkerProcess:
    """`manage.py worker` with all its processes, as it runs in production."""

    def __init__(self, env: dict[str, str], *command: str) -> None:
        self.data_dir = Path(env["OUTBOX_DATA_DIR"])
        self.log = self.data_dir / "worker.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *(command or ("manage.py", "worker"))],
                cwd=settings.BASE_DIR,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._root = psutil.Process(self.pid)
        # It, its cluster, and every cluster that it starts anew lead a session each.
        self._sessions = {self.pid}

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_working(self) -> None:
        """Wait for its first beat: every part of it works."""
        await_that((self.data_dir / "worker.beat").exists)

    def family(self) -> list[psutil.Process]:
        """All that live now, but not the supervisor; also those whose parent is dead."""
        with suppress(psutil.NoSuchProcess):
            for child in self._root.children():
                with suppress(ProcessLookupError):
                    self._sessions.add(os.getsid(child.pid))
        return [one for one in psutil.process_iter() if self._is_of_it(one)]

    def _is_of_it(self, process: psutil.Process) -> bool:
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            return (
                process.pid != self.pid
                and os.getsid(process.pid) in self._sessions
                and process.status() != psutil.STATUS_ZOMBIE
            )
        return False

    def stop(self) -> int:
        """SIGTERM, and wait until it has finished what is on the wire; its exit code."""
        self.ask_to_stop()
        return self.has_stopped()

    def ask_to_stop(self) -> None:
        self.family()
        self._process.terminate()

    def has_stopped(self) -> int:
        return self._process.wait(PATIENCE_SECONDS)

    def kill_supervisor(self) -> None:
        if self._process.poll() is None:
            self._root.suspend()  # so that it starts no other cluster meanwhile
            self.family()
            self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    def kill_all(self) -> None:
        """SIGKILL to every process of it."""
        self.kill_supervisor()
        while living := self.family():
            for process in living:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(living, timeout=0.1)


@dataclass
class Stage:
    """One tenant whose agent sends through one sandbox, and the processes that work for it."""

    sandbox: Sandbox
    contract: str
    env: dict[str, str]
    folder: Path
    policy: dict[str, Any] = field(default_factory=dict)
    account: dict[str, Any] = field(default_factory=dict)
    processes: list[Puppet | WorkerProcess] = field(default_factory=list)

    @cached_property
    def tenant(self) -> Tenant:
        quick = {
            "backoff_base": timedelta(milliseconds=20),
            "backoff_cap": timedelta(milliseconds=100),
            "lease": timedelta(seconds=60),
            "second_operator": False,
        }
        return make_tenant(**quick | self.policy)

    @cached_property
    def agent(self) -> Agent:
        return make_agent_of(self.sandbox, self.tenant, contract=self.contract, **self.account)

    @cached_property
    def approver(self) -> Person:
        return make_person(self.tenant, Role.APPROVER)

    @cached_property
    def operator(self) -> Person:
        return make_person(self.tenant, Role.OPERATOR)

    @cached_property
    def witness(self) -> Witness:
        return Witness(self.sandbox)

    def proposed(self, to: str = "delivered", **fields: Any) -> SendIntent:
        """An intent that waits for its approval; `to` is a word of the fault menu."""
        address = to if "@" in to else f"{to}@example.org"
        return make_intent(self.agent, to=address, **fields)

    def approved(self, to: str = "delivered", **fields: Any) -> SendIntent:
        """An intent that a person has approved, and that is due now."""
        intent = self.proposed(to, **fields)
        return review.approve(intent.pk, person=self.approver, digest=intent.digest)

    def puppet(self, *points: str, **env: str) -> Puppet:
        puppet = Puppet(self._env() | env, *points)
        self.processes.append(puppet)
        puppet.is_ready()
        return puppet

    def puppet_at(self, point: str, **env: str) -> Puppet:
        """A worker of its own that has come to this point of its drain."""
        puppet = self.puppet(point, **env)
        puppet.drain()
        puppet.reaches(point)
        return puppet

    def worker(self, *command: str, data_dir: Path | None = None, **env: str) -> WorkerProcess:
        process = WorkerProcess(self._env(data_dir) | env, *command)
        self.processes.append(process)
        return process

    def age_leases(self) -> None:
        """As if the lease of whatever is in flight had ended: a test need not wait for it."""
        in_flight = SendIntent.objects.filter(status=Status.IN_FLIGHT)
        in_flight.update(lease_expires_at=database_now() - timedelta(seconds=1))

    def work(self, *, until: Callable[[], Any] | None = None) -> None:
        """Be a second worker, in this process, until nothing is under way any more."""
        until = until or (lambda: not SendIntent.objects.filter(status__in=UNDER_WAY).exists())

        def done() -> bool:
            worker.drain()
            watchdog.tend(sweep_too=True)
            return bool(until())

        await_that(done)

    def send(self, at_most: int) -> None:
        """Let this process make so many attempts, and no more."""
        claimed = claim.claim("one of many", at_most=at_most)
        marked = claim.dispatch([one for one in claimed if one.needs_mark])
        going = [one for one in claimed if not one.needs_mark or one in marked]
        settle.settle([submit.submit(one, Http()) for one in going])

    def take_turns(self, times: int) -> None:
        """Let this process work a few times, whatever comes of it."""
        for _ in range(times):
            worker.drain()
            watchdog.tend(sweep_too=True)

    def close(self) -> None:
        for process in self.processes:
            if isinstance(process, Puppet):
                process.kill()
            else:
                process.kill_all()

    def _env(self, data_dir: Path | None = None) -> dict[str, str]:
        data_dir = data_dir or self.folder / f"worker-{len(self.processes)}"
        data_dir.mkdir(exist_ok=True)
        return self.env | {"OUTBOX_DATA_DIR": str(data_dir), "OUTBOX_WORKER_THREADS": "8"}


def cut_database_connections() -> None:
    """End every other connection to the test database, as its restart would."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
