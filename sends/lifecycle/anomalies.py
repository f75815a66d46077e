"""Facts that contradict a promise: they stop their action until an admin has looked."""

import uuid
from datetime import datetime

from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.refusals import AlreadyDecided
from sends.lifecycle.roles import require_reason, require_role
from sends.lifecycle.transitions import clear_hold, lock_action, set_hold
from sends.models import Action, Anomaly, AnomalyKind, Person, Role, SendIntent, database_now
from sends.rules.statuses import HOLD_BITS, Hold, Status

# Statuses that end for good without a provider: nothing of them is left to stop.
ENDED_UNSENT = (Status.SUPERSEDED, Status.CANCELLED)


def open_anomaly(
    intent: SendIntent, *, kind: AnomalyKind | str, detail: str, now: datetime
) -> Anomaly:
    """Record the contradiction and hold every unsent version of the action, in one transaction.

    The caller has locked the action. The same contradiction told again is the anomaly that is
    already open. A request that is on the wire ends; its version is held all the same, so that
    a claim that has not dispatched yet does not.
    """
    anomaly, _ = Anomaly.objects.get_or_create(
        intent=intent,
        kind=kind,
        closed_at=None,
        defaults={
            "tenant_id": intent.tenant_id,
            "action_id": intent.action_id,
            "detail": detail,
            "opened_at": now,
        },
    )
    unsent = _unsent_versions(intent.action_id)
    set_hold(Hold.ANOMALY, pk__in=unsent)
    if intent.pk in unsent:
        intent.holds |= HOLD_BITS[Hold.ANOMALY]
    return anomaly


def has_open_anomaly(action: Action) -> bool:
    """Whether a version created now is to be born with the hold. Ask with the action locked."""
    return Anomaly.objects.filter(action=action, closed_at=None).exists()


def close_anomaly(
    anomaly_id: uuid.UUID, *, person: Person, reason: str, now: datetime | None = None
) -> Anomaly:
    """An admin has looked. The hold ends with the last open anomaly of the action."""
    reason = require_reason(reason, what="for closing an anomaly")
    with transaction.atomic():
        action_id = Anomaly.objects.values_list("action_id", flat=True).get(pk=anomaly_id)
        action = lock_action(action_id)
        now = now or database_now()
        require_role(person, action.tenant, Role.ADMIN)
        anomaly = Anomaly.objects.select_related("intent__action", "closed_by").get(pk=anomaly_id)
        if anomaly.closed_at is not None:
            raise AlreadyDecided(
                f"{anomaly.closed_by} closed this anomaly: {anomaly.close_reason}",
                who=str(anomaly.closed_by),
                at=anomaly.closed_at,
            )
        anomaly.closed_at, anomaly.closed_by, anomaly.close_reason = now, person, reason
        anomaly.save(update_fields=["closed_at", "closed_by", "close_reason"])
        if not has_open_anomaly(action):
            clear_hold(Hold.ANOMALY, pk__in=_versions(action_id))
        audit.record_about(
            anomaly.intent,
            actor=person,
            verb="close_anomaly",
            reason=reason,
            facts={"anomaly": str(anomaly.pk), "kind": anomaly.kind},
            now=now,
        )
    return anomaly


def _unsent_versions(action_id: uuid.UUID) -> list[uuid.UUID]:
    versions = SendIntent.objects.select_for_update(no_key=True).filter(
        action_id=action_id, accepted_at=None
    )
    # Locked in the order of their ids, as everybody locks them; an UPDATE picks its own order.
    return list(
        versions.exclude(status__in=ENDED_UNSENT).order_by("pk").values_list("pk", flat=True)
    )


def _versions(action_id: uuid.UUID) -> list[uuid.UUID]:
    versions = SendIntent.objects.select_for_update(no_key=True).filter(action_id=action_id)
    return list(versions.order_by("pk").values_list("pk", flat=True))
