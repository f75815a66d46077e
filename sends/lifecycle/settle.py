"""Write what happened to attempts, fenced by their lease, and act on what follows from it."""

import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F

from sends.lifecycle import events
from sends.lifecycle.acceptance import accept_late, refuse
from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.halts import turn_off
from sends.lifecycle.submit import Submitted
from sends.lifecycle.transitions import Move, lock_intent, move_all, write_each
from sends.models import (
    AnomalyKind,
    Attempt,
    Cause,
    Delivery,
    Run,
    SendIntent,
    database_now,
)
from sends.rules import decisions
from sends.rules.contracts import Contract
from sends.rules.decisions import Decision, History, decide
from sends.rules.outcomes import (
    COUNTED,
    DOUBTFUL,
    TOOK_IT,
    BlockScope,
    Happened,
    Outcome,
    Phase,
    classify,
)
from sends.rules.statuses import HOLD_BITS, DeliveryState, Hold, Status

logger = logging.getLogger("sends.attempt")

LOST = "the worker was lost before it could say what happened"
# Between two tries to save a result: a database that restarts is back within seconds.
SAVE_AGAIN_AFTER = timedelta(seconds=0.5)
# A blocked intent waits for its switch, which is turned off just after.
BLOCKED_WAIT = timedelta(seconds=1)


@dataclass
class Aftermath:
    """What a group of results changes, and what follows once that is committed.

    `moves`, `closings` and the `retries` of each run are written together by `write`, in the
    transaction that decided them. The rest comes after it; each part can fail and be repeated
    alone.
    """

    moves: list[Move] = field(default_factory=list)
    closings: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    retries: Counter[uuid.UUID] = field(default_factory=Counter)
    accepted: list[uuid.UUID] = field(default_factory=list)
    blocked: dict[uuid.UUID, str] = field(default_factory=dict)
    late: list[Submitted] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)

    def write(self, now: datetime) -> None:
        """Close the attempts and move their intents; StaleIntent if any is not as it was read."""
        write_each(Attempt, self.closings)
        move_all(self.moves, now=now)
        if self.accepted:
            waiting = Delivery.objects.filter(intent__in=self.accepted, state=DeliveryState.WAITING)
            waiting.update(state=DeliveryState.ACCEPTED, changed_at=now)
        # Runs are locked after intents, and by id: two that save at once would meet halfway.
        for run_id, count in sorted(self.retries.items()):
            Run.objects.filter(pk=run_id).update(retries_used=F("retries_used") + count)


def settle(results: Sequence[Submitted]) -> None:
    """Save these results, in one transaction where they may share one.

    Repeated until it succeeds, past the lease too; the provider is never called again for it. A
    result that the database refuses as such is not repeated: its intent becomes uncertain.
    """
    together = [result for result in results if _may_share(result)]
    alone = [result for result in results if not _may_share(result)]
    if together and not _saved(together):
        alone += together
    for result in alone:
        while not _saved([result]):
            time.sleep(SAVE_AGAIN_AFTER.total_seconds())


def _may_share(result: Submitted) -> bool:
    """Not without a contract, where nothing may delay a result; nor where the action is locked."""
    contract = result.claimed.contract
    return contract.may_replay and classify(result.happened, contract) is not Outcome.KEY_CONFLICT


def _saved(results: Sequence[Submitted]) -> bool:
    """Whether this group is saved now; a group of one that is refused is saved as uncertain."""
    try:
        after = _save(results)
    except (OperationalError, InterfaceError):
        logger.exception("results could not be saved; again", extra={"count": len(results)})
        connection.close()
        return False
    except Exception as error:
        if len(results) > 1:
            return False  # one of them is at fault; alone, the others are saved
        attempt = results[0].claimed.attempt_id
        logger.exception("a result cannot be saved", extra={"attempt": attempt})
        # Not even as uncertain: then its lease expires, and the watchdog closes the attempt.
        return results[0].final or _saved([_unsavable(results[0], error)])
    follow_up(after)
    return True


def _unsavable(result: Submitted, error: Exception) -> Submitted:
    """The same attempt with nothing of the answer but that it cannot be kept."""
    happened = Happened(phase=Phase.SENT, error="unsavable", message=type(error).__name__)
    return Submitted(result.claimed, happened, final=True)


def _save(results: Sequence[Submitted]) -> Aftermath:
    after = Aftermath()
    with transaction.atomic():
        now = database_now()
        intents = _lock(results)
        attempts = Attempt.objects.in_bulk([result.claimed.attempt_id for result in results])
        for result in results:
            claimed, intent = result.claimed, intents[result.claimed.intent_id]
            if intent.status != Status.IN_FLIGHT or intent.lease_token != claimed.lease_token:
                _close_late(result, intent, attempts[claimed.attempt_id], now, after)
                after.late.append(result)
                continue
            attempt = attempts[claimed.attempt_id]
            settle_attempt(
                intent, attempt, result.happened, claimed.contract, now, after, final=result.final
            )
        after.write(now)
    return after


