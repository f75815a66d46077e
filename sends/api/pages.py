"""Lists, a page at a time: cursors that do not shift, and no filter that is silently left out."""

import base64
import binascii
import uuid
from collections.abc import Collection

from django.http import HttpRequest

from sends.rules.proposals import Wrong, WrongProposal

MOST = 100


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


def packed(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def unpacked(cursor: str, parameter: str, *, length: int) -> bytes:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != length:
        said = f"is not one that next_{parameter} gave; leave it out to begin"
        raise WrongProposal(Wrong(f"/{parameter}", "cursor", said))
    return raw
