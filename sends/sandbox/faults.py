"""The fault menu: what the sandbox does for which local part, as data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class Manner(StrEnum):
    """How an answer goes onto the wire."""

    WHOLE = "whole"
    CUT = "cut"  # not one byte of it, then the connection is closed
    TRUNCATED = "truncated"  # the head and half of the body, then closed
    RESET = "reset"  # RST in its place
    HELD = "held"  # nothing, and the connection stays open
    DRIP = "drip"  # one byte every half second


class Spoil(StrEnum):
    """What happens to the JSON of a healthy answer."""

    CUT_IN_HALF = "cut in half"
    NOT_UTF8 = "not UTF-8"


@dataclass(frozen=True)
class Reply:
    """An answer of its own. A header given as a span is sent as the HTTP-date that far from now."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str | timedelta] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True)
class Happening:
    """One event of a recipient; `step` counts spans of `deliver_after` since the accept."""

    type: str
    step: int
    reason: str
    hard: bool | None = None


DELIVERED = (Happening("delivered", 1, "250 2.0.0 OK"),)


@dataclass(frozen=True)
class Fault:
    """One word of the menu.

    `times` says for how many requests with one key it shows (None: all), `seconds` for how
    long since the first of them; after that the recipient is a healthy one. `reply` stands in
    for the answer; without it the answer is the healthy one, changed by `status` and `spoil`.
    """

    means: str
    takes: bool = True
    reply: Reply | None = None
    manner: Manner = Manner.WHOLE
    status: int | None = None
    spoil: Spoil | None = None
    delay_seconds: float = 0.0
    times: int | None = None
    seconds: float | None = None
    happenings: tuple[Happening, ...] = DELIVERED
    event_first: bool = False
    hidden: bool = False  # look-ups do not find the message; the journal does
    refuses_recipient: bool = False


def error(
    status: int,
    code: str,
    message: str,
    headers: Mapping[str, str | timedelta] | None = None,
    **more: str,
) -> Reply:
    """A refusal in the sandbox's own JSON."""
    body = json.dumps({"error": {"code": code, "message": message, **more}}).encode()
    return Reply(status, body, headers or {})


def html(status: int) -> Reply:
    """What a gateway says in the provider's place."""
    return Reply(status, b"<!doctype html><title>Oops</title><h1>Oops</h1>\n", {}, "text/html")


def refuse(
    means: str, reply: Reply, times: int | None = None, seconds: float | None = None
) -> Fault:
    """Nothing is taken."""
    return Fault(means, takes=False, reply=reply, times=times, seconds=seconds)


def busy(means: str, retry_after: str | timedelta | None, times: int | None = 1) -> Fault:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return refuse(means, error(429, "rate_limited", "Too many requests.", headers), times)


NO_ONE_LEFT = error(422, "no_deliverable_recipients", "Every recipient is suppressed.")

