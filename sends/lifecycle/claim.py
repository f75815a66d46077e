"""Lease what is due, open its attempts, and commit that they go on the wire."""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import accumulate
from typing import Any

from django.db import transaction

from sends.lifecycle.accounts import contract_of, facts_of, sender_facts
from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.attachments import AlteredAttachment, contents_of
from sends.lifecycle.halts import turn_off
from sends.lifecycle.transitions import Move, lock_intent, move, move_all
from sends.models import (
    Account,
    AnomalyKind,
    Attempt,
    Cause,
    Delivery,
    Installation,
    SendIntent,
    Switch,
    database_now,
    new_id,
)
from sends.providers.adapter import AccountFacts, Adapter, ProviderError, Request, Submission
from sends.providers.http import clock
from sends.providers.registry import adapter_for
from sends.rules.contracts import Contract, Recovery
from sends.rules.outcomes import Outcome
from sends.rules.payloads import seal, thaw
from sends.rules.statuses import Status

logger = logging.getLogger("sends.claim")

# Of the requests that one drain holds in memory at a time.
MOST_BYTES = 64_000_000


@dataclass(frozen=True)
class Claimed:
    """One attempt that a worker holds the lease of, with all it needs to make it.

    `request` is None where it could not be built, and `fault` says why. `not_after`, a moment of
    `http.clock`, is the last at which the first byte may leave: later the answer could come
    after the lease.
    """

    intent_id: uuid.UUID
    attempt_id: uuid.UUID
    number: int
    lease_token: uuid.UUID
    scopes: frozenset[uuid.UUID]
    adapter: Adapter
    account_id: uuid.UUID
    account: AccountFacts
    contract: Contract
    request: Request | None
    fault: str
    not_after: float

    @property
    def size(self) -> int:
        """How many bytes of it lie in memory until it is settled."""
        return len(self.request.body) if self.request is not None else 0

    @property
    def needs_mark(self) -> bool:
        """Whether `dispatch` must still commit that it goes on the wire."""
        return self.request is not None and not self.contract.may_replay


@dataclass(frozen=True)
class Opened:
    """One claim, before it is written down."""

    move: Move
    attempt: Attempt
    claimed: Claimed


@cache
def installation_id() -> uuid.UUID:
    return Installation.objects.get().pk


def anything_due() -> bool:
    """Whether a claim would find something now: the wake's question, read without a lock."""
    return bool(_candidates(database_now(), 1))


def claim(worker: str, *, at_most: int, room: int = MOST_BYTES) -> list[Claimed]:
    """Take up to `at_most` due intents, each leased and with its attempt open.

    All of them together have at most `room` bytes, unless a single one is larger.
    Of two workers that ask at once each gets other intents. Where the account has a contract
    this is the dispatch too: a repeat is harmless, so the attempt counts as on the wire from
    here on. Where it has none, `dispatch` must commit that first.
    """
    candidates = _fitting(_candidates(database_now(), at_most), room)
    if not candidates:
        return []
    with transaction.atomic():
        clock_now, now = clock(), database_now()
        intents = _lock_due(candidates, now)
        stopped = _stop_suppressed(intents, now)
        altered = {i.pk for i in intents if not _is_what_was_approved(i)}
        unusable: dict[uuid.UUID, str] = {}
        opened: list[Opened] = []
        for intent in intents:
            if intent.pk in stopped | altered:
                continue
            try:
                one = open_attempt(intent, worker, now, clock_now)
            except AlteredAttachment:
                altered.add(intent.pk)
            except ProviderError as error:
                unusable[intent.account_id] = str(error)
            else:
                opened += [one] if one else []
        move_all((one.move for one in opened), now=now)
        Attempt.objects.bulk_create(one.attempt for one in opened)
    _each(altered, _report_altered)
    _each(unusable, lambda account_id: _block(account_id, unusable[account_id]))
    return [one.claimed for one in opened]


