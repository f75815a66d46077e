"""The whole installation, as `make up` starts it, for tests that use it from outside."""

import subprocess
import sys
import threading
import time

import psutil

from tests.sandboxes import ROOT

START_SECONDS = 120


class Installation:
    """`manage.py up`, its output read as it comes."""

    def __init__(self, env: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up"],
            env=env,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def wait_until_it_says(self, text: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while text not in self.said:
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.05)

    def wait(self) -> int:
        code = self.process.wait(timeout=START_SECONDS)
        self.reader.join(timeout=10)
        return code

    def end(self) -> None:
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
        self.process.wait()
        self.reader.join(timeout=10)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.lines.append(line.rstrip("\n"))
