"""A dead letter comes back, closes or opens again, and a retry is made sooner, by a person."""

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.obstacles import (
    active,
    moment,
    refuse_cancel_asked,
    refuse_ended_run,
    refuse_older_version,
    refuse_out,
    refuse_purged,
    suppressed,
    why_decided,
)
from sends.lifecycle.refusals import AlreadyDecided, InFlight, NotPossible, Refused, TooLate
from sends.lifecycle.roles import require_reason, require_role
from sends.lifecycle.transitions import lock_intent, move
from sends.models import (
    Attempt,
    Delivery,
    Direction,
    Evidence,
    Person,
    Role,
    SendIntent,
    Suppression,
    database_now,
)
from sends.rules.outcomes import Outcome
from sends.rules.statuses import ACTIVE, Status

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
        _refuse_requeue(intent, _facts_of([intent])[intent.pk], now)
        move(
            intent,
            Status.QUEUED,
            now=now,
            next_attempt_at=_earliest(intent, now),
            retrying_since=now,
            retries_counted=0,
            tries=0,
            in_progress_since=None,
            asked_by=person,
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
    return may_requeue_each([intent], now)[intent.pk]


def may_requeue_each(
    intents: Collection[SendIntent], now: datetime | None = None
) -> dict[uuid.UUID, Refused | None]:
    """As `may_requeue`, for a whole list: in as many queries as for one.

    Ask for `action` and `run` together with the intents.
    """
    now = now or database_now()
    facts = _facts_of(intents)
    return {intent.pk: _refusal(intent, facts[intent.pk], now) for intent in intents}


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
        refuse_purged(intent)
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


@dataclass
class _Facts:
    """What other tables say about one dead letter.

    `last` is its last attempt, `maybe` the last that may have reached the provider, `found_at`
    when people found that it was not accepted.
    """

    other: SendIntent | None = None
    suppression: Suppression | None = None
    last: Attempt | None = None
    maybe: Attempt | None = None
    found_at: list[datetime] = field(default_factory=list)


def _facts_of(intents: Collection[SendIntent]) -> dict[uuid.UUID, _Facts]:
    facts = {intent.pk: _Facts() for intent in intents}
    actions = {intent.action_id for intent in intents}
    active_rows = SendIntent.objects.filter(action__in=actions, status__in=ACTIVE)
    active_of = {row.action_id: row for row in active_rows}  # at most one: a constraint
    for intent in intents:
        other = active_of.get(intent.action_id)
        facts[intent.pk].other = other if other != intent else None
    for intent_id, suppression in _suppressions(facts):
        facts[intent_id].suppression = suppression
    attempts = Attempt.objects.filter(intent__in=facts).defer("body")
    for attempt in attempts.order_by("number"):
        known = facts[attempt.intent_id]
        known.last = attempt
        if attempt.closed_at is None or attempt.may_have_arrived:
            known.maybe = attempt
    findings = Evidence.objects.filter(
        intent__in=facts, direction=Direction.NOT_ACCEPTED, proves=True, person__isnull=False
    )
    for intent_id, found_at in findings.values_list("intent_id", "found_at"):
        facts[intent_id].found_at.append(found_at)
    return facts


def _suppressions(intent_ids: Collection[uuid.UUID]) -> list[tuple[uuid.UUID, Suppression]]:
    """Of each of these intents one suppression that concerns it, where there is one."""
    recipients = Delivery.objects.filter(intent__in=intent_ids).suppressed()
    found = list(recipients.values_list("intent_id", "tenant_id", "normal"))
    standing = Suppression.objects.filter(
        normal__in={normal for _, _, normal in found}, released_at=None
    )
    by_address = {(row.tenant_id, row.normal): row for row in standing} if found else {}
    return [
        (intent_id, by_address[tenant, normal])
        for intent_id, tenant, normal in found
        if (tenant, normal) in by_address  # not released between the two questions
    ]


def _refusal(intent: SendIntent, facts: _Facts, now: datetime) -> Refused | None:
    try:
        _refuse_requeue(intent, facts, now)
    except Refused as refusal:
        return refusal
    return None


def _refuse_requeue(intent: SendIntent, facts: _Facts, now: datetime) -> None:
    refuse_out(intent)
    refuse_older_version(intent)
    if intent.status != Status.DEAD_LETTER:
        raise why_decided(intent)
    refuse_purged(intent)
    refuse_cancel_asked(intent)
    refuse_ended_run(intent)
    if facts.other is not None:
        raise active(facts.other)
    if facts.suppression is not None:
        raise suppressed(facts.suppression)
    _refuse_content(facts.last)
    _refuse_unproven(intent, facts, now)
    _refuse_old_approval(intent, now)
    if intent.deadline is not None and intent.deadline <= now:
        raise TooLate(f"It had to go out by {moment(intent.deadline)}.", at=intent.deadline)


def _refuse_content(last: Attempt | None) -> None:
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


def _refuse_unproven(intent: SendIntent, facts: _Facts, now: datetime) -> None:
    """Every attempt is known not taken; or a person found so, and the key's window is open.

    In the window a repeat is harmless even where the person was wrong.
    """
    maybe = facts.maybe
    if maybe is None:
        return
    if not any(found_at >= maybe.opened_at for found_at in facts.found_at):
        raise NotPossible(
            f"Attempt {maybe.number} may have reached the provider, and nobody found that it was "
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
