"""Changing a password."""

from typing import cast

from allauth.account import views as account
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponseBase

from sends.models import Person


@login_required
def change_password(request: HttpRequest) -> HttpResponseBase:
    """For who has one: who signs in elsewhere gets none here."""
    if not cast(Person, request.user).has_usable_password():
        raise Http404
    response: HttpResponseBase = account.password_change(request)
    return response
