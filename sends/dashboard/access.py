"""Who may do what: the membership under which a signed-in person acts, and the door to a view."""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast
from urllib.parse import urlencode

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render, resolve_url
from django.utils.cache import add_never_cache_headers, patch_vary_headers

from sends import logs
from sends.dashboard.requests import go_to, page_of, wants_fragment
from sends.models import Membership, Person, Role, Tenant

View = Callable[..., HttpResponse]


class MemberRequest(HttpRequest):
    """A request of somebody who has a role: what a view behind `for_role` is given."""

    user: Person
    membership: Membership
    tenant: Tenant


def for_role(role: Role) -> Callable[[View], View]:
    """Let a view answer those alone who have `role` or one that includes it.

    Who is not signed in is sent to do so, and comes back to the page the request came from: what
    was posted is not, so that signing in decides nothing.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            response = _answer(view, role, request, *args, **kwargs)
            patch_vary_headers(response, ["HX-Request"])
            return response

        return guarded

    return decorate


def kept_by_no_cache(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware around all others: no answer is kept that does not say for how long it may be.

    Not those either that refuse: the page that says 404 has the counts of a tenant around it.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        if "Cache-Control" not in response:
            add_never_cache_headers(response)
        return response

    return middleware


def _answer(
    view: View, role: Role, request: HttpRequest, *args: Any, **kwargs: Any
) -> HttpResponse:
    if not request.user.is_authenticated:
        return go_to(request, f"{resolve_url('login')}?{urlencode({'next': page_of(request)})}")
    membership = membership_of(request)
    if membership is not None and membership.may(role):
        known = cast(MemberRequest, request)
        known.membership, known.tenant = membership, membership.tenant
        return view(known, *args, **kwargs)
    if wants_fragment(request):
        return render(request, "sends/parts/_forbidden.html", status=403)
    raise PermissionDenied


def membership_of(request: HttpRequest) -> Membership | None:
    """The role in which this request acts; None for who is not signed in or has no role.

    Who belongs to several tenants acts in the one joined first. Asked once a request.
    """
    if not hasattr(request, "_membership"):
        found = None
        if request.user.is_authenticated:
            person = request.user
            found = person.memberships.select_related("tenant").order_by("id").first()
            logs.about(person=person.pk)
            if found is not None:
                found.person = person
                logs.about(tenant=found.tenant_id)
        request._membership = found  # type: ignore[attr-defined]
    return cast("Membership | None", getattr(request, "_membership", None))
