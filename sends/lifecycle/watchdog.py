"""Expired leases, closed windows, and whatever else time alone brings about."""

import fcntl
import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from django.db import connection, transaction

from sends.conf import conf
from sends.lifecycle import cancelling, events, halts
from sends.lifecycle.accounts import contract_of
from sends.lifecycle.settle import LOST, Aftermath, follow_up, settle_attempt
from sends.lifecycle.transitions import StaleIntent, lock_intent, move
from sends.models import Attempt, ProviderEvent, SendIntent, database_now, triggers
from sends.rules.outcomes import Happened, Outcome, Phase
from sends.rules.statuses import Status

logger = logging.getLogger("sends.watchdog")

# A lease must be seen expired twice, this far apart: a clock that jumped once proves nothing.
SECOND_LOOK_AFTER = timedelta(seconds=1)
SWEEP_EVERY = timedelta(seconds=10)
BATCH = 200
# No attempt lives longer, whatever its account and tenant allow it.
LONGEST_LEASE = timedelta(hours=1)


def anything_to_tend() -> bool:
    """Whether events wait to be applied, or a lease has expired."""
    now = database_now()
    return (
        ProviderEvent.objects.filter(state="received").exists()
        or SendIntent.objects.lease_expired(now).exists()
    )


def tend(*, sweep_too: bool) -> None:
    """One pass over events and leases, and over what time ends. One at a time on a machine."""
    with (conf.data_dir / "tend.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if absent := triggers.missing(connection):
            logger.error("nothing is tended while triggers lack", extra={"triggers": absent})
            return
        events.apply_received()
        expire_leases()
        if sweep_too:
            sweep()


def expire_leases(now: datetime | None = None) -> int:
    """Close the attempts of lost workers; how many. What follows, the contract says."""
    now = now or database_now()
    expired = SendIntent.objects.lease_expired(now)
    seen = expired.filter(lease_seen_expired_at__lte=now - SECOND_LOOK_AFTER)
    closed = _each(seen.order_by("id").values_list("pk", flat=True)[:BATCH], _expire, now)
    expired.filter(lease_seen_expired_at=None).update(lease_seen_expired_at=now)
    return closed


def _expire(intent: SendIntent, now: datetime) -> Aftermath | None:
    if intent.status != Status.IN_FLIGHT or not _is_before(intent.lease_expires_at, now):
        return None
    attempt = intent.attempts.filter(closed_at=None).get()
    contract = contract_of(intent.account)
    # With a contract nothing marks the dispatch: the request may be with the provider.
    dispatched = attempt.dispatched_at is not None
    happened = Happened(phase=Phase.SENT if dispatched else Phase.PREPARED, error="lost")
    after = Aftermath()
    settle_attempt(intent, attempt, happened, contract, now, after)
    after.write(now)
    return after


def close_orphans(now: datetime | None = None) -> int:
    """Close attempts whose intent went on without them and whose worker was lost; how many.

    Evidence of acceptance moves an intent while it is in flight. Its worker then closes the
    attempt, unless it is no more; nothing else follows from it.
    """
    now = now or database_now()
    orphans = Attempt.objects.orphaned(now - LONGEST_LEASE)
    return orphans.update(closed_at=now, outcome=Outcome.AMBIGUOUS, error="lost", reason=LOST)


def sweep(now: datetime | None = None) -> None:
    """End what time has ended: windows, deadlines, decisions and approvals, silence."""
    now = now or database_now()
    closing = SendIntent.objects.window_closed(now).order_by("id")
    _each(closing.values_list("pk", flat=True)[:BATCH], _close_window, now)
    doubtful = SendIntent.objects.too_late(now).filter(in_doubt=True).order_by("id")
    _each(doubtful.values_list("pk", flat=True)[:BATCH], _too_late_in_doubt, now)
    close_orphans(now)
    cancelling.cancel_too_late(now)
    cancelling.lapse(now)
    cancelling.expire_approvals(now)
    halts.cancel_asked(now)
    events.close_without_news(now)
    events.retry_parked(now)


def _close_window(intent: SendIntent, now: datetime) -> None:
    if not SendIntent.objects.window_closed(now).filter(pk=intent.pk).exists():
        return
    reason = "the time in which the provider knows our key is over"
    to = Status.UNCERTAIN if intent.in_doubt else Status.DEAD_LETTER
    move(intent, to, now=now, end_reason=reason)


def _too_late_in_doubt(intent: SendIntent, now: datetime) -> None:
    if SendIntent.objects.too_late(now).filter(pk=intent.pk, in_doubt=True).exists():
        move(intent, Status.UNCERTAIN, now=now, end_reason="its deadline passed while in doubt")


def _each(
    ids: Iterable[object],
    step: Callable[[SendIntent, datetime], Aftermath | None],
    now: datetime,
) -> int:
    """Take the step for each intent in a transaction of its own; one that fails stays behind."""
    taken = 0
    for intent_id in list(ids):
        try:
            with transaction.atomic():
                after = step(lock_intent(intent_id), now)  # type: ignore[arg-type]
            if after is not None:
                follow_up(after)
                taken += 1
        except StaleIntent:
            continue
        except Exception:
            logger.exception("intent could not be tended", extra={"intent": intent_id})
    return taken


def _is_before(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and moment < now
