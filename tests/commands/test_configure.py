"""`manage.py configure`: what it prints and how it ends."""

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from sends.models import Tenant, Token
from sends.rules.keys import sha256

pytestmark = pytest.mark.django_db

TEXT = """\
[[tenants]]
slug = "acme"

[[tenants.agents]]
slug = "bot"
tokens = [{ name = "first" }]

[[tenants.people]]
email = "admin@example.com"
role = "admin"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(TEXT)
    return path


def said(*words: object) -> list[str]:
    out = StringIO()
    call_command("configure", *map(str, words), stdout=out)
    return out.getvalue().splitlines()


def test_it_prints_what_changed_and_the_token_once(file: Path) -> None:
    *lines, empty, label, token = said(file)
    assert lines == [
        "create tenant acme",
        "create policy acme",
        "create agent acme/bot",
        "create token bot/first",
        "create person admin@example.com",
        "create role of admin@example.com in acme",
        (
            "These have no password yet: admin@example.com."
            " `manage.py changepassword EMAIL` sets one."
        ),
    ]
    assert (empty, label) == ("", "Token first of agent bot, shown this once:")
    assert Token.objects.get().digest == sha256(token.encode())


def test_the_second_time_it_says_that_there_is_nothing_to_change(file: Path) -> None:
    said(file)
    first, second, *_ = said(file)
    assert (first, second) == ("Nothing to change.", "unchanged: 5")


def test_a_dry_run_prints_the_changes_no_token_and_keeps_nothing(file: Path) -> None:
    lines = said(file, "--dry-run")
    assert lines[0] == "create tenant acme"
    assert lines[-1] == "This was a dry run; nothing was changed."
    assert not any(line.startswith("obx_") for line in lines)
    assert not Tenant.objects.exists()


def test_a_wrong_file_ends_it_with_every_mistake_and_its_line(file: Path) -> None:
    file.write_text(TEXT.replace("slug", "slag"))
    with pytest.raises(CommandError) as caught:
        said(file)
    first, *_, last = str(caught.value).splitlines()
    assert first.startswith(f"{file}:1: [[tenants]] needs slug.")
    assert f"{file}:2: slag is not known here; known are slug, " in str(caught.value)
    assert last == "Nothing was changed."


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file or directory"), (b"\xff\xfe", "it is not UTF-8 text")]
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "other.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CommandError, match=f"other.toml cannot be read: {why}"):
        said(path)


def test_a_database_without_the_ledger_is_one_sentence(tmp_path: Path, file: Path) -> None:
    said = refused(tmp_path, file, f"sqlite:///{tmp_path}/empty.sqlite3")
    assert said == "CommandError: The database is not set up yet. Run: manage.py migrate\n"


def test_a_database_that_does_not_answer_is_named(tmp_path: Path, file: Path) -> None:
    said = refused(tmp_path, file, "postgres://nobody@127.0.0.1:1/outbox")
    assert said.startswith("CommandError: The database cannot be used: ")
    assert "Traceback" not in said


def refused(data_dir: Path, file: Path, database: str) -> str:
    """What `configure` says on standard error when it refuses to begin."""
    done = subprocess.run(
        [sys.executable, "manage.py", "configure", str(file)],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "outbox_admin.settings"}
        | {"OUTBOX_DATA_DIR": str(data_dir), "OUTBOX_DATABASE_URL": database},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout
    return done.stderr
