"""What would become of a message, without proposing it."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from ninja import Router

from sends.api.answers import Simulation, simulation
from sends.api.auth import Bearer, agent_of
from sends.api.problems import said
from sends.api.requests import KEY, body_of, document
from sends.conf import conf
from sends.lifecycle.simulation import simulate
from sends.models import Agent, Run, Scope, Switch, database_now
from sends.reports.waiting import stops_of, why_not_yet
from sends.rules.proposals import Proposal, parse

router = Router(tags=["intents"])


@router.post(
    "/intents/simulate",
    operation_id="simulate",
    summary="Say what would become of a message",
    auth=Bearer(Scope.SUBMIT),
    response={200: Simulation},
    openapi_extra=body_of(Proposal) | {"parameters": [KEY]},
)
def simulated(request: HttpRequest) -> Any:
    """What `/intents` would answer to this proposal now; nothing is created or changed.

    `would` says whether it would be taken in, found again, or refused with `problem`; then
    `approvals` says how many people would have to approve it and which rule says so,
    `why_not_yet` and `stops` what would keep it from going out. A proposal that cannot be read is
    refused here just as there. What holds now may not hold later.
    """
    key = request.headers.get("Idempotency-Key")
    proposal = parse(document(request), header_key=key, limits=conf.limits)
    agent = agent_of(request)
    found = simulate(proposal, agent=agent)
    now = database_now()
    intent = found.taken.intent if found.taken is not None else None
    return simulation(
        proposal,
        found,
        now,
        problem=said(found.refusal) if found.refusal is not None else None,
        run=_run(proposal.run, agent, now) if proposal.run is not None else None,
        waiting=why_not_yet(intent, now) if intent is not None else None,
        stops=stops_of(intent, now) if intent is not None else [],
    )


def _run(name: str, agent: Agent, now: datetime) -> dict[str, Any]:
    run = Run.objects.filter(tenant=agent.tenant_id, agent=agent, name=name).first()
    return {
        "name": name,
        "exists": run is not None,
        "halted": run is not None and Switch.objects.off(now).filter(pk=run.pk).exists(),
        "ended": run is not None and run.ended_at is not None,
        "retries_left": max(0, run.retry_limit - run.retries_used) if run is not None else None,
    }
