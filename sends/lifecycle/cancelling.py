"""What is no longer to be sent: taken back by its agent or a person, lapsed, or too late."""

import logging
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from sends.lifecycle import audit
from sends.lifecycle.approval import return_to_approval
from sends.lifecycle.obstacles import moment, refuse_older_version
from sends.lifecycle.refusals import AlreadyAccepted, NotAllowed
from sends.lifecycle.roles import require_reason, require_role
from sends.lifecycle.transitions import lock_intent, move, set_hold
from sends.models import Action, Agent, Person, Role, Run, SendIntent, database_now
from sends.rules.statuses import CLAIMABLE, HOLD_BITS, LEGAL, UNDECIDED, UNFINISHED, Hold, Status

logger = logging.getLogger(__name__)

ASKED = HOLD_BITS[Hold.CANCEL_ASKED]
# From IN_FLIGHT it is the worker's answer that cancels.
CANCELLABLE = frozenset(s for s in Status if Status.CANCELLED in LEGAL[s]) - {Status.IN_FLIGHT}


def withdraw(
    intent_id: uuid.UUID, *, agent: Agent, reason: str = "", now: datetime | None = None
) -> SendIntent:
    """Take an email back on behalf of the agent that proposed it. Safe to repeat.

    The answer is CANCELLED; or, while a worker talks to the provider or nobody knows whether it
    was taken, it carries the hold CANCEL_ASKED and is cancelled should it turn out not taken.
    """
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        if intent.action.agent_id != agent.pk:
            raise NotAllowed("This email is not one of yours.")
        said = f"the agent withdrew it: {reason}" if reason else "the agent withdrew it"
        _take_back(intent, actor=f"agent:{agent.slug}", verb="withdraw", said=said, now=now)
    return intent


def cancel(
    intent_id: uuid.UUID, *, person: Person, reason: str, now: datetime | None = None
) -> SendIntent:
    """Cancel an email that was never sent; as `withdraw`, by an operator."""
    reason = require_reason(reason, what="for cancelling")
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        require_role(person, intent.tenant, Role.OPERATOR)
        _take_back(intent, actor=person.email, verb="cancel", said=reason, now=now)
    return intent


def ask_cancel(run: Run) -> int:
    """Record on every unfinished intent of this run, and its dead letters, that it is to end.

    Call it under the lock of the run's switch, in the transaction that ends the run. How many
    it is.
    """
    concerned: dict[str, Any] = {
        "run": run,
        "accepted_at": None,
        "status__in": {*UNFINISHED, Status.DEAD_LETTER},
    }
    # Whoever writes a version or takes a rejection back holds the action's lock: we see what
    # they did, or they wait for us and see the run's end.
    _lock_in_order(Action.objects.filter(run=run))
    _lock_in_order(SendIntent.objects.filter(**concerned))
    return set_hold(Hold.CANCEL_ASKED, **concerned)


def cancel_asked(now: datetime, limit: int = 100) -> int:
    """Cancel those whose cancel was asked and whose status and doubt allow it by now."""
    waiting = (
        SendIntent.objects.alias(asked=F("holds").bitand(ASKED))
        .filter(asked=ASKED, holds__gt=0)
        .filter(status__in=CANCELLABLE, in_doubt=False, accepted_at=None)
    )
    return each(_ids(waiting, "pk", limit), cancel_if_asked, now)


def cancel_if_asked(intent: SendIntent, now: datetime) -> bool:
    """Cancel this locked intent, if that was asked and status and doubt allow it."""
    if not (intent.holds & ASKED and _may_be_cancelled(intent)):
        return False
    reason = "a cancel was asked, and nothing was taken"
    if intent.run is not None and intent.run.ended_at is not None:
        reason = f"its run was ended: {intent.run.end_reason}"
    _end(intent, reason, now)
    return True


def lapse(now: datetime, limit: int = 100) -> int:
    """Cancel what nobody decided, or answered, in time."""
    return each(_ids(SendIntent.objects.lapsed(now), "decide_by", limit), _lapse, now)


