"""Addresses: the one normal form in which they are compared."""

import idna


def domain_of(address: str) -> str:
    """The domain in lower case and in its ASCII form (IDNA 2008), for throttles and matching."""
    domain = address.rpartition("@")[2].lower().rstrip(".")  # not folded: faß is not fass
    try:
        return idna.encode(domain, uts46=True).decode("ascii")
    except idna.IDNAError:
        return domain


def normal(address: str) -> str:
    """The form for suppression and search: folded local part at the ASCII domain.

    For comparing only. What is sent is the address as it was given.
    """
    return f"{address.rpartition('@')[0].casefold()}@{domain_of(address)}"
