"""The description of the door, for programs and for people."""

import re

import pytest
from django.test import Client

from sends.api import problems
from sends.api.reference import PROPOSAL
from sends.rules.next_steps import Step
from sends.rules.proposals import Proposal, parse
from sends.rules.statuses import Status

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
        ("post", "/intents/batch"),
        ("post", "/intents/simulate"),
        ("post", "/runs"),
        ("get", "/runs"),
        ("get", "/runs/{run_id}"),
    }
    post = described["paths"]["/api/v1/intents"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(Proposal.model_fields)
    assert [one["name"] for one in post["parameters"]] == ["Idempotency-Key"]
    assert set(post["responses"]) >= {"200", "201"}
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
    assert not re.search(r"\sstyle=", text)
    assert "POST /api/v1/intents" in text
    assert all(f'id="{code}"' in text for code in problems.TITLES)
    assert all(f"<code>{name}</code>" in text for name in Proposal.model_fields)


def test_the_page_tells_a_newcomer_what_each_field_and_status_means(client: Client) -> None:
    text = client.get("/api/v1/docs").content.decode()
    assert all(field.description for field in Proposal.model_fields.values())
    assert "`" not in text
    assert all(f"<code>{status}</code>" in text for status in Status)
    assert all(step.label in text for step in Step)


def test_the_example_of_the_page_is_a_proposal() -> None:
    parse(PROPOSAL)


def test_a_mailbox_is_described_in_both_its_forms(client: Client) -> None:
    described = client.get("/api/v1/openapi.json").json()
    body = described["paths"]["/api/v1/intents"]["post"]["requestBody"]["content"]
    forms = body["application/json"]["schema"]["properties"]["to"]["items"]["anyOf"]
    assert [form["type"] for form in forms] == ["string", "object"]
