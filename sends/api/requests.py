"""The body of a request, read once and strictly."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from mmap import ACCESS_READ, mmap
from typing import IO, Any

from django.http import HttpRequest
from django.http.request import UnreadablePostError
from pydantic import BaseModel

from sends.api.problems import Problem
from sends.conf import conf
from sends.rules.json_members import TooMany, members_of
from sends.rules.strict_json import NotJson, read_json

MOST_AT_ONCE = 500
MAX_BATCH_BYTES = 64_000_000
CHUNK_BYTES = 64 * 1024

TOO_LARGE = f"A message may have at most {conf.limits.request} bytes."
BATCH_TOO_LARGE = f"A batch may have at most {MAX_BATCH_BYTES} bytes."
CUT = "The request ended before its body did."


def document(request: HttpRequest) -> Any:
    """The JSON document in the body; Problem or NotJson where there is none."""
    _require_json(request)
    return read_json(_body(request))


def optional_document(request: HttpRequest) -> Any:
    """As `document`; an empty object where the body is empty."""
    body = _body(request)
    if not body:
        return {}
    _require_json(request)
    return read_json(body)


@contextmanager
def members(request: HttpRequest) -> Iterator[list[Callable[[], Any]]]:
    """One reader for each member of the JSON array in the body; it returns the document or raises.

    The body lies in a file meanwhile, so that a large one costs little memory. Problem or NotJson
    where it is no array, or too large a one: then no member was read.
    """
    _require_json(request)
    _require_length(request, most=MAX_BATCH_BYTES, otherwise=BATCH_TOO_LARGE)
    with tempfile.TemporaryFile(dir=conf.data_dir) as file:
        size = _spool(request, file)
        if not size:
            raise NotJson("The body is empty.")
        with mmap(file.fileno(), size, access=ACCESS_READ) as raw:
            try:
                places = members_of(raw, most=MOST_AT_ONCE)
            except TooMany:
                said = f"A batch may have at most {MOST_AT_ONCE} members."
                raise Problem(413, "too_large", said) from None
            yield [partial(_member, raw, place) for place in places]


def _spool(request: HttpRequest, file: IO[bytes]) -> int:
    """Write the body to the file; how long it is."""
    size = 0
    try:
        while chunk := request.read(CHUNK_BYTES):
            size += file.write(chunk)
    except UnreadablePostError:
        raise Problem(400, "not_json", CUT) from None
    file.flush()
    return size


def _member(raw: mmap, place: slice) -> Any:
    if place.stop - place.start > conf.limits.request:
        raise Problem(413, "too_large", TOO_LARGE)
    return read_json(raw[place])


def _require_json(request: HttpRequest) -> None:
    kind = request.content_type or ""
    if kind not in ("", "application/json") and not kind.endswith("+json"):
        raise Problem(415, "media_type", f"Send application/json, not {kind}.")
    if coding := request.headers.get("Content-Encoding"):
        raise Problem(415, "media_type", f"Send the body as it is, not as {coding}.")


def _require_length(request: HttpRequest, *, most: int, otherwise: str) -> None:
    """Refuse what is too large, or of a length that nobody told, before any of it is read."""
    length = request.headers.get("Content-Length", "")
    if "Transfer-Encoding" in request.headers and not length:
        # Django takes a body of unknown length for an empty one.
        raise Problem(411, "length_required", "Send the body whole, with a Content-Length.")
    if length.isdecimal() and (len(length) > 18 or int(length) > most):
        raise Problem(413, "too_large", otherwise)


def _body(request: HttpRequest) -> bytes:
    """Read as it comes: `request.body` has a limit of its own, and keeps what it read."""
    _require_length(request, most=conf.limits.request, otherwise=TOO_LARGE)
    try:
        body: bytes = request.read()
    except UnreadablePostError:
        raise Problem(400, "not_json", CUT) from None
    return body


KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "required": False,
    "schema": {"type": "string"},
    "description": "Another place for `action_key`.",
}


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """What OpenAPI says of a body that `document` reads and the model checks."""
    media = {"application/json": {"schema": _schema_of(model)}}
    return {"requestBody": {"content": media, "required": required}}


def batch_of(model: type[BaseModel]) -> dict[str, Any]:
    """What OpenAPI says of a body that `members` reads and the model checks, one by one."""
    schema = {"type": "array", "maxItems": MOST_AT_ONCE, "items": _schema_of(model)}
    return {"requestBody": {"content": {"application/json": {"schema": schema}}, "required": True}}


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})
    written: dict[str, Any] = _with(parts, schema)
    return written


def _with(parts: dict[str, Any], schema: Any) -> Any:
    """The schema with its parts written out: a reference would be looked for in the document."""
    if isinstance(schema, list):
        return [_with(parts, member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _with(parts, parts[schema["$ref"].rpartition("/")[2]])
    written = {name: _with(parts, member) for name, member in schema.items()}
    if limit := written.pop("x-limit", None):  # a name in `rules.limits`
        written[MOST[schema["type"]]] = getattr(conf.limits, limit)
    return written


MOST = {"string": "maxLength", "array": "maxItems", "object": "maxProperties"}
