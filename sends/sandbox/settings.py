"""What can be changed while the sandbox runs: the command line first, then PUT /v1/config."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from .contract import Contract
from .faults import MENU


class EventMode(StrEnum):
    """How webhooks misbehave. Those before the line are decided when a message is accepted."""

    NORMAL = "normal"
    OFF = "off"
    BEFORE_ANSWER = "before-answer"
    DOUBLED = "doubled"
    REVERSED = "reversed"
    CHANGED_IDS = "changed-ids"
    # -- these when an event is sent
    UNKNOWN_IDS = "unknown-ids"
    NULLS = "nulls"
    UNSIGNED = "unsigned"
    OLD_SECRET = "old-secret"
    CLOCK_OFF = "clock-off"


@dataclass(frozen=True)
class Settings:
    contract: Contract = Contract.REPLAY
    window: float = 86_400.0
    deliver_after: float = 1.0
    lookup: bool = True
    webhook: str | None = None
    webhook_secrets: tuple[str, ...] = ()
    events: EventMode = EventMode.NORMAL
    down: bool = False

    def public(self) -> dict[str, Any]:
        """All but the secrets, as PUT /v1/config takes it."""
        return {
            "contract": self.contract,
            "window": self.window,
            "deliver_after": self.deliver_after,
            "lookup": self.lookup,
            "webhook": self.webhook,
            "events": {"mode": self.events},
            "down": self.down,
        }


class WrongSettingError(Exception):
    """A setting that is not known, or has a value that is not allowed."""


def switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongSettingError(f"{name} is {value!r}; give true or false.")
    return value


def seconds(name: str, value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1e9:
        raise WrongSettingError(f"{name} is {value!r}; give a number of seconds from 0 up.")
    return float(value)


def contract(name: str, value: Any) -> Contract:
    if value not in list(Contract):
        raise WrongSettingError(f"{name} is {value!r}; give one of {', '.join(Contract)}.")
    return Contract(value)


def webhook(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not is_http_url(value):
        raise WrongSettingError(
            f"{name} is {value!r}; give a URL that starts with http://, or null."
        )
    return value


def is_http_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def secrets(name: str, value: Any) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise WrongSettingError(f"{name} must be a text or a list of texts, none of them empty.")
    return tuple(given)


def event_mode(name: str, value: Any) -> EventMode:
    mode = value.get("mode") if isinstance(value, dict) and len(value) == 1 else None
    if mode not in list(EventMode):
        wanted = ", ".join(EventMode)
        raise WrongSettingError(f'{name} is {value!r}; give {{"mode": …}} with one of {wanted}.')
    return EventMode(mode)


READERS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    "contract": ("contract", contract),
    "window": ("window", seconds),
    "deliver_after": ("deliver_after", seconds),
    "lookup": ("lookup", switch),
    "webhook": ("webhook", webhook),
    "webhook_secret": ("webhook_secrets", secrets),
    "webhook_secrets": ("webhook_secrets", secrets),
    "events": ("events", event_mode),
    "down": ("down", switch),
}


def changed(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """The settings with what was given, or WrongSettingError; nothing is changed by halves."""
    changes = {}
    for name, value in given.items():
        if name not in READERS:
            raise WrongSettingError(
                f"{name} is no setting; these are: {', '.join(READERS)}, faults."
            )
        column, read = READERS[name]
        changes[column] = read(name, value)
    return replace(settings, **changes)


def stored(db: sqlite3.Connection, settings: Settings) -> Settings:
    """The settings with all that was PUT since the last reset, also before a restart."""
    given = {row["name"]: json.loads(row["value"]) for row in db.execute("SELECT * FROM config")}
    return changed(settings, given)


def store(db: sqlite3.Connection, given: Mapping[str, Any]) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO config (name, value) VALUES (?, ?)",
        [(name.replace("secrets", "secret"), json.dumps(value)) for name, value in given.items()],
    )


@dataclass(frozen=True)
class Scripted:
    """A fault for the next requests that match; `times` None is for ever."""

    field: str
    value: str
    word: str
    times: int | None


def read_script(given: Any) -> list[Scripted]:
    """The list under `faults`, or WrongSettingError."""
    if not isinstance(given, list):
        raise WrongSettingError(f"faults is {given!r}; give a list.")
    return [read_scripted(entry) for entry in given]


def read_scripted(entry: Any) -> Scripted:
    if not isinstance(entry, dict) or not set(entry) <= {"match", "fault", "times"}:
        raise WrongSettingError(f"{entry!r} in faults: give match, fault and, if not 1, times.")
    match = entry.get("match", {"any": True})
    if not isinstance(match, dict) or len(match) != 1 or set(match) - {"key", "tag", "to", "any"}:
        raise WrongSettingError(f"match {match!r} in faults: give one of key, tag, to or any.")
    word, times = str(entry.get("fault")), entry.get("times", 1)
    if word not in MENU:
        raise WrongSettingError(f"fault {word!r} in faults is not on the menu: {', '.join(MENU)}.")
    if times is not None and (type(times) is not int or times < 1):
        raise WrongSettingError(f"times {times!r} in faults: give a number from 1 up, or null.")
    ((field, value),) = match.items()
    return Scripted(field, "" if field == "any" else str(value), word, times)


def store_script(db: sqlite3.Connection, script: list[Scripted]) -> None:
    """Put this script in place of the one before."""
    db.execute("DELETE FROM script")
    db.executemany(
        "INSERT INTO script (field, value, word, times_left) VALUES (?, ?, ?, ?)",
        [(entry.field, entry.value, entry.word, entry.times) for entry in script],
    )


def next_scripted(
    db: sqlite3.Connection, facts: Mapping[str, str | None], only: str | None = None
) -> str | None:
    """Use up and return the word of the first entry that matches, if there is one."""
    for row in db.execute("SELECT * FROM script ORDER BY seq").fetchall():
        if row["field"] != "any" and facts.get(row["field"]) != row["value"]:
            continue
        if only is not None and row["word"] != only:
            return None
        if row["times_left"] == 1:
            db.execute("DELETE FROM script WHERE seq = ?", (row["seq"],))
        else:
            db.execute("UPDATE script SET times_left = times_left - 1 WHERE seq = ?", (row["seq"],))
        return str(row["word"])
    return None


def is_scripted(db: sqlite3.Connection, word: str) -> bool:
    return db.execute("SELECT 1 FROM script WHERE word = ?", (word,)).fetchone() is not None
