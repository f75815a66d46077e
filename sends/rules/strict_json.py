"""JSON read strictly: a document that two readers could take differently is none."""

import json
import math
from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 32


class NotJson(Exception):
    """The request's body is not JSON as we take it; the words say why."""


def read_json(raw: bytes) -> Any:
    """The document in a request's body, or NotJson.

    Stricter than `json.loads`: a name given twice, NaN, Infinity, and numbers beyond all bounds
    mean different things to different readers, and what was approved must mean one thing.
    """
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
    if any(pointer.count("/") > MAX_DEPTH for pointer, _ in walk(document)):
        raise NotJson(TOO_DEEP)
    return document


TOO_DEEP = f"The body is nested too deeply; at most {MAX_DEPTH} levels are read."


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise NotJson(f"The name {json.dumps(name)} is given twice in one object.")
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


def walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Every value of the document with its pointer; names of members come as values too."""
    waiting = [("", value)]
    while waiting:
        pointer, value = waiting.pop()
        yield pointer, value
        if isinstance(value, dict):
            for name, member in value.items():
                yield pointer, name
                waiting.append((f"{pointer}/{escaped(name)}", member))
        elif isinstance(value, list):
            waiting.extend((f"{pointer}/{index}", member) for index, member in enumerate(value))


def escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
