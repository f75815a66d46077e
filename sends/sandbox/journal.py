"""The journal: what the sandbox accepted and was asked, in an SQLite file that outlives it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from .reading import Message

T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    org TEXT, key TEXT, tag TEXT,
    word TEXT,                     -- of the fault menu
    outcome TEXT NOT NULL,
    status INTEGER,                -- of the answer; null where there is none
    answer TEXT NOT NULL,          -- the manner in which it was sent
    received_at REAL NOT NULL, received_mono REAL NOT NULL,
    bytes INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    request_no INTEGER NOT NULL UNIQUE REFERENCES requests (seq),
    org TEXT NOT NULL, key TEXT, tag TEXT, message_id TEXT,
    digest TEXT NOT NULL,          -- SHA-256 of the body as it came
    recipients TEXT NOT NULL,      -- JSON: [{"address", "refused"}]
    subject TEXT NOT NULL,
    attachments TEXT NOT NULL,     -- JSON: what came, in its order, but for the bytes
    accepted_at REAL NOT NULL,
    contract TEXT NOT NULL,
    hidden INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_key ON messages (org, key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS messages_tag ON messages (org, tag) WHERE tag IS NOT NULL;
CREATE TABLE IF NOT EXISTS keys (
    org TEXT NOT NULL, key TEXT NOT NULL,
    meaning TEXT NOT NULL,         -- digest of the parsed body
    answer TEXT NOT NULL,          -- the first one, as JSON
    completed_at REAL NOT NULL,    -- in the future while it is still being processed
    PRIMARY KEY (org, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (  -- how often a fault has shown itself
    org TEXT NOT NULL, word TEXT NOT NULL, handle TEXT NOT NULL,
    times INTEGER NOT NULL, first_at REAL NOT NULL,
    PRIMARY KEY (org, word, handle)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS script (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    field TEXT NOT NULL, value TEXT NOT NULL,
    word TEXT NOT NULL,
    times_left INTEGER             -- null: for ever
);
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    message INTEGER NOT NULL REFERENCES messages (seq),
    recipient TEXT NOT NULL, type TEXT NOT NULL, reason TEXT NOT NULL, hard INTEGER,
    happens_at REAL NOT NULL,
    send_at REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL            -- waiting, first, sent, given_up, off
);
CREATE INDEX IF NOT EXISTS events_due ON events (send_at, seq) WHERE state = 'waiting';
CREATE INDEX IF NOT EXISTS events_message ON events (message, recipient, state);
CREATE TABLE IF NOT EXISTS config (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
TABLES = ("events", "messages", "requests", "keys", "seen", "script", "config")


class JournalInUseError(Exception):
    """Another sandbox writes to this folder."""


class Journal:
    """One connection, one writer: steps run one after another and are committed in groups.

    What `write` returned is on the disk (with `sync`) before its caller goes on, and so before
    any byte of an answer. All that ask in the same turn of the event loop share one commit.
    """

    def __init__(self, folder: Path, *, sync: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            os.close(self._lock)
            raise JournalInUseError(
                f"{folder} is in use by another sandbox; give another --data"
            ) from taken
        self.db = sqlite3.connect(folder / "journal.sqlite3", isolation_level=None)
        self.db.row_factory = sqlite3.Row
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
        self.db.executescript(SCHEMA)
        self._waiting: list[tuple[Callable[[sqlite3.Connection], Any], asyncio.Future[Any]]] = []

    def write(self, step: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """The result of `step`, once it is committed."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._commit_all)
        self._waiting.append((step, done))
        return done

    def _commit_all(self) -> None:
        """Run and commit all that waits; a step that fails takes the whole group with it."""
        group, self._waiting = self._waiting, []
        try:
            self.db.execute("BEGIN IMMEDIATE")
            results = [step(self.db) for step, _ in group]
            self.db.execute("COMMIT")
        except Exception as failure:
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            for _, done in group:
                if not done.done():
                    done.set_exception(failure)
            return
        for (_, done), result in zip(group, results, strict=True):
            if not done.done():
                done.set_result(result)

    def close(self) -> None:
        self.db.close()
        os.close(self._lock)


def clear(db: sqlite3.Connection) -> None:
    """Forget everything, but number on: an event still on its way must not settle a new one."""
    for table in TABLES:
        db.execute(f"DELETE FROM {table}")


@dataclass(frozen=True)
class Received:
    """A POST, as far as it is known when it is entered."""

    received_at: float
    received_mono: float
    bytes: int
    org: str = ""
    key: str | None = None


def enter_request(
    db: sqlite3.Connection,
    received: Received,
    *,
    outcome: str,
    status: int | None,
    answer: str,
    tag: str | None = None,
    word: str | None = None,
) -> int:
    """The number of the request."""
    row = db.execute(
        "INSERT INTO requests (org, key, tag, word, outcome, status, answer,"
        " received_at, received_mono, bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            received.org,
            received.key,
            tag,
            word,
            outcome,
            status,
            answer,
            received.received_at,
            received.received_mono,
            received.bytes,
        ),
    )
    return int(row.lastrowid or 0)


