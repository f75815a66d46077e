"""How fast the outbox sends, beside a bare loop that keeps no ledger, in one run.

    python -m tests.bench.sending                     SQLite
    OUTBOX_DATABASE_URL=postgres://… python -m …      an empty PostgreSQL database

Prints messages per second through a real worker and the real sandbox, the same number of
messages through `requests` and as many threads with no ledger at all, their ratio, and how long
after an approval the first byte reaches the provider.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--approvals", type=int, default=40)
    parser.add_argument("--threads", type=int, default=32)
    given = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="outbox-bench-") as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "outbox_admin.settings",
            "OUTBOX_DATA_DIR": folder,
            "OUTBOX_WORKER_THREADS": str(given.threads),
            "OUTBOX_LOG_LEVEL": "WARNING",
        }
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        run(given)


def run(given: argparse.Namespace) -> None:
    from django.db import connection

    from tests.sandboxes import Sandbox

    print(f"{connection.vendor}, {given.messages} messages, {given.threads} threads")
    with Sandbox.start(contract="replay", sync="off") as sandbox:
        bare = bare_loop(sandbox, given.messages, given.threads)
        sandbox.reset()
        outbox = through_the_outbox(sandbox, given.messages)
        print(f"no ledger  {bare:8.0f} messages/s")
        print(f"outbox     {outbox:8.0f} messages/s   ratio {outbox / bare:.2f}")
        sandbox.reset()
        waits = approval_to_wire(sandbox, given.approvals)
        print(
            f"approval to the wire: median {statistics.median(waits) * 1000:.0f} ms, "
            f"longest {max(waits) * 1000:.0f} ms, {len(waits)} approvals"
        )


def bare_loop(sandbox: Any, messages: int, threads: int) -> float:
    """The same bodies by `requests`, one session a thread, nothing written down."""
    import threading

    import requests

    local = threading.local()

    def send(number: int) -> None:
        if not hasattr(local, "session"):
            local.session = requests.Session()
        body = {
            "from": {"address": "support@mail.example.com", "name": ""},
            "to": [{"address": "delivered@example.org", "name": ""}],
            "subject": "Your order",
            "text": "x" * 800,
            "tag": f"bare-{number}",
        }
        headers = {"Authorization": "Bearer sandbox_test_key", "Idempotency-Key": f"k{number}"}
        answer = local.session.post(
            f"{sandbox.url}/v1/messages", json=body, headers=headers, timeout=20
        )
        assert answer.status_code == 201, answer.text

    began = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(send, range(messages)))
    return messages / (time.monotonic() - began)


def through_the_outbox(sandbox: Any, messages: int) -> float:
    from sends.rules.statuses import Status
    from tests.factories import make_intent

    agent = make_agent(sandbox)
    for _ in range(messages):
        make_intent(agent, status=Status.QUEUED, to="delivered@example.org", text="x" * 800)
    with Worker():
        began = time.monotonic()
        done = sandbox.stats()["accepted"]
        sandbox.await_that(lambda s: s.stats()["accepted"] >= messages, seconds=300)
        return (messages - done) / (time.monotonic() - began)


def approval_to_wire(sandbox: Any, approvals: int) -> list[float]:
    from django.db import connection

    from sends.lifecycle import review
    from sends.models import Role
    from tests.factories import make_intent, make_person

    agent = make_agent(sandbox)
    person = make_person(agent.tenant, Role.APPROVER)
    intents = [make_intent(agent, to="delivered@example.org") for _ in range(approvals)]
    approved: dict[str, float] = {}
    with Worker():
        for intent in intents:
            review.approve(intent.pk, person=person, digest=intent.digest)
            approved[intent.pk.hex] = time.monotonic()
            time.sleep(0.3)
        sandbox.await_that(lambda s: s.stats()["accepted"] >= approvals, seconds=60)
    connection.close()
    return [r["received_mono"] - approved[r["tag"]] for r in sandbox.requests()]


def make_agent(sandbox: Any) -> Any:
    from tests.factories import make_tenant
    from tests.sending import make_agent_of

    return make_agent_of(sandbox, make_tenant(undo_time=timedelta(0)), concurrency=512)


class Worker:
    """`manage.py worker` while the block runs."""

    def __enter__(self) -> "Worker":
        from sends.conf import conf

        conf.worker_beat.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "worker"], start_new_session=True
        )
        while not conf.worker_beat.exists():
            assert self.process.poll() is None, "the worker did not start"
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
