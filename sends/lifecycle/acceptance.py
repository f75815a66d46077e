"""Evidence that a provider took an intent, and what then holds: its status and its deliveries."""

import uuid
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.transitions import lock_intent, move
from sends.models import (
    AnomalyKind,
    Attempt,
    Delivery,
    Direction,
    EventState,
    Evidence,
    EvidenceKind,
    Person,
    ProviderEvent,
    SendIntent,
    database_now,
)
from sends.rules.addresses import normal
from sends.rules.contracts import Contract
from sends.rules.deliveries import EventKind, state_after
from sends.rules.outcomes import DOUBTFUL, TOOK_IT, Happened, Outcome, classify
from sends.rules.statuses import (
    ACCEPTED,
    DELIVERY_ENDED,
    DELIVERY_FAILED,
    NEVER_SENT,
    DeliveryState,
    Status,
)


def record_evidence(
    intent: SendIntent,
    *,
    kind: EvidenceKind,
    direction: Direction,
    proves: bool,
    summary: str,
    value: str = "",
    attempt: Attempt | None = None,
    person: Person | None = None,
    confirms: Evidence | None = None,
    now: datetime,
) -> Evidence:
    """Keep one fact for or against acceptance. It moves nothing: see `accept`."""
    evidence: Evidence = Evidence.objects.create(
        intent=intent,
        attempt=attempt,
        kind=kind,
        direction=direction,
        proves=proves,
        summary=summary,
        value=value,
        person=person,
        confirms=confirms,
        found_at=now,
    )
    return evidence


def accept(
    intent: SendIntent,
    *,
    now: datetime,
    provider_message_id: str = "",
    thread_id: str = "",
    refused: Iterable[str] = (),
) -> None:
    """The provider took this intent: proven by its answer, an event, a look-up or a person.

    The caller has locked the action. From wherever it was on its way it becomes SUBMITTED, holds
    or not, and further if its deliveries have ended already. Told again, it only adds what is
    new: an id that was missing, recipients that were `refused`; another id is an anomaly. So is
    acceptance of a version that was not to be sent: its status stays.
    """
    if intent.status in NEVER_SENT:
        open_anomaly(
            intent,
            kind=AnomalyKind.ACCEPTED_UNSENT,
            detail=f"The provider took this version although it was {_label(intent)}."
            + (f" The provider's id is {provider_message_id}." if provider_message_id else ""),
            now=now,
        )
        return
    if intent.accepted_at is None:
        move(
            intent,
            Status.SUBMITTED,
            now=now,
            in_doubt=False,
            accepted_at=now,
            provider_message_id=provider_message_id,
            provider_thread_id=thread_id,
            next_attempt_at=None,
            end_reason="",
            closed_at=None,
        )
        intent.deliveries.filter(state=DeliveryState.WAITING).update(
            state=DeliveryState.ACCEPTED, changed_at=now
        )
    else:
        _compare_ids(intent, provider_message_id, thread_id, now)
    refuse(intent, refused, now=now)
    unpark([intent])
    finish(intent, now=now)


def accept_late(
    intent_id: uuid.UUID,
    attempt_id: uuid.UUID,
    happened: Happened,
    contract: Contract,
    now: datetime | None = None,
) -> None:
    """Keep the answer that came after the lease was lost, and what it proves.

    Only acceptance is proof: a refusal says nothing about earlier attempts, nor about a later
    one that somebody else has made meanwhile.
    """
    outcome = classify(happened, contract)
    took_it = outcome in TOOK_IT
    with transaction.atomic():
        now = now or database_now()
        intent = lock_intent(intent_id)
        attempt = intent.attempts.get(pk=attempt_id)
        record_evidence(
            intent,
            kind=EvidenceKind.LATE_ANSWER,
            direction=_direction(outcome),
            proves=took_it,
            summary=f"A later answer to attempt {attempt.number}: {outcome.label}.",
            value=happened.proof,
            attempt=attempt,
            now=now,
        )
        if took_it:
            accept(
                intent,
                now=now,
                provider_message_id=happened.proof,
                thread_id=happened.thread,
                refused=happened.refused,
            )


def refuse(intent: SendIntent, addresses: Iterable[str], *, now: datetime) -> None:
    """The provider took the email, but not for these recipients. The caller holds its lock."""
    refused = [normal(address) for address in addresses]
    if refused:
        reach(
            intent.deliveries.filter(normal__in=refused),
            EventKind.REFUSED,
            reason="The provider refused this recipient when it took the email.",
            now=now,
        )


def reach(deliveries: QuerySet[Delivery], kind: EventKind, *, reason: str, now: datetime) -> None:
    """Let an event of this kind count for these recipients. Its intent is locked by the caller."""
    failed = state_after(DeliveryState.WAITING, [kind]) in DELIVERY_FAILED
    for delivery in deliveries:
        state = state_after(DeliveryState(delivery.state), [kind])
        changed: dict[str, object] = {}
        if state != delivery.state:
            changed |= {"state": state, "reason": reason, "changed_at": now}
        if failed and delivery.failed_at is None:
            changed["failed_at"] = now
        if changed:
            Delivery.objects.filter(pk=delivery.pk).update(**changed)


def finish(intent: SendIntent, *, now: datetime) -> None:
    """End an accepted intent whose deliveries have ended; a final dead letter if all failed.

    A failure counts for ever, also where a later event outranks it: so the order in which
    events arrive does not decide how the intent ends.
    """
    if intent.status not in ACCEPTED:
        return
    recipients = list(intent.deliveries.values_list("state", "failed_at"))
    if all(failed_at or state in DELIVERY_FAILED for state, failed_at in recipients):
        move(
            intent,
            Status.DEAD_LETTER,
            now=now,
            end_reason="Every recipient bounced, was refused or was dropped.",
        )
    elif intent.status == Status.SUBMITTED and all(
        state in DELIVERY_ENDED for state, _ in recipients
    ):
        move(intent, Status.DONE, now=now)


def unpark(intents: Iterable[SendIntent]) -> None:
    """Events that came before these intents' ids were known are to be applied now.

    Looks before it writes: nearly always there are none, and a write waits for its turn.
    """
    parked = ProviderEvent.objects.parked_for(intents)
    if parked.exists():
        parked.update(state=EventState.RECEIVED)


def _compare_ids(intent: SendIntent, message_id: str, thread_id: str, now: datetime) -> None:
    known = intent.provider_message_id
    if message_id and known and message_id != known:
        open_anomaly(
            intent,
            kind=AnomalyKind.TWICE,
            detail=f"The provider took this email as {known} and as {message_id}.",
            now=now,
        )
        return
    learnt = {}
    if message_id and not known:
        learnt["provider_message_id"] = message_id
    if thread_id and not intent.provider_thread_id:
        learnt["provider_thread_id"] = thread_id
    if learnt:
        SendIntent.objects.filter(pk=intent.pk).update(**learnt)
        for name, value in learnt.items():
            setattr(intent, name, value)


def _direction(outcome: Outcome) -> Direction:
    if outcome in TOOK_IT:
        return Direction.ACCEPTED
    return Direction.NEITHER if outcome in DOUBTFUL else Direction.NOT_ACCEPTED


def _label(intent: SendIntent) -> str:
    return Status(intent.status).label.lower()
