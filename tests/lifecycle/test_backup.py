"""A copy of the whole database in one file: as it was at one moment, whole or not there at all."""

import fcntl
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction

from sends.lifecycle import backup
from sends.lifecycle.backup import BackupFailed, back_up
from sends.models import Installation, database_now
from tests.factories import make_agent_at, make_intent
from tests.lifecycle.races import wait_until_someone_waits_for_a_lock

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _pg_dump(database_kind: str) -> None:
    if database_kind == "postgresql" and shutil.which("pg_dump") is None:
        pytest.skip("no pg_dump and pg_restore on the path")


def asked(file: Path, question: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as copy:
        return copy.execute(question).fetchall()


def assert_whole(file: Path) -> None:
    if connection.vendor == "sqlite":
        assert asked(file, "PRAGMA integrity_check") == [("ok",)]
        assert asked(file, "PRAGMA foreign_key_check") == []
        guards = "SELECT 1 FROM sqlite_master WHERE name = 'intent_transition'"
        assert asked(file, guards) == [(1,)]
        return
    command = ["pg_restore", "--file=-", str(file)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "COPY public.sends_sendintent" in said
    assert "CREATE TRIGGER intent_transition" in said
    assert "PostgreSQL database dump complete" in said


def test_it_is_for_its_owner_alone_and_of_a_time_before_it_was_made(tmp_path: Path) -> None:
    file = tmp_path / "backup"
    began = database_now()

    made_at = back_up(file)

    assert began <= made_at <= database_now()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "backup"
    file.write_text("the last one")
    with pytest.raises(BackupFailed, match="is there already"):
        back_up(file)
    assert file.read_text() == "the last one"


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="No such file or directory"):
        back_up(tmp_path / "nowhere" / "backup")


def test_one_that_fails_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_dump", full)
    with pytest.raises(BackupFailed, match="No space left on device"):
        back_up(tmp_path / "backup")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_one_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".backup.draft").write_text("half of it")
    back_up(tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


def test_a_file_that_appears_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, dump = tmp_path / "backup", backup._dump

    def while_another_comes(draft: Path, lock: int) -> object:
        file.write_text("another")
        return dump(draft, lock)

    monkeypatch.setattr(backup, "_dump", while_another_comes)
    with pytest.raises(BackupFailed, match="File exists"):
        back_up(file)
    assert file.read_text() == "another"
    assert [path.name for path in tmp_path.iterdir()] == ["backup"]


@pytest.mark.parametrize("name", ["backup", ".backup.draft"])
def test_nothing_is_written_where_a_link_leads(tmp_path: Path, name: str) -> None:
    (tmp_path / "of-another").write_text("as it was")
    (tmp_path / name).symlink_to(tmp_path / "of-another")
    with pytest.raises(BackupFailed):
        back_up(tmp_path / "backup")
    assert (tmp_path / "of-another").read_text() == "as it was"


def test_of_two_that_write_one_file_the_second_gives_up(tmp_path: Path) -> None:
    file, said = tmp_path / "backup", []

    def second() -> None:
        try:
            back_up(file)
        except BackupFailed as failed:
            said.append(str(failed))
        finally:
            connection.close()

    dump = backup._dump

    def while_the_first_writes(draft: Path, lock: int) -> object:
        other = threading.Thread(target=second)
        other.start()
        other.join()
        return dump(draft, lock)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup, "_dump", while_the_first_writes)
        back_up(file)

    assert said == [f"Another backup to {file} is being written."]
    assert file.exists()


@pytest.mark.parametrize("is_begun", [False, True], ids=["done", "a third has begun"])
def test_a_draft_that_became_a_backup_before_it_was_locked_is_left_alone(
    tmp_path: Path, is_begun: bool
) -> None:
    file, draft = tmp_path / "backup", tmp_path / ".backup.draft"

    def lock_late(lock: Any, operation: int) -> None:
        draft.rename(file)
        file.write_text("whole")
        if is_begun:
            draft.write_text("begun")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", lock_late)
        with pytest.raises(BackupFailed, match="is being written"):
            back_up(file)

    assert file.read_text() == "whole"
    assert not is_begun or draft.read_text() == "begun"


def test_what_a_killed_one_still_writes_is_not_written_by_the_next(
    tmp_path: Path,
    process_env: dict[str, str],
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite writes the copy in the process that is killed")
    file = tmp_path / "backup"
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("LOCK TABLE sends_payload IN ACCESS EXCLUSIVE MODE")
        process = subprocess.Popen(
            [sys.executable, "manage.py", "backup", str(file)],
            env=process_env | {"OUTBOX_DATABASE_URL": database_url},
            cwd=settings.BASE_DIR,
        )
        wait_until_someone_waits_for_a_lock()  # that is pg_dump
        process.kill()
        process.wait()
        monkeypatch.setenv("PATH", str(tmp_path))  # a second pg_dump would wait for ever
        with pytest.raises(BackupFailed, match="Another backup to"):
            back_up(file)


def test_it_is_of_one_moment_while_others_write(tmp_path: Path) -> None:
    agent, stop = make_agent_at(), threading.Event()

    def write() -> None:
        try:
            while not stop.is_set():
                make_intent(agent)
        finally:
            connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(3):
            back_up(tmp_path / f"{number}")
    finally:
        stop.set()
        writer.join()

    for file in tmp_path.iterdir():
        assert_whole(file)


def test_on_sqlite_the_copy_is_marked_and_the_original_is_not(tmp_path: Path) -> None:
    if connection.vendor != "sqlite":
        return  # a dump has a mark without any: what is made of it is another database
    file = tmp_path / "backup"
    made_at = back_up(file)
    marked = str(made_at.replace(tzinfo=None))
    assert asked(file, "SELECT backup_at FROM sends_installation") == [(marked,)]
    assert Installation.objects.get().backup_at is None


def test_without_pg_dump_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackupFailed, match="Install the client programs of PostgreSQL"):
        backup._dump_postgresql(tmp_path / "backup", lock=0)
