"""What people decide about a frozen version: approve, send back, take the decision back."""

import uuid
from datetime import datetime, timedelta

from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.approval import (
    approve_by_policy,
    earliest_attempt,
    people_missing,
    queue,
    standing_approvals,
)
from sends.lifecycle.refusals import (
    AlreadyAccepted,
    AlreadyDecided,
    DigestDiffers,
    InDoubt,
    InFlight,
    Invalid,
    NotAllowed,
    NotPossible,
    OtherVersionActive,
    Refused,
    RunEnded,
    Suppressed,
    TooLate,
    VersionChanged,
)
from sends.lifecycle.roles import require_role
from sends.lifecycle.transitions import lock_intent
from sends.models import (
    AnomalyKind,
    Approval,
    Payload,
    Person,
    Policy,
    Role,
    SendIntent,
    Suppression,
    Verdict,
    database_now,
)
from sends.rules.payloads import seal
from sends.rules.statuses import ACTIVE, HOLD_BITS, Hold, Status

__all__ = [
    "AlreadyAccepted",
    "AlreadyDecided",
    "DigestDiffers",
    "InDoubt",
    "InFlight",
    "Invalid",
    "NotAllowed",
    "NotPossible",
    "OtherVersionActive",
    "Refused",
    "RunEnded",
    "Suppressed",
    "TooLate",
    "VersionChanged",
    "approve",
    "approve_by_policy",
]


def approve(
    intent_id: uuid.UUID, *, person: Person, digest: str, now: datetime | None = None
) -> SendIntent:
    """Count this person's approval of exactly this digest; with enough of them, queue it.

    `digest` is that of the form the person saw. Refused, with nothing decided, when the version
    has moved on, when its stored bytes no longer match, and when it must not be sent. Where two
    people are needed the first leaves it awaiting approval.
    """
    with transaction.atomic():
        intent, now = _locked(intent_id, now)
        _require_undecided(intent, person, digest, now)
        differs = _differing_bytes(intent, now=now)
        if differs is None:
            _count_approval(intent, person, now)
    if differs is not None:
        # Raised only here, so that the anomaly is committed.
        raise differs
    return intent


def _count_approval(intent: SendIntent, person: Person, now: datetime) -> None:
    undo_time = Policy.objects.get(tenant=intent.tenant_id).undo_time
    _refuse_own_approval(intent, person)
    _refuse_unsendable(intent, undo_time, now)
    Approval.objects.create(
        intent=intent, digest=intent.digest, verdict=Verdict.APPROVE, person=person, made_at=now
    )
    missing = people_missing(intent)
    if not missing:
        queue(intent, undo_time=undo_time, now=now)
    audit.record(
        tenant=intent.tenant,
        actor=person.email,
        verb="approve",
        target=audit.message_target(intent),
        facts={"digest": intent.digest, "still_missing": missing},
        now=now,
    )


def _locked(intent_id: uuid.UUID, now: datetime | None) -> tuple[SendIntent, datetime]:
    """The intent under its locks, and the time read after them: nobody decides in between."""
    intent = lock_intent(intent_id)
    return intent, now or database_now()


def _require_undecided(intent: SendIntent, person: Person, digest: str, now: datetime) -> None:
    """The person may decide, this version still waits for it, and it is what the person saw."""
    require_role(person, intent.tenant, Role.APPROVER)
    if intent.status != Status.AWAITING_APPROVAL:
        raise _why_decided(intent)
    _refuse_older_version(intent)
    if digest != intent.digest:
        raise VersionChanged(
            "What you saw is not this version of the email, so nothing was decided. "
            "Open it again and look at it."
        )
    if intent.holds & HOLD_BITS[Hold.CANCEL_ASKED]:
        raise NotPossible("This email is to be cancelled, so there is nothing left to decide.")
    if intent.decide_by is not None and intent.decide_by <= now:
        raise TooLate(
            f"Nobody decided by {_moment(intent.decide_by)}, so this email is being cancelled.",
            who="system",
            at=intent.decide_by,
        )


def _refuse_older_version(intent: SendIntent) -> None:
    latest = intent.action.latest_version
    if intent.version == latest:
        return
    newer = SendIntent.objects.get(action=intent.action_id, version=latest)
    author = _author(newer)
    raise VersionChanged(
        f"This email changed: {author} sent version {latest} at {_moment(newer.created_at)}, and "
        f"you were looking at version {intent.version}, so nothing was decided.",
        who=author,
        at=newer.created_at,
    )


