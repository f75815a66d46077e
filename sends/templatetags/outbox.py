"""What every screen shows in the same way: icons, chips, seals, moments and spans of time."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django import template
from django.templatetags.static import static
from django.utils import dateformat, timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from sends.rules.addresses import in_letters
from sends.rules.letters import letters_of
from sends.rules.statuses import DELIVERY_SENTENCES, SENTENCES, DeliveryState, Status

register = template.Library()


@register.simple_tag
def icon(name: str) -> SafeString:
    """A drawing from the sprite, for the eye only: the word has to stand beside it."""
    return format_html(
        '<svg class="i" aria-hidden="true"><use href="{}#{}"/></svg>',
        static("sends/icons.svg"),
        name,
    )


# States


class Look(NamedTuple):
    """How a state is drawn; `words` and `sentence` only where the rules have none."""

    icon: str
    tone: str
    words: str = ""
    sentence: str = ""


LOOKS: dict[str, Look] = {
    Status.AWAITING_APPROVAL: Look("wait", "wait"),
    Status.CHANGES_REQUESTED: Look("reply", "rest"),
    Status.REJECTED: Look("no", "rest"),
    Status.QUEUED: Look("ok", "move"),
    Status.IN_FLIGHT: Look("send", "move"),
    Status.RETRY_SCHEDULED: Look("retry", "move"),
    Status.UNCERTAIN: Look("unsure", "unsure"),
    Status.SUBMITTED: Look("check", "move"),
    Status.DONE: Look("done", "rest"),
    Status.DEAD_LETTER: Look("dead", "bad"),
    Status.SUPERSEDED: Look("swap", "rest"),
    Status.CANCELLED: Look("minus", "rest"),
    DeliveryState.WAITING: Look("glass", "rest"),
    DeliveryState.ACCEPTED: Look("check", "move"),
    DeliveryState.DEFERRED: Look("clock", "wait"),
    DeliveryState.DELIVERED: Look("checks", "good"),
    DeliveryState.NO_NEWS: Look("ring", "rest"),
    DeliveryState.DROPPED: Look("drop", "bad"),
    DeliveryState.REFUSED: Look("refused", "bad"),
    DeliveryState.BOUNCED: Look("bounce", "bad"),
    DeliveryState.COMPLAINED: Look("flag", "bad"),
    "more_approvals": Look(
        "users",
        "wait",
        "1 of 2 approvals",
        "One person approved; a different person has to as well.",
    ),
    "on_hold": Look(
        "pause",
        "wait",
        "On hold",
        "Ready to go, but something stops it; the reason and the way out are shown.",
    ),
    "halted": Look(
        "stop", "bad", "Halted", "Its run was halted; it waits until an operator resumes the run."
    ),
    "running": Look("play", "good", "Running", "The run may send."),
    "finished": Look("done", "rest", "Finished", "The run has ended; nothing of it is left."),
}

WORDS = {**dict(Status.choices), **dict(DeliveryState.choices)}
TOOLTIPS = {str(state): said for state, said in [*SENTENCES.items(), *DELIVERY_SENTENCES.items()]}


@register.inclusion_tag("sends/parts/_chip.html")
def chip(state: str, words: str = "", *, plain: bool = False) -> dict[str, Any]:
    """A state as icon, tone and word: a key of LOOKS, which holds every Status.

    `words` says it more exactly ("6 dead letters"), `plain` leaves out the ground, for tables.
    """
    look = LOOKS[state]
    return {
        "icon_name": look.icon,
        "tone": look.tone,
        "words": words or look.words or WORDS[state],
        "sentence": look.sentence or TOOLTIPS.get(state, ""),
        "plain": plain,
    }


# Seals

# One bar of the seal for each value of two bits: middle, up, down, full.
BARS = ("5h2v6h-2z", "1h2v10h-2z", "5h2v10h-2z", "1h2v14h-2z")


@register.simple_tag
def seal(digest: str, *, digits: bool = True, big: bool = False, old: bool = False) -> SafeString:
    """The first 32 bits of a digest as bars, and as two groups of four digits.

    A help for the eye, never the check. `digits=False` keeps them for screen readers only;
    `old` strikes them through: this version was superseded.
    """
    short = f"{digest[:4]} {digest[4:8]}"
    number = int(digest[:8], 16)
    pairs = [number >> shift & 3 for shift in range(30, -2, -2)]
    path = "".join(f"M{4 * place} {BARS[pair]}" for place, pair in enumerate(pairs))
    said = "superseded seal" if old else "seal"
    return format_html(
        '<span class="seal{}{}"><svg viewBox="0 0 62 16" aria-hidden="true"><path d="{}"/></svg>'
        '<span class="sr">{} {}</span>{}</span>',
        " big" if big else "",
        " old" if old else "",
        path,
        said,
        "" if digits else short,
        format_html("<code>{}</code>", short) if digits else "",
    )


@register.filter
def visible(text: object) -> SafeString:
    """Somebody else's text, with every letter in it that nobody would see named: "U+202E"."""
    return format_html_join(
        "",
        "{}{}{}",
        (
            (ODD[0], letters.text, ODD[1]) if letters.is_odd else ("", letters.text, "")
            for letters in letters_of("" if text is None else str(text))
        ),
    )


