"""How far one version has come, and whether one seal runs through all of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.dateformat import format as formatted

from sends.dashboard.states import delivery_chips
from sends.dashboard.story import Story
from sends.rules.payloads import seal
from sends.rules.statuses import DeliveryState, Status
from sends.templatetags.outbox import LOOKS, in_words


@dataclass(frozen=True)
class Station:
    """What `sends/parts/_stations.html` shows; `tone` is that of the one it stands at."""

    words: str
    text: str = ""
    done: bool = False
    tone: str = ""


def stations_of(story: Story, now: datetime) -> list[Station]:
    return [
        Station("Created", _clock(story.shown.created_at, now), done=True),
        _approval(story),
        _acceptance(story),
        _delivery(story, now),
    ]


def _approval(story: Story) -> Station:
    shown = story.shown
    if shown.approved_at is None:
        status = Status(shown.status)
        words = f"{len(story.standing)} of {shown.approvals_needed} approvals"
        awaits = status is Status.AWAITING_APPROVAL
        return Station(words if awaits and story.standing else status.label, tone=_tone(status))
    people = sum(approval.person_id is not None for approval in story.standing)
    words = f"Approved by {people}" if people > 1 else "Approved"
    if story.standing and not people:
        words = "Approved by policy"
    return Station(words, _later(shown.approved_at - shown.created_at), done=True)


def _acceptance(story: Story) -> Station:
    shown = story.shown
    count = len(story.own_attempts)
    attempts = f"{count} attempt{'s' * (count != 1)}" if count else ""
    if shown.accepted_at is not None:
        since = shown.accepted_at - (shown.approved_at or shown.created_at)
        text = ", ".join(part for part in (_later(since), attempts) if part)
        return Station("Accepted by provider", text, done=True)
    if shown.approved_at is None:
        return Station("Accepted by provider")
    status = Status(shown.status)
    words = "Waits to be sent" if status is Status.QUEUED else status.label
    return Station(words, attempts, tone=_tone(status))


def _delivery(story: Story, now: datetime) -> Station:
    if story.shown.accepted_at is None:
        return Station("Delivered")
    states = [DeliveryState(delivery.state) for delivery in story.deliveries]
    delivered, count = states.count(DeliveryState.DELIVERED), len(states)
    news = max((d.changed_at for d in story.deliveries if d.changed_at), default=None)
    if count and delivered == count:
        words = f"Delivered to {count}" if count > 1 else "Delivered"
        since = news - story.shown.accepted_at if news else timedelta()
        return Station(words, _later(since), done=True)
    worst = delivery_chips(states)[0].state
    words = f"Delivered to {delivered} of {count}" if count > 1 else LABELS.get(worst, "Delivered")
    return Station(words, _open(story, worst, now), tone=_tone(worst))


# What the last station is called while one recipient's news is neither good nor final.
LABELS = {str(state): state.label for state in DeliveryState if state is not DeliveryState.ACCEPTED}


def _open(story: Story, worst: str, now: datetime) -> str:
    """ "1 deferred since 09:27": of several recipients those that need most to be looked at."""
    concerned = [delivery for delivery in story.deliveries if delivery.state == worst]
    since = min((d.changed_at for d in concerned if d.changed_at), default=None)
    if not concerned or since is None:
        return "No news yet"
    if len(story.deliveries) == 1:
        return f"Since {_clock(since, now)}"
    label = DeliveryState(worst).label.lower()
    return f"{len(concerned)} {label} since {_clock(since, now)}"


def _tone(state: str) -> str:
    return LOOKS[state].tone


def _later(span: timedelta) -> str:
    return f"{in_words(max(span, timedelta()).total_seconds())} later"


def _clock(at: datetime, now: datetime) -> str:
    local = timezone.localtime(at)
    same_day = local.date() == timezone.localtime(now).date()
    return formatted(local, "H:i:s" if same_day else "j M, H:i")


# Seals


@dataclass(frozen=True)
class SealCheck:
    """How many places carry this version's seal, and which carry another: then trust nothing."""

    count: int
    text: str
    differs: str

    @property
    def title(self) -> str:
        if self.differs:
            return "The seal does not match everywhere"
        return f"Seal matches in all {self.count} places" if self.count > 1 else "Sealed"

    @property
    def warning(self) -> str:
        return f"Another seal: {self.differs}. An admin has to look before anything else is done."


def seal_check(story: Story) -> SealCheck:
    """The stored bytes' digest, computed anew, and that of every approval and attempt."""
    digest = story.shown.digest
    found: dict[str, list[bool]] = {}
    if story.payload is not None:
        found["stored email"] = [seal(bytes(story.payload.body)) == digest]
    found["approval"] = [approval.digest == digest for approval in story.standing]
    found["attempt"] = [attempt.digest == digest for attempt in story.own_attempts]
    count = sum(matches.count(True) for matches in found.values())
    return SealCheck(count, _places(found, True), _places(found, False))


def _places(found: dict[str, list[bool]], matching: bool) -> str:
    counted = {name: matches.count(matching) for name, matches in found.items()}
    return ", ".join(f"{n} {name}{'s' * (n > 1)}" for name, n in counted.items() if n)
