"""The limits of an installation hold at every door, and its description names them."""

import dataclasses
from typing import Any

import pytest
from django.test import Client

from sends.conf import conf
from sends.rules.limits import Limits
from tests.api.doors import MESSAGE, door
from tests.dashboard import test_editing as editing
from tests.factories import make_agent_at, make_intent, make_person, make_token

pytestmark = pytest.mark.django_db
LONG = {"subject": "eleven long"}
TOLD = ("/subject", "too_long", "at most 10 characters are allowed")


@pytest.fixture(autouse=True)
def ten_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    tight = dataclasses.replace(conf, limits=Limits(subject=10))
    for door_of in ("api.intents", "api.batches", "api.simulations", "dashboard.editing"):
        monkeypatch.setattr(f"sends.{door_of}.conf", tight)


def told(problem: dict[str, Any]) -> tuple[str, str, str]:
    (error,) = problem["errors"]
    return error["pointer"], error["code"], error["detail"]


def test_no_door_of_agents_takes_more() -> None:
    intent = make_intent(make_agent_at())
    agent = door(make_token(intent.agent))
    assert told(agent.post("/intents", MESSAGE | LONG).json()) == TOLD
    assert told(agent.post(f"/intents/{intent.pk}/versions", MESSAGE | LONG).json()) == TOLD
    assert told(agent.post("/intents/simulate", MESSAGE | LONG).json()) == TOLD
    (item,) = agent.post("/intents/batch", [MESSAGE | LONG]).json()["items"]
    assert told(item["problem"]) == TOLD


def test_a_person_who_edits_writes_no_more_either(client: Client) -> None:
    intent = make_intent(make_agent_at(), subject="short")
    client.force_login(make_person(intent.tenant))
    page = client.post(editing.url(intent), editing.fields(intent, **LONG))
    assert page.status_code == 422
    assert TOLD[2] in page.text


def test_the_description_names_the_limits() -> None:
    described = Client().get("/api/v1/openapi.json").json()
    body = described["paths"]["/api/v1/intents"]["post"]["requestBody"]["content"]
    fields = body["application/json"]["schema"]["properties"]
    assert fields["subject"]["maxLength"] == conf.limits.subject
    assert fields["to"]["maxItems"] == conf.limits.recipients
    assert fields["headers"]["maxProperties"] == conf.limits.headers
    assert fields["headers"]["additionalProperties"]["maxLength"] == conf.limits.header
    assert "x-limit" not in str(body)