def _lock(results: Sequence[Submitted]) -> dict[uuid.UUID, SendIntent]:
    if len(results) == 1:
        # Alone, its action comes first: what follows may be an anomaly of the action.
        lock_intent(results[0].claimed.intent_id)
    rows = (
        SendIntent.objects.filter(pk__in=[result.claimed.intent_id for result in results])
        .select_related("tenant__policy")
        .select_for_update(no_key=True, of=("self",))
        .order_by("id")
    )
    return {intent.pk: intent for intent in rows}


def settle_attempt(
    intent: SendIntent,
    attempt: Attempt,
    happened: Happened,
    contract: Contract,
    now: datetime,
    after: Aftermath,
    *,
    final: bool = False,
) -> None:
    """Decide how the open attempt of a locked intent in flight ends, and the step that follows.

    Both are added to `after`, whose `write` saves them in the caller's transaction. `final`
    allows no further attempt: what may have arrived is then uncertain.
    """
    outcome = classify(happened, contract)
    history = _history(intent, attempt, outcome, now)
    policy = intent.tenant.policy.retries
    reason = describe(happened, outcome)
    decision = decide(
        outcome,
        history,
        contract,
        policy,
        now,
        chance=random.random(),
        asked=happened.retry_after,
        reason=reason,
        block=happened.block,
    )
    if final:
        decision = decisions.Uncertain(reason)
    after.closings.append(_closing(attempt, happened, outcome, reason, decision, now))
    _act(intent, attempt, happened, outcome, history, decision, contract, now, after)
    after.lines.append(_line(intent, attempt, happened, outcome, decision))


def _history(intent: SendIntent, attempt: Attempt, outcome: Outcome, now: datetime) -> History:
    opened = intent.window_opened_at
    if opened is None and outcome in DOUBTFUL:
        opened = attempt.opened_at
    since = intent.in_progress_since or now
    return History(
        counted=intent.retries_counted,
        tries=max(intent.tries, 1),
        first_at=intent.retrying_since,
        in_doubt=intent.in_doubt,
        window_opened_at=opened,
        token_stored=intent.token_stored,
        in_progress_since=since if outcome is Outcome.KEY_IN_PROGRESS else None,
        cancel_asked=bool(intent.holds & HOLD_BITS[Hold.CANCEL_ASKED]),
        deadline=intent.deadline,
    )


def describe(happened: Happened, outcome: Outcome) -> str:
    """What happened in one line of plain words, for the timeline and the agent."""
    if happened.status is not None:
        code = f" {happened.code}" if happened.code else ""
        said = f": {happened.message}" if happened.message else ""
        return f"HTTP {happened.status}{code}{said}"[:1000]
    if happened.error == "lost":
        return LOST
    if happened.message:
        return f"{happened.error}: {happened.message}"[:1000]
    return f"{happened.error or outcome.label} while {Phase(happened.phase).label}"


def _closing(
    attempt: Attempt,
    happened: Happened,
    outcome: Outcome,
    reason: str,
    decision: Decision,
    now: datetime,
) -> tuple[dict[str, Any], dict[str, Any]]:
    columns: dict[str, Any] = {
        "closed_at": now,
        "outcome": outcome,
        "reason": reason,
        "phase": happened.phase,
        "may_have_arrived": outcome in DOUBTFUL or outcome in TOOK_IT,
        "error": happened.error[:40],
        "http_status": happened.status,
        "code": happened.code[:120],
        "provider_message_id": happened.proof,
        "provider_thread_id": happened.thread,
        "replayed": happened.replayed,
        "bytes_sent": happened.bytes_sent,
        "bytes_total": happened.bytes_total,
        "seconds": happened.seconds,
        "body": happened.body,
        "retry_after": happened.retry_after,
        "next_attempt_at": decision.at if isinstance(decision, decisions.RetryAt) else None,
    }
    # An open attempt has no outcome: a closed one is not found again under this key.
    return {"pk": attempt.pk, "outcome": ""}, columns


def _close_late(
    result: Submitted, intent: SendIntent, attempt: Attempt, now: datetime, after: Aftermath
) -> None:
    """The lease was lost: somebody else says what follows, but what we learnt is kept."""
    if attempt.closed_at is None:
        outcome = classify(result.happened, result.claimed.contract)
        reason = describe(result.happened, outcome)
        closing = _closing(attempt, result.happened, outcome, reason, decisions.Release(), now)
        after.closings.append(closing)
        after.lines.append(_line(intent, attempt, result.happened, outcome) | {"late": True})


