"""A restored or copied database is noticed and stops; what it forgot may have been sent."""

import logging
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from sends.lifecycle import audit
from sends.lifecycle.accounts import contract_of, facts_of
from sends.lifecycle.claim import request_of, summary
from sends.lifecycle.folder import Memory, last_attempts, recall
from sends.lifecycle.halts import turn_off, turn_on
from sends.lifecycle.obstacles import moment
from sends.lifecycle.refusals import Invalid, NotPossible
from sends.lifecycle.roles import require_reason, require_role
from sends.lifecycle.transitions import (
    Move,
    clear_hold,
    lock_intent,
    lock_switch,
    move_all,
    set_hold,
    write_each,
)
from sends.models import (
    Action,
    Attempt,
    Installation,
    Person,
    Restore,
    RestoreKind,
    Role,
    SendIntent,
    Switch,
    Tenant,
    changes,
    database_now,
    new_id,
)
from sends.models.home import home_of
from sends.providers.adapter import ProviderError
from sends.providers.registry import adapter_for
from sends.rules.backoff import NOTHING
from sends.rules.contracts import Contract
from sends.rules.outcomes import Outcome, Phase
from sends.rules.statuses import HOLD_BITS, Hold, Status

logger = logging.getLogger(__name__)

BATCH = 100
RESTORED = "restored"  # the error, and the worker, of the attempts that are assumed
MAY_BE_OUT = "it may have been sent after the backup that was restored"
# What may have gone on without this database; a dead letter may have been requeued.
MAY_HAVE_GONE = (Status.QUEUED, Status.IN_FLIGHT, Status.RETRY_SCHEDULED, Status.DEAD_LETTER)
AWAIT_A_DECISION = (Status.AWAITING_APPROVAL, Status.CHANGES_REQUESTED)
HELD = HOLD_BITS[Hold.RESTORED]


@dataclass(frozen=True)
class Settled:
    """What was assumed after a restore: so many became uncertain, so many wait with a hold."""

    made_at: datetime
    uncertain: int
    held: int


# Noticing


def notice() -> Restore | None:
    """Stop all sending if this database is not the one that was used here last.

    Asked at each start and before each drain, outside of transactions; as cheap as a look while
    nothing is wrong. The answer is what was noticed now.
    """
    memory, home = recall(), home_of(connection)  # before the row, which only goes forward
    installation = Installation.objects.get()
    if installation.home == home and _kind(installation, memory, home) is None:
        return None
    with transaction.atomic():
        now = database_now()
        installation = Installation.objects.select_for_update().get()
        kind = _kind(installation, memory, home)
        restore = _stop(installation, kind, now) if kind is not None else None
        remembered = _of_ours(memory, installation)
        Installation.objects.update(
            home=home or installation.home,
            backup_at=None,
            # Or it would be noticed for ever.
            beats=max(installation.beats, remembered.beats if remembered else 0),
        )
    if restore is not None:
        logger.error("database was restored or copied", extra={"about": restore.pk})
    return restore


def open_restore() -> Restore | None:
    """The restore that nobody has looked after yet."""
    return Restore.objects.filter(settled_at=None).first()


def _kind(installation: Installation, memory: Memory | None, home: str) -> RestoreKind | None:
    if installation.backup_at is not None:
        return RestoreKind.BACKUP
    remembered = _of_ours(memory, installation)
    if remembered and (remembered.beats > installation.beats or _forgot_an_attempt()):
        return RestoreKind.OLDER
    if home and installation.home and installation.home != home:
        return RestoreKind.ELSEWHERE
    return None


def _of_ours(memory: Memory | None, installation: Installation) -> Memory | None:
    """What the folder remembers, if it was used with this database, or one it is a copy of."""
    return memory if memory and memory.installation == installation.pk else None


def _forgot_an_attempt() -> bool:
    """Whether this machine has made an attempt of which the database knows nothing."""
    last = Restore.objects.order_by("noticed_at").last()
    made = [pk for pk in last_attempts() if last is None or _made_at(pk) > last.noticed_at]
    return Attempt.objects.filter(pk__in=made).count() < len(made)


def _made_at(pk: uuid.UUID) -> datetime:
    """When a UUID of version 7 was made."""
    return datetime.fromtimestamp(int.from_bytes(pk.bytes[:6], "big") / 1000, tz=UTC)


