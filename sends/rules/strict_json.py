"""JSON read strictly: a document that two readers could take differently is none."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

MAX_DEPTH = 32
MAX_VALUES = 100_000
LONGEST_POINTER = 500

# A string, or a sign before a value. A quotation mark by itself begins a string without an end.
PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{"]', re.DOTALL)
MOST_PARTS = 3 * MAX_VALUES  # for a value its sign, its name, and itself where it is a string


class NotJson(Exception):
    """The request's body is not JSON as we take it; the words say why."""


def read_json(raw: bytes) -> Any:
    """The document in a request's body, or NotJson.

    Stricter than `json.loads`: a name given twice, NaN, Infinity, and numbers beyond all bounds
    mean different things to different readers, and what was approved must mean one thing.
    One with far too many values is not even begun: its few bytes would become hundreds of times
    as many.
    """
    if _has_far_too_many(raw):
        raise NotJson(TOO_MANY)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"The body is not UTF-8: byte {error.start} cannot be read.") from None
    try:
        document = json.loads(
            text,
            object_pairs_hook=_each_name_once,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_bounded,
        )
    except json.JSONDecodeError as error:
        raise NotJson(
            f"The body is not JSON: {error.msg}, line {error.lineno} column {error.colno}."
        ) from None
    except RecursionError:
        raise NotJson(TOO_DEEP) from None
    for count, (place, _) in enumerate(walk(document), start=1):
        if place.depth > MAX_DEPTH:
            raise NotJson(TOO_DEEP)
        if count > MAX_VALUES:
            raise NotJson(TOO_MANY)
    return document


TOO_DEEP = f"The body is nested too deeply; at most {MAX_DEPTH} levels are read."
TOO_MANY = f"The body has too many values; at most {MAX_VALUES} are read, names counted too."


def _has_far_too_many(raw: bytes) -> bool:
    if sum(map(raw.count, (b",", b"[", b"{"))) < MAX_VALUES:
        return False
    for count, part in enumerate(PART.finditer(raw)):
        if count > MOST_PARTS:
            return True
        if part[0] == b'"':  # no JSON; to look for its end behind each escaped one takes hours
            return False
    return False


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise NotJson(f"The name {json.dumps(name[:100])} is given twice in one object.")
        read[name] = value
    return read


def _no_constant(name: str) -> None:
    raise NotJson(f"{name} is not JSON; give a number, or null.")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise NotJson(f"The number {digits[:40]} is too large; give it as text.")
    return number


def _bounded(digits: str) -> int:
    if len(digits) > 40:
        raise NotJson(f"The number {digits[:40]}… is too large; give it as text.")
    return int(digits)


class Place(NamedTuple):
    """Where in a document: as a member of what is at `around`."""

    around: "Place | None"
    member: str | int
    depth: int

    @property
    def pointer(self) -> str:
        members, place = [], self
        while place.around is not None:
            members.append(place.member)
            place = place.around
        return pointer_to(reversed(members))


WHOLE = Place(None, "", 0)


def walk(document: Any) -> Iterator[tuple[Place, Any]]:
    """Every value of the document with its place; names of members come as values too."""
    waiting = [iter([(WHOLE, document)])]
    while waiting:
        place, value = next(waiting[-1], (None, None))
        if place is None:
            waiting.pop()
            continue
        yield place, value
        if isinstance(value, dict):
            yield from ((place, name) for name in value)
            waiting.append(_members(place, value.items()))
        elif isinstance(value, list):
            waiting.append(_members(place, enumerate(value)))


def _members(
    around: Place, members: Iterable[tuple[str | int, Any]]
) -> Iterator[tuple[Place, Any]]:
    return ((Place(around, name, around.depth + 1), member) for name, member in members)


def pointer_to(members: Iterable[str | int]) -> str:
    """The JSON pointer (RFC 6901) by way of these members, or what it begins with if it is long.

    Then it is that of something around what is meant: one name can be as long as a body, and
    stand in a hundred errors.
    """
    pointer = ""
    for member in members:
        part = f"/{escaped(str(member))}"
        if len(pointer) + len(part) > LONGEST_POINTER:
            break
        pointer += part
    return pointer


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
