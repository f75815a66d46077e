"""The agents' door described for people: plain HTML, made from the same description as OpenAPI."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from ninja import NinjaAPI

from sends.api.examples import API, PROPOSAL
from sends.api.problems import STEPS, TITLES
from sends.rules import next_steps
from sends.rules.next_steps import Step
from sends.rules.statuses import SENTENCES, Status

JSON, PROBLEM = "application/json", "application/problem+json"
KINDS = {
    "string": "text",
    "array": "list",
    "object": "object",
    "integer": "number",
    "boolean": "true or false",
}


@dataclass(frozen=True)
class Field:
    """A field of a body, or a parameter. `words` alternate between prose and code."""

    name: str
    kind: str
    words: list[str]


@dataclass(frozen=True)
class Operation:
    """One address and method. `paragraphs` and `fields` are for people to read."""

    method: str
    path: str
    paragraphs: list[list[str]]
    parameters: list[Field]
    fields: list[Field]
    answer: list[str]
    problems: list[tuple[str, str]]
    repeat: list[str]
    asked: str
    answered: list[tuple[str, str]]


@require_safe
def reference(request: HttpRequest, api: NinjaAPI) -> HttpResponse:
    """Swagger's page needs inline scripts; this one needs none."""
    described = api.get_openapi_schema()
    return render(
        request,
        "sends/api/reference.html",
        {
            "title": described["info"]["title"],
            "api": API,
            "example": json.dumps(PROPOSAL, indent=2),
            "operations": list(_operations(described)),
            "statuses": [
                (status, SENTENCES[status], next_steps.STEPS[status]) for status in Status
            ],
            "steps": list(Step),
            "problems": [
                (code, STEPS.get(code, Step.ASK_A_PERSON), TITLES[code]) for code in TITLES
            ],
        },
    )


def _operations(described: dict[str, Any]) -> Iterator[Operation]:
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            content = told.get("requestBody", {}).get("content", {})
            schema = content.get(JSON, {}).get("schema", {})
            yield Operation(
                method=method.upper(),
                path=path,
                paragraphs=[_pieces(text) for text in told.get("description", "").split("\n\n")],
                parameters=[
                    Field(one["name"], _kind(one["schema"]), _pieces(one.get("description", "")))
                    for one in told.get("parameters", [])
                ],
                fields=[
                    Field(name, _kind(field), _pieces(field.get("description", "")))
                    for name, field in _one(schema).get("properties", {}).items()
                ],
                answer=_answered(told["responses"], schemas),
                problems=[
                    (status, code)
                    for status, said in told["responses"].items()
                    for code in said["content"].get(PROBLEM, {}).get("examples", {})
                ],
                repeat=_pieces(told["x-repeat"]),
                asked=_written(content.get(JSON, {}).get("example")),
                answered=[
                    (status, _written(said["content"][JSON]["example"]))
                    for status, said in told["responses"].items()
                    if JSON in said["content"]
                ],
            )


def _one(schema: dict[str, Any]) -> dict[str, Any]:
    """What one member of the body is like, where it is a list."""
    members: dict[str, Any] = schema.get("items", schema)
    return members


def _written(example: Any) -> str:
    return "" if example is None else json.dumps(example, indent=2, ensure_ascii=False)


def _answered(responses: dict[Any, Any], schemas: dict[str, Any]) -> list[str]:
    """The names in the answer to a request that went well."""
    schema = responses[str(HTTPStatus.OK.value)]["content"][JSON]["schema"]
    return list(schemas[schema["$ref"].rpartition("/")[2]]["properties"])


def _pieces(text: str) -> list[str]:
    """Prose and code by turns: every second piece stood between backticks."""
    return " ".join(text.split()).split("`")


def _kind(schema: dict[str, Any]) -> str:
    """What a value is, in a few words. Null is as good as left out, and so left out here."""
    choices = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    if len(choices) == 1:
        return _kind(choices[0])
    if choices:
        return " or ".join(_kind(one) for one in choices)
    if "enum" in schema or "$ref" in schema:
        return "one of the statuses"
    if "date-time" in str(schema.get("format")):
        return "time"
    kind = KINDS.get(schema.get("type", ""), "any JSON")
    if kind == "list":
        kind = f"list of {_kind(schema.get('items', {}))}"
    most = schema.get("maxLength") or schema.get("maxItems") or schema.get("maximum")
    return f"{kind}, at most {most:,}" if most else kind
