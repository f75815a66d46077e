"""One intent along one legal transition, and the locks that every step takes in one order."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import F, Field, Model

from sends.models import Action, SendIntent
from sends.models.switches import Switch
from sends.rules.statuses import HOLD_BITS, LEGAL, Hold, Status

NO_LEASE: dict[str, None] = {
    "lease_token": None,
    "lease_expires_at": None,
    "lease_seen_expired_at": None,
}


class IllegalTransition(Exception):
    """The table of `rules.statuses` has no such edge: a mistake in our code."""


class StaleIntent(Exception):
    """Somebody else moved this intent first; nothing was changed."""


@dataclass(frozen=True)
class Move:
    """One intent along one edge, with the columns that change with it."""

    intent: SendIntent
    to: Status
    columns: dict[str, Any]


def move(intent: SendIntent, to: Status, *, now: datetime, **columns: Any) -> None:
    """Take one legal transition, or raise StaleIntent if somebody else moved first.

    The UPDATE names the status and the fence that the caller read: of two that race for one
    row exactly one changes it, and whoever read it before it left and came back to the same
    status has lost too. Nothing is ever overwritten. A lease ends with IN_FLIGHT.
    """
    changes = _changes(intent, to, now, columns)
    row = SendIntent.objects.filter(pk=intent.pk, status=intent.status, fence=intent.fence)
    if not row.update(**changes):
        raise StaleIntent(f"intent {intent.pk} is no longer {intent.status}; nothing was changed")
    _take_over(intent, changes)


def move_all(moves: Iterable[Move], *, now: datetime) -> None:
    """`move` for a batch: one statement for each set of columns, not one for each intent.

    Raises StaleIntent if any of them was moved by somebody else. Some are moved then, so the
    caller's transaction has to be rolled back.
    """
    changes = [(move.intent, _changes(move.intent, move.to, now, move.columns)) for move in moves]
    write_each(
        SendIntent,
        [
            ({"pk": intent.pk, "status": intent.status, "fence": intent.fence}, columns)
            for intent, columns in changes
        ],
    )
    for intent, columns in changes:
        _take_over(intent, columns)


def write_each(model: type[Model], rows: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """UPDATE each row by its own key to its own columns, prepared once for all that are alike.

    Django's `update` costs more than the statement itself, and a worker writes four for each
    email. Raises StaleIntent if a row is not there under its key.
    """
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[list[Any]]] = {}
    for key, columns in rows:
        shape = (tuple(key), tuple(columns))
        values = [*_prepared(model, columns), *_prepared(model, key)]
        alike.setdefault(shape, []).append(values)
    with connection.cursor() as cursor:
        for (key_names, names), values in alike.items():
            settings = ", ".join(f"{_column(model, name)} = %s" for name in names)
            where = " AND ".join(f"{_column(model, name)} = %s" for name in key_names)
            table = connection.ops.quote_name(model._meta.db_table)
            cursor.executemany(f"UPDATE {table} SET {settings} WHERE {where}", values)
            if cursor.rowcount != len(values):
                raise StaleIntent(f"{len(values)} rows of {table}: not all as they were read")


def _changes(
    intent: SendIntent, to: Status, now: datetime, columns: dict[str, Any]
) -> dict[str, Any]:
    before = Status(intent.status)
    if to not in LEGAL[before]:
        raise IllegalTransition(f"intent {intent.pk}: {before} cannot become {to}")
    changes: dict[str, Any] = {"status": to, "fence": intent.fence + 1, "status_at": now}
    if before is Status.IN_FLIGHT:
        changes |= NO_LEASE
    return changes | columns


def _take_over(intent: SendIntent, changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        setattr(intent, name, value)


def _field(model: type[Model], name: str) -> "Field[Any, Any]":
    field = model._meta.pk if name == "pk" else model._meta.get_field(name)
    assert isinstance(field, Field)
    return field


def _column(model: type[Model], name: str) -> str:
    return connection.ops.quote_name(str(_field(model, name).column))


def _prepared(model: type[Model], columns: dict[str, Any]) -> Iterable[Any]:
    for name, value in columns.items():
        yield _field(model, name).get_db_prep_save(value, connection)


def lock_action(action_id: uuid.UUID) -> Action:
    """The action's row, locked until the transaction ends. First of all locks, switches aside."""
    return Action.objects.select_for_update(no_key=True).get(pk=action_id)


def lock_intent(intent_id: uuid.UUID) -> SendIntent:
    """The intent, fresh and locked, after its action: the order in which everybody locks."""
    action_id = SendIntent.objects.values_list("action_id", flat=True).get(pk=intent_id)
    lock_action(action_id)
    return SendIntent.objects.select_for_update(no_key=True).get(pk=intent_id)


def lock_switch(scope_id: uuid.UUID) -> Switch:
    """A scope's switch, locked until the transaction ends."""
    return Switch.objects.select_for_update().get(pk=scope_id)


def set_hold(hold: Hold, **intents: Any) -> int:
    """Put one cause on these intents, in one UPDATE; how many rows matched."""
    bit = HOLD_BITS[hold]
    return SendIntent.objects.filter(**intents).update(holds=F("holds").bitor(bit))


def clear_hold(hold: Hold, **intents: Any) -> int:
    """Take one cause off these intents, leaving the others; how many rows matched."""
    everything_else = sum(HOLD_BITS.values()) - HOLD_BITS[hold]
    return SendIntent.objects.filter(**intents).update(holds=F("holds").bitand(everything_else))
