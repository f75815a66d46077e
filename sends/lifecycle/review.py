"""What people decide about a frozen version: approve, send back, take the decision back."""

import uuid
from datetime import datetime

from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.approval import (
    earliest_attempt,
    people_missing,
    queue,
    return_to_approval,
    standing_approvals,
)
from sends.lifecycle.obstacles import (
    moment,
    refuse_cancel_asked,
    refuse_ended_run,
    refuse_older_version,
    refuse_other_active_version,
    refuse_other_digest,
    refuse_suppressed,
    why_decided,
)
from sends.lifecycle.refusals import (
    AlreadyDecided,
    DigestDiffers,
    Invalid,
    NotAllowed,
    NotPossible,
    TooLate,
)
from sends.lifecycle.roles import require_role
from sends.lifecycle.transitions import lock_intent, move
from sends.models import (
    AnomalyKind,
    Approval,
    Payload,
    Person,
    Policy,
    ReasonCode,
    Role,
    SendIntent,
    Verdict,
    database_now,
)
from sends.rules.payloads import seal
from sends.rules.statuses import Status

SHORTEST_NOTE, LONGEST_NOTE = 10, 1000


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


def ask_for_changes(
    intent_id: uuid.UUID,
    *,
    person: Person,
    digest: str,
    note: str,
    reason_code: str,
    now: datetime | None = None,
) -> SendIntent:
    """Send it back: the agent reads the note and may answer with the next version."""
    if not note.strip():
        raise Invalid(f"Say what is to be changed, in {SHORTEST_NOTE} characters or more.")
    return _send_back(intent_id, Verdict.CHANGES, person, digest, note, reason_code, now)


def reject(
    intent_id: uuid.UUID,
    *,
    person: Person,
    digest: str,
    note: str,
    reason_code: str,
    now: datetime | None = None,
) -> SendIntent:
    """Say no for good. The note, which the agent reads, may be left out but for "other"."""
    if reason_code == ReasonCode.OTHER and not note.strip():
        raise Invalid(f'With the reason "Other", write {SHORTEST_NOTE} characters or more.')
    return _send_back(intent_id, Verdict.REJECT, person, digest, note, reason_code, now)


def undo(intent_id: uuid.UUID, *, person: Person, now: datetime | None = None) -> SendIntent:
    """Take back this person's own decision; those of other people stay.

    An approval, until a worker has claimed the email: it awaits approval again. A rejection or a
    request for changes, within the undo time and while the version is current.
    """
    with transaction.atomic():
        intent, now = _locked(intent_id, now)
        require_role(person, intent.tenant, Role.APPROVER)
        decision = intent.approvals.filter(person=person, undone_at=None).first()
        _refuse_late_undo(intent, decision, now)
        assert decision is not None
        decision.undone_at, decision.undone_by = now, person
        decision.save(update_fields=["undone_at", "undone_by"])
        if intent.status != Status.AWAITING_APPROVAL:
            return_to_approval(intent, now=now)
        facts = {"verdict": decision.verdict}
        audit.record_about(intent, actor=person, verb="undo", facts=facts, now=now)
    return intent


def _count_approval(intent: SendIntent, person: Person, now: datetime) -> None:
    undo_time = Policy.objects.get(tenant=intent.tenant_id).undo_time
    earliest = earliest_attempt(intent, undo_time=undo_time, now=now)
    _refuse_own_approval(intent, person)
    _refuse_unsendable(intent, earliest)
    Approval.objects.create(
        intent=intent, digest=intent.digest, verdict=Verdict.APPROVE, person=person, made_at=now
    )
    missing = people_missing(intent)
    if not missing:
        queue(intent, undo_time=undo_time, now=now)
    facts = {"digest": intent.digest, "still_missing": missing}
    audit.record_about(intent, actor=person, verb="approve", facts=facts, now=now)


