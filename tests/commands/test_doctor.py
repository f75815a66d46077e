"""The doctor, and the commands around a restore, at the command line."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from sends.conf import conf
from sends.management.commands import doctor
from sends.models import AuditEntry, Restore, Switch, SwitchKind, database_now
from sends.reports.health import Finding, Level
from sends.rules.statuses import Status
from tests.factories import make_intent

BAD = Finding("disk", Level.UNSAFE, "The disk is full.", "Make room.")
ODD = Finding("webhooks", Level.WARNING, "No webhook was ever seen.", "Let it post.")


@pytest.fixture(autouse=True)
def _forget() -> None:
    (conf.data_dir / "installation.json").unlink(missing_ok=True)


def said(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def examined(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(doctor, "examine", lambda timetable: list(findings))


def test_nothing_wrong_is_said_too(monkeypatch: pytest.MonkeyPatch) -> None:
    examined(monkeypatch)
    assert said("doctor") == "Nothing is wrong.\n"
    assert json.loads(said("doctor", "--json")) == {"findings": []}


def test_warnings_alone_are_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    examined(monkeypatch, ODD)
    assert said("doctor") == "Warning  No webhook was ever seen.\n         Let it post.\n"


def test_what_is_unsafe_comes_first_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examined(monkeypatch, ODD, BAD)
    with pytest.raises(SystemExit) as ended:
        call_command("doctor", "--json")
    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["findings"] == [
        {"check": "disk", "level": "unsafe", "what": BAD.what, "cure": BAD.cure},
        {"check": "webhooks", "level": "warning", "what": ODD.what, "cure": ODD.cure},
    ]


@pytest.mark.parametrize(
    ("time", "rule"),
    [("yesterday", "is no time"), ("2026-11-30T22:00", "has no time zone")],
)
def test_a_time_that_cannot_be_read_says_what_one_is(time: str, rule: str) -> None:
    with pytest.raises(CommandError, match=rule):
        call_command("doctor", "--after-restore", f"--backup-made-at={time}")


def test_a_time_without_a_restore_is_refused() -> None:
    with pytest.raises(CommandError, match="--after-restore"):
        call_command("doctor", "--backup-made-at=2026-11-30T22:00Z")


@pytest.mark.django_db
def test_a_backup_is_looked_after_and_resumed_from_the_command_line() -> None:
    queued, awaiting = make_intent(status=Status.QUEUED), make_intent()
    with pytest.raises(CommandError, match="Pause it first"):
        said("doctor", "--after-restore")
    assert "maintenance" in said("pause", "maintenance")
    with pytest.raises(CommandError, match="--backup-made-at"):
        said("doctor", "--after-restore")

    now = database_now()
    Restore.objects.create(kind="backup", made_at=now, noticed_at=now)
    with pytest.raises(CommandError, match="an older copy"):
        said("resume", "--moved", "never mind")
    settled = said("doctor", "--after-restore")
    assert "1 email may have been sent since" in settled
    assert "1 email to be decided, or queued for later, may have been decided" in settled
    assert said("resume", "looked after") == "Sending is on.\n"

    queued.refresh_from_db()
    awaiting.refresh_from_db()
    assert (queued.status, bool(awaiting.holds)) == (Status.UNCERTAIN, True)
    assert said("release", "not in the provider's log") == "1 email is released.\n"
    awaiting.refresh_from_db()
    assert not awaiting.holds
    assert not Switch.objects.get(kind=SwitchKind.INSTALLATION).causes
    verbs = AuditEntry.objects.filter(tenant=queued.tenant).order_by("sequence")
    assert list(verbs.values_list("verb", flat=True)) == ["turn_off", "after_restore", "turn_on"]
    assert "at the command line" in verbs[0].actor


@pytest.mark.django_db
@pytest.mark.parametrize("command", ["pause", "resume", "release"])
def test_a_reason_is_needed(command: str) -> None:
    with pytest.raises(CommandError, match="Give a reason"):
        call_command(command, " ")


def test_a_database_that_cannot_be_used_is_one_finding_among_others(
    process_env: dict[str, str], tmp_path: Path
) -> None:
    env = process_env | {"OUTBOX_DATABASE_URL": f"sqlite:///{tmp_path}/nowhere/db.sqlite3"}
    done = run(env, "doctor", "--json")
    findings = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert findings["database"]["level"] == "unsafe"


def test_a_database_that_is_not_set_up_is_said_to_lack_migrations(
    process_env: dict[str, str],
) -> None:
    done = run(process_env, "doctor")
    assert done.returncode == 1
    assert "Stop web and worker, then run: manage.py migrate" in done.stdout


def test_a_backup_from_the_command_line(process_env: dict[str, str], tmp_path: Path) -> None:
    run(process_env, "migrate", "--verbosity=0")
    file = tmp_path / "backup"
    assert f"{file} holds the database as of 2" in run(process_env, "backup", str(file)).stdout
    with closing(sqlite3.connect(file)) as copy:
        assert copy.execute("SELECT backup_at FROM sends_installation").fetchone()[0] is not None
    again = run(process_env, "backup", str(file))
    assert (again.returncode, "is there already" in again.stderr) == (1, True)


def run(env: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=settings.BASE_DIR,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
