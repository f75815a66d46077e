"""Hostile and odd proposals, of tests/corpus/proposals: what becomes of each, down to the wire."""

import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sends.lifecycle import worker
from sends.models import Agent, Payload, SendIntent, Token
from sends.rules.payloads import thaw
from sends.rules.proposals import parse
from sends.rules.statuses import Status
from tests.api.doors import door
from tests.factories import make_agent_at, make_tenant, make_token
from tests.sandboxes import Sandbox
from tests.sending import make_agent_of, sandbox_with

CORPUS = Path(__file__).parent.parent / "corpus" / "proposals"
VERDICTS = tomllib.loads((CORPUS / "verdicts.toml").read_text(encoding="utf-8"))


def body(name: str) -> bytes:
    return (CORPUS / f"{name}.json").read_bytes()


def rows() -> dict[str, list[Any]]:
    """Every row of every table of ours, but for when a token was last used."""
    models = [model for model in apps.get_app_config("sends").get_models() if model is not Token]
    return {
        model.__name__: list(model._default_manager.order_by("pk").values()) for model in models
    }


def test_every_file_has_its_verdict() -> None:
    names = {path.stem for path in CORPUS.glob("*.json")}
    assert names == VERDICTS["accepted"].keys() | VERDICTS["refused"].keys()
    assert not VERDICTS["accepted"].keys() & VERDICTS["refused"].keys()


@pytest.mark.django_db
@pytest.mark.parametrize("name", VERDICTS["refused"])
def test_what_is_refused_says_why_and_where_and_leaves_nothing(name: str) -> None:
    agent = door()
    before = rows()

    answer = agent.post("/intents", body(name))

    said = answer.json()
    if isinstance(VERDICTS["refused"][name], str):
        assert (answer.status_code, said["code"]) == (400, VERDICTS["refused"][name])
    else:
        assert (answer.status_code, said["code"]) == (422, "wrong_fields")
        found = {error["pointer"]: error["code"] for error in said["errors"]}
        assert found == VERDICTS["refused"][name]
        assert all(error["detail"] for error in said["errors"])
    assert rows() == before


# What is accepted, on the wire


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with sandbox_with("replay") as started:
        yield started


@pytest.mark.django_db(transaction=True)
def test_what_is_accepted_is_on_the_wire_as_it_was_written(sandbox: Sandbox) -> None:
    agent = make_agent_of(sandbox, make_tenant(approvals=0))
    client = door(make_token(agent))
    intents = {}
    for name in VERDICTS["accepted"]:
        answer = client.post("/intents", body(name))
        assert answer.status_code == 201, (name, answer.json())
        intents[name] = SendIntent.objects.get(pk=answer.json()["id"])

    while SendIntent.objects.exclude(status__in=[Status.SUBMITTED, Status.DONE]).exists():
        assert worker.drain(), SendIntent.objects.values_list("status", "end_reason")

    arrived = {entry["tag"]: entry["digest"] for entry in sandbox.journal()}
    differ = [
        name
        for name, intent in intents.items()
        if arrived[intent.pk.hex] != hashlib.sha256(on_the_wire(name, intent, agent)).hexdigest()
    ]
    assert not differ


def on_the_wire(name: str, intent: SendIntent, agent: Agent) -> bytes:
    """The body that the sandbox must have got, by the document alone."""
    written = {
        member: value for member, value in json.loads(body(name)).items() if value is not None
    }
    said = {"subject": "", "headers": {}, "cc": [], "bcc": [], "reply_to": []} | written
    said |= VERDICTS["accepted"][name]
    kept = ("to", "cc", "bcc", "reply_to", "subject", "text", "html", "headers", "attachments")
    content = {member: said[member] for member in kept if member in said}
    for boxes in ("to", "cc", "bcc", "reply_to"):
        content[boxes] = [{"address": b} if isinstance(b, str) else b for b in content[boxes]]
    threads = {"In-Reply-To": said.get("in_reply_to"), "References": said.get("references")}
    if isinstance(threads["References"], list):
        threads["References"] = " ".join(threads["References"])
    content["headers"] = {**said["headers"], **{k: v for k, v in threads.items() if v}}
    if "attachments" in said:
        content["attachments"] = [attached(one) for one in said["attachments"]]
    assert agent.sender is not None
    content |= {
        "from": {"address": agent.sender.address},
        "message_id": intent.message_id,
        "tag": intent.pk.hex,
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def attached(written: dict[str, Any]) -> dict[str, str]:
    file = {
        name: written[name]
        for name in ("filename", "content_type", "content_id")
        if name in written
    }
    way = "inline" if written.get("inline") else "attachment"
    return file | {"content": written["content_base64"], "disposition": way}


@pytest.mark.django_db
def test_what_is_accepted_is_stored_byte_for_byte_whatever_the_database() -> None:
    agent = make_agent_at(make_tenant())
    client = door(make_token(agent))
    digest = hashlib.sha256()
    for name in VERDICTS["accepted"]:
        intent_id = client.post("/intents", body(name)).json()["id"]
        payload = Payload.objects.select_related("intent").get(pk=intent_id)
        stored = json.loads(bytes(payload.body))
        assert stored["message"]["subject"] == payload.intent.subject
        assert hashlib.sha256(bytes(payload.body)).hexdigest() == payload.intent.digest
        # Without what is another in each run.
        stored["message"]["sender"] = stored["message_id"] = stored["idempotency_key"] = ""
        digest.update(json.dumps(stored, sort_keys=True).encode() + bytes(payload.metadata))
    # Written down: SQLite and PostgreSQL, today's release and the next one keep the same.
    assert digest.hexdigest() == "4d651f6b8324f084a62fd4aa23420493c76bfcbb9c61dbd30705f61e9bfa3202"


# What fits together nowhere in the corpus


def members() -> list[tuple[str, Any]]:
    """Everything that a document of the corpus says, member by member."""
    documents = [
        json.loads(body(name))
        for name in [*VERDICTS["accepted"], *VERDICTS["refused"]]
        if not name.startswith("json-")
    ]
    return [pair for document in documents for pair in document.items() if pair[0] != "action_key"]


KEYS = itertools.count(1)


@pytest.mark.django_db
@given(st.lists(st.sampled_from(members()), max_size=4).map(dict))
@settings(
    max_examples=60,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_document_is_taken_whole_or_leaves_nothing(some: dict[str, Any]) -> None:
    written = {"to": ["jo@example.org"], "text": "Hello", **some}
    agent = door()
    before = rows()

    answer = agent.post("/intents", {"action_key": f"key-{next(KEYS)}", **written})

    if answer.status_code == 201:
        stored = Payload.objects.select_related("intent").get(pk=answer.json()["id"])
        proposal = parse(written, needs_key=False)
        message = proposal.message(thaw(bytes(stored.body)).message.sender)
        assert thaw(bytes(stored.body)).message == message
        assert json.loads(bytes(stored.metadata)) == proposal.metadata
    else:
        assert answer.status_code == 422, answer.content
        assert answer.json()["errors"]
        assert rows() == before
