"""While the database lacks the triggers that guard the ledger, nothing may be written."""

import logging
import time
from collections.abc import Callable

from django.db import connection
from django.http import HttpRequest, HttpResponse

from sends.errors import SAFE_METHODS, not_now
from sends.models import triggers

logger = logging.getLogger("sends.request")

CHECK_EVERY_SECONDS = 30.0
WORDS = (
    "The database lacks the triggers that guard the ledger ({names}). "
    "If that stays so, run: manage.py migrate"
)


class LedgerGuard:
    """Answers 503 to whatever would write while a trigger is missing or differs.

    A migration drops them for a moment on SQLite, and an interrupted one for longer. They are
    looked at twice a minute; the worker looks before each of its drains.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self.checked_at = float("-inf")
        self.absent: list[str] = []

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.method not in SAFE_METHODS and (absent := self._absent()):
            logger.error("nothing is written while triggers lack", extra={"triggers": absent})
            return not_now(request, WORDS.format(names=", ".join(absent)))
        return self.get_response(request)

    def _absent(self) -> list[str]:
        now = time.monotonic()
        # While some are missing each request looks again, so that the cure works at once.
        if self.absent or now - self.checked_at >= CHECK_EVERY_SECONDS:
            self.absent = triggers.missing(connection)
            self.checked_at = now
        return self.absent
