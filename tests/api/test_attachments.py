"""Files through the agents' door: taken in, named in the answer, refused with their place."""

import base64
from typing import Any

import pytest

from sends.models import AttachmentContent, SendIntent
from sends.rules.keys import sha256
from tests.api.doors import MESSAGE, Door, door, problem

pytestmark = pytest.mark.django_db

FILE: dict[str, Any] = {
    "filename": "Rechnung für März.pdf",
    "content_type": "application/pdf",
    "content_base64": "JVBERg==",
}


@pytest.fixture
def api() -> Door:
    return door()


def test_the_answer_names_each_file_and_holds_no_bytes(api: Door) -> None:
    logo = FILE | {"filename": "logo.png", "content_id": "logo", "inline": True}
    intent = api.proposed(attachments=[FILE, logo], html='<img src="cid:logo">')

    said = api.get(f"/intents/{intent['id']}").json()

    assert said["attachments"] == [
        {
            "filename": "Rechnung für März.pdf",
            "content_type": "application/pdf",
            "size": 4,
            "sha256": sha256(b"%PDF"),
            "content_id": "",
            "inline": False,
        },
        {
            "filename": "logo.png",
            "content_type": "application/pdf",
            "size": 4,
            "sha256": sha256(b"%PDF"),
            "content_id": "logo",
            "inline": True,
        },
    ]


def test_without_files_there_are_none(api: Door) -> None:
    intent = api.proposed()
    assert api.get(f"/intents/{intent['id']}").json()["attachments"] == []


def test_the_same_request_is_a_replay_and_one_other_byte_a_reuse(api: Door) -> None:
    api.proposed(attachments=[FILE])
    assert api.post("/intents", MESSAGE | {"attachments": [FILE]}).status_code == 200

    other = FILE | {"content_base64": "JVBERw=="}
    problem(api.post("/intents", MESSAGE | {"attachments": [other]}), 409, "action_key_reuse")
    assert AttachmentContent.objects.count() == 1


def test_what_is_wrong_with_a_file_is_named_by_its_place(api: Door) -> None:
    wrong = FILE | {"filename": "../receipt.pdf", "content_base64": "JVBERg"}
    said = problem(
        api.post("/intents", MESSAGE | {"attachments": [FILE, wrong]}), 422, "wrong_fields"
    )
    assert {error["pointer"]: error["code"] for error in said["errors"]} == {
        "/attachments/1/filename": "file_name",
        "/attachments/1/content_base64": "base64",
    }
    assert not SendIntent.objects.exists()
    assert not AttachmentContent.objects.exists()


def test_what_the_account_cannot_send_is_refused_before_anybody_approves_it(api: Door) -> None:
    data = base64.b64encode(b"x" * 18_500_000).decode()
    large = FILE | {"content_base64": data}

    said = problem(api.post("/intents", MESSAGE | {"attachments": [large]}), 422, "beyond_account")

    assert said["next_step"] == "fix"
    [error] = said["errors"]
    assert (error["pointer"], error["code"]) == ("/attachments", "too_large")
    assert "at most 25,000,000 bytes" in error["detail"]
    assert "The account account-" in said["detail"]
    assert not SendIntent.objects.exists()
    assert not AttachmentContent.objects.exists()


def test_a_large_file_is_taken_in(api: Door) -> None:
    data = bytes(range(256)) * 70_000
    intent = api.proposed(attachments=[FILE | {"content_base64": base64.b64encode(data).decode()}])
    [file] = api.get(f"/intents/{intent['id']}").json()["attachments"]
    assert (file["size"], file["sha256"]) == (len(data), sha256(data))
    assert bytes(AttachmentContent.objects.get().body) == data
