"""Every error of the agents' door, as a problem (RFC 9457) with a stable code."""

import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError

from sends.lifecycle.refusals import Refused
from sends.lifecycle.versions import SuppressedRecipient
from sends.rules.next_steps import Step
from sends.rules.proposals import MOST_NAMED, Wrong, WrongProposal
from sends.rules.strict_json import NotJson

log = logging.getLogger(__name__)

# What each code is about, for the reference page. Those of `lifecycle.refusals` say no to
# what an intent's state does not allow.
TITLES: dict[str, str] = {
    "not_json": "The body cannot be read",
    "not_found": "There is nothing here",
    "method_not_allowed": "This address does not take that method",
    "length_required": "The length of the body is needed",
    "too_large": "The request is too large",
    "media_type": "Send application/json",
    "unauthorized": "A valid bearer token is needed",
    "missing_scope": "This token may not do that",
    "wrong_fields": "Some fields are wrong",
    "suppressed_recipient": "A recipient must not be sent to",
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
    "length_required": Step.FIX,
    "too_large": Step.FIX,
    "action_key_reuse": Step.FIX,
    "version_changed": Step.FIX,
    "suppressed_recipient": Step.DO_NOT_RESEND,
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
    errors: list[WrongAnswer]


# For the description of every address.
PROBLEMS = dict.fromkeys((400, 401, 403, 404, 409, 413, 415, 422), ProblemAnswer)


class Problem(Exception):
    """An error of the door itself; `register` turns it into the answer."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Iterable[Wrong] = (),
    next_step: Step | None = None,
) -> HttpResponse:
    """The answer: what is wrong, in a code for programs and a sentence for people."""
    body: dict[str, Any] = {
        "type": f"/api/v1/docs#{code}",
        "title": TITLES.get(code, HTTPStatus(status).phrase),
        "status": status,
        "detail": detail,
        "code": code,
        "next_step": next_step or STEPS.get(code, Step.ASK_A_PERSON),
        "errors": [
            {"pointer": wrong.pointer, "code": wrong.code, "detail": wrong.detail}
            for wrong in errors
        ],
    }
    answer = JsonResponse(body, status=status, content_type="application/problem+json")
    answer["Cache-Control"] = "no-store"
    if status == HTTPStatus.UNAUTHORIZED:
        answer["WWW-Authenticate"] = 'Bearer realm="outbox"'
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        answer["Retry-After"] = "1"
    return answer


def not_found(request: HttpRequest) -> HttpResponse:
    """For every address under the door that is none, and for what belongs to others."""
    return problem(404, "not_found", f"There is nothing at {request.path} for this token.")


def method_not_allowed(request: HttpRequest, answer: HttpResponseBase) -> HttpResponse:
    """The problem for ninja's own refusal of a method."""
    said = problem(
        405,
        "method_not_allowed",
        f"{request.path} takes {answer['Allow']}, not {request.method}.",
    )
    said["Allow"] = answer["Allow"]
    return said


def _of_the_door(request: HttpRequest, error: Problem) -> HttpResponse:
    return problem(error.status, error.code, error.detail)


def _not_json(request: HttpRequest, error: NotJson) -> HttpResponse:
    return problem(400, "not_json", str(error))


def _wrong_fields(request: HttpRequest, error: WrongProposal) -> HttpResponse:
    count = len(error.errors)
    said = "One field is wrong" if count == 1 else f"{count} fields are wrong"
    if count == MOST_NAMED:
        said = f"{count} fields are wrong, or more"
    detail = f"{said}, so nothing was taken in."
    return problem(422, "wrong_fields", detail, errors=error.errors)


def _suppressed(request: HttpRequest, error: SuppressedRecipient) -> HttpResponse:
    return problem(422, error.code, error.words, errors=error.errors)


def _refused(request: HttpRequest, error: Refused) -> HttpResponse:
    step = STEPS.get(error.code, Step.ASK_A_PERSON)
    if step is Step.FIX and error.offer != "edit":
        step = Step.DO_NOT_RESEND
    return problem(409, error.code, error.words, next_step=step)


def _wrong_parameters(request: HttpRequest, error: ValidationError) -> HttpResponse:
    # The place begins with "query" or "path"; an index after the name says nothing more.
    errors = [Wrong(f"/{found['loc'][1]}", "parameter", found["msg"]) for found in error.errors]
    return problem(422, "wrong_fields", "A parameter of the address is wrong.", errors=errors)


def _unauthorized(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    return problem(
        401,
        "unauthorized",
        "Send the header Authorization: Bearer with a token that is in force; this one is missing,"
        " unknown, expired or revoked.",
    )


def _http(request: HttpRequest, error: HttpError) -> HttpResponse:
    return problem(error.status_code, "not_json", error.message)


def _missing(request: HttpRequest, error: Exception) -> HttpResponse:
    return not_found(request)


def _busy(request: HttpRequest, error: OperationalError) -> HttpResponse:
    log.warning("the database was busy: %s", error)
    return problem(503, "busy", "Nothing was decided. Send the same request again in a moment.")


def _internal(request: HttpRequest, error: Exception) -> HttpResponse:
    log.error("%s %s failed", request.method, request.path, exc_info=error)
    return problem(
        500, "internal", "Something failed here. Sending the same request again is safe."
    )


ANSWERS: dict[type[Exception], Callable[[HttpRequest, Any], HttpResponse]] = {
    Problem: _of_the_door,
    NotJson: _not_json,
    WrongProposal: _wrong_fields,
    SuppressedRecipient: _suppressed,
    Refused: _refused,
    ValidationError: _wrong_parameters,
    AuthenticationError: _unauthorized,
    HttpError: _http,
    Http404: _missing,
    OperationalError: _busy,
    Exception: _internal,
}


def register(api: NinjaAPI) -> None:
    """Answer each exception that may leave a view."""
    for kind, said in ANSWERS.items():
        api.add_exception_handler(kind, said)