def _stop(installation: Installation, kind: RestoreKind, now: datetime) -> Restore:
    made_at = installation.backup_at or installation.beat_at or installation.created_at
    restore = open_restore() or Restore(kind=kind, made_at=made_at, noticed_at=now)
    # The backup of a database that stood still already: it may be older than that one was.
    if kind is not RestoreKind.ELSEWHERE:
        restore.kind = kind
    restore.made_at = min(restore.made_at, made_at)
    restore.noticed_at = now
    restore.save()
    turn_off(
        installation.pk,
        by="system",
        reason=(
            f"This database was restored or copied: {restore.get_kind_display()}. Run"
            " `manage.py doctor --after-restore`, then `manage.py resume`."
        ),
        overrule=True,
        now=now,
    )
    return restore


# Looking after it


def pause(*, by: str, reason: str) -> Switch:
    """Stop all sending of the installation, whoever its tenants are."""
    return turn_off(Installation.objects.get().pk, by=by, reason=reason)


def resume(*, by: str, reason: str, was_moved: bool = False) -> Switch:
    """Let the installation send again.

    What was restored or copied may not before `after_restore`, unless it only lies in another
    place, and `was_moved` says that nothing went on without it: a dump that is restored on a new
    machine looks the same from inside.
    """
    reason = require_reason(reason, what="for starting again")
    with transaction.atomic():
        switch = lock_switch(Installation.objects.get().pk)
        restore = open_restore()
        if restore is not None:
            if restore.kind != RestoreKind.ELSEWHERE:
                raise NotPossible(
                    "This database is an older copy, and would send again what was sent since."
                    " Run first: manage.py doctor --after-restore"
                )
            if not was_moved:
                raise NotPossible(
                    "This database was restored or copied. If it is a backup, run first:"
                    " manage.py doctor --after-restore. If it was moved with everything stopped,"
                    ' say so: manage.py resume --moved "to the new server"'
                )
            Restore.objects.filter(pk=restore.pk).update(settled_at=database_now())
        turn_on(switch.pk, by=by, reason=reason)
        switch.refresh_from_db()
    return switch


def after_restore(*, by: str, made_at: datetime | None = None) -> Settled:
    """Mark everything that may have been sent after the backup was made. Safe to repeat.

    `made_at` is when that was; left out, it is what the backup says itself, or when its database
    last showed a sign of life. What is not surely unsent becomes uncertain, under an attempt
    that is assumed; what awaits a decision, or a time that had not come, is held until an operator
    has looked. In small steps: one that was killed goes on where it was.
    """
    with transaction.atomic():
        _require_stopped()
        restore = _restore_at(made_at)
    changes.renumber()  # of a dump that comes from another server
    while _doubt_some(restore):
        pass
    while _hold_some(restore):
        pass
    return _settle(restore, by)


def release(
    intent_id: uuid.UUID, *, person: Person, reason: str, now: datetime | None = None
) -> SendIntent:
    """An operator has looked: this email was not sent after the backup, and may go its way."""
    reason = _where_one_looked(reason)
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        require_role(person, intent.tenant, Role.OPERATOR)
        if not intent.holds & HELD:
            raise NotPossible("It is not held for a restored database.")
        _require_looked_after()
        clear_hold(Hold.RESTORED, action=intent.action_id)  # a version of it is held like the last
        intent.holds &= ~HELD
        audit.record_about(intent, actor=person, verb="release", reason=reason, now=now)
    return intent


def release_all(*, by: str, reason: str, tenants: Collection[Tenant]) -> int:
    """Release whatever these tenants still have held; how many versions.

    In small steps: one that was killed goes on where it was.
    """
    reason = _where_one_looked(reason)
    count = 0
    while released := _release_some(by, reason, tenants):
        count += released
    return count


def _release_some(by: str, reason: str, tenants: Collection[Tenant]) -> int:
    with transaction.atomic():
        _require_looked_after()
        now = database_now()
        intents = _locked(SendIntent.objects.held(Hold.RESTORED).filter(tenant__in=tenants))
        clear_hold(Hold.RESTORED, pk__in=[intent.pk for intent in intents])
        for intent in intents:
            audit.record_about(intent, actor=by, verb="release", reason=reason, now=now)
    return len(intents)


