"""A run is opened once: by the agent's first word of it, or by its first proposal."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction

from sends.lifecycle.versions import refuse_ended
from sends.models import Agent, Policy, Run, Switch, SwitchKind, database_now


@dataclass(frozen=True)
class Opened:
    """The run of a name; `replayed` where an earlier request had opened it."""

    run: Run
    replayed: bool


def open_run(name: str, *, agent: Agent, now: datetime | None = None) -> Opened:
    """The agent's run of this name, opened if there is none. Safe to repeat, also at once.

    Raises RunEnded if it is over: then nothing more is taken in for it.
    """
    with transaction.atomic():
        now = now or database_now()
        new: dict[str, Any] = {"retry_limit": partial(_retry_limit, agent), "started_at": now}
        run, created = Run.objects.get_or_create(
            tenant=agent.tenant, agent=agent, name=name, defaults=new
        )
        if created:
            Switch.objects.create(pk=run.pk, tenant=agent.tenant, kind=SwitchKind.RUN)
        # Whoever ends the run locks its switch: they find what comes now, or we their end.
        Switch.objects.closed_among([run.pk], now)
        run.refresh_from_db(fields=["ended_at", "end_reason"])
        refuse_ended(run)
    return Opened(run, replayed=not created)


def _retry_limit(agent: Agent) -> int:
    return Policy.objects.get(tenant=agent.tenant_id).retry_limit