def _send_back(
    intent_id: uuid.UUID,
    verdict: Verdict,
    person: Person,
    digest: str,
    note: str,
    reason_code: str,
    now: datetime | None,
) -> SendIntent:
    note = _checked_note(note, reason_code)
    with transaction.atomic():
        intent, now = _locked(intent_id, now)
        _require_undecided(intent, person, digest, now)
        undo_time = Policy.objects.get(tenant=intent.tenant_id).undo_time
        # Who approved as the first of two may still say no.
        intent.approvals.filter(person=person, undone_at=None).update(
            undone_at=now, undone_by=person, undo_reason="decided otherwise"
        )
        Approval.objects.create(
            intent=intent,
            digest=intent.digest,
            verdict=verdict,
            person=person,
            reason_code=reason_code,
            note=note,
            made_at=now,
        )
        to = Status.REJECTED if verdict is Verdict.REJECT else Status.CHANGES_REQUESTED
        words = note or str(ReasonCode(reason_code).label)
        move(intent, to, now=now, undo_until=now + undo_time, end_reason=words)
        verb = "reject" if verdict is Verdict.REJECT else "ask_for_changes"
        facts = {"digest": intent.digest, "reason_code": reason_code}
        audit.record_about(intent, actor=person, verb=verb, reason=note, facts=facts, now=now)
    return intent


def _checked_note(note: str, reason_code: str) -> str:
    if reason_code not in ReasonCode.values:
        raise Invalid(f'"{reason_code}" is not a reason; give one of {", ".join(ReasonCode)}.')
    note = note.strip()
    if note and not SHORTEST_NOTE <= len(note) <= LONGEST_NOTE:
        raise Invalid(f"Write {SHORTEST_NOTE} to {LONGEST_NOTE} characters; it is {len(note)} now.")
    return note


def _locked(intent_id: uuid.UUID, now: datetime | None) -> tuple[SendIntent, datetime]:
    """The intent under its locks, and the time read after them: nobody decides in between."""
    intent = lock_intent(intent_id)
    return intent, now or database_now()


def _require_undecided(intent: SendIntent, person: Person, digest: str, now: datetime) -> None:
    """The person may decide, this version still waits for it, and it is what the person saw."""
    require_role(person, intent.tenant, Role.APPROVER)
    refuse_older_version(intent)
    if intent.status != Status.AWAITING_APPROVAL:
        raise why_decided(intent)
    refuse_other_digest(intent, digest)
    refuse_cancel_asked(intent)
    if intent.decide_by is not None and intent.decide_by <= now:
        raise TooLate(
            f"Nobody decided by {moment(intent.decide_by)}, so this email is being cancelled.",
            who="system",
            at=intent.decide_by,
        )


def _differing_bytes(intent: SendIntent, *, now: datetime) -> DigestDiffers | None:
    """Recompute the seal from the stored bytes; an anomaly where they say something else."""
    payload = Payload.objects.filter(intent=intent).first()
    found = seal(bytes(payload.body)) if payload is not None else "of no stored payload"
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


def _refuse_unsendable(intent: SendIntent, earliest: datetime) -> None:
    refuse_ended_run(intent)
    refuse_other_active_version(intent)
    refuse_suppressed(intent)
    if intent.deadline is not None and intent.deadline <= earliest:
        raise TooLate(
            f"It has to go out by {moment(intent.deadline)}, and could not before "
            f"{moment(earliest)}.",
            at=intent.deadline,
        )
    if intent.replay_until is not None and intent.replay_until <= earliest:
        raise TooLate(
            "The time in which the provider knows its key is over. Edit it into a new version.",
            at=intent.replay_until,
            offer="edit",
        )


def _refuse_late_undo(intent: SendIntent, decision: Approval | None, now: datetime) -> None:
    status = Status(intent.status)
    refuse_older_version(intent)
    if status is Status.CANCELLED:
        raise why_decided(intent)
    if decision is None:
        raise NotPossible("There is no decision of yours on this version to take back.")
    if status is Status.AWAITING_APPROVAL:
        return
    if status in (Status.REJECTED, Status.CHANGES_REQUESTED):
        refuse_cancel_asked(intent)
        refuse_ended_run(intent)
        if intent.undo_until is None or intent.undo_until < now:
            raise TooLate("Too late to undo: the undo time is over.", at=intent.undo_until)
        return
    tried = intent.attempts.filter(opened_at__gte=intent.approved_at).exclude(dispatched_at=None)
    if status is not Status.QUEUED or tried.exists():
        first = tried.order_by("number").first()
        started = first.dispatched_at if first is not None else None
        at = started or intent.status_at
        raise TooLate(f"Too late to undo. Sending started at {moment(at)}.", at=at)
