"""Database triggers that refuse what the ledger must never do, whoever asks.

They are made from `rules.statuses` and from the lists below, on SQLite and PostgreSQL alike.
`install` is idempotent and runs after every migrate, because SQLite drops a table's triggers
when Django rebuilds the table. `missing` says which are absent or differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from sends.rules.statuses import LEGAL, Status

# Columns that are written with the row and never again. The rest of the row may move.
FROZEN: dict[str, tuple[str, ...]] = {
    "Action": (
        "tenant",
        "number",
        "action_key",
        "agent",
        "run",
        "triggered_by",
        "purpose",
        "created_at",
    ),
    "SendIntent": (
        "tenant",
        "action",
        "version",
        "agent",
        "run",
        "account",
        "sender",
        "author",
        "resend_of",
        "workflow",
        "template",
        "context_hash",
        "note",
        "content_digest",
        "digest",
        "idempotency_key",
        "message_id",
        "subject",
        "recipient_count",
        "first_recipient",
        "approvals_needed",
        "approval_rule",
        "not_before",
        "deadline",
        "request_id",
        "created_at",
    ),
    "Delivery": ("tenant", "intent", "position", "kind", "address", "name", "normal", "domain"),
    "Attempt": ("intent", "number", "account", "scope", "idempotency_key", "digest", "opened_at"),
    "Approval": ("intent", "digest", "verdict", "person", "rule", "note", "made_at"),
    "ProviderEvent": ("account", "event_id", "fingerprint", "kind", "recipient", "raw"),
}
# Rows that are never changed at all.
APPEND_ONLY = ("Payload", "Evidence", "AuditEntry")
# Rows that are never deleted. A payload may be purged once nothing can need it.
KEPT = ("Action", "SendIntent", "Attempt", "Approval", "Evidence", "AuditEntry")
PURGEABLE = (
    Status.DONE,
    Status.CANCELLED,
    Status.SUPERSEDED,
    Status.REJECTED,
    Status.DEAD_LETTER,
)


@dataclass(frozen=True)
class Trigger:
    """Refuses an `event` on `table` with `message` while `condition` holds, row by row."""

    name: str
    table: str
    event: str
    condition: str
    message: str

    def sqlite(self) -> str:
        return (
            f'CREATE TRIGGER "{self.name}" BEFORE {self.event} ON "{self.table}" '
            f"FOR EACH ROW WHEN {self.condition} "
            f"BEGIN SELECT RAISE(ABORT, '{self.message}'); END"
        )

    def postgresql_body(self) -> str:
        row = "OLD" if self.event == "DELETE" else "NEW"
        return (
            f" BEGIN IF {self.condition} THEN RAISE EXCEPTION '{self.message}' "
            f"USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN {row}; END "
        )


def _model(name: str) -> type[Model]:
    return apps.get_model("sends", name)


def _table(name: str) -> str:
    return _model(name)._meta.db_table


def _columns(name: str) -> list[str]:
    columns = {field.name: str(field.column) for field in _model(name)._meta.concrete_fields}
    return [columns[field] for field in FROZEN[name]]


def _differs(column: str) -> str:
    # NULL-safe on both databases; SQLite before 3.39 lacks IS DISTINCT FROM.
    return (
        f'NOT (NEW."{column}" = OLD."{column}" '
        f'OR (NEW."{column}" IS NULL AND OLD."{column}" IS NULL))'
    )


def _changed(columns: list[str]) -> str:
    # COALESCE: comparing with one NULL is NULL, which neither database takes for true.
    return " OR ".join(f"COALESCE({_differs(column)}, TRUE)" for column in columns)


def _legal_pairs() -> str:
    return " OR ".join(
        f"(OLD.status = '{before}' AND NEW.status IN ({_listed(after)}))"
        for before, after in LEGAL.items()
        if after
    )


def _listed(statuses: frozenset[Status] | tuple[Status, ...]) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))


def triggers() -> Iterator[Trigger]:
    """Every trigger of the ledger, in a fixed order."""
    intents = _table("SendIntent")
    yield Trigger(
        "intent_born",
        intents,
        "INSERT",
        "NEW.status <> 'awaiting_approval' OR NEW.in_doubt OR NEW.accepted_at IS NOT NULL",
        "an intent is created awaiting approval",
    )
    yield Trigger(
        "intent_transition",
        intents,
        "UPDATE",
        f"OLD.status <> NEW.status AND NOT ({_legal_pairs()})",
        "this change of status is not legal",
    )
    yield Trigger(
        "intent_fence",
        intents,
        "UPDATE",
        "NEW.fence < OLD.fence OR (OLD.status <> NEW.status AND NEW.fence <> OLD.fence + 1)",
        "a change of status raises the fence by one",
    )
    yield Trigger(
        "intent_doubt",
        intents,
        "UPDATE",
        "OLD.in_doubt AND NOT NEW.in_doubt AND NEW.status <> 'submitted' "
        "AND NOT (OLD.status = 'uncertain' AND NEW.status = 'dead_letter')",
        "doubt ends by acceptance or by a finding, not by time",
    )
    yield Trigger(
        "intent_accepted",
        intents,
        "UPDATE",
        f"OLD.accepted_at IS NOT NULL AND (COALESCE({_differs('accepted_at')}, TRUE) "
        "OR (OLD.status = 'dead_letter' AND NEW.status <> 'dead_letter'))",
        "what was accepted stays accepted",
    )
    yield Trigger(
        "attempt_closed",
        _table("Attempt"),
        "UPDATE",
        "OLD.closed_at IS NOT NULL",
        "a closed attempt is never rewritten",
    )
    for name in FROZEN:
        yield Trigger(
            f"{name.lower()}_frozen",
            _table(name),
            "UPDATE",
            _changed(_columns(name)),
            f"{_model(name)._meta.verbose_name}: these columns never change",
        )
    for name in APPEND_ONLY:
        yield Trigger(
            f"{name.lower()}_frozen",
            _table(name),
            "UPDATE",
            "TRUE",
            f"{_model(name)._meta.verbose_name}: rows never change",
        )
    for name in KEPT:
        yield Trigger(
            f"{name.lower()}_kept",
            _table(name),
            "DELETE",
            "TRUE",
            f"{_model(name)._meta.verbose_name}: rows are never deleted",
        )
    yield Trigger(
        "payload_kept",
        _table("Payload"),
        "DELETE",
        f"(SELECT status FROM {intents} WHERE id = OLD.intent_id) NOT IN ({_listed(PURGEABLE)})",
        "the payload of an unfinished intent is kept",
    )


def install(connection: BaseDatabaseWrapper) -> None:
    """Create every trigger anew. Safe to repeat, and while others read and write."""
    with connection.cursor() as cursor:
        for trigger in triggers():
            if connection.vendor == "postgresql":
                cursor.execute(
                    f'CREATE OR REPLACE FUNCTION "outbox_{trigger.name}"() RETURNS trigger '
                    f"LANGUAGE plpgsql AS $outbox${trigger.postgresql_body()}$outbox$"
                )
                cursor.execute(
                    f'CREATE OR REPLACE TRIGGER "{trigger.name}" BEFORE {trigger.event} '
                    f'ON "{trigger.table}" FOR EACH ROW EXECUTE FUNCTION "outbox_{trigger.name}"()'
                )
            else:
                cursor.execute(f'DROP TRIGGER IF EXISTS "{trigger.name}"')
                cursor.execute(trigger.sqlite())


def drop(connection: BaseDatabaseWrapper) -> None:
    """Remove our triggers before a migration on SQLite.

    It rebuilds a table under another name, and a trigger elsewhere that names the table would
    make the rename fail. PostgreSQL alters tables in place and keeps its triggers.
    """
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        for name in [trigger.name for trigger in triggers()]:
            cursor.execute(f'DROP TRIGGER IF EXISTS "{name}"')


def missing(connection: BaseDatabaseWrapper) -> list[str]:
    """The names of triggers that are absent or not as they should be."""
    present = (
        _present_on_postgresql(connection)
        if connection.vendor == "postgresql"
        else _present_on_sqlite(connection)
    )
    wanted = {
        trigger.name: trigger.postgresql_body()
        if connection.vendor == "postgresql"
        else trigger.sqlite()
        for trigger in triggers()
    }
    return [name for name, text in wanted.items() if present.get(name) != text]


def _present_on_sqlite(connection: BaseDatabaseWrapper) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        return dict(cursor.fetchall())


def _present_on_postgresql(connection: BaseDatabaseWrapper) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t.tgname, p.prosrc FROM pg_trigger t "
            "JOIN pg_proc p ON p.oid = t.tgfoid "
            "JOIN pg_class c ON c.oid = t.tgrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND n.nspname = current_schema()"
        )
        return dict(cursor.fetchall())
