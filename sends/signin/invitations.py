"""What an invited person sees: the invitation, and a way to accept it."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from sends.lifecycle import people
from sends.lifecycle.refusals import Refused
from sends.models import Person
from sends.signin.forms import Reset


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """Looking uses nothing up, since programs look at what is mailed. Accepting is a POST."""
    found = people.invitation_of(token)
    if found is None or not found.holds:  # type: ignore[attr-defined]
        return render(request, "account/invitation_over.html", {"invitation": found}, status=404)
    known = Person.objects.at(found.email)
    context: dict[str, Any] = {"invitation": found}
    has_to_sign_in = known is not None or not Person(email=found.email).may_use_password()
    if has_to_sign_in or request.user.is_authenticated:
        context["is_invited"] = request.user == known
        if request.method == "POST" and context["is_invited"]:
            return _accepted(request, token, known)
        return render(request, "account/invitation.html", context)

    sent = request.POST if request.method == "POST" else None
    form = Reset(sent, user=Person(email=found.email))
    if form.is_valid():
        return _accepted(request, token, None, form.cleaned_data["password1"])
    context["form"] = form
    return render(request, "account/invitation.html", context, status=422 if form.errors else 200)


def _accepted(
    request: HttpRequest, token: str, person: Person | None, password: str = ""
) -> HttpResponse:
    try:
        people.accept(token, person=person, password=password)
    except Refused as refused:
        messages.warning(request, refused.words)
        return redirect("accept_invitation", token)
    if person is None:
        messages.success(request, "You have joined. Sign in with your new password.")
    return redirect("dashboard:start" if person else "account_login")
