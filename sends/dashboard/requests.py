"""What a request wants back: a fragment for HTMX, or a whole page."""

from urllib.parse import urlsplit

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import get_script_prefix
from django.utils.http import url_has_allowed_host_and_scheme
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails


def htmx_of(request: HttpRequest) -> HtmxDetails:
    """What HTMX said about itself; false where it did not send the request."""
    details: HtmxDetails = request.htmx  # type: ignore[attr-defined]
    return details


def wants_fragment(request: HttpRequest) -> bool:
    """Whether HTMX will put the answer into a page, so that it must not be a whole one."""
    htmx = htmx_of(request)
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def page_of(request: HttpRequest) -> str:
    """The address, on this host, of the page from which the request was sent.

    The first page, if that is unknown.
    """
    if request.method == "GET" and not htmx_of(request):
        return request.get_full_path()
    return ours(request, htmx_of(request).current_url or request.headers.get("Referer", ""))


def room_of(page: str) -> str:
    """The address of a page as the rooms write it, without the tenant that may stand before."""
    return "/" + page.removeprefix(get_script_prefix())


def ours(request: HttpRequest, address: str) -> str:
    """The address without its host, if it is on this one; else that of the first page."""
    if not url_has_allowed_host_and_scheme(address, {request.get_host()}):
        return get_script_prefix()
    parts = urlsplit(address)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    # "http://here//elsewhere" is on this host, and what is left of it without the host is not.
    stays = path.startswith("/") and url_has_allowed_host_and_scheme(path, None)
    return path if stays else get_script_prefix()


def storable(word: str) -> str:
    """What was typed, without the one letter that PostgreSQL cannot be asked for."""
    return word.replace("\0", "").strip()


def number_in(word: str) -> int | None:
    """The number of an email or a version that a request names; None for whatever else."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 10 else None


def go_to(request: HttpRequest, address: str) -> HttpResponse:
    """Make the browser load a page, whoever sent the request."""
    if htmx_of(request):
        return HttpResponseClientRedirect(address)
    return HttpResponseRedirect(address)
