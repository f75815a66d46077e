"""The machine on which this is asked: its disk, and who else may read it."""

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from django.db import connection

from sends.conf import conf
from sends.models.home import filesystem_of
from sends.reports.health.findings import Finding, unsafe, warning

TIGHT, FULL = 0.10, 0.03  # of the disk that is left
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}
PRIVATE = ("secret-key", "outbox.sqlite3", "demo.json")


def disk_nearly_full() -> Iterator[Finding]:
    for folder in dict.fromkeys((conf.data_dir, *_database_folder())):
        disk = shutil.disk_usage(folder)
        left = disk.free / disk.total
        if left < TIGHT:
            make = unsafe if left < FULL else warning
            yield make(
                "disk",
                f"Of the disk under {folder} {left:.1%} are left ({disk.free:,} bytes). When it is"
                " full nothing can be saved, not even what a provider answered.",
                "Make room: `manage.py purge`, older backups, logs; or a larger disk.",
            )


def folder_open_to_others() -> Iterator[Finding]:
    for name in PRIVATE:
        path = conf.data_dir / name
        if path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            if not conf.data_dir.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH):
                continue  # nobody else gets as far as the file
            yield warning(
                "permissions",
                f"Others on this machine may read {path}.",
                f"chmod go= {path}",
            )


def database_on_network_share() -> Iterator[Finding]:
    for folder in _database_folder():
        kind = filesystem_of(folder)
        if kind in NETWORK:
            yield unsafe(
                "network_share",
                f"The SQLite file is on a network share ({kind}). Its locks do not hold there:"
                " two workers may send the same email.",
                "Move it to a disk of this machine, or use PostgreSQL.",
            )


def _database_folder() -> Iterator[Path]:
    if connection.vendor == "sqlite":
        yield Path(connection.settings_dict["NAME"]).parent
