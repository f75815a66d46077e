"""The time zone of the person who reads: their own choice, else what the browser guessed."""

import zoneinfo
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone

COOKIE = "zone"  # app.js writes it: the browser's zone at first, UTC where the person asked for it


def in_readers_zone(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware, after authentication: all moments of the answer are shown in one zone."""

    def middleware(request: HttpRequest) -> HttpResponse:
        with timezone.override(zone_of(request)):
            return get_response(request)

    return middleware


def zone_of(request: HttpRequest) -> zoneinfo.ZoneInfo:
    """The reader's zone; UTC where nothing is known or a name means nothing to us."""
    asked = request.COOKIES.get(COOKIE, "")
    chosen = getattr(request.user, "time_zone", "")
    name = asked if asked == "UTC" else chosen or asked
    try:
        return zoneinfo.ZoneInfo(name or "UTC")
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return zoneinfo.ZoneInfo("UTC")
