"""Who may sign in with a password, and changing it."""

from typing import Any, cast

from allauth.account import views as account
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponseBase

from sends.models import Person


class Passwords(ModelBackend):
    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **credentials: Any,
    ) -> Person | None:
        """Whoever has to sign in elsewhere gets the answer of a wrong password."""
        person = super().authenticate(request, username, password, **credentials)
        return person if person is not None and person.may_use_password() else None


@login_required
def change_password(request: HttpRequest) -> HttpResponseBase:
    """For who has one: who signs in elsewhere gets none here."""
    if not cast(Person, request.user).has_usable_password():
        raise Http404
    response: HttpResponseBase = account.password_change(request)
    return response
