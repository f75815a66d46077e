"""A dead letter comes back, closes or opens again, and a retry is made sooner, by a person."""

import uuid
from datetime import datetime

from django.db import transaction
from django.db.models import Q

from sends.lifecycle import audit
from sends.lifecycle.obstacles import (
    moment,
    refuse_cancel_asked,
    refuse_ended_run,
    refuse_older_version,
    refuse_other_active_version,
    refuse_out,
    refuse_suppressed,
    why_decided,
)
from sends.lifecycle.refusals import AlreadyDecided, InFlight, NotPossible, Refused, TooLate
from sends.lifecycle.roles import require_reason, require_role
from sends.lifecycle.transitions import lock_intent, move
from sends.models import Direction, Person, Role, SendIntent, database_now
from sends.rules.outcomes import Outcome
from sends.rules.statuses import Status

# Answers about what the email says: the same bytes get the same answer.
ABOUT_THE_CONTENT = (400, 413, 415)


def requeue(
    intent_id: uuid.UUID, *, person: Person, reason: str = "", now: datetime | None = None
) -> SendIntent:
    """Try a dead letter again: same version, key and approval, and a new count of retries."""
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        require_role(person, intent.tenant, Role.OPERATOR)
        _refuse_requeue(intent, now)
        move(
            intent,
            Status.QUEUED,
            now=now,
            next_attempt_at=_earliest(intent, now),
            retrying_since=now,
            retries_counted=0,
            tries=0,
            in_progress_since=None,
            undo_until=None,
            closed_at=None,
            end_reason="",
        )
        audit.record_about(intent, actor=person, verb="requeue", reason=reason.strip(), now=now)
    return intent


def may_requeue(intent: SendIntent, now: datetime | None = None) -> Refused | None:
    """Why this cannot be requeued, and what is offered instead; None where it can be.

    Read without a lock, for screens: `requeue` asks again.
    """
    try:
        _refuse_requeue(intent, now or database_now())
    except Refused as refusal:
        return refusal
    return None


def close(
    intent_id: uuid.UUID, *, person: Person, reason: str, now: datetime | None = None
) -> SendIntent:
    """Keep the record of a dead letter and stop asking about it."""
    reason = require_reason(reason, what="for closing a dead letter")
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        _require_dead_letter(intent, person)
        if intent.closed_at is not None:
            raise AlreadyDecided(
                f"It was closed at {moment(intent.closed_at)}.", at=intent.closed_at
            )
        _set_closed(intent, now)
        audit.record_about(intent, actor=person, verb="close", reason=reason, now=now)
    return intent


def reopen(
    intent_id: uuid.UUID, *, person: Person, reason: str = "", now: datetime | None = None
) -> SendIntent:
    """Ask about a closed dead letter again."""
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        _require_dead_letter(intent, person)
        if intent.closed_at is None:
            raise AlreadyDecided("It is open.")
        _set_closed(intent, None)
        audit.record_about(intent, actor=person, verb="reopen", reason=reason.strip(), now=now)
    return intent


def retry_now(intent_id: uuid.UUID, *, person: Person, now: datetime | None = None) -> SendIntent:
    """Make the next attempt of a scheduled retry now, or as soon as it may be.

    It sets the time and nothing else. No wait that the provider, its contract or the agent asked
    for is cut short, so what already comes as soon as it may is refused, with the reason.
    """
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        require_role(person, intent.tenant, Role.OPERATOR)
        _refuse_retry_now(intent)
        at = _earliest(intent, now)
        if intent.replay_until is not None and at >= intent.replay_until:
            raise TooLate(
                "The time in which the provider knows its key ends before the next attempt may "
                "be made.",
                at=intent.replay_until,
            )
        if intent.next_attempt_at is None or at >= intent.next_attempt_at:
            raise NotPossible(
                f"It may not be tried before {moment(at)}: the provider or the agent asked to wait."
                if at > now
                else "It is due already, and goes out as soon as a worker is free.",
                at=at,
            )
        SendIntent.objects.filter(pk=intent.pk).update(next_attempt_at=at, asked_by=person)
        intent.next_attempt_at, intent.asked_by = at, person
        audit.record_about(intent, actor=person, verb="retry_now", now=now)
    return intent