MENU: Mapping[str, Fault] = {
    # What becomes of an accepted message.
    "delivered": Fault("accepted, then delivered; so is any word that is not in this table"),
    "accepted": Fault(
        "accepted, one accepted event, and no news after it",
        happenings=(Happening("accepted", 1, "queued for delivery"),),
    ),
    "bounce": Fault(
        "accepted, then a hard bounce",
        happenings=(Happening("bounced", 1, "550 5.1.1 no such user", hard=True),),
    ),
    "soft-bounce": Fault(
        "accepted, deferred, then a soft bounce",
        happenings=(
            Happening("deferred", 1, "452 4.2.2 mailbox full"),
            Happening("bounced", 2, "452 4.2.2 mailbox full, given up", hard=False),
        ),
    ),
    "complain": Fault(
        "accepted, delivered, then a complaint",
        happenings=(*DELIVERED, Happening("complained", 2, "abuse")),
    ),
    "defer": Fault(
        "accepted, deferred, then delivered",
        happenings=(
            Happening("deferred", 1, "451 4.7.1 greylisted"),
            Happening("delivered", 2, "250 2.0.0 OK"),
        ),
    ),
    "dropped": Fault(
        "accepted, then dropped without mailing",
        happenings=(Happening("dropped", 1, "dropped by policy"),),
    ),
    "refuse-one": Fault(
        "accepted in part: a recipient of this word is refused, the others are accepted",
        happenings=(Happening("refused", 1, "recipient refused"),),
        refuses_recipient=True,
    ),
    "event-first": Fault(
        "accepted; the delivered event goes out before the answer does", event_first=True
    ),
    # Taken, and the answer is lost, late or no proof.
    "lost-answer": Fault(
        "the connection is closed instead of an answer", manner=Manner.CUT, times=1
    ),
    "cut-answer": Fault(
        "the connection is closed in the middle of the answer", manner=Manner.TRUNCATED, times=1
    ),
    "accept-reset": Fault("RST instead of an answer", manner=Manner.RESET, times=1),
    "silent": Fault(
        "never answered, no event, not found by a look-up: uncertain for good",
        manner=Manner.HELD,
        happenings=(),
        hidden=True,
    ),
    "silent-found": Fault(
        "never answered, no event, but a look-up finds it", manner=Manner.HELD, happenings=()
    ),
    "silent-delivered": Fault(
        "never answered, but the delivered event arrives", manner=Manner.HELD
    ),
    "slow": Fault("answered after 3 s", delay_seconds=3.0, times=1),
    "slower": Fault("answered after 30 s", delay_seconds=30.0, times=1),
    "drip": Fault("the answer comes one byte every half second", manner=Manner.DRIP, times=1),
    "cut-json": Fault(
        "200 with JSON that stops in the middle", status=200, spoil=Spoil.CUT_IN_HALF, times=1
    ),
    "non-utf8": Fault("201 with a body that is not UTF-8", spoil=Spoil.NOT_UTF8, times=1),
    "no-proof": Fault("202 with an empty body", reply=Reply(202), times=1),
    "http-500": Fault("500 with an HTML page", reply=html(500), times=1),
    "http-502-taken": Fault("502 with an HTML page", reply=html(502), times=1),
    # Nothing is taken, for now.
    "busy": busy("429, Retry-After: 2", "2"),
    "busy-date": busy("429, Retry-After as a date 2 s ahead", timedelta(seconds=2)),
    "busy-past": busy("429, Retry-After as a date an hour ago", timedelta(hours=-1)),
    "busy-huge": busy("429, Retry-After: 1e309", "1e309"),
    "busy-negative": busy("429, Retry-After: -5", "-5"),
    "busy-nan": busy("429, Retry-After: nan", "nan"),
    "busy-none": busy("429 without Retry-After", None),
    "busy-always": busy("429, Retry-After: 2", "2", times=None),
    "busy-503": refuse("503", error(503, "unavailable", "Nothing was taken; try again."), 2),
    "reset-before": Fault(
        "RST; where a script names it, before the body is read",
        takes=False,
        manner=Manner.RESET,
        times=1,
    ),
    "reset-after": Fault(
        "RST after the whole request was read", takes=False, manner=Manner.RESET, times=1
    ),
    "html-200": refuse("200 with an HTML page", html(200), 1),
    "http-500-always": refuse("500 with an HTML page", html(500)),
    "http-501": refuse("501", error(501, "not_implemented", "Not implemented.")),
    "http-505": refuse("505", error(505, "http_version", "This HTTP version is not spoken.")),
    "key-in-progress": refuse(
        "409 in the first 2 s after the key was first seen",
        error(409, "key_in_progress", "A request with this key is still being processed."),
        seconds=2.0,
    ),
    # Nothing is taken, for good.
    "bad-request": refuse("400", error(400, "bad_request", "The request is not understood.")),
    "unprocessable": refuse("422", error(422, "unprocessable", "The message cannot be sent.")),
    "suppressed": refuse("422, no deliverable recipients", NO_ONE_LEFT),
    "too-large": refuse("413", error(413, "too_large", "The message is too large.")),
    "not-found": refuse("404", error(404, "not_found", "There is nothing here.")),
    "rejected-body": refuse(
        '200 with {"status": "rejected"}', Reply(200, b'{"status":"rejected","id":null}')
    ),
    "payment": refuse("402", error(402, "payment_required", "The plan has ended.")),
    "forbidden": refuse(
        "403 for the sender",
        error(403, "sender_blocked", "This sender is blocked.", scope="sender"),
    ),
    "badkey": refuse("401", error(401, "bad_key", "The API key is not known.")),
    "quota": refuse(
        "429, quota exhausted", error(429, "quota_exhausted", "The quota of the plan is used up.")
    ),
    "redirect": refuse("302", Reply(302, headers={"Location": "/elsewhere"})),
    "key-conflict": refuse(
        "409", error(409, "key_conflict", "This key belongs to another request.")
    ),
}

HEALTHY = MENU["delivered"]


def word_of(address: str) -> str:
    """The word that an address chooses: its local part, without case and plus-suffix."""
    word = address.rpartition("@")[0].partition("+")[0].lower()
    return word if word in MENU else "delivered"
