"""The whole installation on this machine, with the sandbox as its provider and a demonstration."""

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import BaseCommand, CommandError, call_command
from django.db import connections
from django.db.utils import Error as DatabaseError

from outbox_admin.kept import kept_secret
from sends.conf import conf
from sends.management.ports import require_free_port
from sends.management.processes import Group

LOOPBACK = "127.0.0.1"
SANDBOX_SECRET = "sandbox-webhook-secret"
START_SECONDS = 60
DRAIN_SECONDS = 10
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Command(BaseCommand):
    help = (
        "Start the web server, one worker and the sandbox provider. The first Ctrl-C lets what "
        f"is on the wire finish, for {DRAIN_SECONDS} s at most; the second ends everything."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        with only_one_here():
            if conf.port == conf.sandbox_port:
                raise CommandError(f"PORT and SANDBOX_PORT are both {conf.port}; they must differ.")
            require_free_port(LOOPBACK, conf.port, "Choose another one: make up PORT=9000")
            require_free_port(
                LOOPBACK, conf.sandbox_port, "Choose another one: make up SANDBOX_PORT=9001"
            )
            os.environ |= sandbox_variables()
            self.prepare()
            failed = self.run_until_asked()
        if failed:
            raise CommandError(failed)

    def prepare(self) -> None:
        self.stdout.write("Preparing the database …")
        try:
            call_command("migrate", interactive=False, verbosity=0)
        except DatabaseError as error:
            raise CommandError(f"The database cannot be used: {error}".strip()) from None
        if get_user_model().objects.exists():
            call_command("demo", verbosity=0)  # what is there follows to other ports
        else:
            self.stdout.write("Loading the demonstration …")
            call_command("demo")
        connections.close_all()

    def run_until_asked(self) -> str:
        """Why it ended, if not because it was asked to."""
        asked: list[int] = []
        for number in STOPPING:
            signal.signal(number, lambda number, _frame: asked.append(number))

        group = Group(sys.stdout)
        try:
            failed = self.start(group, asked) or self.watch(group, asked)
            if asked:
                group.say(
                    f"Stopping; what is on the wire has {DRAIN_SECONDS} s to finish."
                    " Once more ends it at once."
                )
            in_time = group.stop(DRAIN_SECONDS, hurried=lambda: len(asked) > 1)
        finally:
            group.kill()
        if asked and in_time:
            group.say("Stopped. `make up` continues from here.")
        elif asked:
            group.say("Ended. What was on the wire is looked after at the next `make up`.")
        return failed

    def start(self, group: Group, asked: list[int]) -> str:
        """Start all three and wait until they answer; what went wrong, or nothing."""
        began = time.time()
        env = os.environ | {
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(settings.BASE_DIR),  # where `-m sends.sandbox` is, wherever we are
            "OUTBOX_DATA_DIR": str(conf.data_dir),
        }
        env.setdefault("OUTBOX_LOG_FORMAT", "TEXT")  # it is read by people, in one stream
        manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
        group.start("web", [*manage, "serve", f"--port={conf.port}"], env)
        group.start("sandbox", sandbox_command(), env)
        group.start("worker", [*manage, "worker"], env)

        for name, is_ready in (
            ("web", lambda: answers(conf.port)),
            ("sandbox", lambda: answers(conf.sandbox_port)),
            ("worker", lambda: beats_since(began)),
        ):
            failed = wait_until(is_ready, name, group, asked)
            if failed or asked:
                return failed
        group.say(welcome())
        return ""

    def watch(self, group: Group, asked: list[int]) -> str:
        while not asked:
            if dead := group.first_dead():
                return f"{dead.name} ended by itself with exit code {dead.exit_code}; see above."
            time.sleep(0.2)
        return ""


@contextmanager
def only_one_here() -> Iterator[None]:
    """Hold the data folder; the kernel lets go of it however this process ends."""
    with (conf.data_dir / "up.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"The installation in {conf.data_dir} is up already. For a second one:"
                " make up PORT=9000 OUTBOX_DATA_DIR=/some/folder"
            ) from None
        yield


def sandbox_variables() -> dict[str, str]:
    """What outbox.example.toml refers to, for everybody who is started here."""
    return {
        "SANDBOX_URL": f"http://{LOOPBACK}:{conf.sandbox_port}",
        "SANDBOX_KEY": f"sandbox_{kept_secret(conf.data_dir, 'sandbox-key')}",
        "SANDBOX_WEBHOOK_SECRET": kept_secret(conf.data_dir, SANDBOX_SECRET),
    }


def sandbox_command() -> list[str]:
    return [
        *(sys.executable, "-m", "sends.sandbox"),
        *("--port", str(conf.sandbox_port)),
        *("--data", str(conf.data_dir / "sandbox")),
        *("--webhook", f"http://{LOOPBACK}:{conf.port}/webhooks/sandbox"),
        *("--webhook-secret-file", str(conf.data_dir / SANDBOX_SECRET)),
    ]


def wait_until(is_ready: Callable[[], bool], name: str, group: Group, asked: list[int]) -> str:
    """What went wrong, or nothing; gives up early when asked to stop."""
    deadline = time.monotonic() + START_SECONDS
    while not is_ready() and not asked:
        if dead := group.first_dead():
            return f"{dead.name} did not start: exit code {dead.exit_code}; see above."
        if time.monotonic() > deadline:
            return f"{name} did not answer within {START_SECONDS} s; see above."
        time.sleep(0.1)
    return ""


def answers(port: int) -> bool:
    connection = HTTPConnection(LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", "/healthz", headers={"Host": urlsplit(conf.url).netloc})
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def beats_since(began: float) -> bool:
    try:
        return conf.worker_beat.stat().st_mtime >= began
    except FileNotFoundError:
        return False


def welcome() -> str:
    lines = ["", f"Outbox Admin is up: {conf.url}", ""]
    try:
        demo = json.loads((conf.data_dir / "demo.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "\n".join(lines)
    lines += ["Sign in as"]
    lines += [f"  {p['email']:<26} {p['password']:<20} {p['role']}" for p in demo["people"]]
    lines += [
        "",
        f"Agents' token     {demo['agent_token']}",
        f"Sandbox provider  {demo['sandbox_url']}",
    ]
    lines += ["", "Ctrl-C stops it.", ""]
    return "\n".join(lines)
