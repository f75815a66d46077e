"""The list of somebody's sessions keeps up with a session that goes on under another key."""

from collections.abc import Callable

from allauth.usersessions.models import UserSession
from django.http import HttpRequest, HttpResponse


def listed(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: what is not in the list cannot be ended by anybody.

    Django gives a session another key where it was signed with an earlier one of the secret keys,
    and django-allauth does not notice.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        before = request.session.session_key
        response = get_response(request)
        now = request.session.session_key
        if before and now and now != before and request.user.is_authenticated:
            UserSession.objects.create_from_request(request)
        return response

    return middleware
