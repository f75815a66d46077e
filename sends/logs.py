"""The log: one wide line for each thing that happened, in fixed fields and without content.

What a line says is a constant, and what it is about stands in its fields. Nothing that people or
programs wrote can reach it: a field that FIELDS does not name is left out, text that is filled
into words is replaced, an exception is told by its kind and place, and whatever still looks like
an address is masked.
"""

import json
import logging
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from django.db import OperationalError

# name -> what it holds. A line has those that apply to it, after time, level, logger and event.
FIELDS: dict[str, str] = {
    "request_id": "the request; that of an attempt is the one that proposed its intent",
    "tenant": "id of the tenant",
    "person": "id of the person who is signed in",
    "agent": "id of the agent whose token it is",
    "host": "the name that was asked for, where it is none of ours",
    "method": "of the request",
    "route": "the pattern of the address, never the address itself",
    "status": "HTTP status of our answer",
    "duration_ms": "how long it took us, in milliseconds",
    "bytes_in": "length of the request's body",
    "bytes_out": "length of our answer's body",
    "queries": "how often the database was asked",
    "account": "id of the account",
    "intent": "id of the intent",
    "attempt": "id of the attempt",
    "number": "which attempt of its intent it was",
    "outcome": "of the attempt; of a provider's event, `applied` or `parked`",
    "decision": "what followed from the attempt",
    "phase": "how far the attempt got",
    "http_status": "HTTP status of the provider's answer",
    "error": "what went wrong: the kind of it",
    "bytes_sent": "how much of the request went out",
    "bytes_total": "how long the request was",
    "seconds": "how long the provider took to answer; how long a worker went on sending",
    "late": "true where the lease was lost before the answer came",
    "adapter": "the provider's, by its name",
    "provider_event": "id of our row of the provider's event",
    "kind": "of the provider's event",
    "count": "how many events a webhook brought, attempts a worker made, results were not saved",
    "new": "how many of the events were not known before",
    "file": "one of our own that cannot be read",
    "task": "the task of the worker that failed",
    "about": "id of the row whose consequences failed",
    "triggers": "names of the triggers that the database lacks",
    "trace": "where the exception was raised, without its words",
}
ADDRESS = re.compile(r"[^\s\"'<>(),;:=/\[\]]+@[^\s\"'<>(),;:=/\[\]]+")
MASK = "…"
VALID_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

OUTSIDE: Mapping[str, Any] = MappingProxyType({})
_about: ContextVar[Mapping[str, Any]] = ContextVar("about", default=OUTSIDE)


@contextmanager
def lines_about(**fields: Any) -> Iterator[None]:
    """Every line that is written inside has these fields too, and those that `about` adds there.

    What was said outside of it is not said inside.
    """
    token = _about.set(fields)
    try:
        yield
    finally:
        _about.reset(token)


def about(**fields: Any) -> None:
    """The lines from here to the end of the request have these fields too; none outside of one."""
    if _about.get() is not OUTSIDE:
        _about.set({**_about.get(), **fields})


def request_id() -> str:
    """The id of the request that is being answered; empty where none is."""
    return str(_about.get().get("request_id", ""))


class Line(logging.Formatter):
    """One record as one line: JSON for programs, or key=value for people."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _words(record),
        }
        fields = {name: _plain(value) for name, value in fields_of(record).items()}
        if self.as_json:
            return json.dumps(head | fields, ensure_ascii=False)
        trace = fields.pop("trace", "")
        said = " ".join([*head.values(), *(f"{k}={_quoted(v)}" for k, v in fields.items())])
        return f"{said}\n{trace}" if trace else said


def _words(record: logging.LogRecord) -> str:
    """What the record says, with its numbers, but without any text that is filled in.

    Some libraries fill it in themselves: whatever follows a colon, or stands on a second line.
    """
    if isinstance(record.msg, BaseException):
        return _kind(record.msg)
    words, args = str(record.msg), record.args
    if isinstance(args, tuple) and args:
        numbers = tuple(arg if isinstance(arg, int | float) else MASK for arg in args)
        with suppress(TypeError, ValueError):  # then the numbers are missing too
            words = words % numbers
    return ADDRESS.sub(MASK, re.split(r":\s|\n", words, maxsplit=1)[0])


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Those of FIELDS that the record has, or that the request has in which it was made."""
    known = {**_about.get(), **vars(record)}
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        known = {"error": _kind(error)} | known | {"trace": _trace(error)}
    return {name: known[name] for name in FIELDS if known.get(name) is not None}


def _kind(error: BaseException) -> str:
    """Its class, with what system or database say of a failure; other words may quote anything."""
    why = error.strerror if isinstance(error, OSError) else None
    if isinstance(error, OperationalError):
        why = str(error).split("\n", 1)[0]
    return f"{type(error).__name__}: {why}" if why else type(error).__name__


def _trace(error: BaseException) -> str:
    """As Python shows it, the cause first; of the exceptions themselves only their kind."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = [_trace(cause)] if cause else []
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    return "\n".join([*before, *([frames] if frames else []), _kind(error)])


def _plain(value: Any) -> Any:
    """Numbers as they are, lists as such, and all else as text without addresses."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return ADDRESS.sub(MASK, str(value))


def _quoted(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_quoted(part) for part in value)
    text = str(value)
    return text if re.fullmatch(r"[^\s\"=]+", text) else json.dumps(text, ensure_ascii=False)
