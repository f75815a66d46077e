"""One line of the log for each request, and the id by which people and programs can name it."""

import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from django.core.exceptions import DisallowedHost
from django.db import connection
from django.http import HttpRequest, HttpResponse

from sends import logs

logger = logging.getLogger("sends.request")

HEADER = "X-Request-ID"
# What programs ask all the time: while it goes well, only told at level DEBUG. So are files.
QUIET = ("healthz", "live/")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def with_request_id(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware around all others: `request.request_id`, the same in the answer, and the line.

    The caller may choose the id, so that its own log and this one can be read together.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        began, asked = time.perf_counter(), _Counter()
        request_id = _chosen(request) or secrets.token_hex(8)
        request.request_id = request_id  # type: ignore[attr-defined]
        with logs.lines_about(request_id=request_id), connection.execute_wrapper(asked):
            response = get_response(request)
            response[HEADER] = request_id
            _log(request, response, time.perf_counter() - began, asked.count)
        return response

    return middleware


class _Counter:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute: Callable[..., Any], *args: Any) -> Any:
        self.count += 1
        return execute(*args)


def _chosen(request: HttpRequest) -> str:
    chosen = request.headers.get(HEADER, "")
    return chosen if logs.VALID_ID.fullmatch(chosen) else ""


def _log(request: HttpRequest, response: HttpResponse, seconds: float, queries: int) -> None:
    route = request.resolver_match.route if request.resolver_match else None
    length = request.headers.get("Content-Length", "")
    logger.log(
        _level(route, response.status_code),
        "request",
        extra={
            "host": _other_host(request),
            "method": request.method if request.method in METHODS else "other",
            "route": route,
            "status": response.status_code,
            "duration_ms": round(seconds * 1000, 1),
            "bytes_in": int(length) if length.isdigit() and len(length) < 19 else None,
            "bytes_out": None if response.streaming else len(response.content),
            "queries": queries,
        },
    )


def _other_host(request: HttpRequest) -> str | None:
    """The name that was asked for, where this installation does not answer to it."""
    try:
        request.get_host()
    except DisallowedHost:
        return str(request.META.get("HTTP_HOST", ""))[:100]
    return None


def _level(route: str | None, status: int) -> int:
    if status >= 500:
        return logging.ERROR
    return logging.DEBUG if status < 400 and (route in QUIET or route is None) else logging.INFO
