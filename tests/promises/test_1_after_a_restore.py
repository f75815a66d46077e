"""Promise 1 after a restored backup: nothing is sent twice unless a person says so."""

import os
import shutil
import subprocess
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from sends.lifecycle import requeue, resolve, restores, review
from sends.lifecycle.backup import back_up
from sends.models import Restore, SendIntent, Switch, SwitchKind
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.promises.stage import UNDER_WAY, Stage, await_that

pytestmark = pytest.mark.django_db(transaction=True)

S = Status
# What an intent may be in a ledger that knows less than the provider does.
NOT_SAID_TO_BE_UNSENT = (S.SUBMITTED, S.DONE, S.UNCERTAIN)


@pytest.fixture
def restored_name(database_kind: str, tmp_path: Path) -> Iterator[str]:
    """The name of a database beside that of the test."""
    if database_kind == "sqlite":
        yield str(tmp_path / "restored.sqlite3")
        return
    if shutil.which("pg_restore") is None:
        pytest.skip("no pg_dump and pg_restore on the path")
    name = f"outbox_restored_{uuid.uuid4().hex}"
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE DATABASE "{name}"')
    yield name
    with connection.cursor() as cursor:
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def put_back(backup: Path, name: str) -> None:
    """As the README says."""
    if connection.vendor == "sqlite":
        shutil.copy(backup, name)
        return
    settings = connection.settings_dict
    env = os.environ | {
        "PGHOST": settings["HOST"],
        "PGPORT": str(settings["PORT"]),
        "PGUSER": settings["USER"],
        "PGPASSWORD": settings["PASSWORD"],
    }
    command = ["pg_restore", "--no-owner", "--exit-on-error", f"--dbname={name}", str(backup)]
    subprocess.run(command, env=env, check=True)


@contextmanager
def using(name: str) -> Iterator[None]:
    """Let this process work on another database."""
    usual = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = usual


def is_paused() -> bool:
    return bool(Switch.objects.get(kind=SwitchKind.INSTALLATION).causes)


def at_rest() -> bool:
    return not SendIntent.objects.filter(status__in=UNDER_WAY).exists()


def test_a_restored_backup_sends_nothing_twice(
    stage: Stage, restored_name: str, tmp_path: Path
) -> None:
    operator = stage.operator  # known to the backup
    flying = stage.approved()
    # With its one thread on the wire it claims nothing more.
    puppet = stage.puppet_at("dispatched", OUTBOX_WORKER_THREADS="1")
    accepted, doubtful, retried = (
        stage.approved(to) for to in ("delivered", "lost-answer", "busy-503")
    )
    dead = stage.approved("dead@example.org")
    stage.sandbox.script("unprocessable", to="dead@example.org")
    stage.send(at_most=4)
    due, waiting = stage.approved(), stage.proposed()
    intents = (flying, accepted, doubtful, retried, dead, due, waiting)
    states = SendIntent.objects.values_list("status", flat=True)
    assert {S.AWAITING_APPROVAL, S.QUEUED, S.IN_FLIGHT, S.SUBMITTED, S.DEAD_LETTER} <= set(states)
    backup = tmp_path / "backup"
    made_at = back_up(backup)

    # It goes on, and is killed.
    review.approve(waiting.pk, person=stage.approver, digest=waiting.digest)
    requeue.requeue(dead.pk, person=operator)
    puppet.goes_on()
    puppet.has_drained()
    folder = tmp_path / "folder"
    folder.mkdir()
    before = stage.worker(data_dir=folder)
    before.is_working()
    await_that(at_rest)
    before.kill_all()
    taken = Counter(message["tag"] for message in stage.sandbox.journal())
    assert taken == Counter(intent.pk.hex for intent in intents)

    put_back(backup, restored_name)
    url = stage.env["OUTBOX_DATABASE_URL"]
    url = url.replace(str(connection.settings_dict["NAME"]), restored_name)
    (folder / "worker.beat").unlink()
    after = stage.worker(data_dir=folder, OUTBOX_DATABASE_URL=url)
    after.is_working()

    with using(restored_name):
        assert is_paused()
        assert Restore.objects.get().made_at <= made_at
        restores.after_restore(by="test")
        restores.resume(by="test", reason="looked after")
        assert not is_paused()
        await_that(at_rest)
        for intent in intents:
            known = SendIntent.objects.get(pk=intent.pk)
            is_held = known.holds == HOLD_BITS[Hold.RESTORED]
            assert known.status in NOT_SAID_TO_BE_UNSENT or is_held, known.status
        if stage.contract == "replay":
            resolve.replay(due.pk, person=operator)
            await_that(lambda: SendIntent.objects.get(pk=due.pk).status == S.SUBMITTED)
    after.kill_all()
    assert Counter(message["tag"] for message in stage.sandbox.journal()) == taken


def test_workers_that_are_killed_and_start_again_are_no_restore(
    stage: Stage, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(2):
        intent = stage.approved()
        beat = folder / "worker.beat"
        beat.unlink(missing_ok=True)
        worker = stage.worker(data_dir=folder)
        worker.is_working()
        await_that(at_rest)
        worker.kill_all()
        intent.refresh_from_db()
        assert intent.status == S.SUBMITTED, number
    assert not Restore.objects.exists()
    assert not is_paused()
