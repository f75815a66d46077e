"""Every error of the agents' door, as a problem (RFC 9457) with a stable code."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from django.core.exceptions import TooManyFieldsSent
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError

from sends import logs
from sends.lifecycle.refusals import Refused
from sends.lifecycle.versions import BeyondAccount, SuppressedRecipient
from sends.rules.next_steps import Step
from sends.rules.proposals import MOST_NAMED, Wrong, WrongProposal
from sends.rules.strict_json import NotJson

log = logging.getLogger(__name__)
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

# What each code is about, for the reference page. Those of `lifecycle.refusals` say no to
# what an intent's state does not allow.
TITLES: dict[str, str] = {
    "not_json": "The body cannot be read",
    "not_found": "There is nothing here",
    "method_not_allowed": "This address does not take that method",
    "length_required": "The length of the body is needed",
    "too_large": "The request is too large",
    "media_type": "Send application/json",
    "not_acceptable": "The answer would be of a type that is not accepted",
    "cursor_expired": "What changed since then is no longer known",
    "too_many_requests": "More requests than this token may make now",
    "unauthorized": "A valid bearer token is needed",
    "missing_scope": "This token may not do that",
    "wrong_fields": "Some fields are wrong",
    "suppressed_recipient": "A recipient must not be sent to",
    "beyond_account": "The account cannot send such a message",
    "action_key_reuse": "The action key stands for another message",
    "trigger_reuse": "The trigger was answered with another message",
    "run_ended": "The run was ended",
    "rejected": "A person rejected this message",
    "being_decided": "A person is deciding right now",
    "version_changed": "Another version is current",
    "in_flight": "The provider is being asked right now",
    "in_doubt": "The provider may have taken it",
    "already_accepted": "The provider took it",
    "already_decided": "It was decided already",
    "too_late": "The moment for that is over",
    "not_possible": "Its status does not allow that",
    "not_allowed": "That is not yours to do",
    "busy": "The database is busy",
    "internal": "Our mistake",
}
STEPS: dict[str, Step] = {
    "not_json": Step.FIX,
    "method_not_allowed": Step.FIX,
    "wrong_fields": Step.FIX,
    "media_type": Step.FIX,
    "not_acceptable": Step.FIX,
    "cursor_expired": Step.FIX,
    "too_many_requests": Step.WAIT,
    "length_required": Step.FIX,
    "too_large": Step.FIX,
    "action_key_reuse": Step.FIX,
    "version_changed": Step.FIX,
    "suppressed_recipient": Step.DO_NOT_RESEND,
    "beyond_account": Step.FIX,
    "trigger_reuse": Step.DO_NOT_RESEND,
    "run_ended": Step.DO_NOT_RESEND,
    "rejected": Step.DO_NOT_RESEND,
    "being_decided": Step.WAIT,
    "in_flight": Step.WAIT,
    "in_doubt": Step.DO_NOT_RESEND,
    "already_accepted": Step.DO_NOT_RESEND,
    "already_decided": Step.DO_NOT_RESEND,
    "busy": Step.WAIT,
    "internal": Step.WAIT,
}


class WrongAnswer(Schema):
    pointer: str
    code: str
    detail: str


class ProblemAnswer(Schema):
    """application/problem+json (RFC 9457); `errors` names every wrong field."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    next_step: Step
    request_id: str
    errors: list[WrongAnswer]


class Problem(Exception):
    """An error of the door itself; `register` turns it into the answer."""

    def __init__(
        self, status: int, code: str, detail: str, *, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers


@dataclass(frozen=True)
class Said:
    """What an error answers: what is wrong, in a code for programs and a sentence for people."""

    status: int
    code: str
    detail: str
    errors: Iterable[Wrong] = ()
    next_step: Step | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)

    def document(self) -> dict[str, Any]:
        return {
            "type": f"/api/v1/docs#{self.code}",
            "title": TITLES.get(self.code, HTTPStatus(self.status).phrase),
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "next_step": self.next_step or STEPS.get(self.code, Step.ASK_A_PERSON),
            "request_id": logs.request_id(),
            "errors": [
                {"pointer": wrong.pointer, "code": wrong.code, "detail": wrong.detail}
                for wrong in self.errors
            ],
        }

    def response(self) -> HttpResponse:
        return JsonResponse(
            self.document(),
            status=self.status,
            content_type="application/problem+json",
            headers={"Cache-Control": "no-store", **self.headers},
        )


