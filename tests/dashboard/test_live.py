"""Live updates: what changed, once, and nothing where nothing did."""

import re

import pytest

from sends.dashboard.live import ids_in
from sends.lifecycle import halts
from sends.models import Role
from tests.factories import make_agent_at, make_intent, make_person

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent():
    return make_agent_at()


def poll(client, since=""):
    answer = client.get(
        "/live/",
        {"since": since},
        headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/parts/"},
    )
    cursor = re.search(r'value="([^"]+)"', answer.text)
    return answer, cursor.group(1) if cursor else since


def test_nothing_new_is_204(client, agent):
    client.force_login(make_person(agent.tenant))
    _, cursor = poll(client)
    answer, _ = poll(client, cursor)
    assert (answer.status_code, answer.text) == (204, "")


def test_only_what_changed_is_sent(client, agent):
    person = make_person(agent.tenant, Role.OPERATOR)
    client.force_login(person)
    _, cursor = poll(client)
    make_intent(agent)
    answer, cursor = poll(client, cursor)
    assert "data-count=approvals" in answer.text
    assert 'id="banners"' not in answer.text
    halts.turn_off(agent.tenant_id, by=person, reason="wrong prices")
    answer, cursor = poll(client, cursor)
    assert "All sending is paused" in answer.text
    assert "data-count=approvals" not in answer.text
    assert poll(client, cursor)[0].status_code == 204


def test_who_is_signed_out_keeps_the_page(client):
    answer = client.get("/live/")
    assert answer.status_code == 401
    assert "HX-Redirect" not in answer


def test_a_poll_is_a_handful_of_queries(client, agent, asks_at_most):
    client.force_login(make_person(agent.tenant))
    with asks_at_most(7):
        poll(client)


def test_ids_are_read_as_far_as_they_are_ids(agent):
    intent = make_intent(agent)
    assert ids_in(f"{intent.pk},nonsense,,{intent.pk}'") == [intent.pk]