def dispatch(claimed: Sequence[Claimed]) -> list[Claimed]:
    """Commit that these attempts go on the wire now; without that commit none may.

    For accounts without a contract: an attempt that has no such mark certainly left nothing, and
    may be repeated. What may no longer go (halted, held, suppressed, too late, its approval or
    its lease over) is released and left out of the answer.
    """
    if not claimed:
        return []
    with transaction.atomic():
        now = database_now()
        scopes = frozenset[uuid.UUID]().union(*(c.scopes for c in claimed))
        closed = Switch.objects.closed_among(scopes, now)
        rows = {
            intent.pk: intent
            for intent in SendIntent.objects.filter(
                pk__in=[c.intent_id for c in claimed], status=Status.IN_FLIGHT
            )
            .select_for_update(no_key=True)
            .order_by("id")
        }
        suppressed = _suppressed(rows)
        going = []
        for c in claimed:
            intent = rows.get(c.intent_id)
            if intent is None or intent.lease_token != c.lease_token:
                continue  # the lease was lost; whoever took it closed the attempt
            stopped = c.scopes & closed or intent.holds or c.intent_id in suppressed
            if stopped or _is_over(intent, now):
                _release(intent, c, now)
                continue
            Attempt.objects.filter(pk=c.attempt_id).update(dispatched_at=now)
            binding = _binding(c.request, c.account.scope)
            SendIntent.objects.filter(pk=intent.pk).update(**binding)
            going.append(c)
    return going


def _is_over(intent: SendIntent, now: datetime) -> bool:
    """Whether its deadline or its approval has passed since the claim; the sweep ends it then."""
    ends = (intent.deadline, None if intent.in_doubt else intent.approval_expires_at)
    return any(end is not None and end <= now for end in ends)


def _candidates(now: datetime, at_most: int) -> list[SendIntent]:
    """Due intents of open scopes, account by account, so that no account blocks another."""
    closed = set(Switch.objects.off(now).values_list("pk", flat=True))
    if installation_id() in closed or at_most < 1:
        return []
    due = SendIntent.objects.due(now).through_open_scopes(closed)
    due = due.only(
        *("id", "tenant_id", "account_id", "sender_id", "run_id"),
        *("next_attempt_at", "encoded_bytes"),
    )
    on_the_wire = Counter(
        SendIntent.objects.filter(status=Status.IN_FLIGHT).values_list("account_id", flat=True)
    )
    found: list[SendIntent] = []
    for account_id, tenant_id, limit in Account.objects.values_list(
        "pk", "tenant_id", "concurrency"
    ):
        free = min(limit - on_the_wire[account_id], at_most)
        if free > 0 and account_id not in closed and tenant_id not in closed:
            found += due.filter(account_id=account_id).order_by("next_attempt_at")[:free]
    found.sort(key=lambda intent: intent.next_attempt_at or now)
    return found[:at_most]


def _fitting(candidates: Sequence[SendIntent], room: int) -> list[SendIntent]:
    """The first of them that fit; the very first in any case, or it would never go."""
    sizes = accumulate(intent.encoded_bytes for intent in candidates)
    return [
        intent
        for place, (intent, size) in enumerate(zip(candidates, sizes, strict=True))
        if place == 0 or size <= room
    ]


def _lock_due(candidates: Iterable[SendIntent], now: datetime) -> list[SendIntent]:
    """Those of them that are still due, locked, their switches read under lock before."""
    candidates = list(candidates)
    scopes = frozenset[uuid.UUID]().union(*(_scopes(intent) for intent in candidates))
    closed = Switch.objects.closed_among(scopes, now)
    due = (
        SendIntent.objects.due(now)
        .filter(pk__in=[intent.pk for intent in candidates])
        .select_related("account", "sender", "payload", "tenant__policy")
        .select_for_update(skip_locked=True, no_key=True, of=("self",))
        .order_by("id")
    )
    return [intent for intent in due if not _scopes(intent) & closed]


def _scopes(intent: SendIntent) -> frozenset[uuid.UUID]:
    """Every scope whose switch can stop this intent."""
    scopes = {installation_id(), intent.tenant_id, intent.account_id, intent.sender_id}
    if intent.run_id is not None:
        scopes.add(intent.run_id)
    return frozenset(scopes)