def _where_one_looked(reason: str) -> str:
    return require_reason(reason, what="for letting it go on: where did you look")


def _require_looked_after() -> None:
    if open_restore() is not None:
        raise NotPossible(
            "What was restored is still being looked after: manage.py doctor --after-restore"
        )


def _require_stopped() -> Switch:
    """The installation's switch, locked and off; or NotPossible."""
    switch = lock_switch(Installation.objects.get().pk)
    if not switch.causes:
        raise NotPossible(
            "Sending is on, so workers may be sending what would be marked."
            ' Pause it first: manage.py pause "restored from a backup"'
        )
    return switch


def _restore_at(made_at: datetime | None) -> Restore:
    """The restore to look after, from the time that was given."""
    now, restore = database_now(), open_restore()
    if restore is None:
        if made_at is None:
            last = Restore.objects.order_by("settled_at").last()
            when = last.settled_at if last else None
            looked_after = f" since the one looked after at {moment(when)}" if when else ""
            raise NotPossible(
                f"No restore was noticed{looked_after}. If this database was put back all the same,"
                " say when it was copied: --backup-made-at 2026-11-30T22:00Z"
            )
        restore = Restore(kind=RestoreKind.DECLARED, made_at=made_at, noticed_at=now)
    earliest = restore.made_at
    if made_at is not None and not earliest <= made_at <= restore.noticed_at:
        raise Invalid(
            f"{moment(made_at)} cannot be when it was copied: that was between"
            f" {moment(earliest)} and {moment(restore.noticed_at)}."
        )
    restore.made_at = made_at or restore.made_at
    restore.save()
    return restore


def _doubt_some(restore: Restore) -> int:
    """Make some of what may have gone uncertain; how many."""
    with transaction.atomic():
        _require_stopped()
        now = database_now()
        intents = _locked(_may_have_gone(restore))
        open_attempts = {
            attempt.intent_id: attempt
            for attempt in Attempt.objects.filter(intent__in=intents, closed_at=None)
        }
        made: list[Attempt] = []
        closings: list[tuple[dict[str, Any], dict[str, Any]]] = []
        moves: list[Move] = []
        for intent in intents:
            under_way = open_attempts.get(intent.pk)
            if under_way is not None:
                closings.append(({"pk": under_way.pk, "outcome": ""}, _assumed(now)))
            else:
                made.append(_attempt(intent, restore, now))
            moves.append(_doubt(intent, under_way or made[-1], now))
        write_each(Attempt, closings)
        move_all(moves, now=now)
        Attempt.objects.bulk_create(made)
    return len(intents)


def _may_have_gone(restore: Restore) -> QuerySet[SendIntent]:
    """Without those that were looked at since: they have an attempt that was assumed.

    Nobody requeues an older version, nor what is purged.
    """
    assumed = Attempt.objects.filter(
        intent=OuterRef("pk"), error=RESTORED, closed_at__gte=restore.noticed_at
    )
    return SendIntent.objects.filter(
        ~Exists(assumed),
        ~_cannot_have_gone(restore),
        Q(version=F("action__latest_version")) | ~Q(status=Status.DEAD_LETTER),
        status__in=MAY_HAVE_GONE,
        accepted_at=None,
        created_at__lte=restore.noticed_at,
        payload__isnull=False,
    )


def _cannot_have_gone(restore: Restore) -> Q:
    """Queued for later than all that was forgotten, and never tried before."""
    return Q(status=Status.QUEUED, attempt_count=0, not_before__gt=restore.noticed_at)


def _locked(intents: QuerySet[SendIntent]) -> Sequence[SendIntent]:
    """The next of these, locked as everybody locks them: actions first, all by id."""
    found = list(intents.order_by("pk").values_list("pk", "action_id")[:BATCH])
    actions = Action.objects.filter(pk__in={action_id for _, action_id in found})
    for _ in actions.select_for_update(no_key=True).order_by("pk").values_list("pk"):
        pass
    rows = intents.filter(pk__in=[pk for pk, _ in found]).select_related(
        "account", "sender", "payload"
    )
    return list(rows.select_for_update(no_key=True, of=("self",)).order_by("pk"))


