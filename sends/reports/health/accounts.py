"""The accounts at providers: their credentials, their webhooks, and whether they can be reached."""

import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

from sends.models import Account, SendIntent, database_now
from sends.providers.credentials import CredentialError, resolve
from sends.providers.reach import why_unreachable
from sends.reports.health.findings import Finding, unsafe, warning

CONNECT_SECONDS = 5.0
# News of a first email is there within minutes.
NEWS_AFTER = timedelta(hours=1)
# Mounted by whoever runs the container, and readable to all that is in it.
MOUNTED = Path("/run/secrets")


def unreadable_credentials() -> Iterator[Finding]:
    for account in _accounts():
        for what, reference in _references(account):
            try:
                resolve(reference)
            except CredentialError as error:
                # The variables of web and worker are their own.
                make = warning if reference.startswith("env:") else unsafe
                yield make(
                    "credentials",
                    f"The {what} of account {_name(account)} cannot be used from here: {error}.",
                    "Put the secret where its reference says, for web and worker alike.",
                )


def credentials_open_to_others() -> Iterator[Finding]:
    for account in _accounts():
        for what, reference in _references(account):
            kind, _, place = reference.partition(":")
            if kind != "file" or MOUNTED in Path(place).parents or not Path(place).exists():
                continue
            if Path(place).stat().st_mode & stat.S_IRWXO:
                yield warning(
                    "permissions",
                    f"Everybody on this machine may read the {what} of account {_name(account)}.",
                    f"chmod o= {place}",
                )


def missing_webhook_secrets() -> Iterator[Finding]:
    for account in _accounts():
        if not account.webhook_secrets:
            yield warning(
                "webhooks",
                f"Account {_name(account)} has no secret for webhooks, so none is believed: what"
                " becomes of its emails stays unknown.",
                "Name it in the configuration (webhook_secrets) and run: manage.py configure",
            )


def silent_webhooks() -> Iterator[Finding]:
    long_ago = database_now() - NEWS_AFTER
    for account in _accounts():
        accepted = SendIntent.objects.filter(account=account, accepted_at__lt=long_ago)
        if account.webhook_secrets and account.webhook_seen_at is None and accepted.exists():
            yield warning(
                "webhooks",
                f"No webhook of account {_name(account)} was ever seen, though it has accepted"
                " emails: bounces and complaints go unnoticed.",
                f"Let the provider post to /webhooks/{account.slug}, and see that it is let"
                " through.",
            )


def unreachable_providers() -> Iterator[Finding]:
    """Each address is connected to, all at once; nothing is sent."""
    by_url: dict[str, list[str]] = {}
    for account in _accounts():
        if account.base_url:
            by_url.setdefault(account.base_url, []).append(_name(account))
    if not by_url:
        return
    with ThreadPoolExecutor(max_workers=min(len(by_url), 16)) as pool:
        answers = pool.map(lambda url: why_unreachable(url, seconds=CONNECT_SECONDS), by_url)
        for (url, names), reason in zip(by_url.items(), answers, strict=True):
            if reason:
                yield unsafe(
                    "provider",
                    f"{url} cannot be reached from here, for account {', '.join(names)}: {reason}.",
                    "Look at the address, the name service and the firewall.",
                )


def _accounts() -> Iterator[Account]:
    yield from Account.objects.select_related("tenant").order_by("tenant__slug", "slug")


def _references(account: Account) -> Iterator[tuple[str, str]]:
    yield "credential", account.credential
    for reference in account.webhook_secrets:
        yield "webhook secret", reference


def _name(account: Account) -> str:
    return f"{account.tenant.slug}/{account.slug}"
