"""Which tenant an address is about, for people who belong to several: /t/<tenant>/ before it."""

import re
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.urls import get_script_prefix, set_script_prefix

# What programs ask for is known by their own secrets, and is nobody's room.
NAMED = re.compile(r"/t/([-\w]+)(/(?!api/|webhooks/|healthz|t/).*)", re.DOTALL)


def in_named_tenant(
    get_response: Callable[[HttpRequest], HttpResponse],
) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: take the tenant off the address, and put it before every address that is made.

    So each page leads on within its tenant, and two tabs never mix two of them. Whether there is
    such a tenant, and the person belongs to it, is asked at the door of a view.
    """

    def middleware(request: HttpRequest) -> HttpResponse:
        named = NAMED.fullmatch(request.path_info)
        if named is None:
            return get_response(request)
        before = get_script_prefix()
        request.tenant_slug, request.path_info = named.groups()  # type: ignore[attr-defined]
        set_script_prefix(f"{before}t/{named[1]}/")
        try:
            return get_response(request)
        finally:
            set_script_prefix(before)

    return middleware


def named_tenant(request: HttpRequest) -> str:
    """The tenant in the request's address; nothing where it names none."""
    return getattr(request, "tenant_slug", "")


def within(slug: str, request: HttpRequest) -> str:
    """The address of the same page in the tenant that `slug` names."""
    return f"/t/{slug}{request.get_full_path()}"
