"""What is wrong or unsafe: each check meets what it is for, made wrong in earnest."""

import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django_q.models import Schedule

from sends import schedule
from sends.conf import conf
from sends.lifecycle import beats, restores
from sends.models import (
    AnomalyKind,
    Attempt,
    Beat,
    EventState,
    Installation,
    Program,
    ProviderEvent,
    Restore,
    RestoreKind,
    SendIntent,
    Switch,
    database_now,
    home,
)
from sends.reports.health import (
    Finding,
    Level,
    accounts,
    backlog,
    database,
    examine,
    machine,
    programs,
    set_up,
)
from sends.rules.deliveries import EventKind
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import make_account, make_agent_at, make_attempt, make_intent, make_tenant
from tests.ports import free_port

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
NAMES = set(schedule.TIMETABLE)


@pytest.fixture(autouse=True)
def _fresh_folder() -> Iterator[None]:
    yield
    (conf.data_dir / "installation.json").unlink(missing_ok=True)


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, Any]:
    """The columns of an account whose secrets can be read, by nobody else."""
    for name in ("credential", "webhook"):
        (tmp_path / name).write_text(f"a-{name}-of-this-test")
        (tmp_path / name).chmod(0o600)
    return {
        "credential": f"file:{tmp_path / 'credential'}",
        "webhook_secrets": [f"file:{tmp_path / 'webhook'}"],
    }


def only(findings: Iterator[Finding]) -> Finding:
    (found,) = findings
    assert found.what.endswith(".")
    assert found.cure
    return found


def nothing(*checks: Callable[[], Iterator[Finding]]) -> None:
    assert [finding for check in checks for finding in check()] == []


# All together


def keep_to_the_timetable() -> None:
    """The rows may be as old as the database, and nobody has run them since."""
    schedule.sync()
    Schedule.objects.update(next_run=database_now())


def test_a_healthy_installation_has_nothing_wrong(secrets: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as provider:
        port = provider.getsockname()[1]
        make_account(make_tenant(), base_url=f"http://127.0.0.1:{port}", **secrets)
        beats.beat(Program.WORKER)
        beats.beat(Program.WEB)
        keep_to_the_timetable()
        found = {finding.check: finding for finding in examine(NAMES)}
    # The server of the tests is thrown away, so it need not keep what it commits.
    found.pop("durability", None) if connection.vendor == "postgresql" else None
    assert list(found.values()) == []


def test_a_check_that_fails_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "disk_usage", fails)
    keep_to_the_timetable()
    found = {finding.check: finding for finding in examine(NAMES)}
    assert "disk nearly full: [Errno 13] Permission denied" in found["disk_nearly_full"].what
    assert "worker" in found


# Settings


def test_plain_http_over_the_internet_is_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing(set_up.plain_http)
    monkeypatch.setattr(set_up, "conf", conf_with(url="http://outbox.example.com"))
    assert only(set_up.plain_http()).level is Level.UNSAFE
    monkeypatch.setattr(set_up, "conf", conf_with(url="https://outbox.example.com"))
    nothing(set_up.plain_http)


def test_debug_pages_are_unsafe_wherever(settings: Any) -> None:
    nothing(set_up.debug_pages)
    settings.DEBUG = True
    assert only(set_up.debug_pages()).level is Level.UNSAFE


def test_cookies_without_secure_matter_on_the_internet(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.SESSION_COOKIE_SECURE = False
    nothing(set_up.insecure_settings)
    monkeypatch.setattr(set_up, "conf", conf_with(url="https://outbox.example.com"))
    assert "security.W012" in {finding.check for finding in set_up.insecure_settings()}


def conf_with(**changed: Any) -> Any:
    return replace(conf, **changed)


# The machine


@pytest.mark.parametrize(
    ("free", "level"), [(20, None), (9, Level.WARNING), (2, Level.UNSAFE)], ids=str
)
def test_a_disk_that_fills_up(
    monkeypatch: pytest.MonkeyPatch, free: int, level: Level | None
) -> None:
    usage = shutil._ntuple_diskusage(total=100, used=100 - free, free=free)  # type: ignore[attr-defined]
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert {finding.level for finding in machine.disk_nearly_full()} == ({level} - {None})


def test_a_secret_that_others_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "conf", conf_with(data_dir=tmp_path))
    (tmp_path / "secret-key").write_text("x")
    (tmp_path / "secret-key").chmod(0o644)
    tmp_path.chmod(0o755)
    assert str(tmp_path / "secret-key") in only(machine.folder_open_to_others()).what
    tmp_path.chmod(0o700)
    nothing(machine.folder_open_to_others)


