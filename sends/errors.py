"""What is answered where no door could: a page for people, a problem (RFC 9457) for programs.

What is said about a fault asks no database: that may be what fails.
"""

import logging
import sys
from collections.abc import Callable
from http import HTTPStatus

from django.core.exceptions import DisallowedHost, RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template import loader
from django.utils.http import url_has_allowed_host_and_scheme

from sends import logs

logger = logging.getLogger("sends.request")

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
NOTHING = "Nothing was decided."


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """For what cannot be a request to this installation."""
    if isinstance(exception, RequestDataTooBig):
        return _answer(request, 413, "That was too large", f"{NOTHING} Send less at once.")
    if isinstance(exception, DisallowedHost):
        words = "It does not answer to the name you asked for: see OUTBOX_URL and its log."
        return _answer(request, 400, "This is another installation's name", words)
    return _answer(request, 400, "That was no request", f"{NOTHING} Go back and do it again.")


def form_refused(request: HttpRequest, reason: str) -> HttpResponse:
    """For a form without its token, or from another site; `reason` is Django's, for the log."""
    logger.warning("form refused", extra={"error": reason})
    fragment = "HX-Request" in request.headers
    page = "sends/parts/_too_old.html" if fragment else "403_csrf.html"
    return render(request, page, status=403)


def server_error(request: HttpRequest) -> HttpResponse:
    """For what went wrong on our side; the log has it under the id that the answer shows."""
    logger.error("request failed", exc_info=sys.exc_info())
    if request.method in SAFE_METHODS:
        words = f"{NOTHING} Reload the page; if it fails again, tell whoever runs this."
        return _answer(request, 500, "Something went wrong on our side", words)
    words = (
        "We cannot say here whether it was done. See how things stand before you do it again; "
        "what was decided once is not decided a second time."
    )
    return _answer(request, 500, "Something went wrong on our side", words, back=_origin(request))


def not_now(request: HttpRequest, words: str) -> HttpResponse:
    """For what would write while nothing may be written."""
    answer = _answer(request, 503, "Nothing can be decided right now", f"{NOTHING} {words}")
    answer["Retry-After"] = "5"
    return answer


def wrong_method_in_words(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: Django says nothing to somebody who opens the address of a form by itself."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if response.status_code != HTTPStatus.METHOD_NOT_ALLOWED or response.content:
            return response
        words = f"{NOTHING} This address is where a form is sent, and there is nothing to see."
        answer = _answer(request, 405, "There is no page here", words)
        answer["Allow"] = response["Allow"]
        return answer

    return middleware


def _answer(
    request: HttpRequest, status: int, title: str, words: str, *, back: str = ""
) -> HttpResponse:
    if request.get_preferred_type(["application/problem+json", "text/html"]) != "text/html":
        return _problem(status, words)
    # Without the frame around it, for which the database would be asked.
    page = loader.get_template("error.html")
    said = {"title": title, "words": words, "back": back, "request": request}
    return HttpResponse(page.render(said), status=status)


def _problem(status: int, words: str) -> HttpResponse:
    """With the members that every problem of the agents' door has."""
    return JsonResponse(
        {
            "type": "about:blank",
            "title": HTTPStatus(status).phrase,
            "status": status,
            "detail": words,
            "code": "internal" if status >= 500 else "bad_request",
            "next_step": "wait" if status >= 500 else "fix",
            "request_id": logs.request_id(),
            "errors": [],
        },
        status=status,
        content_type="application/problem+json",
    )


def _origin(request: HttpRequest) -> str:
    """The page of ours on which the request was made; the first page if that is not known."""
    page = request.headers.get("Referer", "")
    return page if url_has_allowed_host_and_scheme(page, {request.get_host()}) else "/"
