"""A refusal as the note that stands where the person decided."""

from dataclasses import dataclass
from datetime import datetime

from django.utils import dateformat, timezone

from sends.lifecycle.obstacles import moment
from sends.lifecycle.refusals import Refused

TITLES = {
    "not_allowed": ("bad", "lock", "You may not do this"),
    "invalid": ("wait", "alert", "Something is missing"),
    "already_decided": ("move", "user", "Already decided"),
    "version_changed": ("wait", "swap", "This email changed while you had it open"),
    "digest_differs": ("bad", "alert", "This is not what was frozen"),
    "suppressed": ("bad", "no", "A recipient must not be sent to"),
    "other_version_active": ("wait", "swap", "Another version is on its way"),
    "in_flight": ("move", "send", "It is being sent right now"),
    "in_doubt": ("unsure", "lock", "Not possible yet"),
    "already_accepted": ("move", "check", "It is out"),
    "too_late": ("rest", "clock", "Too late"),
    "run_ended": ("rest", "stop", "Its run was ended"),
    "not_possible": ("rest", "no", "Not possible"),
}


@dataclass(frozen=True)
class Note:
    """What `sends/parts/_note.html` shows."""

    tone: str
    icon_name: str
    title: str
    text: str


def note_of(refused: Refused) -> Note:
    tone, icon_name, title = TITLES.get(refused.code, ("rest", "alert", "Not done"))
    return Note(tone, icon_name, title, in_readers_time(refused))


def in_readers_time(refused: Refused) -> str:
    """The words of a refusal, with the moment in them in the zone of whoever reads."""
    if refused.at is None:
        return refused.words
    return refused.words.replace(moment(refused.at), _stamp(refused.at))


def _stamp(at: datetime) -> str:
    local, today = timezone.localtime(at), timezone.localdate()
    return dateformat.format(local, "H:i:s" if local.date() == today else "j M Y, H:i:s")
