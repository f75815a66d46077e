"""Database triggers that refuse what the ledger must never do, whoever asks.

Two more mark what was created or moved. They are made from `rules.statuses` and from the lists
below, on SQLite and PostgreSQL alike. `install` is idempotent and runs after every migrate,
because SQLite drops a table's triggers when Django rebuilds the table. `missing` says which are
absent or differ.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from django.apps import apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from sends.rules.statuses import APPROVED, LEGAL, Status

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
        "encoded_bytes",
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
APPEND_ONLY = (
    "Payload",
    "AttachmentContent",
    "AttachmentUse",
    "Evidence",
    "AuditEntry",
    "AuditCheckpoint",
)
# Of these and of closed attempts, what erasing a person may change once their intent is erased.
ERASABLE: dict[str, tuple[str, ...]] = {
    "SendIntent": ("note", "subject", "first_recipient"),
    "Delivery": ("address", "name", "normal", "domain"),
    "Attempt": ("reason", "body"),
    "Approval": ("note",),
    "ProviderEvent": ("recipient", "raw"),
    "Evidence": ("summary", "value"),
}
# Rows that are never deleted.
KEPT = ("Action", "SendIntent", "Attempt", "Approval", "Evidence", "AuditCheckpoint")
# A version that has lost its content is never sent.
BEFORE_DISPATCH = frozenset({Status.AWAITING_APPROVAL}) | APPROVED
NOW = "now()"  # stands for the database's clock, in its own words


@dataclass(frozen=True)
class Trigger:
    """Refuses an `event` on `table` with `message` while `condition` holds, row by row."""

    name: str
    table: str
    event: str
    condition: str
    message: str

    def sqlite(self) -> str:
        # As Django writes moments there: texts, which sort by time.
        condition = self.condition.replace(NOW, "strftime('%Y-%m-%d %H:%M:%f', 'now')")
        return (
            f'CREATE TRIGGER "{self.name}" BEFORE {self.event} ON "{self.table}" '
            f"FOR EACH ROW WHEN {condition} "
            f"BEGIN SELECT RAISE(ABORT, '{self.message}'); END"
        )

    def postgresql_body(self) -> str:
        row = "OLD" if self.event == "DELETE" else "NEW"
        condition = self.condition.replace(NOW, "clock_timestamp()")
        return (
            f" BEGIN IF {condition} THEN RAISE EXCEPTION '{self.message}' "
            f"USING ERRCODE = 'integrity_constraint_violation'; END IF; RETURN {row}; END "
        )


@dataclass(frozen=True)
class Mark:
    """Gives an intent its `change_mark` where `event` creates it or changes its status.

    SQLite lets one transaction write at a time, so there the next number will do. On PostgreSQL
    transactions commit in any order: there it is the number of the transaction, and who reads
    looks at those alone before which no transaction is open any more (`models.changes`).
    """

    name: str
    table: str
    event: str

    def sqlite(self) -> str:
        moved = " WHEN OLD.status <> NEW.status" if self.event != "INSERT" else ""
        last = f'SELECT MAX(change_mark) FROM "{self.table}" WHERE agent_id = NEW.agent_id'
        return (
            f'CREATE TRIGGER "{self.name}" AFTER {self.event} ON "{self.table}" '
            f'FOR EACH ROW{moved} BEGIN UPDATE "{self.table}" '
            f"SET change_mark = COALESCE(({last}), 0) + 1 WHERE id = NEW.id; END"
        )

    def postgresql_body(self) -> str:
        mark = "NEW.change_mark := pg_current_xact_id()::text::bigint;"
        if self.event != "INSERT":
            mark = f"IF OLD.status <> NEW.status THEN {mark} END IF;"
        return f" BEGIN {mark} RETURN NEW; END "


def _model(name: str) -> type[Model]:
    return apps.get_model("sends", name)


def _table(name: str) -> str:
    return _model(name)._meta.db_table


def _columns(name: str, fields: Collection[str]) -> list[str]:
    columns = {field.name: str(field.column) for field in _model(name)._meta.concrete_fields}
    return [columns[field] for field in fields]


def _all_fields(name: str) -> list[str]:
    return [field.name for field in _model(name)._meta.concrete_fields]


def _differs(column: str) -> str:
    # NULL-safe on both databases; SQLite before 3.39 lacks IS DISTINCT FROM.
    return (
        f'NOT (NEW."{column}" = OLD."{column}" '
        f'OR (NEW."{column}" IS NULL AND OLD."{column}" IS NULL))'
    )


def _changed(columns: list[str]) -> str:
    # COALESCE: comparing with one NULL is NULL, which neither database takes for true.
    return " OR ".join(f"COALESCE({_differs(column)}, TRUE)" for column in columns)


def _changed_unless_erased(name: str, fields: Collection[str]) -> str:
    """Whether one of these changes, other than by erasing a person from an intent."""
    erasable = [field for field in ERASABLE.get(name, ()) if field in fields]
    fixed = _changed(_columns(name, [field for field in fields if field not in erasable]))
    if not erasable:
        return fixed
    return f"{fixed} OR (({_changed(_columns(name, erasable))}) AND NOT ({_erased(name)}))"


def _erased(name: str) -> str:
    if name == "SendIntent":
        return "NEW.erased_at IS NOT NULL"
    if name == "ProviderEvent":
        return "NEW.purged_at IS NOT NULL AND LENGTH(NEW.raw) = 0"
    return f"EXISTS (SELECT 1 FROM {_of_intent(name)} AND erased_at IS NOT NULL)"


def _of_intent(name: str) -> str:
    return f"{_table('SendIntent')} WHERE id = OLD.intent_id"


def _is_over(row: str) -> str:
    """Whether nothing can be decided about the intent any more, nor sent."""
    ended = (Status.DONE, Status.CANCELLED, Status.SUPERSEDED)
    return (
        f"({row}.status IN ({_listed(ended)})"
        f" OR ({row}.status = '{Status.REJECTED}'"
        f" AND ({row}.undo_until IS NULL OR {row}.undo_until < {NOW}))"
        f" OR ({row}.status = '{Status.DEAD_LETTER}' AND {row}.closed_at IS NOT NULL))"
    )


def _must_stay(row: str) -> str:
    """Whether a person may still need what the intent says: any version of it is not over, or
    an anomaly is open."""
    versions = f"{_table('SendIntent')} version WHERE version.action_id = {row}.action_id"
    anomalies = f"{_table('Anomaly')} anomaly WHERE anomaly.action_id = {row}.action_id"
    return (
        f"(NOT {_is_over(row)}"
        f" OR EXISTS (SELECT 1 FROM {versions} AND version.id <> {row}.id"
        f" AND NOT {_is_over('version')})"
        f" OR EXISTS (SELECT 1 FROM {anomalies} AND anomaly.closed_at IS NULL))"
    )


def _legal_pairs() -> str:
    return " OR ".join(
        f"(OLD.status = '{before}' AND NEW.status IN ({_listed(after)}))"
        for before, after in LEGAL.items()
        if after
    )


def _listed(statuses: frozenset[Status] | tuple[Status, ...]) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))


def triggers() -> Iterator[Trigger | Mark]:
    """Every trigger of the ledger, in a fixed order."""
    intents = _table("SendIntent")
    yield Trigger(
        "intent_born",
        intents,
        "INSERT",
        "NEW.status <> 'awaiting_approval' OR NEW.in_doubt OR NEW.accepted_at IS NOT NULL",
        "an intent is created awaiting approval",
    )
    yield Mark("intent_created", intents, "INSERT")
    yield Mark("intent_moved", intents, "UPDATE OF status")
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
        f"OLD.closed_at IS NOT NULL"
        f" AND ({_changed_unless_erased('Attempt', _all_fields('Attempt'))})",
        "a closed attempt is never rewritten",
    )
    for name in FROZEN:
        yield Trigger(
            f"{name.lower()}_frozen",
            _table(name),
            "UPDATE",
            _changed_unless_erased(name, FROZEN[name]),
            f"{_model(name)._meta.verbose_name}: these columns never change",
        )
    for name in APPEND_ONLY:
        yield Trigger(
            f"{name.lower()}_frozen",
            _table(name),
            "UPDATE",
            _changed_unless_erased(name, _all_fields(name)),
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
    yield from _content(intents)
    yield from _audit()


def _content(intents: str) -> Iterator[Trigger]:
    """What people may still need is not deleted, and what was deleted is never sent."""
    keeps = "the content of an unfinished or contradicted intent is kept"
    yield Trigger(
        "intent_purged",
        intents,
        "UPDATE",
        f"COALESCE({_differs('purged_at')}, TRUE)"
        f" AND (OLD.purged_at IS NOT NULL OR {_must_stay('NEW')})",
        keeps,
    )
    yield Trigger(
        "intent_erased",
        intents,
        "UPDATE",
        f"COALESCE({_differs('erased_at')}, TRUE)"
        f" AND (NEW.purged_at IS NULL OR {_must_stay('NEW')})",
        keeps,
    )
    yield Trigger(
        "intent_without_content",
        intents,
        "UPDATE",
        "OLD.purged_at IS NOT NULL AND OLD.status <> NEW.status"
        f" AND NEW.status IN ({_listed(BEFORE_DISPATCH)})",
        "an intent whose content was deleted is never sent",
    )
    for name in ("Payload", "AttachmentUse"):
        yield Trigger(
            f"{name.lower()}_kept",
            _table(name),
            "DELETE",
            f"EXISTS (SELECT 1 FROM {_of_intent(name)} AND purged_at IS NULL)",
            keeps,
        )
    yield Trigger(
        "event_purged",
        _table("ProviderEvent"),
        "UPDATE",
        f"COALESCE({_differs('purged_at')}, TRUE)"
        " AND (OLD.purged_at IS NOT NULL OR NEW.state = 'received'"
        f" OR EXISTS (SELECT 1 FROM {intents} intent"
        f" WHERE intent.id = NEW.intent_id AND {_must_stay('intent')}))",
        "an event that may still be needed is kept as it was told",
    )


def _audit() -> Iterator[Trigger]:
    entries, checkpoints = _table("AuditEntry"), _table("AuditCheckpoint")
    yield Trigger(
        "auditentry_kept",
        entries,
        "DELETE",
        f"NOT EXISTS (SELECT 1 FROM {checkpoints} one"
        " WHERE one.tenant_id = OLD.tenant_id AND one.sequence >= OLD.sequence)",
        "audit entry: rows are kept, but for those before a checkpoint",
    )
    yield Trigger(
        "auditcheckpoint_true",
        checkpoints,
        "INSERT",
        f"NOT EXISTS (SELECT 1 FROM {entries} entry WHERE entry.tenant_id = NEW.tenant_id"
        " AND entry.sequence = NEW.sequence AND entry.hash = NEW.hash)",
        "a checkpoint names an entry of the log",
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