def said(error: Exception) -> Said:
    """What this exception answers. One that nobody foresaw is our mistake, and is logged."""
    kind = next(kind for kind in type(error).__mro__ if kind in ANSWERS)
    return ANSWERS[kind](error)


def register(api: NinjaAPI) -> None:
    """Answer each exception that may leave a view."""
    for kind in ANSWERS:
        api.add_exception_handler(kind, _answered)
    api.add_exception_handler(Http404, lambda request, error: not_found(request))


def _answered(request: HttpRequest, error: Any) -> HttpResponse:
    return said(error).response()


def not_found(request: HttpRequest) -> HttpResponse:
    """For every address under the door that is none, and for what belongs to others."""
    return Said(404, "not_found", f"There is nothing at {request.path} for this token.").response()


def method_not_allowed(request: HttpRequest, answer: HttpResponseBase) -> HttpResponse:
    """The problem for ninja's own refusal of a method."""
    methods = set(answer["Allow"].split(", "))
    allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
    return Said(
        405,
        "method_not_allowed",
        f"{request.path} takes {allowed}, not {request.method}.",
        headers={"Allow": allowed},
    ).response()


def not_acceptable(answers: str) -> HttpResponse:
    """For whoever accepts nothing of what this address answers."""
    return Said(406, "not_acceptable", f"This answers {answers}; accept that.").response()


def _of_the_door(error: Problem) -> Said:
    return Said(error.status, error.code, error.detail, headers=error.headers)


def _not_json(error: NotJson) -> Said:
    return Said(400, "not_json", str(error))


def _wrong_fields(error: WrongProposal) -> Said:
    count = len(error.errors)
    said = "One field is wrong" if count == 1 else f"{count} fields are wrong"
    if count == MOST_NAMED:
        said = f"{count} fields are wrong, or more"
    detail = f"{said}, so nothing was taken in."
    return Said(422, "wrong_fields", detail, errors=error.errors)


def _named(error: SuppressedRecipient | BeyondAccount) -> Said:
    return Said(422, error.code, error.words, errors=error.errors)


def _refused(error: Refused) -> Said:
    step = STEPS.get(error.code, Step.ASK_A_PERSON)
    if step is Step.FIX and error.offer != "edit":
        step = Step.DO_NOT_RESEND
    return Said(409, error.code, error.words, next_step=step)


def _wrong_parameters(error: ValidationError) -> Said:
    # The place begins with "query" or "path"; an index after the name says nothing more.
    errors = [Wrong(f"/{found['loc'][1]}", "parameter", found["msg"]) for found in error.errors]
    return Said(422, "wrong_fields", "A parameter of the address is wrong.", errors=errors)


def _too_many_parameters(error: TooManyFieldsSent) -> Said:
    wrong = Wrong("", "too_many", "an address may have some hundreds of parameters, not thousands")
    return Said(422, "wrong_fields", "The address has too many parameters.", errors=[wrong])


def _unauthorized(error: AuthenticationError) -> Said:
    return Said(
        401,
        "unauthorized",
        "Send the header Authorization: Bearer with a token that is in force; this one is missing,"
        " unknown, expired or revoked.",
        headers={"WWW-Authenticate": 'Bearer realm="outbox"'},
    )


def _http(error: HttpError) -> Said:
    return Said(error.status_code, "not_json", error.message)


def _busy(error: OperationalError) -> Said:
    log.warning("the database was busy", exc_info=error)
    return Said(
        503,
        "busy",
        "Nothing was decided. Send the same request again in a moment.",
        headers={"Retry-After": "1"},
    )


def _internal(error: Exception) -> Said:
    log.error("request failed", exc_info=error)
    return Said(500, "internal", "Something failed here. Sending the same request again is safe.")


ANSWERS: dict[type[Exception], Callable[[Any], Said]] = {
    Problem: _of_the_door,
    NotJson: _not_json,
    WrongProposal: _wrong_fields,
    SuppressedRecipient: _named,
    BeyondAccount: _named,
    Refused: _refused,
    ValidationError: _wrong_parameters,
    TooManyFieldsSent: _too_many_parameters,
    AuthenticationError: _unauthorized,
    HttpError: _http,
    OperationalError: _busy,
    Exception: _internal,
}
