"""The Tokens page: an admin makes one that is shown once, and takes it back."""

import re

import pytest

from sends.models import AuditEntry, Role, Token
from tests.factories import make_agent_at, make_person, make_token
from tests.signing_in import sign_in, sixteen_minutes_later

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent():
    return make_agent_at()


@pytest.fixture
def admin(agent, client):
    admin = make_person(agent.tenant, Role.ADMIN)
    sign_in(client, admin)
    return admin


def issue(client, agent, **fields):
    given = {"agent": str(agent.pk), "name": "first", "scopes": ["read"]} | fields
    return client.post("/settings/tokens/issue/", given)


def test_a_token_is_shown_once_and_lets_its_agent_in(client, admin, agent):
    page = issue(client, agent, scopes=["read", "submit"])
    secret = re.search(r"obx_[\w-]+", page.text)[0]
    assert secret not in client.get("/settings/tokens/").text
    bearer = {"Authorization": f"Bearer {secret}"}
    assert client.get("/api/v1/intents", headers=bearer).status_code == 200
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.target) == ("issue_token", f"token:{agent.slug}/first")
    assert secret not in str(entry.__dict__)

    client.post(f"/settings/tokens/{Token.objects.get().pk}/revoke/")
    assert client.get("/api/v1/intents", headers=bearer).status_code == 401
    assert AuditEntry.objects.filter(verb="revoke_token").exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scopes": []}, "Choose at least one thing"),
        ({"scopes": ["approve"]}, "not one of the available choices"),
        ({"name": ""}, "This field is required"),
        ({"last_day": "2020-01-31"}, "That day is over"),
    ],
)
def test_what_is_not_right_is_named_and_makes_nothing(client, admin, agent, fields, said):
    page = issue(client, agent, **fields)
    assert page.status_code == 422
    assert said in page.text
    assert not Token.objects.exists()


def test_a_name_is_used_once(client, admin, agent):
    issue(client, agent)
    page = issue(client, agent)
    assert page.status_code == 409
    assert "already; give this one another name" in page.text


def test_what_belongs_to_another_tenant_is_not_there(client, admin):
    foreign = make_agent_at()
    make_token(foreign)
    token = Token.objects.get()
    assert issue(client, foreign).status_code == 422
    assert client.post(f"/settings/tokens/{token.pk}/revoke/").status_code == 404
    token.refresh_from_db()
    assert token.revoked_at is None
    assert foreign.slug not in client.get("/settings/tokens/").text


def test_it_is_asked_again_who_makes_one(client, admin, agent):
    sixteen_minutes_later(client)
    assert issue(client, agent)["Location"].startswith("/account/confirm/")
    assert not Token.objects.exists()
