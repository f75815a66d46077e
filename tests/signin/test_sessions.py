"""Where somebody is signed in: seen, and ended."""

import pytest
from django.test import Client

from sends.lifecycle.people import end_sessions
from sends.models import Role
from tests.factories import make_person, make_tenant

pytestmark = pytest.mark.django_db
PASSWORD = "let me in please"


def signed_in(person, browser):
    client = Client(headers={"User-Agent": browser})
    client.post("/login/", {"login": person.email, "password": PASSWORD})
    return client


def test_a_person_sees_the_own_sessions_and_ends_the_others():
    person, stranger = make_person(make_tenant()), make_person(make_tenant())
    mine, other = signed_in(person, "At the desk"), signed_in(person, "On the way")
    theirs = signed_in(stranger, "Elsewhere")
    page = mine.get("/account/sessions/").text
    assert "At the desk" in page
    assert "On the way" in page
    assert "Elsewhere" not in page

    mine.post("/account/sessions/")
    assert mine.get("/approvals/").status_code == 200
    assert other.get("/approvals/").status_code == 302
    assert theirs.get("/approvals/").status_code == 200
    assert "On the way" not in mine.get("/account/sessions/").text


def test_signing_out_ends_the_session_for_good():
    client = signed_in(make_person(make_tenant()), "At the desk")
    stolen = client.cookies.copy()
    client.post("/logout/")
    client.cookies = stolen
    assert client.get("/approvals/").status_code == 302


def test_a_session_that_outlived_the_secret_key_is_ended_like_any_other(settings):
    tenant = make_tenant()
    person, admin = make_person(tenant, Role.VIEWER), make_person(tenant, Role.ADMIN)
    client = signed_in(person, "At the desk")
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "the key after this one, of at least fifty characters"
    for _ in range(2):
        assert client.get("/messages/").status_code == 200
    page = client.get("/account/sessions/").text
    assert (page.count("At the desk"), page.count("This one")) == (1, 1)
    end_sessions(person, tenant=tenant, by=admin)
    assert client.get("/messages/").status_code == 302
