"""The body of a request, read once and strictly."""

from typing import Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from django.http.request import UnreadablePostError
from pydantic import BaseModel

from sends.api.problems import Problem
from sends.rules.strict_json import MAX_BODY_BYTES, read_json

TOO_LARGE = f"A request may have at most {MAX_BODY_BYTES} bytes."


def document(request: HttpRequest) -> Any:
    """The JSON document in the body; Problem or NotJson where there is none."""
    kind = request.content_type or ""
    if kind not in ("", "application/json") and not kind.endswith("+json"):
        raise Problem(415, "media_type", f"Send application/json, not {kind}.")
    return read_json(_body(request))


def optional_document(request: HttpRequest) -> Any:
    """As `document`; an empty object where the body is empty."""
    return document(request) if _body(request) else {}


def _body(request: HttpRequest) -> bytes:
    if "Transfer-Encoding" in request.headers and not request.headers.get("Content-Length"):
        # Django takes a body of unknown length for an empty one.
        raise Problem(411, "length_required", "Send the body whole, with a Content-Length.")
    try:
        body = request.body
    except RequestDataTooBig:
        raise Problem(413, "too_large", TOO_LARGE) from None
    except UnreadablePostError:
        raise Problem(400, "not_json", "The request ended before its body did.") from None
    if len(body) > MAX_BODY_BYTES:
        raise Problem(413, "too_large", TOO_LARGE)
    return body


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """What OpenAPI says of a body that `document` reads and the model checks."""
    schema = model.model_json_schema()
    parts = schema.pop("$defs", {})
    media = {"application/json": {"schema": _with(parts, schema)}}
    return {"requestBody": {"content": media, "required": required}}


def _with(parts: dict[str, Any], schema: Any) -> Any:
    """The schema with its parts written out: a reference would be looked for in the document."""
    if isinstance(schema, list):
        return [_with(parts, member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _with(parts, parts[schema["$ref"].rpartition("/")[2]])
    return {name: _with(parts, member) for name, member in schema.items()}
