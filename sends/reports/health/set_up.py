"""Settings that are unsafe, or wrong for the internet."""

import ipaddress
from collections.abc import Iterator
from urllib.parse import urlsplit

from django.core import checks

from sends.conf import conf
from sends.reports.health.findings import Finding, unsafe, warning

DEBUG = "security.W018"


def insecure_settings() -> Iterator[Finding]:
    """What Django's own checks find; those of a deployment matter less on one's own machine."""
    for found in checks.run_checks(include_deployment_checks=True):
        if found.is_silenced() or found.id == DEBUG:
            continue
        if str(found.id).startswith("security.") and _is_local():
            continue
        make = unsafe if found.is_serious() else warning
        cure = found.hint or f"See {found.id} in Django's reference of system checks."
        yield make(str(found.id), found.msg, cure)


def debug_pages() -> Iterator[Finding]:
    if any(found.id == DEBUG for found in checks.run_checks(include_deployment_checks=True)):
        yield unsafe(
            "debug",
            "Debug pages are on: they show settings and content to whoever meets an error.",
            "Unset OUTBOX_DEBUG, and start web and worker again.",
        )


def plain_http() -> Iterator[Finding]:
    if conf.url.startswith("http://") and not _is_local():
        yield unsafe(
            "https",
            f"People and agents come in at {conf.url}: passwords and tokens can be read on the way,"
            " and cookies are sent in clear.",
            "Put a proxy with TLS in front, and set OUTBOX_URL to its https:// address.",
        )


def _is_local() -> bool:
    host = urlsplit(conf.url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
