"""What agents ask about their runs: to open one, and how it stands."""

import uuid
from typing import Annotated, Any

from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.responses import Status as Answered

from sends.api.answers import RunAnswer, RunPage, run_short
from sends.api.auth import Bearer, agent_of
from sends.api.pages import MOST, cursor_after, read_cursor, refuse_unknown
from sends.api.requests import body_of, document
from sends.lifecycle.runs import open_run
from sends.models import Agent, Run, Scope, SendIntent, Switch, database_now
from sends.rules.proposals import NamedRun, parse_as

router = Router(tags=["runs"])


@router.post(
    "/runs",
    operation_id="open_run",
    summary="Open a run",
    auth=Bearer(Scope.SUBMIT),
    response={201: RunAnswer, 200: RunAnswer},
    openapi_extra=body_of(NamedRun),
)
def opened(request: HttpRequest, response: HttpResponse) -> Answered[Any]:
    """Open a run, before its first message. 201 when it was opened, 200 when it had been.

    A proposal that names a run opens it as well, so this is for an agent that wants to know
    beforehand whether its run may send. Repeating it is always safe. A run that was ended is
    refused, and stays so.
    """
    asked = parse_as(NamedRun, document(request))
    found = open_run(asked.name, agent=agent_of(request))
    said = _whole(found.run)
    response["Location"] = said["links"]["self"]
    return Answered(200 if found.replayed else 201, said)


@router.get(
    "/runs",
    operation_id="list_runs",
    summary="List runs",
    auth=Bearer(Scope.READ),
    response={200: RunPage},
)
def listed(
    request: HttpRequest,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="How many to a page.")] = 50,
) -> Any:
    """This agent's runs, newest first, a page at a time."""
    refuse_unknown(request, ("cursor", "limit"))
    runs = _of(agent_of(request)).order_by("-pk")
    if cursor is not None:
        runs = runs.filter(pk__lt=read_cursor(cursor))
    page = list(runs[: limit + 1])
    shown, more = page[:limit], len(page) > limit
    off = set(Switch.objects.off(database_now()).values_list("pk", flat=True))
    switches = Switch.objects.in_bulk([run.pk for run in shown])
    return {
        "items": [run_short(run, switch=switches[run.pk], halted=run.pk in off) for run in shown],
        "next_cursor": cursor_after(shown[-1].pk) if more else None,
    }


@router.get(
    "/runs/{path:run_id}",
    operation_id="get_run",
    summary="See one run",
    auth=Bearer(Scope.READ),
    response={200: RunAnswer},
)
def one(request: HttpRequest, run_id: str) -> Any:
    """One run of this agent, by its id or by the name the agent gave it."""
    if "\x00" in run_id:  # PostgreSQL takes no NUL, not even to look for
        raise Http404
    runs = _of(agent_of(request))
    run = runs.filter(Q(name=run_id) | _by_id(run_id)).order_by("pk").first()
    if run is None:
        raise Http404
    return _whole(run)


def _of(agent: Agent) -> QuerySet[Run]:
    return Run.objects.filter(tenant=agent.tenant_id, agent=agent)


def _whole(run: Run) -> dict[str, Any]:
    now = database_now()
    said = run_short(
        run,
        switch=Switch.objects.get(pk=run.pk),
        halted=Switch.objects.off(now).filter(pk=run.pk).exists(),
    )
    return said | {"intents": SendIntent.objects.filter(run=run).counts_as_seen(now)}


def _by_id(run_id: str) -> Q:
    try:
        return Q(pk=uuid.UUID(run_id))
    except ValueError:
        return Q(pk=None)