def _differing_bytes(intent: SendIntent, *, now: datetime) -> DigestDiffers | None:
    """Recompute the seal from the stored bytes; an anomaly where they say something else."""
    payload = Payload.objects.filter(intent=intent).first()
    found = seal(bytes(payload.body)) if payload is not None else "no stored payload"
    if found == intent.digest:
        return None
    open_anomaly(
        intent,
        kind=AnomalyKind.DIGEST_DIFFERS,
        detail=f"At approval the stored bytes had the digest {found}, not {intent.digest}.",
        now=now,
    )
    return DigestDiffers(
        "The stored bytes of this email are not those that were frozen, so nothing was approved. "
        "An admin has to look at the anomaly."
    )


def _refuse_own_approval(intent: SendIntent, person: Person) -> None:
    mine = [a for a in standing_approvals(intent) if a.person_id == person.pk]
    if mine:
        raise AlreadyDecided(
            "You approved this version already; a different person has to as well.",
            who=person.email,
            at=mine[0].made_at,
        )
    if intent.author_id == person.pk and intent.approvals_needed < 2:
        raise NotAllowed("You wrote this version; somebody else has to approve it.")


def _refuse_unsendable(intent: SendIntent, undo_time: timedelta, now: datetime) -> None:
    if intent.run is not None and intent.run.ended_at is not None:
        raise RunEnded(
            f"Its run was ended at {_moment(intent.run.ended_at)}.", at=intent.run.ended_at
        )
    refuse_other_active_version(intent)
    refuse_suppressed(intent)
    earliest = earliest_attempt(intent, undo_time=undo_time, now=now)
    if intent.deadline is not None and intent.deadline <= earliest:
        raise TooLate(
            f"It has to go out by {_moment(intent.deadline)}, and could not before "
            f"{_moment(earliest)}.",
            at=intent.deadline,
        )
    if intent.replay_until is not None and intent.replay_until <= earliest:
        raise TooLate(
            "The time in which the provider knows its key is over. Edit it into a new version.",
            at=intent.replay_until,
            offer="edit",
        )


def refuse_other_active_version(intent: SendIntent) -> None:
    """Refuse while another version of the action is approved or may be on its way."""
    others = SendIntent.objects.filter(action=intent.action_id, status__in=ACTIVE)
    other = others.exclude(pk=intent.pk).first()
    if other is not None:
        label = Status(other.status).label.lower()
        raise OtherVersionActive(f"Version {other.version} of this email is {label}.")


def refuse_suppressed(intent: SendIntent) -> None:
    """Refuse while any recipient, To, Cc or Bcc, must not be sent to."""
    suppression = suppression_of(intent)
    if suppression is not None:
        raise Suppressed(
            f"{suppression.normal} was suppressed at {_moment(suppression.since)}: "
            f"{suppression.get_cause_display()}. Edit the email or reject it.",
            at=suppression.since,
            offer="edit",
        )


def suppression_of(intent: SendIntent) -> Suppression | None:
    """The first suppression in force of any of the recipients."""
    recipients = intent.deliveries.values("normal")
    suppressed = Suppression.objects.filter(
        tenant=intent.tenant_id, normal__in=recipients, released_at=None
    )
    return suppressed.order_by("pk").first()


def _why_decided(intent: SendIntent) -> Refused:
    """Who decided what, and when: the answer to whoever comes second."""
    status = Status(intent.status)
    if status is Status.SUPERSEDED:
        try:
            _refuse_older_version(intent)
        except VersionChanged as changed:
            return changed
    if status is Status.CANCELLED:
        return AlreadyDecided(
            f"This email was cancelled at {_moment(intent.status_at)}: {intent.end_reason}",
            at=intent.status_at,
        )
    decision = Approval.objects.filter(intent=intent, undone_at=None).order_by("-pk").first()
    if decision is None:
        label = status.label.lower()
        return AlreadyDecided(f"This email is {label}; there is nothing to decide.")
    who = str(decision.person or "policy")
    note = f": {decision.note}" if decision.note else ""
    did = {
        Verdict.APPROVE: "approved it",
        Verdict.CHANGES: "asked for changes",
        Verdict.REJECT: "rejected it",
    }[Verdict(decision.verdict)]
    return AlreadyDecided(
        f"Already decided. {who} {did} at {_moment(decision.made_at)}{note}",
        who=who,
        at=decision.made_at,
    )


def _author(intent: SendIntent) -> str:
    if intent.author is not None:
        return intent.author.email
    return f"agent:{intent.agent.slug}" if intent.agent is not None else "system"


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
