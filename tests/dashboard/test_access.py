"""Signing in and out, where people begin, and what a role may open."""

from urllib.parse import parse_qs, urlsplit

import pytest

from sends.models import Role, Switch
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person, make_tenant

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def agent():
    return make_agent_at()


@pytest.fixture
def tenant(agent):
    return agent.tenant


def off(tenant):
    return f"/switches/{tenant.pk}/off/"


def test_a_person_signs_in_with_address_and_password_and_out_again(client, tenant):
    person = make_person(tenant)
    answer = client.post("/login/", {"login": person.email.upper(), "password": "let me in please"})
    assert (answer.status_code, answer["Location"]) == (302, "/")
    assert client.get("/parts/").context["shell"].person == person.email
    assert client.post("/logout/")["Location"] == "/login/"
    assert client.get("/")["Location"].startswith("/login/")


def test_a_wrong_password_says_so_and_signs_nobody_in(client, tenant):
    person = make_person(tenant)
    page = client.post("/login/", {"login": person.email, "password": "guess"})
    assert "There is a problem" in page.text
    assert "_auth_user_id" not in client.session


def test_who_was_switched_off_cannot_sign_in(client, tenant):
    person = make_person(tenant, is_active=False)
    client.post("/login/", {"login": person.email, "password": "let me in please"})
    assert "_auth_user_id" not in client.session


def test_signing_in_never_leads_to_another_host(client, tenant):
    person = make_person(tenant)
    answer = client.post(
        "/login/?next=https://evil.example.net/",
        {
            "login": person.email,
            "password": "let me in please",
            "next": "https://evil.example.net/",
        },
    )
    assert answer["Location"] == "/"


def test_who_is_not_signed_in_comes_back_to_the_page_asked_for(client, tenant):
    answer = client.get(off(tenant) + "?a=1")
    assert next_of(answer["Location"]) == off(tenant) + "?a=1"


def test_what_is_posted_after_the_session_ended_decides_nothing_and_leads_back(client, tenant):
    answer = client.post(
        off(tenant), {"reason": "prices"}, headers={"Referer": "http://testserver/approvals/7/?q=1"}
    )
    assert next_of(answer["Location"]) == "/approvals/7/?q=1"
    assert not Switch.objects.get(pk=tenant.pk).causes


def test_htmx_is_told_to_load_the_sign_in_page(client, tenant):
    answer = client.post(
        off(tenant),
        {"reason": "prices"},
        headers={**HTMX, "HX-Current-URL": "http://testserver/approvals/7/"},
    )
    assert answer.status_code == 200
    assert next_of(answer["HX-Redirect"]) == "/approvals/7/"


def test_a_page_of_another_host_is_not_where_one_comes_back_to(client, tenant):
    answer = client.post(off(tenant), headers={"Referer": "https://evil.example.net/approvals/7/"})
    assert next_of(answer["Location"]) == "/"


def test_a_role_that_may_not_gets_403_in_the_form_it_can_show(client, tenant):
    client.force_login(make_person(tenant, Role.VIEWER))
    page = client.get(off(tenant))
    assert page.status_code == 403
    assert "<html" in page.text
    fragment = client.get(off(tenant), headers=HTMX)
    assert fragment.status_code == 403
    assert "<html" not in fragment.text
    assert "You may not do this" in fragment.text


def test_a_person_without_any_role_is_let_into_no_room(client):
    person = make_person(make_tenant())
    person.memberships.all().delete()
    client.force_login(person)
    assert client.get("/").status_code == 403


def test_answers_to_people_are_kept_by_no_cache(client, tenant):
    client.force_login(make_person(tenant))
    for answer in (client.get("/"), client.get(off(tenant)), client.get("/live/")):
        assert "no-store" in answer["Cache-Control"]
        assert "HX-Request" in answer["Vary"]


@pytest.mark.parametrize(
    ("role", "waiting", "room"),
    [
        (Role.VIEWER, [Status.AWAITING_APPROVAL], "/messages/"),
        (Role.APPROVER, [Status.UNCERTAIN], "/approvals/"),
        (Role.OPERATOR, [Status.UNCERTAIN, Status.DEAD_LETTER], "/uncertain/"),
        (Role.OPERATOR, [Status.DEAD_LETTER], "/dead-letters/"),
        (Role.OPERATOR, [], "/approvals/"),
        (Role.ADMIN, [Status.UNCERTAIN], "/uncertain/"),
    ],
)
def test_each_role_begins_where_it_has_something_to_do(client, agent, role, waiting, room):
    for status in waiting:
        make_intent(agent, status=status)
    client.force_login(make_person(agent.tenant, role))
    assert client.get("/")["Location"] == room


def next_of(address):
    parts = urlsplit(address)
    assert parts.path == "/login/"
    (found,) = parse_qs(parts.query)["next"]
    return found
