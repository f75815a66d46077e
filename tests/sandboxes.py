"""Starts the real sandbox provider in a process of its own, for any test that needs a witness."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from select import select
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 20.0


class Sandbox:
    """A running sandbox. Use it in a `with`, or call `stop` yourself."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder = folder
        self.options = options
        self.url = ""
        self._process: subprocess.Popen[str] | None = None
        self._port = 0

    @classmethod
    def start(
        cls,
        folder: Path | None = None,
        *,
        contract: str = "replay",
        window: float | None = None,
        webhook: str | None = None,
        **options: Any,
    ) -> Sandbox:
        """Start one on a free port, its journal in `folder`, or in one that goes when it goes.

        Options are those of the command line, with underscores: `deliver_after=0`,
        `webhook_secret="…"`, `lookup="off"`, `sync="off"`.
        """
        given = {"contract": contract, "window": window, "webhook": webhook, **options}
        options = {name: value for name, value in given.items() if value is not None}
        sandbox = cls(folder or Path(mkdtemp(prefix="sandbox-")), options)
        if folder is None:
            weakref.finalize(sandbox, rmtree, sandbox.folder, ignore_errors=True)
        sandbox._launch()
        return sandbox

    def _launch(self) -> None:
        words = [f"--{name.replace('_', '-')}={value}" for name, value in self.options.items()]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "sends.sandbox",
                f"--port={self._port}",
                f"--data={self.folder}",
                *words,
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        ready, _, _ = select([self._process.stdout], [], [], PATIENCE_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line.startswith("sandbox listening on "):
            self.kill()
            raise RuntimeError(f"the sandbox did not start: {line!r}")
        self.url = line.removeprefix("sandbox listening on ").strip()
        self._port = self.port

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stats(self) -> dict[str, Any]:
        return self._ask("GET", "/v1/stats")

    def journal(self) -> list[dict[str, Any]]:
        """Every accepted message, in order."""
        return self._pages("/v1/journal", "messages")

    def requests(self) -> list[dict[str, Any]]:
        """Every POST that arrived, in order."""
        return self._pages("/v1/requests", "requests")

    def configure(self, **changes: Any) -> dict[str, Any]:
        """PUT /v1/config: webhook, deliver_after, window, contract, faults, events, down …"""
        return self._ask("PUT", "/v1/config", changes)

    def script(self, fault: str, *, times: int | None = 1, **match: Any) -> None:
        """Let the next requests that match (`key=`, `tag=`, `to=`, or all) meet this fault."""
        self.configure(faults=[{"match": match or {"any": True}, "fault": fault, "times": times}])

    def reset(self) -> None:
        """Forget everything, and what `configure` changed too."""
        self._ask("POST", "/v1/reset")

    def await_that(
        self, condition: Callable[[Sandbox], Any], *, seconds: float = PATIENCE_SECONDS
    ) -> Any:
        """What the condition returns as soon as that is true of this sandbox."""
        end = time.monotonic() + seconds
        while not (result := condition(self)):
            if time.monotonic() > end:
                raise AssertionError(f"not true within {seconds} s; stats: {self.stats()}")
            time.sleep(0.02)
        return result

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait for the end; the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Start again on the same port with the same journal; kills what still runs."""
        self.kill()
        self._launch()

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            os.kill(process.pid, number)
        try:
            code = process.wait(PATIENCE_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
            self._process = None
        return code

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _pages(self, path: str, name: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while True:
            since = rows[-1]["seq"] if rows else 0
            page = self._ask("GET", f"{path}?since={since}&limit=5000")[name]
            if not page:
                return rows
            rows += page

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        connection = HTTPConnection(self.host, self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            content: dict[str, Any] = json.loads(answer.read())
            if answer.status != 200:
                raise AssertionError(f"{method} {path}: {answer.status} {content}")
            return content
        finally:
            connection.close()