def _act(
    intent: SendIntent,
    attempt: Attempt,
    happened: Happened,
    outcome: Outcome,
    history: History,
    decision: Decision,
    contract: Contract,
    now: datetime,
    after: Aftermath,
) -> None:
    columns: dict[str, Any] = {
        "retries_counted": intent.retries_counted + (outcome in COUNTED),
        "in_progress_since": history.in_progress_since,
        "window_opened_at": history.window_opened_at,
        "asked_by": None,
        # Nobody beats the wait that the provider asked for: no requeue, no replay.
        "not_sooner_than": now + happened.retry_after if happened.retry_after else None,
    }
    to = Status.RETRY_SCHEDULED
    match decision:
        case decisions.Accept():
            to = Status.SUBMITTED
            columns |= {"in_doubt": False, "accepted_at": now}
            columns["provider_message_id"] = happened.proof
            columns["provider_thread_id"] = happened.thread
            after.accepted.append(intent.pk)
            refuse(intent, happened.refused, now=now)
        case decisions.RetryAt(at, in_doubt, not_sooner, until):
            columns |= {"next_attempt_at": at, "not_sooner_than": not_sooner}
            columns |= {"in_doubt": in_doubt, "replay_until": until}
            if intent.run_id is not None:
                after.retries[intent.run_id] += 1
        case decisions.Release():
            to = Status.RETRY_SCHEDULED if intent.in_doubt else Status.QUEUED
            columns = {"next_attempt_at": now, "tries": intent.tries - 1}
        case decisions.DeadLetter(reason):
            to = Status.DEAD_LETTER
            columns["end_reason"] = reason
        case decisions.Cancel(reason):
            to = Status.CANCELLED
            columns["end_reason"] = reason
        case decisions.Uncertain(reason, is_anomaly):
            to = Status.UNCERTAIN
            columns |= _uncertain(reason, contract, now, columns)
            if is_anomaly:
                open_anomaly(intent, kind=AnomalyKind.KEY_CONFLICT, detail=reason, now=now)
        case decisions.Hold(scope, reason, uncertain):
            scope_id = intent.sender_id if scope is BlockScope.SENDER else intent.account_id
            after.blocked[scope_id] = reason
            if uncertain:
                to = Status.UNCERTAIN
                columns |= _uncertain(reason, contract, now, columns)
            else:
                columns |= {"next_attempt_at": now + BLOCKED_WAIT, "tries": intent.tries - 1}
    after.moves.append(Move(intent, to, columns))


def _uncertain(
    reason: str, contract: Contract, now: datetime, columns: dict[str, Any]
) -> dict[str, Any]:
    """The columns of an intent that becomes uncertain, and from when till when to replay it."""
    opened = columns["window_opened_at"]
    asked = columns["not_sooner_than"] or now
    return {
        "in_doubt": True,
        "end_reason": reason,
        "replay_until": contract.replay_until(opened) if opened and contract.may_replay else None,
        "not_sooner_than": max(asked, now + contract.settle_time),
    }


def _line(
    intent: SendIntent,
    attempt: Attempt,
    happened: Happened,
    outcome: Outcome,
    decision: Decision | None = None,
) -> dict[str, Any]:
    """What the log says of an attempt: nothing that the message or the provider's words hold."""
    return {
        "request_id": intent.request_id or None,
        "tenant": intent.tenant_id,
        "account": attempt.account_id,
        "intent": intent.pk,
        "attempt": attempt.pk,
        "number": attempt.number,
        "outcome": outcome,
        "decision": type(decision).__name__ if decision else None,
        "phase": Phase(happened.phase).name.lower(),
        "http_status": happened.status,
        "error": happened.error or None,
        "bytes_sent": happened.bytes_sent,
        "bytes_total": happened.bytes_total,
        "seconds": happened.seconds.get("end"),
    }


def follow_up(after: Aftermath) -> None:
    """What comes after the commit: switches, evidence, and events that came before the answer.

    Each part by itself: the results are saved, and a fault here must not cost those of others.
    A switch is turned off by the next answer, and parked events are tried again by the sweep.
    """
    for line in after.lines:
        logger.info("attempt", extra=line)
    for scope_id, reason in after.blocked.items():
        with _logged(scope_id):
            turn_off(scope_id, by="system", reason=reason, cause=Cause.BLOCKED)
    for result in after.late:
        claimed = result.claimed
        with _logged(claimed.attempt_id):
            accept_late(claimed.intent_id, claimed.attempt_id, result.happened, claimed.contract)
    with _logged(None):
        events.catch_up(after.accepted)


@contextmanager
def _logged(about: uuid.UUID | None) -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("what follows a result failed", extra={"about": about})
