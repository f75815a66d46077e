"""Where a person begins: the room in which their role has something to do."""

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import path
from django.views.decorators.http import require_safe

from sends.dashboard.access import MemberRequest, for_role
from sends.dashboard.shell import Shell
from sends.models import Membership, Role


@require_safe
@for_role(Role.VIEWER)
def start(request: MemberRequest) -> HttpResponse:
    return redirect(f"dashboard:{first_room(request.membership)}")


def first_room(membership: Membership) -> str:
    """The name of the room: for an operator the first in which something waits."""
    if not membership.may(Role.APPROVER):
        return "messages"
    counts = Shell(membership, "/").counts
    if membership.may(Role.OPERATOR):
        for room in ("uncertain", "dead_letters"):
            if getattr(counts, room):
                return room
    return "approvals"


urlpatterns = [path("", start, name="start")]