def test_a_database_on_a_network_share_is_unsafe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = Path(str(connection.settings_dict["NAME"])).parent
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"2 1 0:50 / {str(folder).replace(' ', chr(92) + '040')} rw - nfs4 server:/x rw\n"
    )
    monkeypatch.setattr(home, "MOUNTS", mounts)
    home.filesystem_of.cache_clear()
    try:
        found = list(machine.database_on_network_share())
    finally:
        home.filesystem_of.cache_clear()
    if connection.vendor == "sqlite":
        assert "nfs4" in only(iter(found)).what
    else:
        assert found == []


# The database


@pytest.mark.django_db(transaction=True)
def test_a_missing_trigger_is_unsafe() -> None:
    nothing(database.missing_triggers)
    table = ' ON "sends_attempt"' if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f'DROP TRIGGER "attempt_closed"{table}')
    assert "attempt_closed" in only(database.missing_triggers()).what


def test_a_migration_that_was_not_applied_is_unsafe() -> None:
    nothing(database.unapplied_migrations)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'sends'")
    found = only(database.unapplied_migrations())
    assert "sends 0001_initial" in found.what
    assert [one.check for one in examine(NAMES) if one.level is Level.UNSAFE][-1] == "migrations"


@pytest.mark.django_db(transaction=True)
def test_commits_that_a_power_failure_forgets_are_unsafe() -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            nothing(database.forgetful_commits)
            cursor.execute("PRAGMA synchronous = NORMAL")
        else:
            cursor.execute("SET synchronous_commit = off")
        try:
            found = list(database.forgetful_commits())
        finally:
            cursor.execute(
                "PRAGMA synchronous = FULL"
                if connection.vendor == "sqlite"
                else "SET synchronous_commit = DEFAULT"
            )
    setting = "SYNCHRONOUS" if connection.vendor == "sqlite" else "synchronous_commit"
    assert any(setting in finding.what for finding in found)


def test_a_restore_that_nobody_looked_after_is_unsafe() -> None:
    nothing(database.restored_or_copied)
    now = database_now()
    restore = Restore.objects.create(kind=RestoreKind.OLDER, made_at=now, noticed_at=now)
    found = only(database.restored_or_copied())
    assert (found.level, "resume" in found.cure) == (Level.UNSAFE, False)
    Restore.objects.update(kind=RestoreKind.ELSEWHERE)
    assert "only moved" in only(database.restored_or_copied()).cure
    Restore.objects.filter(pk=restore.pk).update(settled_at=now)
    nothing(database.restored_or_copied)


def test_a_backup_that_nothing_was_started_with_says_so() -> None:
    Installation.objects.update(backup_at=database_now())
    assert only(database.restored_or_copied()).level is Level.WARNING


# Programs


def test_a_worker_that_is_silent() -> None:
    assert only(programs.silent_worker()).level is Level.WARNING
    beats.beat(Program.WORKER)
    nothing(programs.silent_worker)
    Beat.objects.update(at=database_now() - HOUR)
    assert "since 2" in only(programs.silent_worker()).what


def test_a_scheduler_that_is_silent_inside_a_worker_that_lives() -> None:
    keep_to_the_timetable()
    beats.beat(Program.WORKER)
    nothing(programs.silent_scheduler)
    Schedule.objects.filter(name="outbox: sweep").update(next_run=database_now() - HOUR)
    assert "outbox: sweep" in only(programs.silent_scheduler()).what


def test_a_timetable_that_lacks_a_row() -> None:
    keep_to_the_timetable()
    assert list(programs.missing_schedules(NAMES)) == []
    Schedule.objects.filter(name="outbox: drain").delete()
    assert "outbox: drain" in only(programs.missing_schedules(NAMES)).what


@pytest.mark.parametrize("differs", ["url", "key_fingerprint"])
def test_programs_of_two_installations_on_one_database(differs: str) -> None:
    beats.beat(Program.WEB)
    beats.beat(Program.WORKER)
    nothing(programs.several_installations)
    Beat.objects.filter(program=Program.WEB).update(**{differs: "other"})
    assert only(programs.several_installations()).level is Level.UNSAFE
    Beat.objects.filter(program=Program.WEB).update(at=database_now() - HOUR)
    nothing(programs.several_installations)


@pytest.mark.parametrize(
    ("off", "level"), [(2, None), (-20, Level.WARNING), (200, Level.UNSAFE)], ids=str
)
def test_a_clock_that_differs_from_the_databases(off: int, level: Level | None) -> None:
    beats.beat(Program.WORKER)
    wrong = database_now() + timedelta(seconds=off)
    Beat.objects.update(own_clock=wrong, at=database_now())
    assert {finding.level for finding in programs.differing_clocks()} == ({level} - {None})


def test_a_clock_that_was_set_back() -> None:
    beats.beat(Program.WORKER)
    make_attempt(make_intent(status=Status.IN_FLIGHT))
    nothing(programs.time_in_the_future)
    make_attempt(make_intent(status=Status.IN_FLIGHT), opened_at=database_now() + HOUR)
    assert Attempt.objects.count() == 2
    assert only(programs.time_in_the_future()).level is Level.UNSAFE


