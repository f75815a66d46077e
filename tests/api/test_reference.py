"""The description of the door, for programs and for people."""

import re
from pathlib import Path

import openapi_spec_validator
import pytest
from django.conf import settings
from django.test import Client
from openapi_schema_validator import OAS31Validator

from sends.api import examples, problems
from sends.rules.next_steps import Step
from sends.rules.proposals import Proposal, WrongProposal, parse
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
    assert set(post["responses"]) >= {"200", "201", "400", "401", "403", "409", "422", "429"}
    assert post["security"]


def test_it_is_valid_openapi(client: Client) -> None:
    openapi_spec_validator.validate(client.get("/api/v1/openapi.json").json())


def test_every_request_and_every_answer_has_an_example_that_is_one(client: Client) -> None:
    described = client.get("/api/v1/openapi.json").json()
    parts = {"components": described["components"]}
    for methods in described["paths"].values():
        for told in methods.values():
            contents = [said["content"] for said in told["responses"].values()]
            if "requestBody" in told:
                contents.append(told["requestBody"]["content"])
            for media in (media for content in contents for media in content.values()):
                named = media.get("examples", {"": {"value": media.get("example")}})
                for example in named.values():
                    schema = media["schema"] | parts
                    OAS31Validator(schema).validate(example["value"])


def test_the_examples_of_messages_are_messages() -> None:
    assert parse(examples.PROPOSAL).subject
    assert parse(examples.VERSION, needs_key=False).subject
    with pytest.raises(WrongProposal) as refused:
        parse(examples.SECOND)
    assert [wrong.pointer for wrong in refused.value.errors] == ["/to/0"]


def test_one_table_says_what_may_be_repeated_here_and_in_the_docs(client: Client) -> None:
    described = client.get("/api/v1/openapi.json").json()
    page = client.get("/api/v1/docs").content.decode()
    rows = []
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            rows.append(f"| `{method.upper()} {path}` | {told['x-repeat']} |")
            assert f"<code>{method.upper()} {path}</code>" in page
    table = (Path(settings.BASE_DIR) / "docs" / "api.md").read_text(encoding="utf-8")
    assert [line for line in table.splitlines() if line.startswith("| `")] == rows


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


def test_a_mailbox_is_described_in_both_its_forms(client: Client) -> None:
    described = client.get("/api/v1/openapi.json").json()
    body = described["paths"]["/api/v1/intents"]["post"]["requestBody"]["content"]
    forms = body["application/json"]["schema"]["properties"]["to"]["items"]["anyOf"]
    assert [form["type"] for form in forms] == ["string", "object"]