ODD = (mark_safe('<span class="odd">'), mark_safe("</span>"))


@register.filter
def in_both_forms(address: str) -> SafeString:
    """An address as it is sent; beside it the letters of its domain, if they are others."""
    letters = in_letters(address)
    return visible(f"{address} ({letters})" if letters else address)


@register.filter
def in_eights(digest: str) -> str:
    """A long hexadecimal number in groups that an eye can follow."""
    return " ".join(digest[start : start + 8] for start in range(0, len(digest), 8))


# Time

MINUTE, HOUR, DAY = 60, 3_600, 86_400
# From here on a date says more than a number of days.
FORGOTTEN = timedelta(days=30)


@register.simple_tag(takes_context=True)
def when(context: Mapping[str, Any], value: datetime | None, style: str = "ago") -> SafeString:
    """A moment in the reader's zone, with UTC in the title; nothing for None.

    Styles: `ago` for lists ("6 min", "in 6 min"), `stamp` for timelines ("14:48:07", with the
    date unless it is today), `fine` for attempts ("14:48:07.12"), `date` ("15 Oct, 14:42").
    The page may set `now`, so that all its moments agree.
    """
    if value is None:
        return mark_safe("")
    now = context.get("now") or timezone.now()
    grows = style == "ago" and timedelta() <= now - value < FORGOTTEN
    return format_html(
        '<time datetime="{}" title="{} UTC"{}>{}</time>',
        value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        dateformat.format(value.astimezone(UTC), "j M Y, H:i:s"),
        mark_safe(" data-ago") if grows else "",  # the script keeps these up to date
        STYLES[style](timezone.localtime(value), timezone.localtime(now)),
    )


def _ago(value: datetime, now: datetime) -> str:
    gone = now - value
    if abs(gone) >= FORGOTTEN:
        return _day(value, now)
    seconds = gone.total_seconds()
    return in_words(seconds, units=1) if seconds >= 0 else f"in {in_words(-seconds, units=1)}"


def _stamp(value: datetime, now: datetime) -> str:
    clock = dateformat.format(value, "H:i:s")
    return clock if value.date() == now.date() else f"{_day(value, now)}, {clock}"


def _fine(value: datetime, now: datetime) -> str:
    return f"{_stamp(value, now)}.{value.microsecond // 10_000:02}"


def _date(value: datetime, now: datetime) -> str:
    return f"{_day(value, now)}, {dateformat.format(value, 'H:i')}"


def _day(value: datetime, now: datetime) -> str:
    return dateformat.format(value, "j M" if value.year == now.year else "j M Y")


STYLES = {"ago": _ago, "stamp": _stamp, "fine": _fine, "date": _date}


@register.simple_tag
def span(value: timedelta | float | None, *, fine: bool = False) -> str:
    """How long, in words: "6 min", "5 h 34 min", "3 days 4 h"; with `fine`, "0.41 s"."""
    if value is None:
        return ""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    return f"{seconds:.2f} s" if fine else in_words(seconds)


@register.filter
def as_clock(seconds: int) -> str:
    """A countdown, "0:21", as the script goes on to write it."""
    return f"{seconds // MINUTE}:{seconds % MINUTE:02}"


def in_words(seconds: float, *, units: int = 2) -> str:
    """A span in its largest unit, and the next one where that is still hours or minutes."""
    whole = max(int(seconds), 0)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < HOUR:
        return f"{whole // MINUTE} min"
    if whole < DAY:
        large, small = f"{whole // HOUR} h", whole % HOUR // MINUTE
        rest = f" {small} min"
    else:
        days = whole // DAY
        large, small = f"{days} day{'s' if days > 1 else ''}", whole % DAY // HOUR
        rest = f" {small} h"
    return large + rest if small and units > 1 else large
