"""What happened to a message, from rows that were each written once: the oldest first."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sends.dashboard import attempts
from sends.dashboard.attempts import sentence
from sends.dashboard.story import Story
from sends.lifecycle.obstacles import author_of
from sends.models import (
    Anomaly,
    Approval,
    AuditEntry,
    Direction,
    Evidence,
    EvidenceKind,
    ProviderEvent,
    SendIntent,
    Verdict,
)
from sends.rules.deliveries import EventKind
from sends.rules.statuses import Status


class Part(StrEnum):
    """What a timeline can be narrowed to; the rest stands in no part."""

    ATTEMPTS = "attempts"
    DECISIONS = "decisions"
    DELIVERY = "delivery"
    OTHER = "other"


@dataclass(frozen=True)
class Entry:
    """What `sends/parts/_timeline.html` shows of one happening."""

    part: Part
    version: int
    at: datetime
    tone: str
    icon_name: str
    title: str
    text: str = ""
    seal: str = ""
    old: bool = False
    wire: str = ""
    fine: bool = False


def timeline_of(story: Story) -> list[Entry]:
    entries = [
        *_versions(story),
        *_decisions(story),
        *_attempts(story),
        *_events(story),
        *_findings(story),
        *_audited(story),
        *_anomalies(story),
        *_endings(story),
        *_deletions(story),
    ]
    return sorted(entries, key=lambda entry: entry.at)


def _is_old(story: Story, version: SendIntent) -> bool:
    return version.status == Status.SUPERSEDED or version.version < story.action.latest_version


def _versions(story: Story) -> Iterator[Entry]:
    for before, version in zip([None, *story.versions], story.versions, strict=False):
        who = author_of(version).removeprefix("agent:")
        icon_name = "edit" if version.author_id else "robot"
        text = f"Version {version.version}"
        if version.run is not None:
            text += f", run {version.run.name}"
        title, seal = f"Created by {who}", version.digest
        if story.action.follows is not None and before is None:
            text += f", follows #{story.action.follows.number}"
        if before is not None:
            title, text = f"Version {version.version} by {who}", _replaces(before, version)
        old = _is_old(story, version)
        yield Entry(
            Part.OTHER,
            version.version,
            version.created_at,
            "rest",
            icon_name,
            title,
            text,
            seal=seal,
            old=old,
        )


def _replaces(before: SendIntent, version: SendIntent) -> str:
    why = f"{sentence(version.note)} " if version.author_id and version.note else ""
    if version.resend_of_id:
        return f"{why}The same content again, under a new key."
    if before.status == Status.SUPERSEDED and not before.attempt_count:
        return f"{why}Version {before.version} was never sent."
    return f"{why}It replaces version {before.version}."


DECIDED = {
    Verdict.APPROVE: ("move", "ok"),
    Verdict.CHANGES: ("rest", "reply"),
    Verdict.REJECT: ("rest", "no"),
}
ORDINALS = ("First", "Second")


def _decisions(story: Story) -> Iterator[Entry]:
    given: dict[object, int] = {}
    for approval in story.approvals:
        version = story.version_of(approval)
        tone, icon_name = DECIDED[Verdict(approval.verdict)]
        title = Verdict(approval.verdict).label
        if approval.verdict == Verdict.APPROVE and approval.undone_at is None:
            count = given[version.pk] = given.get(version.pk, 0) + 1
            title = _approved(version, count)
            if count < version.approvals_needed:
                tone, icon_name = "wait", "users"
        yield _decision(story, version, approval, tone, icon_name, title)
        if approval.undone_at is not None:
            yield _undone(version, approval)


def _approved(version: SendIntent, count: int) -> str:
    if version.approvals_needed < 2 or count > len(ORDINALS):
        return "Approved"
    enough = ", now approved" if count >= version.approvals_needed else ""
    return f"{ORDINALS[count - 1]} approval{enough}"


def _decision(
    story: Story, version: SendIntent, approval: Approval, tone: str, icon_name: str, title: str
) -> Entry:
    who = str(approval.person) if approval.person else f"Policy: {approval.rule or 'asks nobody'}"
    reason = approval.get_reason_code_display() if approval.reason_code else ""
    return Entry(
        Part.DECISIONS,
        version.version,
        approval.made_at,
        tone,
        icon_name,
        title,
        _said_by(who, reason, approval.note),
        seal=approval.digest,
        old=_is_old(story, version) or approval.undone_at is not None,
    )


def _undone(version: SendIntent, approval: Approval) -> Entry:
    assert approval.undone_at is not None
    what = {Verdict.APPROVE: "Approval", Verdict.CHANGES: "Request for changes"}
    name = what.get(Verdict(approval.verdict), "Rejection")
    who = str(approval.undone_by) if approval.undone_by else ""
    title = f"{name} undone" if who else f"{name} no longer counts"
    text = _said_by(who, approval.undo_reason)
    return Entry(Part.DECISIONS, version.version, approval.undone_at, "rest", "undo", title, text)


def _attempts(story: Story) -> Iterator[Entry]:
    for attempt in story.attempts:
        version = story.version_of(attempt)
        tone, icon_name = attempts.look(attempt)
        yield Entry(
            Part.ATTEMPTS,
            version.version,
            attempt.opened_at,
            tone,
            icon_name,
            attempts.title(attempt),
            attempts.text(attempt),
            seal=attempt.digest if attempt.digest != version.digest else "",
            wire=attempts.wire(attempt),
            fine=True,
        )


EVENTS = {
    EventKind.ACCEPTED: ("move", "check", "The provider says that it took the email."),
    EventKind.DELIVERED: ("good", "checks", "Its mail server took the email."),
    EventKind.DEFERRED: (
        "wait",
        "clock",
        "Its server asked to try later; the provider keeps trying by itself.",
    ),
    EventKind.SOFT_BOUNCED: (
        "wait",
        "clock",
        "Its server refused it for now; the provider keeps trying by itself.",
    ),
    EventKind.BOUNCED: ("bad", "bounce", "Its server refused the email for good."),
    EventKind.COMPLAINED: ("bad", "flag", "The recipient reported the email as spam."),
    EventKind.UNSUBSCRIBED: ("rest", "minus", "The recipient wants no more of these."),
    EventKind.REFUSED: ("bad", "refused", "The provider refused this recipient."),
    EventKind.DROPPED: ("bad", "drop", "The provider did not pass the email on."),
    EventKind.UNKNOWN: ("rest", "ring", "We do not know this kind of event; it proves nothing."),
}


def _events(story: Story) -> Iterator[Entry]:
    for event in story.events:
        kind = EventKind(event.kind)
        tone, icon_name, words = EVENTS[kind]
        yield Entry(
            Part.DELIVERY,
            story.version_of(event).version,
            event.occurred_at,
            tone,
            icon_name,
            kind.label,
            f"{event.recipient}. {words}" if event.recipient else words,
            wire=_said(event),
        )


def _said(event: ProviderEvent) -> str:
    return event.reason.strip()


FINDINGS = {
    Direction.ACCEPTED: "Points to accepted",
    Direction.NOT_ACCEPTED: "Points to not accepted",
    Direction.NEITHER: "Proves nothing",
}
# What an event proves stands at the event itself.
TOLD_ELSEWHERE = frozenset({EvidenceKind.EVENT})


def _findings(story: Story) -> Iterator[Entry]:
    for evidence in story.evidence:
        if evidence.kind not in TOLD_ELSEWHERE:
            yield _finding(story, evidence)


def _finding(story: Story, evidence: Evidence) -> Entry:
    kind = EvidenceKind(evidence.kind)
    titles = {
        EvidenceKind.LOOK_UP: "Asked the provider",
        EvidenceKind.PERSON: _found(evidence),
    }
    who = sentence(str(evidence.person)) if evidence.person else ""
    is_new = evidence.value and evidence.value not in evidence.summary
    value = f"Shown by {evidence.value}." if is_new and who else ""
    weighs = f"{FINDINGS[Direction(evidence.direction)]}." if kind not in titles else ""
    part = Part.DECISIONS if kind is EvidenceKind.PERSON else Part.OTHER
    return Entry(
        part,
        story.version_of(evidence).version,
        evidence.found_at,
        "move" if evidence.proves else "rest",
        "user" if kind is EvidenceKind.PERSON else "search",
        titles.get(kind, kind.label),
        " ".join(words for words in (sentence(evidence.summary), weighs, value, who) if words),
    )


def _found(evidence: Evidence) -> str:
    if evidence.direction == Direction.ACCEPTED:
        return "Found accepted"
    if evidence.confirms_id is not None:
        return "Confirmed: not accepted"
    return "Found not accepted" if evidence.proves else "Found not accepted, not yet confirmed"


# What no other row tells.
AUDITED = {
    "cancel": ("rest", "minus", "Cancel asked"),
    "withdraw": ("rest", "minus", "Taken back by its agent"),
    "replay": ("move", "retry", "Replay with the same key"),
    "retry_now": ("move", "retry", "Retry now"),
    "requeue": ("move", "retry", "Requeued"),
    "resend": ("move", "send", "Sent again as a new version"),
    "close": ("rest", "done", "Closed"),
    "reopen": ("rest", "undo", "Opened again"),
    "release": ("move", "play", "Released, after a restore"),
    "follow_up": ("rest", "mail", "Follow-up written"),
}


def _audited(story: Story) -> Iterator[Entry]:
    for entry in story.audit:
        if entry.verb not in AUDITED:
            continue
        tone, icon_name, title = AUDITED[entry.verb]
        who = entry.actor.removeprefix("agent:")
        yield Entry(
            Part.DECISIONS,
            _version_in(entry),
            entry.at,
            tone,
            icon_name,
            title,
            _said_by(who, entry.reason),
        )


def _version_in(entry: AuditEntry) -> int:
    return int(entry.target.rpartition("/v")[2])


def _anomalies(story: Story) -> Iterator[Entry]:
    for anomaly in story.anomalies:
        version = next(v.version for v in story.versions if v.pk == anomaly.intent_id)
        yield Entry(
            Part.OTHER,
            version,
            anomaly.opened_at,
            "bad",
            "alert",
            f"Anomaly: {anomaly.get_kind_display()}",
            anomaly.detail,
        )
        if anomaly.closed_at is not None:
            yield _closed(anomaly, version)


def _closed(anomaly: Anomaly, version: int) -> Entry:
    assert anomaly.closed_at is not None
    text = _said_by(str(anomaly.closed_by), anomaly.close_reason)
    return Entry(Part.DECISIONS, version, anomaly.closed_at, "rest", "done", "Anomaly closed", text)


ENDINGS = {
    Status.CANCELLED: ("rest", "minus"),
    Status.UNCERTAIN: ("unsure", "unsure"),
    Status.DEAD_LETTER: ("bad", "dead"),
    Status.DONE: ("rest", "done"),
}


def _endings(story: Story) -> Iterator[Entry]:
    """Where a version stands now, and why: no row is written for what happens by itself."""
    for version in story.versions:
        status = Status(version.status)
        if status not in ENDINGS or (status is Status.CANCELLED and _taken_back(story, version)):
            continue
        tone, icon_name = ENDINGS[status]
        text = sentence(version.end_reason) if version.end_reason else ""
        yield Entry(
            Part.OTHER, version.version, version.status_at, tone, icon_name, status.label, text
        )


def _deletions(story: Story) -> Iterator[Entry]:
    for version in story.versions:
        if version.purged_at is not None:
            yield Entry(
                Part.OTHER,
                version.version,
                version.purged_at,
                "rest",
                "minus",
                "What it said was deleted",
                "The time for which it is kept was over."
                if version.purged_at != version.erased_at
                else "",
            )
        if version.erased_at is not None:
            text = "Their address is a pseudonym now."
            yield Entry(
                Part.OTHER,
                version.version,
                version.erased_at,
                "rest",
                "minus",
                "A recipient was erased",
                text,
            )


def _said_by(who: str, *words: str) -> str:
    """A name alone stays a name; with words after it each is a sentence."""
    said = [part for part in (who, *words) if part]
    return " ".join(map(sentence, said)) if len(said) > 1 else "".join(said)


def _taken_back(story: Story, version: SendIntent) -> bool:
    """Whether the audit log tells of it already."""
    return any(
        entry.verb in ("cancel", "withdraw") and _version_in(entry) == version.version
        for entry in story.audit
    )