def _refuse_retry_now(intent: SendIntent) -> None:
    if intent.status == Status.IN_FLIGHT:
        raise InFlight(
            f"It is being tried since {moment(intent.status_at)}. Wait for the answer.",
            at=intent.status_at,
        )
    if intent.status != Status.RETRY_SCHEDULED:
        label = Status(intent.status).label.lower()
        raise AlreadyDecided(
            f"No retry is scheduled: it is {label} since {moment(intent.status_at)}.",
            at=intent.status_at,
        )
    refuse_cancel_asked(intent)


def _earliest(intent: SendIntent, now: datetime) -> datetime:
    """When it may go at the soonest, whoever asks."""
    floors = (now, intent.not_sooner_than, intent.not_before)
    return max(floor for floor in floors if floor is not None)


def _refuse_requeue(intent: SendIntent, now: datetime) -> None:
    refuse_out(intent)
    refuse_older_version(intent)
    if intent.status != Status.DEAD_LETTER:
        raise why_decided(intent)
    refuse_cancel_asked(intent)
    refuse_ended_run(intent)
    refuse_other_active_version(intent)
    refuse_suppressed(intent)
    _refuse_content(intent)
    _refuse_unproven(intent, now)
    _refuse_old_approval(intent, now)
    if intent.deadline is not None and intent.deadline <= now:
        raise TooLate(f"It had to go out by {moment(intent.deadline)}.", at=intent.deadline)


def _refuse_content(intent: SendIntent) -> None:
    last = intent.attempts.order_by("-number").first()
    if last is None or last.outcome != Outcome.REFUSED:
        return
    if last.http_status in ABOUT_THE_CONTENT:
        raise NotPossible(
            f"The provider refused what it says ({last.http_status}), and would again. "
            "Edit it into a new version.",
            offer="edit",
        )
    if last.contract.get("failures_remembered"):
        raise NotPossible(
            "The provider remembers under its key that it refused it. "
            "Send it again as a new version, under a new key.",
            offer="resend",
        )


def _refuse_unproven(intent: SendIntent, now: datetime) -> None:
    """Every attempt is known not taken; or a person found so, and the key's window is open.

    In the window a repeat is harmless even where the person was wrong.
    """
    open_or_maybe = Q(closed_at=None) | Q(may_have_arrived=True)
    last = intent.attempts.filter(open_or_maybe).order_by("-number").first()
    if last is None:
        return
    found = intent.evidence.filter(
        direction=Direction.NOT_ACCEPTED,
        proves=True,
        person__isnull=False,
        found_at__gte=last.opened_at,
    )
    if not found.exists():
        raise NotPossible(
            f"Attempt {last.number} may have reached the provider, and nobody found that it was "
            "not accepted. Send it again as a new version, under a new key.",
            offer="resend",
        )
    if intent.replay_until is None or intent.replay_until <= now:
        raise TooLate(
            "The time in which the provider knows its key is over, so a repeat could arrive as a "
            "second email. Send it again as a new version, under a new key.",
            at=intent.replay_until,
            offer="resend",
        )


def _refuse_old_approval(intent: SendIntent, now: datetime) -> None:
    expires_at = intent.approval_expires_at
    if intent.approved_digest != intent.digest or (expires_at is not None and expires_at <= now):
        raise TooLate(
            "Its approval is too old. Edit it into a new version and have that approved.",
            at=expires_at,
            offer="edit",
        )


def _require_dead_letter(intent: SendIntent, person: Person) -> None:
    require_role(person, intent.tenant, Role.OPERATOR)
    if intent.status != Status.DEAD_LETTER:
        label = Status(intent.status).label.lower()
        raise AlreadyDecided(
            f"It is no longer a dead letter: {label} since {moment(intent.status_at)}.",
            at=intent.status_at,
        )


def _set_closed(intent: SendIntent, closed_at: datetime | None) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(closed_at=closed_at)
    intent.closed_at = closed_at
