"""What agents ask for about messages: propose, change, withdraw, and see what became of them."""

import uuid
from datetime import datetime
from typing import Annotated, Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.responses import Status as Answered
from pydantic import AfterValidator

from sends.api.answers import Answer, Page, Whole, answer, current_of, seen, short, whole
from sends.api.auth import Bearer, agent_of
from sends.api.pages import MOST, cursor_after, read_cursor, read_token, refuse_unknown, token_of
from sends.api.problems import Problem
from sends.api.requests import KEY, body_of, document, optional_document
from sends.conf import conf
from sends.lifecycle import intake
from sends.lifecycle.cancelling import withdraw
from sends.lifecycle.intake import Taken
from sends.models import Agent, Scope, SendIntent, database_now
from sends.models.intents import Intents
from sends.reports.changes import OtherDatabase, beginning, changed_since, here
from sends.reports.waiting import why_not_yet
from sends.rules.proposals import (
    Proposal,
    Withdrawal,
    Wrong,
    WrongProposal,
    parse,
    parse_as,
)
from sends.rules.statuses import Status

router = Router(tags=["intents"])


def _without_nul(name: str) -> str:
    if "\x00" in name:  # PostgreSQL takes none, not even to look for
        raise ValueError("holds U+0000, which is not text")
    return name


Named = Annotated[str, AfterValidator(_without_nul)]


@router.post(
    "/intents",
    operation_id="propose",
    summary="Propose a message",
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
    operation_id="propose_version",
    summary="Replace a message by its next version",
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
    operation_id="withdraw",
    summary="Take a message back",
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


@router.get(
    "/intents",
    operation_id="list_intents",
    summary="List intents, or what changed",
    auth=Bearer(Scope.READ),
    response={200: Page},
)
def listed(
    request: HttpRequest,
    status: Annotated[list[Status], Query(description="May be given several times.")] = [],  # noqa: B006
    run: Annotated[Named | None, Query(description="The name you gave it.")] = None,
    action_key: Named | None = None,
    since: Annotated[
        str | None,
        Query(
            description="`next_since` of an earlier answer; empty for all from the beginning. Then "
            "what changed since comes, oldest change first."
        ),
    ] = None,
    cursor: Annotated[str | None, Query(description="`next_cursor` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST, description="How many to a page.")] = 50,
) -> Any:
    """This agent's intents: the newest first, or, with `since`, those that changed.

    Without `since`, `next_cursor` leads from page to page and is null on the last; what is created
    meanwhile does not shift them. To follow what happens, keep the `next_since` of the first page
    and ask with it as `since`, each time with that of the answer before, at once while `more` is
    true and else after a while. Nothing is missed, however late it was committed; an intent may
    come more than once, each time as it is then.
    """
    refuse_unknown(request, PARAMETERS)
    agent, now = agent_of(request), database_now()
    intents = _of(agent)
    if status:
        intents = intents.seen_as(status, now)
    if run is not None:
        intents = intents.filter(run__name=run)
    if action_key is not None:
        intents = intents.filter(action__action_key=action_key)
    if since is None:
        return _newest(intents, agent, cursor, limit)
    if cursor is not None:
        said = "belongs to the list; with since, take next_since from page to page"
        raise WrongProposal(Wrong("/cursor", "two_cursors", said))
    return _changed(intents, agent, since, limit, now)


def _newest(intents: Intents, agent: Agent, cursor: str | None, limit: int) -> dict[str, Any]:
    place = here(agent)
    intents = intents.order_by("-pk")
    if cursor is not None:
        intents = intents.filter(pk__lt=read_cursor(cursor))
    page = list(intents[: limit + 1])
    shown, more = page[:limit], len(page) > limit
    return {
        "items": _shorts(shown),
        "more": more,
        "next_cursor": cursor_after(shown[-1].pk) if more else None,
        "next_since": token_of(place),
    }


def _changed(
    intents: Intents, agent: Agent, since: str, limit: int, now: datetime
) -> dict[str, Any]:
    place = read_token(since) if since else beginning()
    try:
        found = changed_since(place, intents, agent=agent, most=limit, now=now)
    except OtherDatabase:
        raise Problem(
            410,
            "cursor_expired",
            "The database was restored from a backup since then, and what changed is no longer "
            "known. Read the list once more, and go on from its next_since.",
        ) from None
    return {
        "items": _shorts(found.intents),
        "more": found.more,
        "next_cursor": None,
        "next_since": token_of(found.place),
    }


def _shorts(intents: list[SendIntent]) -> list[dict[str, Any]]:
    now, current = database_now(), current_of(intents)
    return [short(seen(intent, now), current=current) for intent in intents]


@router.get(
    "/intents/{uuid:intent_id}",
    operation_id="get_intent",
    summary="See one intent",
    auth=Bearer(Scope.READ),
    response={200: Whole},
)
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
