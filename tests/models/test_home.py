"""Where the database is: what tells it from a copy of itself."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from sends.models import home
from sends.models.home import filesystem_of, home_of

MACHINE = "0123456789abcdef"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "outbox.sqlite3"
    path.write_bytes(b"a database")
    return path


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A table of mounts that the test writes."""
    path = tmp_path / "mountinfo"
    monkeypatch.setattr(home, "MOUNTS", path)
    filesystem_of.cache_clear()
    yield path
    filesystem_of.cache_clear()


def on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "filesystem_of", lambda path: kind)
    monkeypatch.setattr(home, "_machine", lambda: MACHINE)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", ""])
def test_a_file_that_is_written_and_vacuumed_stays_at_home(
    file: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    on(kind, monkeypatch)
    before = home._of_file(file)
    file.write_bytes(b"more of it")
    assert home._of_file(file) == before


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", ""])
def test_a_copy_in_another_place_is_another_database(
    file: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    on(kind, monkeypatch)
    copy = Path(shutil.copy2(file, file.with_name("copy.sqlite3")))
    assert home._of_file(copy) != home._of_file(file)


@pytest.mark.parametrize(("kind", "is_same"), [("ext4", True), ("xfs", True), ("overlay", False)])
def test_a_renamed_folder_is_the_same_place_where_files_keep_their_numbers(
    file: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_same: bool
) -> None:
    on(kind, monkeypatch)
    before = home._of_file(file)
    moved = file.rename(file.with_name("moved.sqlite3"))
    assert (home._of_file(moved) == before) is is_same


def test_another_machine_is_another_place(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on("ext4", monkeypatch)
    here = home._of_file(file)
    monkeypatch.setattr(home, "_machine", lambda: "another one")
    assert home._of_file(file) != here


@pytest.mark.django_db
def test_a_database_asked_twice_is_at_home() -> None:
    mark = home_of(connection)
    assert mark
    connection.close() if not connection.in_atomic_block else None
    assert home_of(connection) == mark


def test_the_innermost_and_last_mount_says_the_file_system(mounts: Path) -> None:
    mounts.write_text(
        "21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        "22 21 8:2 / /data rw shared:2 - xfs /dev/sdb1 rw\n"
        "23 22 0:50 / /data/a\\040share rw - nfs4 server:/x rw\n"
        "24 23 0:51 / /data/a\\040share rw - cifs //server/x rw\n"
    )
    assert filesystem_of(Path("/somewhere/else")) == "ext4"
    assert filesystem_of(Path("/data/outbox.sqlite3")) == "xfs"
    assert filesystem_of(Path("/database")) == "ext4"
    assert filesystem_of(Path("/data/a share/outbox.sqlite3")) == "cifs"


def test_where_no_mounts_can_be_read_nothing_is_said(mounts: Path) -> None:
    assert filesystem_of(Path("/data")) == ""