def _assumed(now: datetime) -> dict[str, Any]:
    return {
        "closed_at": now,
        "outcome": Outcome.AMBIGUOUS,
        "error": RESTORED,
        "reason": MAY_BE_OUT,
        "phase": Phase.SENT,
        "may_have_arrived": True,
    }


def _attempt(intent: SendIntent, restore: Restore, now: datetime) -> Attempt:
    """The attempt that may have been made after the backup, closed as one without an answer."""
    contract = _contract_of(intent)
    key, request_digest = _as_it_goes(intent)
    return Attempt(
        intent=intent,
        number=intent.attempt_count + 1,
        account=intent.account,
        scope=intent.account.scope,
        lease_token=new_id(),
        worker=RESTORED,
        idempotency_key=key,
        digest=intent.digest,
        request_digest=request_digest,
        contract=summary(contract) if contract else {},
        opened_at=restore.made_at,
        dispatched_at=restore.made_at,
        **_assumed(now),
    )


def _doubt(intent: SendIntent, attempt: Attempt, now: datetime) -> Move:
    """As after an attempt without an answer: the contract says how long a replay is harmless."""
    contract = _contract_of(intent)
    opened = min(attempt.opened_at, intent.window_opened_at or attempt.opened_at)
    settle_time = contract.settle_time if contract else NOTHING
    covered = contract is not None and contract.may_replay
    columns = {
        "in_doubt": True,
        "end_reason": MAY_BE_OUT,
        "closed_at": None,
        "attempt_count": attempt.number,
        "window_opened_at": opened,
        "replay_until": contract.replay_until(opened) if contract and covered else None,
        "not_sooner_than": max(intent.not_sooner_than or now, now + settle_time),
        "request_digest": intent.request_digest or attempt.request_digest,
        "dispatch_scope": intent.dispatch_scope or attempt.scope,
    }
    return Move(intent, Status.UNCERTAIN, columns)


def _contract_of(intent: SendIntent) -> Contract | None:
    """What its provider promises; nothing where the account cannot be used as it is now."""
    try:
        return contract_of(intent.account)
    except ProviderError:
        return None


def _as_it_goes(intent: SendIntent) -> tuple[str, str]:
    """Its key on the wire and the digest of its request, which are the same whenever it goes."""
    try:
        account = facts_of(intent.account)
        adapter = adapter_for(account.provider)
    except ProviderError:
        return intent.idempotency_key, ""
    request, _ = request_of(intent, adapter, account)
    return adapter.wire_key(intent.idempotency_key), request.digest if request else ""


def _hold_some(restore: Restore) -> int:
    """Hold some of that about which a decision may be forgotten; how many.

    What awaits one may have been approved and sent; what is queued for later, called off.
    """
    with transaction.atomic():
        _require_stopped()
        waiting = SendIntent.objects.alias(held=F("holds").bitand(HELD)).filter(
            Q(status__in=AWAIT_A_DECISION) | _cannot_have_gone(restore),
            held=0,
            created_at__lte=restore.noticed_at,
        )
        return set_hold(Hold.RESTORED, pk__in=[intent.pk for intent in _locked(waiting)])


def _settle(restore: Restore, by: str) -> Settled:
    """The end of it, with an entry in the log of every tenant."""
    done = Settled(restore.made_at, uncertain=0, held=0)
    with transaction.atomic():
        switch, now = _require_stopped(), database_now()
        for tenant in Tenant.objects.order_by("pk"):
            doubted = Attempt.objects.filter(
                intent__tenant=tenant, error=RESTORED, closed_at__gte=restore.noticed_at
            )
            held = SendIntent.objects.filter(tenant=tenant).held(Hold.RESTORED)
            counts = {"uncertain": doubted.count(), "held": held.count()}
            audit.record(
                tenant=tenant,
                actor=by,
                verb="after_restore",
                target=audit.switch_target(switch),
                facts={"made_at": restore.made_at.isoformat(), **counts},
                now=now,
            )
            done = Settled(
                done.made_at, done.uncertain + counts["uncertain"], done.held + counts["held"]
            )
        Restore.objects.filter(pk=restore.pk).update(settled_at=now)
    return done
