"""The agents' door: propose, replay, change, withdraw, look."""

from typing import Any

import pytest
from django.test import Client

from sends.models import SendIntent
from tests.factories import make_agent_at, make_token

pytestmark = pytest.mark.django_db
MESSAGE: dict[str, Any] = {
    "action_key": "refund:7731",
    "to": ["customer@example.org"],
    "subject": "Your refund",
    "text": "It is on its way.",
}


def post(client: Client, token: str, path: str, body: Any, **headers: str) -> Any:
    return client.post(
        f"/api/v1{path}",
        body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}", **headers},
    )


def test_a_proposal_is_taken_in_and_says_what_to_do_next(client: Client) -> None:
    token = make_token(make_agent_at())
    answer = post(client, token, "/intents", MESSAGE)
    assert answer.status_code == 201, answer.content
    assert SendIntent.objects.get().digest == answer.json()["digest"]
