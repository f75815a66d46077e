"""`manage.py verify_audit` and `export_audit`: what they print and how they end."""

import os
import resource
import signal
import subprocess
import sys
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import transaction

from sends.lifecycle import audit, chain
from sends.management.commands.export_audit import write
from sends.models import AuditEntry, Tenant, database_now
from tests.factories import make_tenant
from tests.lifecycle.tampering import no_triggers

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant() -> Tenant:
    tenant = make_tenant(keep_audit=timedelta(days=30))
    for age in (90, 60, 1):
        with transaction.atomic():
            audit.record(
                tenant=tenant,
                actor="lead@example.com",
                verb="approve",
                target="message:7/v1",
                now=database_now() - timedelta(days=age),
            )
    return tenant


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def said(*words: object) -> str:
    out = StringIO()
    call_command(*map(str, words), stdout=out)
    return out.getvalue()


def test_a_whole_log_is_said_to_be_unbroken_with_its_end(tenant: Tenant) -> None:
    last = AuditEntry.objects.get(sequence=3)
    assert said("verify_audit") == (
        f"{tenant.slug}: unbroken, 3 entries. Entry 3 has the hash {last.hash}.\n"
    )


def test_a_broken_log_ends_it_with_the_first_wrong_entry(tenant: Tenant) -> None:
    with no_triggers(AuditEntry):
        AuditEntry.objects.filter(sequence=2).update(reason="other")
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("verify_audit", stdout=out)
    assert "BROKEN: entry 2 of" in out.getvalue()


def test_an_export_is_written_and_compared_with(tenant: Tenant, file: Path) -> None:
    assert said("export_audit", "--output", file) == (
        f"{file}: 3 entries of {tenant.slug}, up to 3.\n"
    )
    assert len(file.read_text().splitlines()) == 4
    assert "unbroken" in said("verify_audit", "--against", file)
    with no_triggers(AuditEntry):
        AuditEntry.objects.filter(sequence=3).delete()
    with pytest.raises(CommandError):
        said("verify_audit", "--against", file)


def test_an_export_is_printed_where_no_file_is_named(tenant: Tenant) -> None:
    assert len(said("export_audit", "--tenant", tenant.slug).splitlines()) == 4


def test_an_export_never_replaces_a_file(tenant: Tenant, file: Path) -> None:
    file.write_text("mine")
    with pytest.raises(CommandError, match="there already"):
        said("export_audit", "--output", file)
    assert file.read_text() == "mine"


def test_what_is_old_enough_is_deleted_once_it_is_in_the_file(tenant: Tenant, file: Path) -> None:
    assert "Deleted: 2, up to entry 2" in said("export_audit", "--output", file, "--truncate")
    assert "since the checkpoint at entry 2" in said("verify_audit", "--against", file)


def test_nothing_is_deleted_that_is_in_no_file(tenant: Tenant) -> None:
    with pytest.raises(CommandError, match="--output"):
        said("export_audit", "--truncate")
    assert AuditEntry.objects.count() == 3


def test_nothing_of_a_broken_log_is_deleted(tenant: Tenant, file: Path) -> None:
    with no_triggers(AuditEntry):
        AuditEntry.objects.filter(sequence=2).update(reason="other")
    with pytest.raises(CommandError, match="entry 2"):
        said("export_audit", "--output", file, "--truncate")
    assert AuditEntry.objects.count() == 3
    assert not file.exists()


def test_a_file_that_is_no_export_is_named(tenant: Tenant, file: Path) -> None:
    file.write_text('{"sequence": 1}\n')
    with pytest.raises(CommandError, match="is no export of this log"):
        said("verify_audit", "--against", file)
    with pytest.raises(CommandError, match="cannot be read"):
        said("verify_audit", "--against", file.with_name("missing"))


def test_a_tenant_has_to_be_named_where_there_are_several(tenant: Tenant) -> None:
    other = make_tenant()
    with pytest.raises(CommandError, match="--tenant"):
        said("export_audit")
    with pytest.raises(CommandError, match=f"{other.slug}"):
        said("verify_audit", "--tenant", "nobody")
    assert len(said("verify_audit").splitlines()) == 2


def test_an_export_that_cannot_be_written_whole_leaves_no_file(tenant: Tenant, file: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(CommandError, match="cannot be written: File too large"):
            write(chain.export(tenant), file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not file.exists()


@pytest.mark.django_db(transaction=True)
def test_a_command_that_is_interrupted_ends_with_one_word(
    tmp_path: Path, process_env: dict[str, str], database_url: str
) -> None:
    make_tenant()
    fifo = tmp_path / "audit.jsonl"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [sys.executable, "manage.py", "verify_audit", "--against", str(fifo)],
        env=process_env | {"OUTBOX_DATABASE_URL": database_url},
        cwd=settings.BASE_DIR,
        stderr=subprocess.PIPE,
        text=True,
    )
    with fifo.open("w"):  # it is there once the command reads
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "Stopped.\n")
