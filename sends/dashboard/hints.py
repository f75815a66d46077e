"""What points to accepted or not accepted: facts with their source. It never sums up."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Q

from sends.dashboard.attempts import sentence
from sends.dashboard.search import CLOCKS_DIFFER_BY
from sends.dashboard.story import Story
from sends.models import Attempt, Direction, Evidence, EvidenceKind, first_id
from sends.rules.outcomes import DOUBTFUL, TOOK_IT, Phase
from sends.templatetags.outbox import in_words

AROUND = timedelta(seconds=30)
ICONS = {
    EvidenceKind.EVENT: "mail",
    EvidenceKind.LOOK_UP: "search",
    EvidenceKind.LATE_ANSWER: "clock",
    EvidenceKind.REPLAY: "retry",
    EvidenceKind.PERSON: "user",
}


@dataclass(frozen=True)
class Hint:
    direction: Direction
    icon_name: str
    words: str
    source: str
    at: datetime | None = None


def hints_of(story: Story, now: datetime) -> list[Hint]:
    return [
        *_of_requests(story),
        *_of_others(story),
        *_of_silence(story, now),
        *(_of_evidence(evidence) for evidence in story.evidence),
    ]


def _of_requests(story: Story) -> Iterator[Hint]:
    """How much of each request left, where no clear answer came back."""
    doubtful = _doubtful(story)
    if whole := [attempt for attempt in doubtful if attempt.phase >= Phase.SENT]:
        words = "The whole request left, and no clear answer came"
        yield Hint(Direction.ACCEPTED, "plug", words, _numbered(whole))
    if part := [attempt for attempt in doubtful if attempt.phase == Phase.DISPATCHED]:
        words = "Only a part of the request left"
        yield Hint(Direction.NOT_ACCEPTED, "plug", words, _numbered(part))


def _numbered(attempts: list[Attempt]) -> str:
    """ "attempts 1, 2, 2,318 of 2,318 bytes": which ones, and how much of the last one left."""
    last = attempts[-1]
    numbers = ", ".join(str(attempt.number) for attempt in attempts)
    of = f"{last.bytes_sent:,} of {last.bytes_total:,} bytes"
    return f"attempt{'s' * (len(attempts) > 1)} {numbers}: {of}"


def _of_others(story: Story) -> Iterator[Hint]:
    """How the same account fared with other emails at the time of the first such attempt."""
    first = next(iter(_doubtful(story)), None)
    if first is None:
        return
    begin, end = first.opened_at - AROUND, first.opened_at + AROUND
    # Keys sort by time: this reads the attempts of about a minute.
    others = Attempt.objects.filter(
        pk__gte=first_id(begin - CLOCKS_DIFFER_BY),
        pk__lt=first_id(end + CLOCKS_DIFFER_BY),
        opened_at__range=(begin, end),
        account=first.account_id,
        closed_at__isnull=False,
    ).exclude(intent=first.intent_id)
    counted = others.aggregate(all=Count("pk"), taken=Count("pk", filter=Q(outcome__in=TOOK_IT)))
    if not counted["all"]:
        return
    taken, count = counted["taken"], counted["all"]
    direction = Direction.ACCEPTED if taken * 2 > count else Direction.NOT_ACCEPTED
    words = f"{taken} of {count} other attempts in that minute were accepted"
    yield Hint(direction, "check", words, "same account", first.opened_at)


def _of_silence(story: Story, now: datetime) -> Iterator[Hint]:
    """No news says something only where news has come through this account before."""
    attempts = _doubtful(story)
    if not attempts or story.shown.account.webhook_seen_at is None:
        return
    if any(event.intent_id == story.shown.pk for event in story.events):
        return
    waited = in_words((now - attempts[0].opened_at).total_seconds())
    seen = story.shown.account.webhook_seen_at
    yield Hint(
        Direction.NOT_ACCEPTED,
        "clock",
        f"No delivery event for {waited}",
        "events can be late or lost; the last one of this account came",
        seen,
    )


def _of_evidence(evidence: Evidence) -> Hint:
    who = str(evidence.person or "system")
    is_new = evidence.value and evidence.value not in evidence.summary
    source = f"{evidence.value}, {who}" if is_new else who
    kind = EvidenceKind(evidence.kind)
    return Hint(
        Direction(evidence.direction),
        ICONS[kind],
        sentence(evidence.summary),
        source,
        evidence.found_at,
    )


def _doubtful(story: Story) -> list[Attempt]:
    return [attempt for attempt in story.own_attempts if attempt.outcome in DOUBTFUL]