def _suppressed(ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
    """Which of these intents have a suppressed recipient, and one such address of each."""
    found = Delivery.objects.filter(intent__in=list(ids)).suppressed()
    return dict(found.values_list("intent_id", "address"))


def _stop_suppressed(intents: Iterable[SendIntent], now: datetime) -> set[uuid.UUID]:
    """One suppressed recipient stops the whole intent: a frozen payload is not trimmed."""
    rows = {intent.pk: intent for intent in intents}
    suppressed = _suppressed(rows)
    for intent_id, address in suppressed.items():
        _stop(rows[intent_id], f"{address} was suppressed after this email was approved", now)
    return set(suppressed)


def _stop(intent: SendIntent, reason: str, now: datetime) -> None:
    """The end of an intent that may no longer be sent; what is in doubt stays in doubt."""
    to = Status.UNCERTAIN if intent.in_doubt else Status.DEAD_LETTER
    move(intent, to, now=now, end_reason=reason)


def _is_what_was_approved(intent: SendIntent) -> bool:
    return _is_intact(intent) and intent.digest == intent.approved_digest


def _is_intact(intent: SendIntent) -> bool:
    payload = getattr(intent, "payload", None)
    return payload is not None and seal(bytes(payload.body)) == intent.digest


def _has_its_files(intent: SendIntent) -> bool:
    try:
        contents_of(intent.pk, thaw(bytes(intent.payload.body)).message.attachments)
    except AlteredAttachment:
        return False
    return True


def _each(keys: Iterable[uuid.UUID], step: Callable[[uuid.UUID], None]) -> None:
    """What follows a claim: that is committed, and a fault here must not keep it from going."""
    for key in keys:
        try:
            step(key)
        except Exception:
            logger.exception("what follows a claim failed", extra={"about": key})


def _block(account_id: uuid.UUID, reason: str) -> None:
    turn_off(account_id, by="system", reason=reason, cause=Cause.BLOCKED)


def _report_altered(intent_id: uuid.UUID) -> None:
    """The stored bytes are not those that were approved: nothing of this action is sent."""
    with transaction.atomic():
        intent = lock_intent(intent_id)
        if not (_is_intact(intent) and _has_its_files(intent)):
            open_anomaly(
                intent,
                kind=AnomalyKind.DIGEST_DIFFERS,
                detail="The stored email does not have the digest that was approved.",
                now=database_now(),
            )


def open_attempt(intent: SendIntent, worker: str, now: datetime, clock_now: float) -> Opened | None:
    """The lease of one locked intent and its attempt, to be saved; None if it may not be made."""
    account = intent.account
    adapter = adapter_for(account.provider)
    contract = contract_of(account)
    facts = facts_of(account)
    if not _may_go_again(intent, contract, now):
        _stop(intent, "the provider's contract does not cover a repeat of it any more", now)
        return None
    request, fault = request_of(intent, adapter, facts)
    if request is not None and _would_differ(intent, request, account):
        _stop(intent, "the request would differ from the one that may have arrived", now)
        return None

    lease = intent.tenant.policy.lease
    token = new_id()
    is_dispatched = contract.may_replay and request is not None
    leased: dict[str, Any] = {
        "lease_token": token,
        "lease_expires_at": now + lease,
        "attempt_count": intent.attempt_count + 1,
        "tries": intent.tries + 1,
        "retrying_since": _trying_since(intent, now),
    }
    if is_dispatched:
        leased |= _binding(request, account.scope)
    attempt = Attempt(
        intent=intent,
        number=intent.attempt_count + 1,
        account=account,
        scope=account.scope,
        lease_token=token,
        worker=worker,
        asked_by_id=intent.asked_by_id,
        idempotency_key=adapter.wire_key(intent.idempotency_key),
        digest=intent.digest,
        request_digest=request.digest if request else "",
        contract=summary(contract),
        opened_at=now,
        dispatched_at=now if is_dispatched else None,
    )
    claimed = Claimed(
        intent_id=intent.pk,
        attempt_id=attempt.pk,
        number=attempt.number,
        lease_token=token,
        scopes=_scopes(intent),
        adapter=adapter,
        account_id=account.pk,
        account=facts,
        contract=contract,
        request=request,
        fault=fault,
        not_after=clock_now + _time_left(intent, contract, lease, now).total_seconds(),
    )
    return Opened(Move(intent, Status.IN_FLIGHT, leased), attempt, claimed)


def _trying_since(intent: SendIntent, now: datetime) -> datetime:
    """When trying began: at the first attempt, and later by as long as it was held up since.

    What was due and not claimed, since something was halted or nobody worked, was not tried in
    that time.
    """
    if not intent.tries or intent.retrying_since is None or intent.next_attempt_at is None:
        return now
    return intent.retrying_since + (now - intent.next_attempt_at)


def request_of(
    intent: SendIntent, adapter: Adapter, facts: AccountFacts
) -> tuple[Request | None, str]:
    """The request, or why there is none: the provider's API cannot say this, or our own fault."""
    try:
        frozen = thaw(bytes(intent.payload.body))
        submission = Submission(
            frozen=frozen,
            sender=sender_facts(intent.sender),
            tag=intent.pk.hex,
            wire_key=adapter.wire_key(intent.idempotency_key),
            contents=contents_of(intent.pk, frozen.message.attachments),
        )
        return adapter.build(submission, facts), ""
    except AlteredAttachment:
        raise
    except Exception as error:
        logger.exception("the request could not be built", extra={"intent": intent.pk})
        return None, f"{type(error).__name__}: {error}"


def _may_go_again(intent: SendIntent, contract: Contract, now: datetime) -> bool:
    """Whether the contract in force covers a repeat of what may have arrived.

    Operators may have tightened it since the retry was scheduled.
    """
    until = _window_ends(intent, contract)
    return until is None or (contract.may_replay and now < until)


def _window_ends(intent: SendIntent, contract: Contract) -> datetime | None:
    """The last moment at which a repeat may begin; None where there is nothing to repeat."""
    keeps_token = contract.recovery is Recovery.ONE_SHOT and intent.token_stored
    if intent.window_opened_at is None or keeps_token:
        return None
    return contract.replay_until(intent.window_opened_at)


def _time_left(
    intent: SendIntent, contract: Contract, lease: timedelta, now: datetime
) -> timedelta:
    """How long its first byte may still leave, should this worker stand still meanwhile."""
    ends = [
        now + lease - contract.request_deadline,
        _window_ends(intent, contract),
        intent.deadline,
    ]
    return min(end for end in ends if end is not None) - now


def _would_differ(intent: SendIntent, request: Request, account: Account) -> bool:
    """Whether this is no repeat of the request that may have arrived under this key."""
    return intent.window_opened_at is not None and (
        intent.request_digest != request.digest or intent.dispatch_scope != account.scope
    )


def _binding(request: Request | None, scope: uuid.UUID) -> dict[str, Any]:
    """What goes on the wire, noted on the intent: every later attempt must be its repeat."""
    assert request is not None
    return {"request_digest": request.digest, "dispatch_scope": scope}


def _release(intent: SendIntent, claimed: Claimed, now: datetime) -> None:
    """Close the attempt of an intent that was claimed but may not go, and put it back."""
    Attempt.objects.filter(pk=claimed.attempt_id, closed_at=None).update(
        closed_at=now, outcome=Outcome.RELEASED, reason="stopped before dispatch"
    )
    to = Status.RETRY_SCHEDULED if intent.in_doubt else Status.QUEUED
    move(intent, to, now=now, next_attempt_at=now, tries=intent.tries - 1)


def summary(contract: Contract) -> dict[str, Any]:
    """The contract in force, as the attempt keeps it."""
    return {
        "recovery": contract.recovery,
        "window_seconds": contract.safe_window.total_seconds(),
        "window_assumed": contract.window_is_assumed,
        "settle_seconds": contract.settle_time.total_seconds(),
        "failures_remembered": contract.failures_remembered,
        "source": contract.source,
        "checked_on": contract.checked_on.isoformat(),
    }