def enter_message(
    db: sqlite3.Connection,
    received: Received,
    message: Message,
    *,
    request_no: int,
    provider_id: str,
    refused: Collection[str],
    contract: str,
    hidden: bool,
    now: float,
) -> int:
    """The number of the message in the journal."""
    recipients = [{"address": one, "refused": one in refused} for one in message.recipients]
    row = db.execute(
        "INSERT INTO messages (id, request_no, org, key, tag, message_id, digest, recipients,"
        " subject, attachments, accepted_at, contract, hidden)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            provider_id,
            request_no,
            received.org,
            received.key,
            message.tag,
            message.message_id,
            message.digest,
            json.dumps(recipients),
            message.subject,
            json.dumps([asdict(one) for one in message.attachments]),
            now,
            contract,
            hidden,
        ),
    )
    return int(row.lastrowid or 0)


def messages_since(db: sqlite3.Connection, since: int, limit: int) -> list[dict[str, Any]]:
    rows = db.execute("SELECT * FROM messages WHERE seq > ? ORDER BY seq LIMIT ?", (since, limit))
    return [
        {
            "seq": row["seq"],
            "id": row["id"],
            "key": row["key"],
            "tag": row["tag"],
            "message_id": row["message_id"],
            "digest": row["digest"],
            "recipients": [entry["address"] for entry in json.loads(row["recipients"])],
            "refused": [
                entry["address"] for entry in json.loads(row["recipients"]) if entry["refused"]
            ],
            "subject": row["subject"],
            "attachments": json.loads(row["attachments"]),
            "accepted_at": iso(row["accepted_at"]),
            "contract": row["contract"],
            "org": row["org"],
            "request_no": row["request_no"],
        }
        for row in rows
    ]


def requests_since(db: sqlite3.Connection, since: int, limit: int) -> list[dict[str, Any]]:
    rows = db.execute("SELECT * FROM requests WHERE seq > ? ORDER BY seq LIMIT ?", (since, limit))
    return [{**dict(row), "received_at": iso(row["received_at"])} for row in rows]


def stats(db: sqlite3.Connection) -> dict[str, Any]:
    def count(sql: str) -> int:
        return int(db.execute(f"SELECT count(*) FROM ({sql})").fetchone()[0])

    by_outcome = dict(db.execute("SELECT outcome, count(*) FROM requests GROUP BY 1").fetchall())
    keys = "SELECT 1 FROM messages WHERE key IS NOT NULL GROUP BY org, key"
    tags = "SELECT 1 FROM messages WHERE tag IS NOT NULL GROUP BY org, tag"
    return {
        "accepted": count("SELECT 1 FROM messages"),
        "distinct_keys": count(keys),
        "distinct_tags": count(tags),
        "duplicate_keys": count(f"{keys} HAVING count(*) > 1"),
        "duplicate_tags": count(f"{tags} HAVING count(*) > 1"),
        "requests": sum(by_outcome.values()),
        "replays": by_outcome.get("replayed", 0),
        "conflicts": by_outcome.get("conflict", 0),
        "by_outcome": by_outcome,
        "events": dict(db.execute("SELECT state, count(*) FROM events GROUP BY 1").fetchall()),
    }


def find(
    db: sqlite3.Connection, org: str, field: str, value: str, now: float
) -> list[dict[str, Any]]:
    """The messages that a look-up by `id`, `tag` or `key` shows to this organisation."""
    rows = db.execute(
        f"SELECT * FROM messages WHERE org = ? AND {field} = ? AND NOT hidden ORDER BY seq",
        (org, value),
    ).fetchall()
    return [describe(db, row, now) for row in rows]


def describe(db: sqlite3.Connection, message: sqlite3.Row, now: float) -> dict[str, Any]:
    recipients = [
        {
            "address": entry["address"],
            "state": "refused"
            if entry["refused"]
            else latest_state(db, message["seq"], entry["address"], now),
        }
        for entry in json.loads(message["recipients"])
    ]
    states = {recipient["state"] for recipient in recipients}
    return {
        "id": message["id"],
        "tag": message["tag"],
        "key": message["key"],
        "message_id": message["message_id"],
        "status": states.pop() if len(states) == 1 else "mixed",
        "recipients": recipients,
        "accepted_at": iso(message["accepted_at"]),
    }


def latest_state(db: sqlite3.Connection, message: int, recipient: str, now: float) -> str:
    row = db.execute(
        "SELECT type FROM events WHERE message = ? AND recipient = ? AND happens_at <= ?"
        " ORDER BY happens_at DESC, seq DESC LIMIT 1",
        (message, recipient, now),
    ).fetchone()
    return str(row["type"]) if row else "accepted"


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds")
