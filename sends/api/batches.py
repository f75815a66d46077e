"""Many proposals in one request, each taken in or refused by itself."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from ninja import Router

from sends.api.allowances import charge
from sends.api.answers import Batch, answer
from sends.api.auth import Bearer, agent_of
from sends.api.problems import said
from sends.api.requests import batch_of, members
from sends.conf import conf
from sends.lifecycle import intake
from sends.models import Agent, Scope, database_now
from sends.rules.proposals import Proposal, Wrong, WrongProposal, parse

router = Router(tags=["intents"])


@router.post(
    "/intents/batch",
    operation_id="propose_batch",
    summary="Propose many messages",
    auth=Bearer(Scope.SUBMIT),
    response={200: Batch},
    openapi_extra=batch_of(Proposal),
)
def propose_many(request: HttpRequest) -> Any:
    """Propose up to 500 messages at once, as a JSON array of what `/intents` takes.

    Each is taken in or refused by itself, in order, as if it had come alone: `status` and `intent`
    or `problem` are what `/intents` would have answered, and one that is refused harms no other.
    An array that cannot be read, or is too long, is refused as a whole. Repeating a batch is
    always safe, also one that was cut off in the middle: what was taken in is found again.
    """
    if "Idempotency-Key" in request.headers:
        said = "a batch has none; give each of its messages an action_key"
        raise WrongProposal(Wrong("/action_key", "header_key", said))
    agent = agent_of(request)
    with members(request) as readers:
        charge(request, max(0, len(readers) - 1))
        items = [_item(index, read, agent) for index, read in enumerate(readers)]
    statuses = [item["status"] for item in items]
    return {
        "created": statuses.count(201),
        "replayed": statuses.count(200),
        "refused": len(items) - statuses.count(201) - statuses.count(200),
        "items": items,
    }


def _item(index: int, read: Callable[[], Any], agent: Agent) -> dict[str, Any]:
    """One proposal, in transactions of its own, and what became of it."""
    item: dict[str, Any] = {"index": index, "action_key": None, "intent": None, "problem": None}
    try:
        document = read()
        item["action_key"] = _key_in(document)
        taken = intake.propose(parse(document, limits=conf.limits), agent=agent)
    except Exception as error:
        problem = said(error)
        return item | {"status": problem.status, "problem": problem.document()}
    told = answer(taken, database_now())
    status = 200 if taken.replayed else 201
    return item | {"status": status, "action_key": told["action_key"], "intent": told}


def _key_in(document: Any) -> str | None:
    """The key as it was given, so that the sender can tell which message is meant."""
    key = document.get("action_key") if isinstance(document, dict) else None
    return key[:255] if isinstance(key, str) and key.isprintable() else None
