"""Requests made up from the OpenAPI document: none breaks the door, and each answer is as it says.

More of them, for hours: `--hypothesis-profile=deep`.
"""

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sends.api.openapi import OPERATIONS
from sends.models import Agent, SendIntent
from tests.factories import make_agent_at, make_intent, make_run, make_token

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = max(30, hypothesis.settings().max_examples // 5)


@pytest.fixture
def described(db: None) -> Iterator[Any]:
    # As Django's own test client does: the connection with the test's transaction stays open.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield schemathesis.openapi.from_wsgi("/api/v1/openapi.json", get_wsgi_application())
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def agent(db: None) -> Agent:
    return make_agent_at()


@pytest.fixture
def intent(agent: Agent) -> SendIntent:
    """Something that is there to be asked for."""
    return make_intent(agent, run=make_run(agent, name="nightly"))


@pytest.fixture
def headers(agent: Agent) -> dict[str, str]:
    return {"Authorization": f"Bearer {make_token(agent)}"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_answer_is_as_the_document_says(
    described: Any, name: str, intent: SendIntent, headers: dict[str, str]
) -> None:
    operation = described.find_operation_by_id(name)

    @hypothesis.settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @hypothesis.given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        if "intent_id" in case.path_parameters:
            case.path_parameters["intent_id"] = str(intent.pk)
        before = SendIntent.objects.count()
        answer = case.call(base_url=settings.OUTBOX_URL, headers=headers)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400 or name == "simulate":
            assert SendIntent.objects.count() == before

    ask()
