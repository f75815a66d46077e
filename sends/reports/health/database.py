"""The database: whether it guards the ledger, keeps what it commits, and is the one it was."""

from collections.abc import Iterator

from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from sends.models import Installation, Restore, RestoreKind, triggers
from sends.reports.health.findings import Finding, unsafe, warning


def unapplied_migrations() -> Iterator[Finding]:
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if plan:
        names = ", ".join(f"{migration.app_label} {migration.name}" for migration, _ in plan)
        yield unsafe(
            "migrations",
            f"The database is not as this version needs it; it lacks {names}.",
            "Stop web and worker, then run: manage.py migrate",
        )


def missing_triggers() -> Iterator[Finding]:
    if absent := triggers.missing(connection):
        yield unsafe(
            "triggers",
            f"The database lacks triggers that guard the ledger: {', '.join(absent)}. Until they"
            " are back nothing is sent and nothing is written.",
            "Run: manage.py migrate",
        )


def forgetful_commits() -> Iterator[Finding]:
    """What an ended transaction has written must survive a power failure."""
    what = (
        "{setting} is {value}: a power failure may forget the last emails that were sent, and they"
        " are sent again."
    )
    if connection.vendor == "sqlite":
        if _shown("PRAGMA synchronous") == "1":
            yield unsafe(
                "durability",
                what.format(setting="OUTBOX_SQLITE_SYNCHRONOUS", value="NORMAL"),
                "Unset OUTBOX_SQLITE_SYNCHRONOUS and start web and worker again.",
            )
        return
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        if _shown(f"SHOW {setting}") == "off":
            yield unsafe(
                "durability",
                what.format(setting=f"PostgreSQL's {setting}", value="off"),
                f"Set {setting} = on for this database, and reload the server.",
            )


def no_write_ahead_log() -> Iterator[Finding]:
    if connection.vendor == "sqlite" and (mode := _shown("PRAGMA journal_mode")) != "wal":
        yield warning(
            "journal",
            f"SQLite's journal is {mode}, not WAL: whoever reads and who writes wait for each"
            " other, and the worker falls behind.",
            "Put the database where WAL works: on a disk of this machine.",
        )


def restored_or_copied() -> Iterator[Finding]:
    restore = Restore.objects.filter(settled_at=None).first()
    if restore is not None:
        otherwise = (
            " If it was only moved, and nothing went on without it: `manage.py resume --moved`."
            if restore.kind == RestoreKind.ELSEWHERE
            else ""
        )
        yield unsafe(
            "restored",
            f"This database was restored or copied: {restore.get_kind_display()}. What it takes"
            f" for unsent may have been sent since {restore.made_at:%Y-%m-%d %H:%M} UTC; nothing"
            " is sent until somebody has looked.",
            f"Run `manage.py doctor --after-restore`.{otherwise}",
        )
    elif Installation.objects.filter(backup_at__isnull=False).exists():
        yield warning(
            "restored",
            "This database is a backup that nothing has been started with yet.",
            "Start web and worker with it: they see that it is one, and stay paused.",
        )


def _shown(question: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return str(cursor.fetchone()[0])
