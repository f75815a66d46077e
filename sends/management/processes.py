"""Several programs run as one, with their output told apart."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, TextIO

import psutil

COLOURS = ("36", "33", "35", "32", "34")


class Process:
    """A program in a session of its own.

    The Ctrl-C of a terminal therefore reaches only the one who started it, who then decides
    who stops first and how.
    """

    def __init__(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.popen = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        return self.popen.poll()

    def ask_to_stop(self) -> None:
        """SIGTERM to the program itself, never to its group: django-q2 would deadlock."""
        self.popen.terminate()

    def kill(self) -> None:
        """End it and all that it started, in whatever session, at once."""
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.popen.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


class Group:
    """Processes that are started one by one and are gone together."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.out = out
        self.processes: list[Process] = []
        self.readers: list[threading.Thread] = []
        self.coloured = out.isatty() and "NO_COLOR" not in os.environ
        self.writing = threading.Lock()

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> Process:
        process = Process(name, command, env)
        assert process.popen.stdout is not None
        colour = COLOURS[len(self.processes) % len(COLOURS)]
        reader = threading.Thread(
            target=self._copy, args=(process.popen.stdout, name, colour), daemon=True
        )
        reader.start()
        self.processes.append(process)
        self.readers.append(reader)
        return process

    def say(self, text: str) -> None:
        # A terminal that was closed must not keep the processes from stopping in order.
        with self.writing, suppress(OSError):
            self.out.write(f"{text}\n")
            self.out.flush()

    def first_dead(self) -> Process | None:
        return next((p for p in self.processes if p.exit_code is not None), None)

    def stop(self, seconds: float, hurried: Callable[[], bool]) -> bool:
        """Ask everybody to stop, the last one started first, since the others answer it.

        Whoever still runs after `seconds`, or once `hurried()`, is killed; false if anybody was.
        """
        deadline = time.monotonic() + seconds
        *others, last = self.processes
        last.ask_to_stop()
        self._wait([last], deadline - seconds / 5, hurried)
        for process in others:
            process.ask_to_stop()
        self._wait(self.processes, deadline, hurried)
        late = [process for process in self.processes if process.exit_code is None]
        self.kill()
        return not late

    def kill(self) -> None:
        """End all that is left of everybody; also what those left behind who died themselves."""
        for process in self.processes:
            process.kill()
        for reader in self.readers:
            reader.join(timeout=1)

    def _wait(
        self, processes: Sequence[Process], deadline: float, hurried: Callable[[], bool]
    ) -> None:
        while any(process.exit_code is None for process in processes):
            if hurried() or time.monotonic() >= deadline:
                return
            time.sleep(0.05)

    def _copy(self, stream: IO[str], name: str, colour: str) -> None:
        prefix = f"{name:<8}| "
        if self.coloured:
            prefix = f"\x1b[{colour}m{prefix}\x1b[0m"
        with stream:
            for line in stream:
                self.say(prefix + line.rstrip("\n"))
