"""What OpenAPI says of the agents' door: errors, examples, and what a repetition means."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from sends.api import examples
from sends.api.problems import TITLES, ProblemAnswer, Said

# What an address may answer besides, by what it is like.
ANY = {406: ("not_acceptable",), 500: ("internal",), 503: ("busy",)}
WITH_TOKEN = {401: ("unauthorized",), 403: ("missing_scope",), 429: ("too_many_requests",)}
WITH_BODY = {
    400: ("not_json",),
    411: ("length_required",),
    413: ("too_large",),
    415: ("media_type",),
    422: ("wrong_fields",),
}
WITH_ID = {404: ("not_found",)}
WITH_FILTERS = {422: ("wrong_fields",)}


@dataclass(frozen=True)
class Told:
    """What is told of one operation beyond what its code says.

    `repeat` is what a repetition of the very same request means; `problems` are its own, by the
    status of the answer; `answers` have an example for each status of success.
    """

    repeat: str
    answers: dict[int, Any]
    request: Any = None
    problems: dict[int, tuple[str, ...]] = field(default_factory=dict)


OPERATIONS: dict[str, Told] = {
    "propose": Told(
        "Always safe. The first intent is answered with 200 and `replayed`, whatever became of it.",
        {201: examples.CREATED, 200: examples.REPLAYED},
        examples.PROPOSAL,
        {
            409: ("action_key_reuse", "trigger_reuse", "run_ended"),
            422: ("wrong_fields", "suppressed_recipient", "beyond_account"),
        },
    ),
    "propose_batch": Told(
        "Always safe, also after a part of it, and in another order: each message as if alone.",
        {
            200: {
                "created": 1,
                "replayed": 0,
                "refused": 1,
                "items": [
                    {
                        "index": 0,
                        "status": 201,
                        "action_key": examples.PROPOSAL["action_key"],
                        "intent": examples.CREATED,
                        "problem": None,
                    },
                    {
                        "index": 1,
                        "status": 422,
                        "action_key": examples.SECOND["action_key"],
                        "intent": None,
                        "problem": Said(
                            422, "wrong_fields", "One field is wrong, so nothing was taken in."
                        ).document()
                        | {"errors": [examples.WRONG_ADDRESS]},
                    },
                ],
            }
        },
        [examples.PROPOSAL, examples.SECOND],
    ),
    "simulate": Told(
        "Always safe: nothing is created. What it says may change in between.",
        {200: examples.SIMULATION},
        examples.PROPOSAL,
    ),
    "propose_version": Told(
        "Always safe. The version that the first request made is answered with 200 and `replayed`.",
        {201: examples.CREATED | {"version": 2}, 200: examples.REPLAYED | {"version": 2}},
        examples.VERSION,
        {
            409: (
                *("version_changed", "in_flight", "in_doubt", "already_accepted"),
                *("being_decided", "rejected", "run_ended", "not_possible"),
            ),
            422: ("wrong_fields", "suppressed_recipient", "beyond_account"),
        },
    ),
    "withdraw": Told(
        "Always safe. What was taken back already stays so, and the first reason with it.",
        {200: examples.WITHDRAWN},
        {"reason": "The customer found the parcel."},
        {409: ("already_accepted", "not_possible")},
    ),
    "list_intents": Told(
        "Reads only. The same `since` or `cursor` may be asked for again.",
        {200: examples.PAGE},
        problems={410: ("cursor_expired",)},
    ),
    "get_intent": Told("Reads only.", {200: examples.WHOLE}),
    "open_run": Told(
        "Always safe. The run that is there is answered with 200; one that was ended with 409.",
        {201: examples.RUN, 200: examples.RUN},
        examples.NAMED_RUN,
        {409: ("run_ended",)},
    ),
    "list_runs": Told("Reads only.", {200: examples.RUN_PAGE}),
    "get_run": Told("Reads only.", {200: examples.RUN}),
}


class DescribedAPI(NinjaAPI):
    """Ninja's door, whose description says what else it answers."""

    def get_openapi_schema(self, **place: Any) -> OpenAPISchema:
        """The same for everybody, wherever asked: no address of ours stands below a variable."""
        return self._described

    @cached_property
    def _described(self) -> OpenAPISchema:
        described = super().get_openapi_schema()
        schemas = described["components"]["schemas"]
        schemas["ProblemAnswer"] = ProblemAnswer.model_json_schema(
            mode="serialization", ref_template="#/components/schemas/{model}"
        )
        schemas |= schemas["ProblemAnswer"].pop("$defs", {})
        for operation in operations_in(described):
            _complete(operation)
        return described


def operations_in(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for methods in described["paths"].values():
        yield from methods.values()


def _complete(operation: dict[str, Any]) -> None:
    told = OPERATIONS[operation["operationId"]]
    operation["x-repeat"] = told.repeat
    if told.request is not None:
        operation["requestBody"]["content"]["application/json"]["example"] = told.request
    responses = operation["responses"]
    for status, example in told.answers.items():
        responses[status]["content"]["application/json"]["example"] = example
    for status, codes in sorted(_problems(operation, told).items()):
        responses[status] = {
            "description": "; ".join(dict.fromkeys(TITLES[code] for code in codes)),
            "content": {
                "application/problem+json": {
                    "schema": {"$ref": "#/components/schemas/ProblemAnswer"},
                    "examples": {code: {"value": _problem(status, code)} for code in codes},
                }
            },
        }
        if status in (429, 503):
            responses[status]["headers"] = {"Retry-After": RETRY_AFTER}
    operation["responses"] = {str(status): said for status, said in responses.items()}


def _problems(operation: dict[str, Any], told: Told) -> dict[int, tuple[str, ...]]:
    places = {parameter["in"] for parameter in operation["parameters"]}
    problems = ANY | WITH_TOKEN
    if "path" in places:
        problems |= WITH_ID
    if "query" in places:
        problems |= WITH_FILTERS
    if "requestBody" in operation:
        problems |= WITH_BODY
    return problems | told.problems


RETRY_AFTER = {"schema": {"type": "integer"}, "description": "How many seconds to wait."}


def _problem(status: int, code: str) -> dict[str, Any]:
    problem = Said(status, code, f"{TITLES[code]}.").document()
    return problem | {"errors": [examples.WRONG_ADDRESS] if code == "wrong_fields" else []}
