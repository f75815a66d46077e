"""A copy of the whole database in one file: as it was at one moment, whole or not there at all."""

import fcntl
import os
import sqlite3
import subprocess
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from django.db import DatabaseError, connection

from sends.models import Installation, database_now


class BackupFailed(Exception):
    """Why there is no backup, and what can be done."""


def back_up(file: Path) -> datetime:
    """Write a backup to a new file, while everything runs; the moment of which it is.

    Wherever it is put in place the installation starts paused. Raises BackupFailed, and then
    there is no such file of ours.
    """
    if os.path.lexists(file):
        raise BackupFailed(f"{file} is there already; give another name.")
    draft = file.with_name(f".{file.name}.draft")
    try:
        # Emptied only once it is ours: another backup may be writing it.
        with open(draft, "ab", opener=_for_its_owner) as lock:
            os.fchmod(lock.fileno(), 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _require_same(draft, lock.fileno())
            os.truncate(draft, 0)
            made_at = _dump(draft, lock.fileno())
            os.fsync(lock.fileno())
            file.touch(0o600, exist_ok=False)  # what has appeared meanwhile is not replaced
            draft.rename(file)
    except BlockingIOError:
        raise BackupFailed(f"Another backup to {file} is being written.") from None
    except (OSError, DatabaseError, sqlite3.Error, BackupFailed) as error:
        with suppress(OSError):
            draft.unlink()
        raise BackupFailed(f"{file} was not written: {_words(error)}") from None
    _sync_folder(file.parent)
    return made_at


def _for_its_owner(path: str, flags: int) -> int:
    """Not where a link leads, which somebody else may have put there."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _require_same(draft: Path, lock: int) -> None:
    """What was opened may have become somebody's backup before it was locked."""
    try:
        is_same = os.path.samestat(os.lstat(draft), os.fstat(lock))
    except FileNotFoundError:
        is_same = False
    if not is_same:
        raise BlockingIOError


def _dump(draft: Path, lock: int) -> datetime:
    made_at = database_now()  # before the copy begins: what is sent from now on may be missing
    if connection.vendor == "postgresql":
        _dump_postgresql(draft, lock)
    else:
        _dump_sqlite(draft, made_at)
    return made_at


def _dump_sqlite(draft: Path, made_at: datetime) -> None:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(draft)])
    marked = f"UPDATE {Installation._meta.db_table} SET backup_at = ?"
    with closing(sqlite3.connect(draft)) as copy, copy:
        copy.execute(marked, [connection.ops.adapt_datetimefield_value(made_at)])


def _dump_postgresql(draft: Path, lock: int) -> None:
    """By pg_dump. A database that is made of it differs from this one, whatever its name.

    It holds the lock too: it goes on writing where we are killed.
    """
    settings = connection.settings_dict
    names = {
        "PGHOST": settings["HOST"],
        "PGPORT": settings["PORT"],
        "PGUSER": settings["USER"],
        "PGPASSWORD": settings["PASSWORD"],
        "PGDATABASE": settings["NAME"],
    }
    command = ["pg_dump", "--format=custom", f"--file={draft}"]
    env = os.environ | {name: str(value) for name, value in names.items() if value}
    try:
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, pass_fds=[lock]
        )
    except FileNotFoundError:
        raise BackupFailed(
            "pg_dump is not on the path. Install the client programs of PostgreSQL, of the"
            " server's version or newer."
        ) from None
    if done.returncode:
        raise BackupFailed(done.stderr.strip() or f"pg_dump ended with {done.returncode}")


def _sync_folder(folder: Path) -> None:
    """Or a power failure may forget the name of the file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
