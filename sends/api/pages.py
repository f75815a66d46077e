"""Lists, a page at a time: cursors that do not shift, and no filter that is silently left out."""

import base64
import binascii
import struct
import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from django.http import HttpRequest

from sends.reports.changes import Place
from sends.rules.proposals import Wrong, WrongProposal

MOST = 100
PLACE = struct.Struct(">16sq16sQ16s")
YEAR_ONE = datetime.min.replace(tzinfo=UTC)


def refuse_unknown(request: HttpRequest, parameters: Collection[str]) -> None:
    """A filter that is misspelt would show everything, as if all of it matched."""
    unknown = [
        Wrong(f"/{name}", "parameter", f"is no filter; there are: {', '.join(parameters)}")
        for name in request.GET
        if name not in parameters
    ]
    if unknown:
        raise WrongProposal(*unknown)


def cursor_after(last: uuid.UUID) -> str:
    return packed(last.bytes)


def read_cursor(cursor: str) -> uuid.UUID:
    """What `cursor_after` gave; WrongProposal for anything else."""
    return uuid.UUID(bytes=unpacked(cursor, "cursor", length=16))


def token_of(place: Place) -> str:
    """A place as its agent keeps it."""
    final_at = (place.final_at - YEAR_ONE) // timedelta(microseconds=1)
    return packed(
        PLACE.pack(
            place.restore.bytes,
            place.mark,
            place.intent.bytes,
            final_at,
            place.final.bytes,
        )
    )


def read_token(token: str) -> Place:
    """What `token_of` gave; WrongProposal for anything else."""
    parts = PLACE.unpack(unpacked(token, "since", length=PLACE.size))
    restore, intent, final = (uuid.UUID(bytes=parts[number]) for number in (0, 2, 4))
    try:
        final_at = YEAR_ONE + timedelta(microseconds=parts[3])
    except OverflowError:
        raise _no_cursor("since") from None
    return Place(restore, parts[1], intent, final_at, final)


def packed(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def unpacked(cursor: str, parameter: str, *, length: int) -> bytes:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != length:
        raise _no_cursor(parameter)
    return raw


def _no_cursor(parameter: str) -> WrongProposal:
    said = f"is not one that next_{parameter} gave; give it empty, or not at all, to begin"
    return WrongProposal(Wrong(f"/{parameter}", "cursor", said))
