"""The description of the door, for programs and for people."""

import re

import pytest
from django.test import Client

from sends.api import problems
from sends.rules.proposals import Proposal

pytestmark = pytest.mark.django_db


def test_openapi_names_every_address_and_every_field(client: Client) -> None:
    described = client.get("/api/v1/openapi.json").json()
    found = {
        (method, path.removeprefix("/api/v1"))
        for path, methods in described["paths"].items()
        for method in methods
    }
    assert found == {
        ("post", "/intents"),
        ("get", "/intents"),
        ("get", "/intents/{intent_id}"),
        ("post", "/intents/{intent_id}/versions"),
        ("post", "/intents/{intent_id}/withdraw"),
        ("get", "/runs/{run_id}"),
    }
    post = described["paths"]["/api/v1/intents"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(Proposal.model_fields)
    assert set(post["responses"]) >= {"200", "201", "400", "401", "403", "409", "422"}
    assert post["security"]


def test_every_reference_in_it_leads_somewhere(client: Client) -> None:
    described = client.get("/api/v1/openapi.json")
    document = described.json()
    for target in set(re.findall(r'"\$ref": ?"([^"]+)"', described.content.decode())):
        place = document
        for part in target.removeprefix("#/").split("/"):
            assert part in place, target
            place = place[part]


def test_the_page_for_people_needs_no_script_and_no_style(client: Client) -> None:
    page = client.get("/api/v1/docs")
    text = page.content.decode()
    assert page.status_code == 200
    assert "<script" not in text
    assert "style=" not in text
    assert "POST /api/v1/intents" in text
    assert all(f'id="{code}"' in text for code in problems.TITLES)
    assert all(f"<code>{name}</code>" in text for name in Proposal.model_fields)
