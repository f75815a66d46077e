"""Who may do what: the membership under which a signed-in person acts, and the door to a view."""

from collections.abc import Callable
from functools import wraps
from typing import Any, cast
from urllib.parse import urlencode

from allauth.account.adapter import get_adapter
from allauth.account.decorators import reauthentication_required
from allauth.core.exceptions import ReauthenticationRequired
from allauth.mfa.models import Authenticator
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, OuterRef, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.shortcuts import render, resolve_url
from django.utils.cache import add_never_cache_headers, patch_vary_headers

from sends import logs
from sends.dashboard.requests import go_to, htmx_of, page_of, wants_fragment
from sends.dashboard.tenancy import named_tenant, within
from sends.models import Membership, Person, Role, Tenant

View = Callable[..., HttpResponseBase]


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
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            response = _answer(view, role, request, *args, **kwargs)
            patch_vary_headers(response, ["HX-Request"])
            return response

        return guarded

    return decorate


def confirmed(view: View) -> View:
    """Inside `for_role`: let a view answer those alone who showed just now that it is they.

    Who signed in or gave the password again within the last 15 minutes has. Others are asked and
    come back to the page the request came from; what was posted is not decided by that.
    """

    @wraps(view)
    def guarded(request: MemberRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            _require_known(request)
        except ReauthenticationRequired:
            ways = get_adapter().get_reauthentication_methods(request.user)
            if not ways:
                raise PermissionDenied from None
            return _go_and_come_back(request, ways[0]["url"])
        return view(request, *args, **kwargs)

    return guarded


@reauthentication_required
def _require_known(request: HttpRequest) -> None:
    """Raises ReauthenticationRequired for whoever has to show again who they are."""


def with_second_factor(members: QuerySet[Membership]) -> QuerySet[Membership]:
    """Each with `has_second_factor`. Recovery codes alone are none."""
    factors = Authenticator.objects.filter(user=OuterRef("person")).exclude(
        type=Authenticator.Type.RECOVERY_CODES
    )
    return members.annotate(has_second_factor=Exists(factors))


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
) -> HttpResponseBase:
    if not request.user.is_authenticated:
        return _go_and_come_back(request, resolve_url("account_login"))
    membership = membership_of(request)
    if membership is None and named_tenant(request):
        raise Http404
    if membership is not None and not named_tenant(request) and _is_page_of_many(request):
        return HttpResponseRedirect(within(membership.tenant.slug, request))
    if membership is not None and _lacks_second_factor(membership):
        messages.warning(request, f"{membership.tenant} asks you for a second factor. Add one.")
        return go_to(request, resolve_url("mfa_index"))
    if membership is not None and membership.may(role):
        known = cast(MemberRequest, request)
        known.membership, known.tenant = membership, membership.tenant
        return view(known, *args, **kwargs)
    if wants_fragment(request):
        return render(request, "sends/parts/_forbidden.html", status=403)
    raise PermissionDenied


def _go_and_come_back(request: HttpRequest, address: str) -> HttpResponse:
    return go_to(request, f"{address}?{urlencode({'next': page_of(request)})}")


def membership_of(request: HttpRequest) -> Membership | None:
    """The role in which this request acts; None for who is not signed in or has no role there.

    Where the address names no tenant, it is the one joined first.
    """
    slug = named_tenant(request)
    for membership in _memberships(request):
        if slug in ("", membership.tenant.slug):
            logs.about(tenant=membership.tenant_id)
            return membership
    return None


def tenants_of(request: HttpRequest) -> list[Tenant]:
    """Those that a person may choose from: none for who belongs to one alone."""
    tenants = [membership.tenant for membership in _memberships(request)]
    return tenants if len(tenants) > 1 else []


def _memberships(request: HttpRequest) -> list[Membership]:
    """All of the person who asks, in the order of joining. Asked once a request."""
    if not hasattr(request, "_memberships"):
        found: list[Membership] = []
        if request.user.is_authenticated:
            logs.about(person=request.user.pk)
            members = with_second_factor(request.user.memberships.order_by("id"))
            found = list(members.select_related("tenant__policy"))
            for membership in found:
                membership.person = request.user
        request._memberships = found  # type: ignore[attr-defined]
    return cast("list[Membership]", getattr(request, "_memberships", []))


def _is_page_of_many(request: HttpRequest) -> bool:
    """Whether the address has to say which tenant it is about."""
    return request.method == "GET" and not htmx_of(request) and bool(tenants_of(request))


def _lacks_second_factor(membership: Membership) -> bool:
    """Whether the tenant's policy asks this person for a second factor that is not there."""
    policy = getattr(membership.tenant, "policy", None)  # a tenant may be without one
    asked_from = policy and policy.second_factor_from_role
    if asked_from is None or membership.role < asked_from:
        return False
    return not membership.has_second_factor  # type: ignore[attr-defined]
