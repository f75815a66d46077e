"""What agents ask for about messages: propose, change, withdraw, and see what became of them."""

import uuid
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.responses import Status as Answered
from pydantic import AfterValidator

from sends.api.answers import Answer, Page, Whole, answer, current_of, seen, short, whole
from sends.api.auth import Bearer, agent_of
from sends.api.pages import MOST, cursor_after, read_cursor, refuse_unknown
from sends.api.requests import KEY, body_of, document, optional_document
from sends.conf import conf
from sends.lifecycle import intake
from sends.lifecycle.cancelling import withdraw
from sends.lifecycle.intake import Taken
from sends.models import Agent, Scope, SendIntent, database_now
from sends.models.intents import Intents
from sends.reports.waiting import why_not_yet
from sends.rules.fields import Moment
from sends.rules.proposals import (
    Proposal,
    Withdrawal,
    parse,
    parse_as,
)
from sends.rules.statuses import Status

router = Router(tags=["intents"])

# Ids sort by the clock of the machine that made them, `created_at` is the database's.
CLOCKS_DIFFER_BY = timedelta(hours=1)


def _without_nul(name: str) -> str:
    if "\x00" in name:  # PostgreSQL takes none, not even to look for
        raise ValueError("holds U+0000, which is not text")
    return name


Named = Annotated[str, AfterValidator(_without_nul)]


@router.post(
    "/intents",
    auth=Bearer(Scope.SUBMIT),
    response={201: Answer, 200: Answer},
    openapi_extra=body_of(Proposal) | {"parameters": [KEY]},
)
def propose(request: HttpRequest, response: HttpResponse) -> Answered[Any]:
    """Propose a message. 201 when it was taken in, 200 when an earlier request had been.

    Repeating the same request is always safe: it is answered with the first intent and its present
    status, and `replayed` is true. The same `action_key` with other content is refused.
    """
    key = request.headers.get("Idempotency-Key")
    proposal = parse(document(request), header_key=key, limits=conf.limits)
    return _answered(intake.propose(proposal, agent=agent_of(request)), response)


@router.post(
    "/intents/{uuid:intent_id}/versions",
    auth=Bearer(Scope.SUBMIT),
    response={201: Answer, 200: Answer},
    openapi_extra=body_of(Proposal),
)
def propose_version(
    request: HttpRequest, response: HttpResponse, intent_id: uuid.UUID
) -> Answered[Any]:
    """Replace the current version: the answer to requested changes, or a correction.

    It says the whole message anew. Left out, `sender`, `workflow`, `template`, `context`,
    `not_before`, `deadline` and `metadata` stay as they were. Safe to repeat.
    """
    proposal = parse(document(request), needs_key=False, limits=conf.limits)
    try:
        taken = intake.propose_version(intent_id, proposal, agent=agent_of(request))
    except SendIntent.DoesNotExist:
        raise Http404 from None
    return _answered(taken, response)


@router.post(
    "/intents/{uuid:intent_id}/withdraw",
    auth=Bearer(Scope.WITHDRAW),
    response={200: Answer},
    openapi_extra=body_of(Withdrawal, required=False),
)
def take_back(request: HttpRequest, intent_id: uuid.UUID) -> Any:
    """Take a message back. Safe to repeat.

    While a worker talks to the provider, or nobody knows whether it took the message, it is
    cancelled only once that is settled; the status says which.
    """
    asked = parse_as(Withdrawal, optional_document(request))
    agent = agent_of(request)
    if not _of(agent).filter(pk=intent_id).exists():
        raise Http404
    withdraw(intent_id, agent=agent, reason=asked.reason)
    taken = Taken(_of(agent).get(pk=intent_id), replayed=False, key_derived=False)
    return answer(taken, database_now())


@router.get("/intents", auth=Bearer(Scope.READ), response={200: Page})
def listed(
    request: HttpRequest,
    status: Annotated[list[Status], Query(description="May be given several times.")] = [],  # noqa: B006
    run: Annotated[Named | None, Query(description="The name you gave it.")] = None,
    action_key: Named | None = None,
    since: Annotated[Moment | None, Query(description="Created then or later.")] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="How many to a page.")] = 50,
) -> Any:
    """This agent's intents, newest first, a page at a time.

    `next_cursor` is null on the last page. What is created meanwhile does not shift the pages.
    """
    refuse_unknown(request, PARAMETERS)
    now = database_now()
    intents = _of(agent_of(request)).order_by("-pk")
    if status:
        intents = intents.seen_as(status, now)
    if run is not None:
        intents = intents.filter(run__name=run)
    if action_key is not None:
        intents = intents.filter(action__action_key=action_key)
    if since is not None:
        intents = intents.filter(created_at__gte=since, pk__gte=_lowest_id(since))
    if cursor is not None:
        intents = intents.filter(pk__lt=read_cursor(cursor))
    page = list(intents[: limit + 1])
    shown, more = page[:limit], len(page) > limit
    current = current_of(shown)
    return {
        "items": [short(seen(intent, now), current=current) for intent in shown],
        "next_cursor": cursor_after(shown[-1].pk) if more else None,
    }


@router.get("/intents/{uuid:intent_id}", auth=Bearer(Scope.READ), response={200: Whole})
def one(request: HttpRequest, intent_id: uuid.UUID) -> Any:
    """One intent: its status, why it is not sent yet, attempts, deliveries and evidence.

    A person who rejects a message or asks for changes may take that back for a moment; until
    that is over, the message awaits approval as before.
    """
    intents = _of(agent_of(request)).select_related("sender", "account", "payload")
    intent = intents.prefetch_related(*WHOLE).filter(pk=intent_id).first()
    if intent is None:
        raise Http404
    now = database_now()
    return whole(seen(intent, now), waiting=why_not_yet(intent, now))


PARAMETERS = ("status", "run", "action_key", "since", "cursor", "limit")
WHOLE = ("approvals", "attempts", "deliveries", "evidence")


def _of(agent: Agent) -> Intents:
    """What this agent may see: its own intents. Anybody else's are not there at all."""
    mine = SendIntent.objects.filter(tenant=agent.tenant_id, agent=agent)
    return mine.select_related("action", "run")


def _answered(taken: Taken, response: HttpResponse) -> Answered[Any]:
    said = answer(taken, database_now())
    response["Location"] = said["links"]["self"]
    return Answered(200 if taken.replayed else 201, said)


def _lowest_id(since: datetime) -> uuid.UUID:
    """No intent of then or later has a lower one: ids begin with 48 bits of Unix time, in ms."""
    milliseconds = max(0, int((since.timestamp() - CLOCKS_DIFFER_BY.total_seconds()) * 1000))
    return uuid.UUID(int=milliseconds << 80)
