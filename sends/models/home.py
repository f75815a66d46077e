"""Where the database is: what tells it from a copy of itself, also from one put in its place."""

import os
import re
from functools import cache
from pathlib import Path

from django.db import ProgrammingError
from django.db.backends.base.base import BaseDatabaseWrapper

from sends.models.installations import Installation

# What stays the same of a file over restarts: the numbers of its file system and of itself, the
# second alone, or elsewhere no more than its path.
KEEP_BOTH = {"ext2", "ext3", "ext4", "btrfs", "zfs"}
KEEP_INODE = {"xfs", "f2fs", "tmpfs"}
MOUNTS = Path("/proc/self/mountinfo")
CONTAINERS = (Path("/.dockerenv"), Path("/run/.containerenv"))

# A dump that is restored makes the tables anew, and a database that is promoted, or restored to a
# point in time, begins a new timeline.
ASK_POSTGRESQL = """
    SELECT concat_ws(':', system_identifier, d.oid, %s::regclass::oid,
                     left(pg_walfile_name(pg_current_wal_lsn()), 8))
    FROM pg_control_system(), pg_database d WHERE d.datname = current_database()
"""


def home_of(connection: BaseDatabaseWrapper) -> str:
    """A mark of the place of this database; "" where nothing can be said.

    It survives restarts, migrations and VACUUM; a restored or copied database has another. Ask
    outside of transactions.
    """
    if connection.vendor == "postgresql":
        return _of_server(connection)
    file = Path(connection.settings_dict["NAME"])
    return _of_file(file) if file.exists() else ""


@cache
def filesystem_of(path: Path) -> str:
    """The type of the file system on which this path is, as "ext4"; "" where nobody says."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    path, found, kind = path.resolve(), Path(), ""
    for line in lines:
        before, _, after = line.partition(" - ")
        mounted = Path(_unescaped(before.split()[4]))
        # Of two that are mounted on one place the later one is seen.
        if path.is_relative_to(mounted) and len(mounted.parts) >= len(found.parts):
            found, kind = mounted, after.split()[0]
    return kind


def _of_server(connection: BaseDatabaseWrapper) -> str:
    with connection.cursor() as cursor:
        try:
            cursor.execute(ASK_POSTGRESQL, [Installation._meta.db_table])
        except ProgrammingError:  # some hosts forbid it
            return ""
        return str(cursor.fetchone()[0])


def _of_file(file: Path) -> str:
    kind, inode = filesystem_of(file), file.stat().st_ino
    if kind in KEEP_BOTH:
        return f"{_machine()}:{os.statvfs(file).f_fsid:x}:{inode}"
    if kind in KEEP_INODE:
        return f"{_machine()}:{inode}"
    return f"{_machine()}:{file.resolve()}"


def _machine() -> str:
    """The id of the operating system; none in a container, where it comes with the image."""
    if any(mark.exists() for mark in CONTAINERS) or "KUBERNETES_SERVICE_HOST" in os.environ:
        return ""
    try:
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _unescaped(text: str) -> str:
    """As the kernel writes paths: a space is "\\040"."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
