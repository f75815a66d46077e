"""What agents ask about their runs."""

import uuid
from typing import Any

from django.db.models import Q
from django.http import Http404, HttpRequest
from ninja import Router

from sends.api.answers import RunAnswer, run_answer
from sends.api.auth import Bearer
from sends.api.problems import PROBLEMS
from sends.models import Run, Scope, SendIntent, Switch, Token, database_now

router = Router(tags=["runs"])


@router.get("/runs/{path:run_id}", auth=Bearer(Scope.READ), response={200: RunAnswer, **PROBLEMS})
def one(request: HttpRequest, run_id: str) -> Any:
    """One run of this agent, by its id or by the name the agent gave it."""
    token: Token = request.auth  # type: ignore[attr-defined]
    if "\x00" in run_id:  # PostgreSQL takes no NUL, not even to look for
        raise Http404
    runs = Run.objects.filter(tenant=token.tenant_id, agent=token.agent_id)
    run = runs.filter(Q(name=run_id) | _by_id(run_id)).order_by("pk").first()
    if run is None:
        raise Http404
    switch = Switch.objects.get(pk=run.pk)
    now = database_now()
    halted = Switch.objects.off(now).filter(pk=run.pk).exists()
    return run_answer(
        run,
        switch=switch,
        halted=halted,
        counts=SendIntent.objects.filter(run=run).counts_as_seen(now),
    )


def _by_id(run_id: str) -> Q:
    try:
        return Q(pk=uuid.UUID(run_id))
    except ValueError:
        return Q(pk=None)
