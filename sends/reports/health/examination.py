"""Every check, in the order in which one would look."""

from collections.abc import Callable, Collection, Iterable, Iterator

from django.db import DatabaseError, connection

from sends.reports.health import accounts, backlog, database, machine, programs, set_up
from sends.reports.health.findings import Finding, Level, unsafe, warning

__all__ = ["Finding", "Level", "examine"]

Check = Callable[[], Iterable[Finding]]

OF_THE_MACHINE: tuple[Check, ...] = (
    set_up.debug_pages,
    set_up.insecure_settings,
    set_up.plain_http,
    machine.disk_nearly_full,
    machine.folder_open_to_others,
    machine.database_on_network_share,
)
# Without these no other question to the database makes sense.
OF_THE_LEDGER: tuple[Check, ...] = (database.unapplied_migrations, database.missing_triggers)
OF_THE_INSTALLATION: tuple[Check, ...] = (
    database.forgetful_commits,
    database.no_write_ahead_log,
    database.restored_or_copied,
    programs.several_installations,
    programs.silent_worker,
    programs.silent_scheduler,
    programs.differing_clocks,
    programs.time_in_the_future,
    accounts.unreadable_credentials,
    accounts.credentials_open_to_others,
    accounts.missing_webhook_secrets,
    accounts.silent_webhooks,
    accounts.unreachable_providers,
    backlog.paused,
    backlog.overdue,
    backlog.uncertain,
    backlog.held_since_a_restore,
    backlog.open_anomalies,
    backlog.failed_events,
)


def examine(timetable: Collection[str]) -> list[Finding]:
    """Look at everything that can be looked at; nothing is changed and nothing is sent.

    `timetable` names what the scheduler has to run.
    """
    found = list(_findings(OF_THE_MACHINE))
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        cure = "Look at OUTBOX_DATABASE_URL, and whether the database server runs."
        return [*found, unsafe("database", f"The database cannot be used: {error}".strip(), cure)]

    def missing_schedules() -> Iterator[Finding]:
        return programs.missing_schedules(timetable)

    ledger = list(_findings(OF_THE_LEDGER))
    if any(finding.check == "migrations" for finding in ledger):
        return [*found, *ledger]
    return [*found, *ledger, *_findings([*OF_THE_INSTALLATION, missing_schedules])]


def _findings(checks: Iterable[Check]) -> Iterator[Finding]:
    """One check that fails must not hide what the others find."""
    for check in checks:
        try:
            yield from check()
        except (DatabaseError, OSError) as error:
            what = f"It could not be looked for {check.__name__.replace('_', ' ')}: {error}"
            yield warning(check.__name__, what.strip(), "Look at it by hand, or ask again.")