# Accounts


def test_secrets_that_cannot_be_read(secrets: dict[str, Any], tmp_path: Path) -> None:
    make_account(make_tenant(), **secrets)
    nothing(accounts.unreadable_credentials, accounts.credentials_open_to_others)
    (tmp_path / "credential").unlink()
    found = only(accounts.unreadable_credentials())
    assert (found.level, "No such file" in found.what) == (Level.UNSAFE, True)


def test_a_variable_that_is_not_set_here_may_be_set_there(secrets: dict[str, Any]) -> None:
    make_account(make_tenant(), **secrets | {"credential": "env:OUTBOX_NO_SUCH_KEY"})
    assert only(accounts.unreadable_credentials()).level is Level.WARNING


def test_a_secret_file_that_everybody_may_read(secrets: dict[str, Any], tmp_path: Path) -> None:
    make_account(make_tenant(), **secrets)
    (tmp_path / "webhook").chmod(0o644)
    assert "webhook secret" in only(accounts.credentials_open_to_others()).what


def test_webhooks_without_a_secret(secrets: dict[str, Any]) -> None:
    make_account(make_tenant(), **secrets | {"webhook_secrets": []})
    assert only(accounts.missing_webhook_secrets()).level is Level.WARNING


def test_webhooks_that_were_never_seen_though_emails_were_accepted(
    secrets: dict[str, Any],
) -> None:
    agent = make_agent_at(**secrets)
    make_intent(agent, status=Status.SUBMITTED)
    nothing(accounts.silent_webhooks)  # it is not an hour yet
    make_intent(agent, status=Status.SUBMITTED, now=database_now() - 2 * HOUR)
    assert agent.sender is not None
    account = agent.sender.account
    assert f"/webhooks/{account.slug}" in only(accounts.silent_webhooks()).cure
    account.webhook_seen_at = database_now()
    account.save()
    nothing(accounts.silent_webhooks)


def test_a_provider_that_cannot_be_reached() -> None:
    tenant, url = make_tenant(), f"http://127.0.0.1:{free_port()}"
    for _ in range(2):
        make_account(tenant, base_url=url)
    found = only(accounts.unreachable_providers())
    assert (found.level, "Connection refused" in found.what) == (Level.UNSAFE, True)


def test_a_provider_that_can_be_reached_is_sent_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as provider:
        make_account(make_tenant(), base_url=f"http://127.0.0.1:{provider.getsockname()[1]}")
        nothing(accounts.unreachable_providers)
        connected, _ = provider.accept()
        with connected:
            assert connected.recv(1) == b""


# What waits


def test_everything_that_is_paused_with_its_reason() -> None:
    agent = make_agent_at()
    restores.pause(by="test", reason="maintenance")
    Switch.objects.filter(pk=agent.tenant_id).update(causes=1, pause_reason="a complaint")
    found = [finding.what for finding in backlog.paused()]
    assert len(found) == 2
    assert any("All sending" in what and "maintenance" in what for what in found)
    assert any(str(agent.tenant) in what and "a complaint" in what for what in found)


def test_emails_that_are_overdue() -> None:
    make_intent(status=Status.QUEUED)
    nothing(backlog.overdue)
    old = make_intent(status=Status.QUEUED)
    SendIntent.objects.filter(pk=old.pk).update(next_attempt_at=database_now() - HOUR)
    assert only(backlog.overdue()).level is Level.UNSAFE
    Switch.objects.filter(pk=old.account_id).update(causes=1)
    nothing(backlog.overdue)


def test_what_a_restore_holds_is_not_forgotten() -> None:
    make_intent(holds=HOLD_BITS[Hold.ANOMALY])
    make_intent(status=Status.CANCELLED, holds=HOLD_BITS[Hold.RESTORED])
    nothing(backlog.held_since_a_restore)
    make_intent(holds=HOLD_BITS[Hold.RESTORED])
    assert only(backlog.held_since_a_restore()).what.startswith("1 email is held")


def test_uncertain_emails_anomalies_and_failed_events() -> None:
    nothing(backlog.uncertain, backlog.open_anomalies, backlog.failed_events)
    intent = make_intent(status=Status.UNCERTAIN)
    intent.anomalies.create(
        tenant=intent.tenant,
        action=intent.action,
        kind=AnomalyKind.TWICE,
        detail="twice",
        opened_at=database_now(),
    )
    ProviderEvent.objects.create(
        account=intent.account,
        event_id="1",
        fingerprint="1",
        kind=EventKind.DELIVERED,
        occurred_at=database_now(),
        received_at=database_now(),
        raw=b"{}",
        state=EventState.FAILED,
    )
    assert only(backlog.uncertain()).level is Level.WARNING
    assert only(backlog.open_anomalies()).level is Level.UNSAFE
    assert only(backlog.failed_events()).level is Level.WARNING
