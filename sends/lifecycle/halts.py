"""Stopping and starting: the switch of a scope, and the end of a run."""

import uuid
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.cancelling import ask_cancel, cancel_asked, cancel_if_asked, each
from sends.lifecycle.obstacles import moment
from sends.lifecycle.refusals import AlreadyDecided, Invalid, RunEnded
from sends.lifecycle.roles import require_any_role, require_reason, require_role
from sends.lifecycle.transitions import lock_switch
from sends.models import (
    AuditEntry,
    Cause,
    Person,
    Role,
    Run,
    SendIntent,
    Switch,
    Tenant,
    database_now,
)
from sends.rules.statuses import UNFINISHED, Status

__all__ = [
    "Ended",
    "ask_cancel",
    "cancel_asked",
    "end_run",
    "halt_run",
    "resume_run",
    "turn_off",
    "turn_on",
]


@dataclass(frozen=True)
class Ended:
    """What ending a run did: how many were cancelled at once, how many wait for certainty."""

    cancelled: int
    waiting: int


def turn_off(
    scope_id: uuid.UUID,
    *,
    by: Person | str,
    reason: str,
    cause: Cause = Cause.PAUSED,
    overrule: bool = False,
    now: datetime | None = None,
) -> Switch:
    """Stop a scope: once this commits no claim and no dispatch goes through it.

    `by` is a person, who must be an approver there, or who else it was, as "system". Off for this
    cause already: nothing changes, and the first reason stays, unless this one is to `overrule` it.
    """
    reason = require_reason(reason, what="for stopping")
    with transaction.atomic():
        switch = lock_switch(scope_id)
        now = now or database_now()
        _require(by, switch, Role.APPROVER)
        if switch.causes & cause and not overrule:
            return switch
        switch.causes |= cause
        _describe(switch, cause, at=now, by=str(by), reason=reason)
        _record(switch, by, "turn_off", cause, reason, now)
    return switch


def turn_on(
    scope_id: uuid.UUID,
    *,
    by: Person | str,
    reason: str,
    cause: Cause = Cause.PAUSED,
    now: datetime | None = None,
) -> Switch:
    """End one cause for which a scope is off; it stays off while there is another.

    `by` is a person, who must be an operator there, or who else it was, as "system".
    """
    reason = require_reason(reason, what="for starting again")
    with transaction.atomic():
        switch = lock_switch(scope_id)
        now = now or database_now()
        _require(by, switch, Role.OPERATOR)
        if not switch.causes & cause:
            return switch
        switch.causes &= ~cause
        _describe(switch, cause, at=None, by="", reason="")
        _record(switch, by, "turn_on", cause, reason, now)
    return switch


def halt_run(run: Run, *, person: Person, reason: str, now: datetime | None = None) -> Switch:
    """Stop everything in one run. What is on the wire ends normally."""
    with transaction.atomic():
        switch = lock_switch(run.pk)
        _refuse_ended(run)
        require_role(person, run.tenant, Role.APPROVER)
        if switch.causes & Cause.PAUSED:
            raise _already(switch, "This run is halted already")
        return turn_off(run.pk, by=person, reason=reason, now=now)


def resume_run(
    run: Run, *, person: Person, reason: str, add_retries: int = 0, now: datetime | None = None
) -> Switch:
    """Let a halted run go on, with so many retries more than it had. By an operator."""
    if add_retries < 0:
        raise Invalid(f"{add_retries} retries cannot be added; give 0 or more.")
    with transaction.atomic():
        switch = lock_switch(run.pk)
        fresh = _refuse_ended(run)
        require_role(person, run.tenant, Role.OPERATOR)
        if not switch.causes & Cause.PAUSED:
            raise _already(switch, "This run is not halted")
        fresh.retry_limit += add_retries
        fresh.save(update_fields=["retry_limit"])
        run.retry_limit = fresh.retry_limit
        return turn_on(run.pk, by=person, reason=reason, now=now)


def end_run(run: Run, *, person: Person, reason: str, now: datetime | None = None) -> Ended:
    """End a run for good: nothing more is taken in for it, and what is unsent is cancelled.

    What is on the wire or uncertain stays until it is settled, and is cancelled then if it was
    not taken. By an operator.
    """
    reason = require_reason(reason, what="for ending a run")
    with transaction.atomic():
        # Intake reads this switch under lock before it takes in anything for the run.
        lock_switch(run.pk)
        now = now or database_now()
        require_role(person, run.tenant, Role.OPERATOR)
        fresh = _refuse_ended(run)
        # The intents first, then the run: as a worker does that counts a retry of theirs.
        asked = ask_cancel(run)
        fresh.ended_at, fresh.end_reason = now, reason
        fresh.save(update_fields=["ended_at", "end_reason"])
        run.ended_at, run.end_reason = now, reason
        audit.record(
            tenant=run.tenant,
            actor=person.email,
            verb="end_run",
            target=audit.run_target(run),
            reason=reason,
            facts={"emails": asked},
            now=now,
        )
    # Each in a transaction of its own; what a crash leaves here the sweep finds.
    cancelled = each(_unfinished(run), cancel_if_asked, now)
    return Ended(cancelled, waiting=len(_unfinished(run)))


def _unfinished(run: Run) -> list[uuid.UUID]:
    intents = SendIntent.objects.filter(
        run=run, accepted_at=None, status__in={*UNFINISHED, Status.DEAD_LETTER}
    )
    return list(intents.order_by("pk").values_list("pk", flat=True))


def _refuse_ended(run: Run) -> Run:
    """The run as it is, unless it was ended. Under the lock of its switch it stays so."""
    fresh: Run = Run.objects.get(pk=run.pk)
    if fresh.ended_at is not None:
        raise RunEnded(
            f"This run was ended at {moment(fresh.ended_at)}: {fresh.end_reason}",
            at=fresh.ended_at,
        )
    return fresh


def _already(switch: Switch, words: str) -> AlreadyDecided:
    """Who was first, from the log."""
    entries = AuditEntry.objects.filter(tenant=switch.tenant, target=audit.switch_target(switch))
    last = entries.order_by("-sequence").first()
    if last is None:
        return AlreadyDecided(f"{words}.")
    did = "resumed" if last.verb == "turn_on" else "halted"
    return AlreadyDecided(
        f"{words}. {last.actor} {did} it at {moment(last.at)}: {last.reason}",
        who=last.actor,
        at=last.at,
    )


def _require(by: Person | str, switch: Switch, role: Role) -> None:
    if not isinstance(by, Person):
        return
    if switch.tenant is None:
        require_any_role(by, role)
    else:
        require_role(by, switch.tenant, role)


def _describe(switch: Switch, cause: Cause, *, at: datetime | None, by: str, reason: str) -> None:
    if cause is Cause.PAUSED:
        switch.paused_at, switch.paused_by, switch.pause_reason = at, by, reason
    else:
        switch.blocked_at, switch.block_reason = at, reason
    switch.save(
        update_fields=[
            "causes",
            "paused_at",
            "paused_by",
            "pause_reason",
            "blocked_at",
            "block_reason",
        ]
    )


def _record(
    switch: Switch, by: Person | str, verb: str, cause: Cause, reason: str, now: datetime
) -> None:
    """An entry in the tenant's log; the switch of the installation concerns every tenant."""
    tenants = [switch.tenant] if switch.tenant else list(Tenant.objects.order_by("pk"))
    for tenant in tenants:
        audit.record(
            tenant=tenant,
            actor=str(by),
            verb=verb,
            target=audit.switch_target(switch),
            reason=reason,
            facts={"cause": cause.name.lower()},
            now=now,
        )
