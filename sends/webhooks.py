"""The providers' door: a request is verified, kept once, and answered; applying it comes later."""

import uuid

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from sends.lifecycle import events
from sends.models import Account


@csrf_exempt  # a provider has no session: its signature says who it is
@require_POST
def receive(request: HttpRequest, account: str) -> HttpResponse:
    """200 once the events are kept, also where they mean nothing to us or came before.

    Anything else makes a provider send them again, for hours.
    """
    found = _account(account)
    if found is None:
        return _problem(404, "No such account")
    if "Transfer-Encoding" in request.headers and not request.headers.get("Content-Length"):
        # Django takes a body of unknown length for an empty one.
        return _problem(411, "Send the body whole, with a Content-Length")
    try:
        new = events.receive(found, request.headers, request.body)
    except RequestDataTooBig:
        return _problem(413, "The body is too large")
    except events.Unsigned:
        return _problem(401, "The signature is missing or wrong")
    return JsonResponse({"new": new})


def _account(name: str) -> Account | None:
    """The account with this id; or with this slug, where no other tenant has one of that name."""
    try:
        return Account.objects.filter(pk=uuid.UUID(name)).first()
    except ValueError:
        accounts = Account.objects.filter(slug=name)[:2]
        return accounts[0] if len(accounts) == 1 else None


def _problem(status: int, title: str) -> JsonResponse:
    return JsonResponse(
        {"type": "about:blank", "title": title, "status": status},
        status=status,
        content_type="application/problem+json",
    )
