"""An agent that speaks to its door."""

import json
from dataclasses import dataclass
from typing import Any

from django.test import Client

from sends.api.problems import ProblemAnswer
from tests.factories import make_agent_at, make_token

MESSAGE: dict[str, Any] = {
    "action_key": "refund:7731",
    "to": ["customer@example.org"],
    "subject": "Your refund",
    "text": "It is on its way.",
}


@dataclass
class Door:
    """Requests with one token. `problem` reads an error and checks that it is a whole problem."""

    token: str
    client: Client

    def get(self, path: str, **query: Any) -> Any:
        return self.client.get(f"/api/v1{path}", query, headers=self.headers())

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body)
        return self.client.post(
            f"/api/v1{path}",
            b"" if body is None else raw,
            content_type=headers.pop("content_type", "application/json"),
            headers=self.headers() | headers,
        )

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def proposed(self, **fields: Any) -> Any:
        answer = self.post("/intents", MESSAGE | fields)
        assert answer.status_code == 201, answer.content
        return answer.json()


def door(token: str | None = None) -> Door:
    # What a view raises is to become an answer, here as in production.
    client = Client(raise_request_exception=False)
    return Door(make_token(make_agent_at()) if token is None else token, client)


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert set(body) == set(ProblemAnswer.model_fields)
    assert (body["status"], body["code"]) == (status, code)
    assert body["title"]
    assert body["detail"]
    return body
