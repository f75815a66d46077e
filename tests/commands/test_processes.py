"""Several programs run as one."""

import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from sends.management.processes import Group

POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
time.sleep(60)
"""
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""
PARENT = """
import subprocess, sys, time
command = [sys.executable, "-c", "import time; time.sleep(60)"]
print("ready", subprocess.Popen(command, start_new_session=True).pid, flush=True)
time.sleep(60)
"""


class Started:
    """A group whose output is kept, for programs that say `ready`."""

    def __init__(self) -> None:
        self.out = io.StringIO()
        self.group = Group(self.out)

    def start(self, name: str, code: str) -> None:
        self.group.start(name, [sys.executable, "-c", code], dict(os.environ))
        wait_for(
            lambda: re.search(rf"^{name} *\| ready", self.out.getvalue(), re.MULTILINE) is not None
        )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def started() -> Iterator[Started]:
    started = Started()
    yield started
    started.group.kill()


def test_each_line_says_who_wrote_it(started: Started) -> None:
    started.start("web", "print('ready'); print('two\\nlines')")
    started.start("worker", "import sys; sys.stderr.write('ready\\n')")
    assert sorted(started.out.getvalue().splitlines()) == [
        "web     | lines",
        "web     | ready",
        "web     | two",
        "worker  | ready",
    ]


def test_a_polite_stop_lets_everybody_finish(started: Started) -> None:
    started.start("web", POLITE)
    started.start("worker", POLITE)
    assert started.group.stop(20, hurried=lambda: False)
    assert [process.exit_code for process in started.group.processes] == [0, 0]


def test_the_last_one_started_stops_before_the_others_are_asked(started: Started) -> None:
    started.start("web", POLITE)
    started.start("worker", DEAF)
    asked: list[str] = []
    for process in started.group.processes:
        ask = process.ask_to_stop

        def note(name: str = process.name, ask: Callable[[], None] = ask) -> None:
            asked.append(name)
            ask()

        process.ask_to_stop = note  # type: ignore[method-assign]
    started.group.stop(0.5, hurried=lambda: False)
    assert asked == ["worker", "web"]


def test_whoever_does_not_finish_in_time_is_killed(started: Started) -> None:
    started.start("web", POLITE)
    started.start("worker", DEAF)
    assert not started.group.stop(0.5, hurried=lambda: False)
    assert [process.exit_code for process in started.group.processes] == [0, -9]


def test_a_second_request_ends_everything_at_once(started: Started) -> None:
    started.start("web", DEAF)
    started.start("worker", DEAF)
    began = time.monotonic()
    assert not started.group.stop(60, hurried=lambda: True)
    assert time.monotonic() - began < 30
    assert [process.exit_code for process in started.group.processes] == [-9, -9]


def test_killing_reaches_what_a_program_started_in_a_session_of_its_own(started: Started) -> None:
    started.start("worker", PARENT)
    found = re.search(r"ready (\d+)", started.out.getvalue())
    assert found is not None
    child = psutil.Process(int(found[1]))
    started.group.kill()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_who_died_by_itself_is_known_with_its_exit_code(started: Started) -> None:
    started.start("web", POLITE)
    assert started.group.first_dead() is None
    started.start("worker", "import sys; print('ready', flush=True); sys.exit(3)")
    wait_for(lambda: started.group.first_dead() is not None)
    dead = started.group.first_dead()
    assert dead is not None
    assert (dead.name, dead.exit_code) == ("worker", 3)
