"""One intent along one legal transition, and the locks that every step takes in one order."""

import uuid
from datetime import datetime
from typing import Any

from django.db.models import F

from sends.models import Action, SendIntent
from sends.models.switches import Switch
from sends.rules.statuses import HOLD_BITS, LEGAL, Hold, Status

NO_LEASE: dict[str, None] = {
    "lease_token": None,
    "lease_expires_at": None,
    "lease_seen_expired_at": None,
}


class IllegalTransition(Exception):
    """The table of `rules.statuses` has no such edge: a mistake in our code."""


class StaleIntent(Exception):
    """Somebody else moved this intent first; nothing was changed."""


def move(intent: SendIntent, to: Status, *, now: datetime, **columns: Any) -> None:
    """Take one legal transition, or raise StaleIntent if somebody else moved first.

    The UPDATE names the status and the fence that the caller read: of two that race for one
    row exactly one changes it, and whoever read it before it left and came back to the same
    status has lost too. Nothing is ever overwritten. A lease ends with IN_FLIGHT.
    """
    before = Status(intent.status)
    if to not in LEGAL[before]:
        raise IllegalTransition(f"intent {intent.pk}: {before} cannot become {to}")

    changes: dict[str, Any] = {"status": to, "fence": intent.fence + 1, "status_at": now}
    if before is Status.IN_FLIGHT:
        changes |= NO_LEASE
    changes |= columns
    row = SendIntent.objects.filter(pk=intent.pk, status=before, fence=intent.fence)
    if not row.update(**changes):
        raise StaleIntent(f"intent {intent.pk} is no longer {before}; nothing was changed")

    for name, value in changes.items():
        setattr(intent, name, value)


def lock_action(action_id: uuid.UUID) -> Action:
    """The action's row, locked until the transaction ends. First of all locks, switches aside."""
    return Action.objects.select_for_update(no_key=True).get(pk=action_id)


def lock_intent(intent_id: uuid.UUID) -> SendIntent:
    """The intent, fresh and locked, after its action: the order in which everybody locks."""
    action_id = SendIntent.objects.values_list("action_id", flat=True).get(pk=intent_id)
    lock_action(action_id)
    return SendIntent.objects.select_for_update(no_key=True).get(pk=intent_id)


def lock_switch(scope_id: uuid.UUID) -> Switch:
    """A scope's switch, locked until the transaction ends."""
    return Switch.objects.select_for_update().get(pk=scope_id)


def set_hold(hold: Hold, **intents: Any) -> int:
    """Put one cause on these intents, in one UPDATE; how many rows matched."""
    bit = HOLD_BITS[hold]
    return SendIntent.objects.filter(**intents).update(holds=F("holds").bitor(bit))


def clear_hold(hold: Hold, **intents: Any) -> int:
    """Take one cause off these intents, leaving the others; how many rows matched."""
    everything_else = sum(HOLD_BITS.values()) - HOLD_BITS[hold]
    return SendIntent.objects.filter(**intents).update(holds=F("holds").bitand(everything_else))
