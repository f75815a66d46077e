"""The journal outlives the process, however that ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from tests.sandboxes import ROOT

from .asking import fresh_key, message, post
from .conftest import Receiver, StartSandbox


def test_every_answered_accept_is_in_the_journal_after_a_kill(start: StartSandbox) -> None:
    sandbox, answered, killed = start(), set[str](), threading.Event()

    def load(name: int) -> None:
        number = 0
        while not killed.is_set():
            number += 1
            key = f"{name}-{number}"
            try:
                if post(sandbox, message(tag=key), key=key).how == 201:
                    answered.add(key)
            except (OSError, HTTPException):
                return

    threads = [threading.Thread(target=load, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    sandbox.await_that(lambda _: len(answered) > 200)
    sandbox.kill()
    killed.set()
    for thread in threads:
        thread.join(10)
    sandbox.restart()

    journal = [row["key"] for row in sandbox.journal()]
    assert answered <= set(journal)
    assert len(journal) - len(answered) <= len(threads)
    assert len(journal) == len(set(journal))
    again = post(sandbox, message(tag=journal[0]), key=journal[0])
    assert again.json["replayed"] is True


def test_counters_scripts_and_settings_go_on_after_a_kill(start: StartSandbox) -> None:
    sandbox, key, other = start(), fresh_key(), fresh_key()
    sandbox.configure(
        lookup=False, faults=[{"match": {"key": other}, "fault": "payment", "times": 2}]
    )
    assert post(sandbox, message("busy-503"), key=key).how == 503
    assert post(sandbox, message(), key=other).how == 402
    sandbox.kill()
    sandbox.restart()

    assert [post(sandbox, message("busy-503"), key=key).how for _ in range(2)] == [503, 201]
    assert [post(sandbox, message(), key=other).how for _ in range(2)] == [402, 201]
    assert sandbox.configure()["lookup"] is False


def test_a_key_in_progress_at_the_kill_is_in_progress_after_it(start: StartSandbox) -> None:
    sandbox, key = start(), fresh_key()
    assert post(sandbox, message("slower"), key=key, timeout=0.2).how == "silence"
    sandbox.await_that(lambda one: one.stats()["accepted"] == 1)
    sandbox.kill()
    sandbox.restart()
    assert post(sandbox, message("slower"), key=key).code == "key_in_progress"
    assert sandbox.stats()["accepted"] == 1


def test_events_that_were_not_taken_are_sent_after_a_restart(
    start: StartSandbox, receiver: Receiver
) -> None:
    receiver.statuses = [503] * 50
    sandbox = start(webhook=receiver.url, webhook_secret="s", deliver_after=0)
    post(sandbox, message("bounce"))
    receiver.wait_for(1)
    sandbox.kill()
    before = len(receiver.deliveries)
    receiver.statuses = []
    sandbox.restart()
    deliveries = receiver.wait_for(before + 1)
    assert {delivery.json["id"] for delivery in deliveries} == {deliveries[0].json["id"]}
    sandbox.await_that(lambda one: one.stats()["events"] == {"sent": 1})


def test_sigterm_ends_it_at_once_and_cleanly_while_connections_are_held(
    start: StartSandbox, capfd: pytest.CaptureFixture[str]
) -> None:
    sandbox = start()
    idle = HTTPConnection(sandbox.host, sandbox.port, timeout=20)
    idle.request("GET", "/healthz")
    assert idle.getresponse().read()
    held = threading.Thread(target=post, args=(sandbox, message("silent")))
    held.start()
    sandbox.await_that(lambda one: one.stats()["accepted"] == 1)
    begun = time.monotonic()
    assert sandbox.stop() == 0
    assert time.monotonic() - begun < 20
    held.join(20)
    idle.close()
    assert capfd.readouterr().err == ""


def test_two_sandboxes_cannot_share_a_journal(start: StartSandbox) -> None:
    sandbox = start()
    second = subprocess.run(
        [sys.executable, "-m", "sends.sandbox", "--port=0", f"--data={sandbox.folder}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert second.returncode == 1
    assert "in use by another sandbox" in second.stderr


def test_a_taken_port_is_one_plain_sentence(start: StartSandbox, tmp_path: Path) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "sends.sandbox", f"--port={start().port}", f"--data={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert second.returncode == 1
    assert "address already in use" in second.stderr
    assert second.stderr.count("\n") == 1
