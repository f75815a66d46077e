"""Anomalies: both sides are shown, and only an admin closes one."""

import uuid
from typing import Any

import pytest
from django.test import Client

from sends.lifecycle.anomalies import close_anomaly, open_anomaly
from sends.models import Agent, Anomaly, AnomalyKind, Role, database_now
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


@pytest.fixture
def anomaly(agent: Agent) -> Anomaly:
    intent = make_intent(agent, status=Status.SUPERSEDED, end_reason="Version 2 replaced it.")
    make_intent(agent, action=intent.action)
    return open_anomaly(
        intent,
        kind=AnomalyKind.ACCEPTED_UNSENT,
        detail="The provider took this version although it was superseded.",
        now=database_now(),
    )


@pytest.fixture
def client_of(client: Client, agent: Agent) -> Any:
    def signed_in(role: Role = Role.ADMIN) -> Client:
        client.force_login(make_person(agent.tenant, role))
        return client

    return signed_in


def close(client: Client, anomaly: Anomaly, **data: Any) -> Any:
    headers = data.pop("headers", None)
    data = {"reason": "the provider was asked", "action_id": str(uuid.uuid4()), **data}
    return client.post(f"/anomalies/{anomaly.pk}/close/", data, headers=headers)


def test_both_sides_are_shown_with_a_way_to_the_message(anomaly: Anomaly, client_of: Any) -> None:
    page = client_of(Role.VIEWER).get("/anomalies/").text
    assert "A version that was not to be sent was accepted" in page
    assert "although it was superseded" in page
    assert "Version 2 replaced it." in page
    assert "Version 2" in page
    assert f'href="/messages/{anomaly.intent.action.number}/"' in page
    assert anomaly.intent.idempotency_key in page


def test_the_rail_leads_here_only_while_one_is_open(
    agent: Agent, anomaly: Anomaly, client_of: Any
) -> None:
    client = client_of()
    assert 'href="/anomalies/"' in client.get("/runs/").text
    close_anomaly(anomaly.pk, person=make_person(agent.tenant, Role.ADMIN), reason="looked at")
    assert 'href="/anomalies/"' not in client.get("/runs/").text
    assert "No anomalies" in client.get("/anomalies/").text


def test_an_admin_closes_it_with_a_reason(anomaly: Anomaly, client_of: Any) -> None:
    client = client_of()
    assert close(client, anomaly)["Location"] == "/anomalies/"
    page = client.get("/anomalies/").text
    assert f"The anomaly of #{anomaly.intent.action.number} is closed." in page
    assert "the provider was asked" in page
    assert "No anomalies" in page


def test_htmx_gets_all_of_them_as_they_are_now(anomaly: Anomaly, client_of: Any) -> None:
    answer = close(client_of(), anomaly, headers=HTMX)
    assert "<html" not in answer.text
    assert "is closed." in answer.text
    assert "[data-count=anomalies]" in answer.text


@pytest.mark.parametrize("headers", [None, HTMX], ids=["page", "htmx"])
def test_without_a_reason_it_stays_open(anomaly: Anomaly, client_of: Any, headers: Any) -> None:
    answer = close(client_of(), anomaly, reason=" ", headers=headers)
    assert answer.status_code == 422
    assert "Give a reason" in answer.text
    anomaly.refresh_from_db()
    assert anomaly.closed_at is None


@pytest.mark.parametrize("headers", [None, HTMX], ids=["page", "htmx"])
def test_who_comes_second_reads_who_was_first(
    agent: Agent, anomaly: Anomaly, client_of: Any, headers: Any
) -> None:
    first = make_person(agent.tenant, Role.ADMIN, email="admin@example.com")
    close_anomaly(anomaly.pk, person=first, reason="looked at")
    answer = close(client_of(), anomaly, headers=headers)
    assert answer.status_code == 409
    assert "admin@example.com closed this anomaly: looked at" in answer.text


def test_sent_twice_it_is_closed_once(anomaly: Anomaly, client_of: Any) -> None:
    client, once = client_of(), str(uuid.uuid4())
    for _ in range(2):
        assert close(client, anomaly, action_id=once).status_code == 302


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER, Role.OPERATOR])
def test_nobody_else_closes_it(anomaly: Anomaly, client_of: Any, role: Role) -> None:
    client = client_of(role)
    page = client.get("/anomalies/").text
    assert "An admin closes this." in page
    assert "/close/" not in page
    for headers in (None, HTMX):
        assert close(client, anomaly, headers=headers).status_code == 403


def test_another_tenants_is_not_there(anomaly: Anomaly, client: Client) -> None:
    other = make_agent_at()
    client.force_login(make_person(other.tenant, Role.ADMIN))
    assert "No anomalies" in client.get("/anomalies/").text
    assert close(client, anomaly).status_code == 404


def test_the_queries_do_not_grow_with_the_list(
    agent: Agent, client_of: Any, asks_at_most: Any
) -> None:
    for _ in range(5):
        intent = make_intent(agent, status=Status.SUBMITTED)
        open_anomaly(intent, kind=AnomalyKind.TWICE, detail="twice", now=database_now())
    client = client_of()
    # Three for who asks, four for the frame, three of its own.
    with asks_at_most(10):
        client.get("/anomalies/")
