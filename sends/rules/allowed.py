"""What one value of a configuration may be: each reader returns it, or raises the rule in words."""

import ipaddress
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from email_validator import EmailNotValidError, validate_email

from sends.rules.addresses import as_sent, domain_of
from sends.rules.fields import NOT_IN_A_LINE

UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
SLUG_RULE = "1 to 63 of a-z, 0-9, - and _, beginning with a letter or digit"
REFERENCE_RULE = (
    'is where the secret is kept, "env:NAME" or "file:/path", and never the secret itself'
)
LONGEST = timedelta(days=365)
LONGEST_KEPT = timedelta(days=36_500)
FOREVER = "forever"


def text(most: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not 1 <= len(value.strip()) <= most:
            raise ValueError(f"give a text of 1 to {most} characters")
        if NOT_IN_A_LINE.search(value.strip()):
            raise ValueError("give a text on one line, without control characters")
        return value.strip()

    return read


def whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"give a whole number from {least} to {most}")
        return value

    return read


def one_of(*words: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"give one of {', '.join(words)}")
        return str(value)

    return read


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value


def slug(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", value):
        raise ValueError(f"give {SLUG_RULE}")
    return value


def duration(least: timedelta, most: timedelta = LONGEST) -> Callable[[Any], timedelta]:
    def read(value: Any) -> timedelta:
        span = _span(value)
        if span is None or not least <= span <= most:
            raise ValueError(
                'give seconds, or a text such as "30s", "15m", "24h" or "7d",'
                f" from {duration_words(least)} to {duration_words(most)}"
            )
        return span

    return read


def kept(value: Any) -> timedelta | None:
    """How long something is kept; None for ever, 0 for no longer than it is needed."""
    if value == FOREVER:
        return None
    span = _span(value)
    if span is None or span > LONGEST_KEPT:
        raise ValueError(
            'give "forever", 0 for no longer than it is needed, or a text such as "90d", '
            f"up to {duration_words(LONGEST_KEPT)}"
        )
    return span


def kept_words(span: timedelta | None) -> str:
    return FOREVER if span is None else duration_words(span)


def _span(value: Any) -> timedelta | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return timedelta(seconds=value) if 0 <= value < 1e9 else None
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(ms|s|m|h|d)", str(value))
    return timedelta(**{UNITS[found[2]]: float(found[1])}) if found else None


def duration_words(span: timedelta) -> str:
    """The shortest spelling that is exact: "30s", "15m", "24h", "7d"."""
    milliseconds = round(span / timedelta(milliseconds=1))
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        # A day is "24h", as people write it; from two days on it is days.
        if milliseconds % size == 0 and milliseconds >= (2 * size if unit == "d" else size):
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


def email(value: Any) -> str:
    try:
        found = validate_email(str(value), check_deliverability=False, test_environment=True)
    except EmailNotValidError as error:
        raise ValueError(f"give an email address: {str(error).rstrip('.')}") from None
    return found.normalized


def sender_address(value: Any) -> str:
    """As it will stand in From: its domain in ASCII, its local part as given."""
    try:
        local, _, _ = as_sent(str(value)).rpartition("@")
    except EmailNotValidError as error:
        raise ValueError(f"give an email address: {str(error).rstrip('.')}") from None
    return f"{local}@{domain_of(value)}"


def domain(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[^\s@.]+(\.[^\s@.]+)+", value):
        raise ValueError("give a domain such as example.com, without an @")
    return domain_of(f"x@{value}")


def reference(value: Any) -> str:
    if not is_reference(value):
        raise ValueError(REFERENCE_RULE)
    return str(value)


def is_reference(value: Any) -> bool:
    return isinstance(value, str) and bool(
        re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/\S.*", value)
    )


def provider_address(value: Any) -> str:
    """A provider's address, or a reference to it, which `web_address` reads when it is known."""
    return str(value) if is_reference(value) else web_address(value)


def web_address(value: Any) -> str:
    """https, unless it is on this machine: a credential goes there."""
    wrong = ValueError("give an address that begins with https://, or http:// on this machine")
    if not isinstance(value, str):
        raise wrong
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if not host or parts.query or parts.fragment or "@" in parts.netloc or " " in value:
        raise wrong
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_loopback(host)):
        raise wrong
    return value.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("give its time zone too, as in 2027-01-31T12:00:00Z")
        return value.astimezone(UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise ValueError("give a date such as 2027-01-31, without quotation marks")


def options(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("give a table of the provider's own options")
    if not all(isinstance(one, str | int | float | bool) for one in value.values()):
        raise ValueError("give texts, numbers, true or false")
    return value
