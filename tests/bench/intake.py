"""How fast messages are taken in by each door, beside one bare row a transaction, in one run.

    python -m tests.bench.intake                      SQLite
    OUTBOX_DATABASE_URL=postgres://… python -m …      an empty PostgreSQL database

Prints messages per second for single requests, for batches and for `manage.py submit`, each with
its ratio to a loop that commits one row for each message, the most memory that a server's process
needed, and what counting a request costs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil

from tests.ports import free_port

ROOT = Path(__file__).resolve().parent.parent.parent
MANAGE = [sys.executable, str(ROOT / "manage.py")]
AT_ONCE = 500
MEGABYTE = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--large", type=int, default=100_000, help="bytes, 500 times in a batch")
    given = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "outbox_admin.settings",
            "OUTBOX_DATA_DIR": folder,
            "OUTBOX_LOG_LEVEL": "WARNING",
            "OUTBOX_API_RATE": "1000000",
            "OUTBOX_API_BURST": "1000000",
        }
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        run(given, Path(folder))


def run(given: argparse.Namespace, folder: Path) -> None:
    from django.db import connection

    from tests.factories import make_agent_at, make_token

    agent = make_agent_at()
    token = make_token(agent)
    print(f"{connection.vendor}, {given.messages} messages, {given.threads} threads")
    bare = given.messages / seconds_for(lambda: one_row_each(given.messages))
    print(f"{'one bare row each':24}{bare:7.0f} a second")

    def said(door: str, messages: int, seconds: float, memory: int | None = None) -> None:
        speed = messages / seconds
        needed = "" if memory is None else f"   at most {memory / MEGABYTE:.0f} MB"
        print(f"{door:24}{speed:7.0f} a second   ratio {speed / bare:.2f}{needed}")

    small = [message("s", number, 800) for number in range(given.messages)]
    with Server() as server:
        seconds = seconds_for(lambda: one_by_one(server.port, token, small, given.threads))
        said("single requests", len(small), seconds, server.most_memory())
    with Server() as server:
        batches = [message("b", number, 800) for number in range(given.messages)]
        seconds = seconds_for(lambda: in_batches(server.port, token, batches))
        said(f"batches of {AT_ONCE}", len(batches), seconds, server.most_memory())
        seconds = seconds_for(lambda: in_batches(server.port, token, batches))
        said("the same once more", len(batches), seconds, server.most_memory())
    with Server() as server:
        before = server.most_memory()
        large = [message("l", number, given.large) for number in range(AT_ONCE)]
        seconds = seconds_for(lambda: in_batches(server.port, token, large))
        after = server.most_memory()
        said(f"{AT_ONCE} of {given.large // 1000} kB", len(large), seconds, after)
        print(f"{'':24}{(after - before) / MEGABYTE:7.0f} MB more than before the batch")
    seconds = seconds_for(lambda: by_file(folder, agent, given.messages))
    said("submit, JSON lines", given.messages, seconds)  # its memory: tests.bench.submit
    print(f"counting a request: {cost_of_counting() * 1_000_000:.0f} µs")


def message(kind: str, number: int, size: int) -> dict[str, Any]:
    return {
        "action_key": f"{kind}:{number}",
        "to": ["delivered@example.org"],
        "subject": "Your order",
        "text": f"{number} " + "x" * size,
    }


def seconds_for(work: Callable[[], None]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def one_row_each(messages: int) -> None:
    from sends.models import Suppression, SuppressionCause, Tenant, database_now

    tenant, now = Tenant.objects.first(), database_now()
    for number in range(messages):
        Suppression.objects.create(
            tenant=tenant,
            normal=f"bare-{number}@example.org",
            cause=SuppressionCause.PERSON,
            reason="x" * 800,
            since=now,
        )


def one_by_one(port: int, token: str, messages: list[dict[str, Any]], threads: int) -> None:
    local = threading.local()

    def post(body: dict[str, Any]) -> None:
        if not hasattr(local, "connection"):
            local.connection = HTTPConnection("127.0.0.1", port, timeout=120)
        status, _ = ask(local.connection, token, "/intents", body)
        assert status == 201

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(post, messages))


def in_batches(port: int, token: str, messages: list[dict[str, Any]]) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=600)
    for at in range(0, len(messages), AT_ONCE):
        batch = messages[at : at + AT_ONCE]
        status, said = ask(connection, token, "/intents/batch", batch)
        assert (status, said["refused"]) == (200, 0), said


def ask(connection: HTTPConnection, token: str, path: str, body: Any) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", f"/api/v1{path}", json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def by_file(folder: Path, agent: Any, messages: int) -> None:
    file = folder / "messages.jsonl"
    lines = (json.dumps(message("f", number, 800)) for number in range(messages))
    file.write_text("\n".join(lines))
    who = f"--agent={agent.tenant.slug}/{agent.slug}"
    subprocess.run([*MANAGE, "submit", who, str(file)], check=True, capture_output=True)


def cost_of_counting(requests: int = 5_000) -> float:
    from sends.api.allowances import counts
    from sends.rules.allowances import Rate

    rate = Rate(1_000_000, 1_000_000)

    def count_all() -> None:
        for _ in range(requests):
            counts.take("bench", rate)

    return seconds_for(count_all) / requests


class Server:
    """`manage.py serve` while the block runs."""

    def __enter__(self) -> "Server":
        self.port = free_port()
        self.process = subprocess.Popen(
            [*MANAGE, "serve", f"--port={self.port}"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("listening")
        return self

    def most_memory(self) -> int:
        """The most that any of its processes has had in memory so far, in bytes."""
        processes = [psutil.Process(self.process.pid), *self._children()]
        return max(_peak(process.pid) for process in processes)

    def _children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)


def _peak(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
