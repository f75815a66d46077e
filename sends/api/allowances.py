"""Counts the requests of each token, and the failures of each address, for all web processes.

In a file of its own beside the data, since it is written with every request: the ledger would have
to wait for the disk each time. What is counted there is worth nothing after a power failure.
Machines count each for itself.
"""

import logging
import math
import sqlite3
import threading
import time
from pathlib import Path

from allauth.account.adapter import get_adapter
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest

from sends.api.problems import Problem
from sends.conf import conf
from sends.rules.allowances import Allowance, Rate, take

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0
TABLE = """
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS counts
        (who TEXT PRIMARY KEY, full_at REAL, seen REAL) WITHOUT ROWID;
"""


class Counts:
    """What is left to each, in one file, with a connection for each thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.local = threading.local()

    def take(self, who: str, rate: Rate, *, requests: int = 1, owing: bool = False) -> Allowance:
        """Use requests up. Where they cannot be counted they are allowed."""
        now = time.time()
        try:
            return self._take(who, rate, requests, owing, now)
        except (sqlite3.Error, OSError) as error:
            logger.warning("requests are not counted", exc_info=error)
            self.local = threading.local()
            return take(rate, now, requests=requests, now=now, owing=True)

    def _take(self, who: str, rate: Rate, requests: int, owing: bool, now: float) -> Allowance:
        connection = self._connection()
        with connection:  # one transaction
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(
                "SELECT full_at, seen FROM counts WHERE who = ?", (who,)
            ).fetchone()
            if row is None:  # one more: those who came back to all they may have are forgotten
                connection.execute("DELETE FROM counts WHERE full_at < ?", (now,))
            full_at, seen = row or (now, now)
            allowance = take(rate, full_at, requests=requests, now=now, seen=seen, owing=owing)
            connection.execute(
                "REPLACE INTO counts VALUES (?, ?, ?)", (who, allowance.full_at, now)
            )
        return allowance

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self.local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=PATIENCE_SECONDS, isolation_level=None)
            connection.executescript(TABLE)
            self.local.connection = connection
        return connection


counts = Counts(conf.data_dir / "allowances.sqlite3")
OF_A_TOKEN = Rate(conf.api_rate, conf.api_burst)
OF_FAILURES = Rate(conf.api_failures, conf.api_failures)
TOO_OFTEN = "This token has made more requests than it may for now"


def count(request: HttpRequest, token_id: str) -> None:
    """Count a request with this token, or refuse it."""
    allowance = counts.take(f"token:{token_id}", OF_A_TOKEN)
    request.allowance = allowance  # type: ignore[attr-defined]
    if allowance.wait:
        raise too_many(allowance, TOO_OFTEN)


def charge(request: HttpRequest, requests: int) -> None:
    """Count what a request asks for besides itself, all of it or nothing: the next ones wait.

    Refused while the token still owes what another one asked for, be it at the same time.
    """
    token_id = request.auth.pk  # type: ignore[attr-defined]
    allowance = counts.take(f"token:{token_id}", OF_A_TOKEN, requests=requests, owing=True)
    request.allowance = allowance  # type: ignore[attr-defined]
    if allowance.wait:
        raise too_many(allowance, TOO_OFTEN)


def refuse_failing(request: HttpRequest) -> Problem | None:
    """Count that somebody came without a token in force; a refusal if they do so all the time.

    They are told so instead, no more: behind a proxy all may come from one address, and nobody
    with a good token is to be kept out because of a neighbour.
    """
    allowance = counts.take(f"address:{_address(request)}", OF_FAILURES)
    if not allowance.wait:
        return None
    return too_many(allowance, "Too many requests without a token in force came from your address")


def too_many(allowance: Allowance, words: str) -> Problem:
    seconds = math.ceil(allowance.wait)
    return Problem(
        429,
        "too_many_requests",
        f"{words}. Wait {seconds} s, then send the same again.",
        headers={"Retry-After": str(seconds), **headers_of(allowance)},
    )


def headers_of(allowance: Allowance) -> dict[str, str]:
    """As in draft-ietf-httpapi-ratelimit-headers-10: what there is in all, and what is left."""
    window, rest = math.ceil(allowance.rate.window), math.ceil(allowance.full_in)
    return {
        "RateLimit-Policy": f'"requests";q={allowance.rate.burst};w={window}',
        "RateLimit": f'"requests";r={allowance.left};t={rest}',
    }


def _address(request: HttpRequest) -> str:
    try:
        return str(get_adapter(request).get_client_ip(request))
    except (PermissionDenied, ImproperlyConfigured):  # it says nothing that could be believed
        return str(request.META.get("REMOTE_ADDR", ""))
