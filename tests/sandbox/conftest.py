"""A sandbox for the tests of a file, and a receiver of its webhooks for a single test."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.sandboxes import PATIENCE_SECONDS, Sandbox


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Shared by the tests of a module: each uses keys and tags of its own."""
    with Sandbox.start(tmp_path_factory.mktemp("sandbox"), deliver_after=0) as started:
        yield started


@dataclass(frozen=True)
class Delivery:
    headers: dict[str, str]
    raw: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


class Receiver:
    """Takes webhooks and keeps them; `statuses` are the next answers, then 204 for ever."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.statuses: list[int] = []
        self._changed = threading.Condition()
        self._path = "/0"
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                delivery = Delivery(dict(self.headers), raw, time.time())
                self.send_response(receiver.note(self.path, delivery))
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self._path}"

    def begin_anew(self) -> None:
        """Take webhooks at another path, and keep none that is late for the one before."""
        with self._changed:
            self._path = f"/{int(self._path[1:]) + 1}"
            self.deliveries, self.statuses = [], []

    def note(self, path: str, delivery: Delivery) -> int:
        with self._changed:
            if path != self._path:
                return 204
            self.deliveries.append(delivery)
            self._changed.notify_all()
            return self.statuses.pop(0) if self.statuses else 204

    def wait_for(self, count: int) -> list[Delivery]:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.deliveries) >= count, PATIENCE_SECONDS):
                raise AssertionError(f"{len(self.deliveries)} of {count} webhooks came")
            return list(self.deliveries)

    def types(self, count: int) -> list[str]:
        return [delivery.json["type"] for delivery in self.wait_for(count)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def shared_receiver() -> Iterator[Receiver]:
    started = Receiver()
    yield started
    started.close()


@pytest.fixture
def receiver(shared_receiver: Receiver) -> Receiver:
    shared_receiver.begin_anew()
    return shared_receiver


@pytest.fixture
def hooked(sandbox: Sandbox, receiver: Receiver) -> Sandbox:
    """An empty sandbox that reports to the receiver."""
    sandbox.reset()
    sandbox.configure(webhook=receiver.url, webhook_secret="whsec_new")
    return sandbox


StartSandbox = Callable[..., Sandbox]


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartSandbox]:
    """Starts sandboxes with options of their own, and ends them with the test."""
    running: list[Sandbox] = []

    def started(**options: Any) -> Sandbox:
        running.append(Sandbox.start(tmp_path_factory.mktemp("sandbox"), **options))
        return running[-1]

    yield started
    for one in running:
        one.kill()
