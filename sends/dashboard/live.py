"""What changed since a page was loaded: counts, the brake, and the rows it shows."""

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.urls import path
from django.views.decorators.http import require_safe

from sends.dashboard import approvals, messages, uncertain
from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.requests import page_of, room_of
from sends.dashboard.shell import Shell
from sends.models import Role, database_now
from sends.rules.keys import sha256

# A room that changes under its reader: the fragments, each swapped out of band, for what of it is
# shown: the `data-live` of its rows, and its address.
LiveRows = Callable[[MemberRequest, Sequence[uuid.UUID], str, datetime], str]
ROOMS: dict[str, LiveRows] = {
    "approvals": approvals.live_rows,
    "messages": messages.live_rows,
    "uncertain": uncertain.live_rows,
}
MOST_ROWS = 200


@require_safe
def live(request: HttpRequest) -> HttpResponseBase:
    """Polled by every open page. Who is no longer signed in is told so, and keeps the page."""
    if not request.user.is_authenticated:
        return HttpResponse(status=401)
    return _changes(request)


@for_role(Role.VIEWER)
def _changes(request: MemberRequest) -> HttpResponse:
    """The parts that are not as the cursor says, and the next cursor; 204 when all are.

    The cursor is made of what the parts said, not of a time: nothing is missed, whatever
    transaction commits late.
    """
    now = database_now()
    page = page_of(request)
    context = {"now": now, "shell": Shell(request.membership, room_of(page))}
    said = [
        *(render_to_string(f"sends/live/{part}.html", context, request) for part in PARTS),
        _rows(request, page, now),
    ]
    marks = [sha256(part.encode())[:8] for part in said]
    seen = request.GET.get("since", "").split(".")
    if seen == marks:
        return HttpResponse(status=204)
    if len(seen) != len(marks):
        seen = [""] * len(marks)  # the page's first question
    changed = [part for part, mark, old in zip(said, marks, seen, strict=True) if mark != old]
    cursor = render_to_string("sends/live/_cursor.html", {"cursor": ".".join(marks)})
    return HttpResponse("".join([*changed, cursor]))


PARTS = ("_counts", "_sending", "_banners")


def _rows(request: MemberRequest, page: str, now: datetime) -> str:
    room = urlsplit(room_of(page)).path.strip("/").partition("/")[0]
    rows = ROOMS.get(room)
    ids = ids_in(request.GET.get("ids", ""))
    return rows(request, ids, page, now) if rows else ""


def ids_in(words: str) -> list[uuid.UUID]:
    """Of what a page said it shows, what can be an id."""
    found = []
    for word in words.split(",")[:MOST_ROWS]:
        try:
            found.append(uuid.UUID(word))
        except ValueError:
            continue
    return found


urlpatterns = [path("live/", live, name="live")]
