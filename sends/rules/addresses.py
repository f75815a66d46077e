"""Addresses: the forms in which they are sent, compared, and read by people."""

import re
import unicodedata

import idna
from email_validator import validate_email

ASCII_CAPITALS = re.compile(r"[A-Z]+")
NEEDS_NO_QUOTES = re.compile(r"[^\s\"(),:;<>@\[\]\\.]+(?:\.[^\s\"(),:;<>@\[\]\\.]+)*")


def as_sent(address: str) -> str:
    """The address as given, its domain in ASCII where it was not (IDNA 2008), or ValueError.

    Nothing else is ever rewritten: only its own server knows what a local part means.
    """
    valid = validate_email(
        address,
        check_deliverability=False,
        allow_quoted_local=True,
        test_environment=True,
        strict=True,
    )
    local, _, domain = address.rpartition("@")
    return address if domain.isascii() else f"{local}@{valid.ascii_domain}"


def domain_of(address: str) -> str:
    """The domain in lower case and in its ASCII form (IDNA 2008), for throttles and matching."""
    domain = address.rpartition("@")[2].lower().rstrip(".")  # not folded: faß is not fass
    try:
        return idna.encode(domain, uts46=True).decode("ascii")
    except idna.IDNAError:
        return domain


def normal(address: str) -> str:
    """The form for suppression and search: folded local part, no needless quotes, ASCII domain.

    For comparing only. What is sent is the address as it was given; a tag after a plus stays part
    of it, since it may lead to somebody else.
    """
    local = unicodedata.normalize("NFC", address.rpartition("@")[0]).casefold()
    return f"{unicodedata.normalize('NFC', _unquoted(local))}@{domain_of(address)}"


def of_person(address: str) -> str:
    """The form in which the address of who signs in is kept and found.

    Of the local part only ASCII letters are made small: the long s is no s, and the sign for
    Kelvin no k, although PostgreSQL or Python folds them.
    """
    local, _, domain = address.strip().rpartition("@")
    return f"{ASCII_CAPITALS.sub(lambda found: found[0].lower(), local)}@{domain.lower()}"


def has_plain_letters(address: str) -> bool:
    """Whether nothing that folds an address takes it for another one."""
    return address.rpartition("@")[0].isascii()


def _unquoted(local: str) -> str:
    """`"jo"` is jo, and `"a\\b c"` is `"ab c"` (RFC 5321, 4.1.2)."""
    if len(local) < 2 or not local[0] == local[-1] == '"':
        return local
    inner = re.sub(r"\\(.)", r"\1", local[1:-1])
    if NEEDS_NO_QUOTES.fullmatch(inner):
        return inner
    return '"' + re.sub(r'(["\\])', r"\\\1", inner) + '"'


def in_letters(address: str) -> str:
    """The domain as its people write it, where that is not how it is sent; else ""."""
    domain = domain_of(address)
    try:
        written = idna.decode(domain)
    except idna.IDNAError:
        return ""
    return written if written != domain else ""
