"""What the sandbox promises about a repeated key."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any


class Contract(StrEnum):
    REPLAY = "replay"
    NONE = "none"


class Repeat(StrEnum):
    """What a known key makes of a request."""

    REPLAYED = "replayed"
    CONFLICT = "conflict"
    IN_PROGRESS = "in_progress"


@dataclass(frozen=True)
class Recalled:
    repeat: Repeat
    answer: dict[str, Any]


def meaning_of(body: object) -> str:
    """The same for two bodies that say the same, however they are spelt."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode()).hexdigest()


def recall(
    db: sqlite3.Connection, org: str, key: str, meaning: str, *, now: float, window: float
) -> Recalled | None:
    """What is remembered of the key, or None where it is new or the window has closed."""
    row = db.execute("SELECT * FROM keys WHERE org = ? AND key = ?", (org, key)).fetchone()
    if row is None or now >= row["completed_at"] + window:
        return None
    if row["meaning"] != meaning:
        return Recalled(Repeat.CONFLICT, {})
    if now < row["completed_at"]:
        return Recalled(Repeat.IN_PROGRESS, {})
    return Recalled(Repeat.REPLAYED, json.loads(row["answer"]))


def remember(
    db: sqlite3.Connection,
    org: str,
    key: str,
    meaning: str,
    answer: dict[str, Any],
    *,
    completed_at: float,
) -> None:
    db.execute(
        "INSERT OR REPLACE INTO keys (org, key, meaning, answer, completed_at)"
        " VALUES (?, ?, ?, ?, ?)",
        (org, key, meaning, json.dumps(answer), completed_at),
    )