def expire_approvals(now: datetime, limit: int = 100) -> int:
    """Ask again about what was approved too long ago; never where it may have been taken."""
    expired = SendIntent.objects.approval_expired(now)
    return each(_ids(expired, "approval_expires_at", limit), _expire_approval, now)


def cancel_too_late(now: datetime, limit: int = 100) -> int:
    """Cancel what cannot go out in time any more; never where it may have been taken."""
    late = SendIntent.objects.too_late(now).filter(in_doubt=False)
    return each(_ids(late, "deadline", limit), _cancel_too_late, now)


def each(
    ids: Iterable[uuid.UUID], step: Callable[[SendIntent, datetime], bool], now: datetime
) -> int:
    """Take the step for each intent in a transaction of its own; how many took it.

    What goes wrong with one row is logged with its key and stays with that row.
    """
    done = 0
    for intent_id in ids:
        try:
            with transaction.atomic():
                done += step(lock_intent(intent_id), now)
        except Exception:
            logger.exception("intent was left as it is", extra={"intent": intent_id})
    return done


def _ids(intents: QuerySet[SendIntent], order: str, limit: int) -> list[uuid.UUID]:
    return list(intents.order_by(order).values_list("pk", flat=True)[:limit])


def _lock_in_order(rows: QuerySet[Any]) -> None:
    """Lock these rows as everybody does: by id. An UPDATE picks an order of its own."""
    for _ in rows.select_for_update(no_key=True).order_by("pk").values_list("pk").iterator():
        pass


def _take_back(intent: SendIntent, *, actor: str, verb: str, said: str, now: datetime) -> None:
    if intent.status == Status.CANCELLED:
        return
    if intent.accepted_at is not None:
        raise AlreadyAccepted(
            f"The provider accepted it at {moment(intent.accepted_at)}; "
            "it can no longer be taken back.",
            at=intent.accepted_at,
            offer="follow_up",
        )
    if intent.status == Status.SUPERSEDED:
        refuse_older_version(intent)
    if _may_be_cancelled(intent):
        _end(intent, said, now)
    elif intent.holds & ASKED:
        return
    else:
        # A rejection, too, may still be undone.
        set_hold(Hold.CANCEL_ASKED, pk=intent.pk)
        intent.holds |= ASKED
    facts = {"status": str(intent.status)}
    audit.record_about(intent, actor=actor, verb=verb, reason=said, facts=facts, now=now)


def _end(intent: SendIntent, reason: str, now: datetime) -> None:
    move(intent, Status.CANCELLED, now=now, end_reason=reason, next_attempt_at=None)


def _may_be_cancelled(intent: SendIntent) -> bool:
    return intent.status in CANCELLABLE and not intent.in_doubt and intent.accepted_at is None


def _lapse(intent: SendIntent, now: datetime) -> bool:
    if intent.status not in UNDECIDED or intent.decide_by is None or intent.decide_by > now:
        return False
    nobody = (
        "nobody decided"
        if intent.status == Status.AWAITING_APPROVAL
        else "nobody answered the request for changes"
    )
    reason = f"{nobody} by {moment(intent.decide_by)}"
    _end(intent, reason, now)
    return True


def _expire_approval(intent: SendIntent, now: datetime) -> bool:
    expired = intent.approval_expires_at is not None and intent.approval_expires_at <= now
    if intent.status not in CLAIMABLE or intent.in_doubt or not expired:
        return False
    return_to_approval(intent, drop="it was approved too long ago", now=now)
    return True


def _cancel_too_late(intent: SendIntent, now: datetime) -> bool:
    if intent.status not in CLAIMABLE or intent.in_doubt:
        return False
    if intent.deadline is None or intent.deadline > now:
        return False
    reason = f"it could not go out by {moment(intent.deadline)}"
    _end(intent, reason, now)
    return True
