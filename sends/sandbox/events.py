"""The events of accepted messages: planned with the accept, kept until they are sent."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from .faults import Happening
from .journal import iso
from .settings import EventMode, Settings

SHORTEST_STEP = 0.05  # keeps two events of a recipient apart where deliver_after is 0
WAITS = (0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 60.0, 60.0, 60.0)  # between the 12 tries


def plan(
    db: sqlite3.Connection,
    message: int,
    recipient: str,
    happenings: Sequence[Happening],
    settings: Settings,
    *,
    now: float,
    first: bool,
) -> None:
    """Enter what will happen to a recipient, in the order in which it will be told.

    `first` events happen now and are kept for `claim_first`, so that they go out before the
    answer; should the sandbox die before that, `release_first` lets them go after it.
    """
    moments = [now if first else now + delay(happening, settings) for happening in happenings]
    rows = list(zip(happenings, moments, strict=True))
    if settings.events is EventMode.REVERSED:
        rows.reverse()
    state = "first" if first else "waiting"
    if settings.webhook is None or settings.events is EventMode.OFF:
        state = "off"
    for (happening, happens_at), send_at in zip(rows, moments, strict=True):
        for event_id in ids(settings.events):
            db.execute(
                "INSERT INTO events (id, message, recipient, type, reason, hard, happens_at,"
                " send_at, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    event_id,
                    message,
                    recipient,
                    happening.type,
                    happening.reason,
                    happening.hard,
                    happens_at,
                    send_at,
                    state,
                ),
            )


def delay(happening: Happening, settings: Settings) -> float:
    later_steps = happening.step - 1
    return settings.deliver_after + later_steps * max(settings.deliver_after, SHORTEST_STEP)


def ids(mode: EventMode) -> list[str]:
    """The id of one event, once for each time that it is sent."""
    event_id = new_id()
    if mode is EventMode.DOUBLED:
        return [event_id, event_id]
    if mode is EventMode.CHANGED_IDS:
        return [event_id, new_id()]
    return [event_id]


def new_id() -> str:
    return f"evt_{secrets.token_hex(12)}"


@dataclass(frozen=True)
class Event:
    seq: int
    id: str
    type: str
    created_at: str
    data: dict[str, Any]
    tries: int


SELECT = (
    "SELECT events.*, messages.id AS provider_id, messages.message_id, messages.tag"
    " FROM events JOIN messages ON messages.seq = events.message"
)


def due(db: sqlite3.Connection, now: float, limit: int, on_the_way: Collection[int]) -> list[Event]:
    """What is to be sent now; of each recipient of a message only the foremost."""
    rows = db.execute(
        f"{SELECT} WHERE events.state = 'waiting' AND send_at <= ? AND NOT EXISTS ("
        "   SELECT 1 FROM events AS earlier WHERE earlier.message = events.message"
        "   AND earlier.recipient = events.recipient AND earlier.state = 'waiting'"
        "   AND earlier.seq < events.seq)"
        " ORDER BY send_at, events.seq LIMIT ?",
        (now, limit + len(on_the_way)),
    )
    return [event_of(row) for row in rows.fetchall() if row["seq"] not in on_the_way][:limit]


def claim_first(db: sqlite3.Connection, message: int) -> list[Event]:
    rows = db.execute(f"{SELECT} WHERE message = ? AND state = 'first' ORDER BY seq", (message,))
    return [event_of(row) for row in rows.fetchall()]


def release_first(db: sqlite3.Connection) -> None:
    db.execute("UPDATE events SET state = 'waiting' WHERE state = 'first'")


def event_of(row: sqlite3.Row) -> Event:
    data = {
        "message_id_provider": row["provider_id"],
        "message_id": row["message_id"],
        "tag": row["tag"],
        "recipient": row["recipient"],
        "reason": row["reason"],
        "hard": None if row["hard"] is None else bool(row["hard"]),
    }
    return Event(row["seq"], row["id"], row["type"], iso(row["happens_at"]), data, row["tries"])


def settle(db: sqlite3.Connection, event: Event, *, taken: bool, now: float) -> None:
    """Enter one try: sent, to be tried again later, or given up after the last."""
    tries = event.tries + 1
    state, send_at = "sent", now
    if not taken:
        state = "waiting" if tries <= len(WAITS) else "given_up"
        send_at = now + (WAITS[tries - 1] if tries <= len(WAITS) else 0)
    db.execute(
        "UPDATE events SET state = ?, tries = ?, send_at = ? WHERE seq = ?",
        (state, tries, send_at, event.seq),
    )


def next_due(db: sqlite3.Connection, on_the_way: Collection[int]) -> float | None:
    """When the next event that is not on the way becomes due."""
    rows = db.execute(
        "SELECT seq, send_at FROM events WHERE state = 'waiting' ORDER BY send_at LIMIT ?",
        (len(on_the_way) + 1,),
    )
    return next((row["send_at"] for row in rows.fetchall() if row["seq"] not in on_the_way), None)
