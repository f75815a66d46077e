"""One line for each request, under an id that its caller and its answer know too."""

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from sends import logs
from sends.models import SendIntent
from tests.api.doors import MESSAGE, door
from tests.factories import make_agent_at, make_person, make_tenant, make_token

pytestmark = pytest.mark.django_db


class Kept(logging.Handler):
    """The lines of a logger, each as the fields that it would be written with."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append({"level": record.levelname} | logs.fields_of(record))


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    kept, logger = Kept(), logging.getLogger("sends.request")
    logger.addHandler(kept)
    yield kept.lines
    logger.removeHandler(kept)


def test_a_request_is_one_line_with_the_pattern_of_its_address_and_not_the_address(
    lines: list[dict[str, Any]],
) -> None:
    client = door()
    intent = client.proposed()["id"]

    client.get(f"/intents/{intent}", ignored="someone@example.org")

    line = lines[-1]
    assert (line["method"], line["status"]) == ("GET", 200)
    assert line["route"] == "api/v1/intents/<uuidstr:intent_id>"
    assert line["queries"] > 0
    assert line["bytes_out"] > 0
    assert "example.org" not in str(line)
    assert intent not in str(line)


@pytest.mark.parametrize("chosen", ["7f3a", "agent-7.run_2", "x" * 64])
def test_the_caller_may_choose_the_id(lines: list[dict[str, Any]], chosen: str) -> None:
    answer = door().post("/intents", MESSAGE, **{"X-Request-ID": chosen})

    assert answer["X-Request-ID"] == chosen
    assert lines[-1]["request_id"] == chosen
    assert SendIntent.objects.get().request_id == chosen


@pytest.mark.parametrize("chosen", ["", "x" * 65, "me@example.org", "a b", "a\nb", "é"])
def test_any_other_id_is_replaced(lines: list[dict[str, Any]], chosen: str) -> None:
    answer = door().post("/intents", MESSAGE, **{"X-Request-ID": chosen})

    assert re.fullmatch(r"[0-9a-f]{16}", answer["X-Request-ID"])
    assert SendIntent.objects.get().request_id == answer["X-Request-ID"]


def test_a_replay_keeps_the_id_of_the_request_that_proposed() -> None:
    client = door()
    client.post("/intents", MESSAGE, **{"X-Request-ID": "first"})

    client.post("/intents", MESSAGE, **{"X-Request-ID": "second"})

    assert SendIntent.objects.get().request_id == "first"


def test_what_was_said_of_one_request_is_not_said_of_the_next(
    client: Any, lines: list[dict[str, Any]]
) -> None:
    client.force_login(make_person(make_tenant()))
    client.get("/messages/")
    client.logout()

    client.get("/nowhere/")

    assert lines[0].keys() >= {"person", "tenant"}
    assert not lines[-1].keys() & {"person", "tenant", "agent"}
    assert logs.request_id() == ""


def test_what_programs_ask_all_the_time_is_told_only_where_it_went_wrong(
    client: Any, lines: list[dict[str, Any]]
) -> None:
    client.get("/healthz")
    client.post("/healthz")

    assert [(line["status"], line["level"]) for line in lines] == [(405, "INFO")]


def test_the_page_of_a_message_names_the_request_that_proposed_it(client: Client) -> None:
    agent = make_agent_at()
    api = door(make_token(agent))
    proposed = api.post("/intents", MESSAGE, **{"X-Request-ID": "agent-7.0421"}).json()
    client.force_login(make_person(agent.tenant))

    page = client.get(f"/messages/{proposed['number']}/")

    assert "<code>agent-7.0421</code>" in page.text
