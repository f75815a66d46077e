"""Stopping and starting: the switch of a scope, and the end of a run."""

import uuid
from datetime import datetime

from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.roles import require_any_role, require_reason, require_role
from sends.lifecycle.transitions import lock_switch
from sends.models import Cause, Person, Role, Switch, Tenant, database_now


def turn_off(
    scope_id: uuid.UUID,
    *,
    by: Person | str,
    reason: str,
    cause: Cause = Cause.PAUSED,
    now: datetime | None = None,
) -> Switch:
    """Stop a scope: once this commits no claim and no dispatch goes through it.

    `by` is a person, who must be an approver there, or "system". Off for this cause already:
    nothing changes, and the first reason stays.
    """
    reason = require_reason(reason, what="for stopping")
    with transaction.atomic():
        switch = lock_switch(scope_id)
        now = now or database_now()
        _require(by, switch, Role.APPROVER)
        if switch.causes & cause:
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

    `by` is a person, who must be an operator there, or "system".
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
