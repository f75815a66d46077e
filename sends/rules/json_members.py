"""Where the members of a JSON array stand, so that each can be read by itself."""

import re
from mmap import mmap

from sends.rules.strict_json import MAX_DEPTH, TOO_DEEP, NotJson

# What tells where a member ends. Possessive, so that no step of a long string is remembered.
TOKEN = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},"]|[^ \t\r\n"\[\]{},]++',
    re.DOTALL,
)
OPEN, CLOSE = (b"[", b"{"), (b"]", b"}")
MAX_VALUES = 1_000_000  # of all members together
MOST_TOKENS = 5 * MAX_VALUES  # for a value at most its brackets or itself, its name and two signs


class TooMany(Exception):
    """The array has more members than are taken at once."""


def members_of(raw: bytes | mmap, *, most: int) -> list[slice]:
    """The place of each member of the array; NotJson where it is none, or TooMany.

    Only the frame is read. Whether a member is JSON is for its own reader to say, so that one
    which is not harms no other.
    """
    places: list[slice] = []
    depth = 0
    began: int | None = None  # of the member that is being read
    ended = 0
    over = False
    for count, token in enumerate(TOKEN.finditer(raw)):
        if count > MOST_TOKENS:
            raise NotJson(f"The body has too many values; at most {MAX_VALUES} are read.")
        sign = token[0] if token.end() - token.start() == 1 else b""
        if over:
            raise _no_array("something follows its end", token)
        if sign == b'"':
            raise _no_array("a string has no end", token)
        if depth == 0 and sign != b"[":
            raise _no_array("it does not begin with [", token)
        if depth == 1 and sign in (b",", b"]"):
            if began is not None:
                places.append(slice(began, ended))
            elif sign == b"," or places:
                raise _no_array("a member is missing", token)
            began, over = None, sign == b"]"
            if len(places) + (sign == b",") > most:
                raise TooMany
            continue
        if depth == 1:
            if began is not None or sign in CLOSE:
                raise _no_array("a comma is missing", token)
            began = token.start()
        if sign in OPEN:
            depth += 1
        elif sign in CLOSE:
            depth -= 1
        if depth > MAX_DEPTH + 2:
            raise NotJson(TOO_DEEP)
        ended = token.end()
    if not over:
        raise NotJson("The body is no whole JSON array: it ends too early.")
    return places


def _no_array(what: str, token: re.Match[bytes]) -> NotJson:
    return NotJson(f"The body is not a JSON array: {what}, at byte {token.start()}.")
