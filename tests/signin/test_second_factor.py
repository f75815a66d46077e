"""A second factor: added, asked for at the door, demanded by policy, and lost."""

import re

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import (
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from django.test import Client

from sends.models import AuditEntry, Policy, Role
from tests.factories import make_person, make_tenant
from tests.signing_in import sign_in, sixteen_minutes_later

pytestmark = pytest.mark.django_db
PASSWORD = "let me in please"


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def person(tenant):
    return make_person(tenant, Role.APPROVER)


def code_of(secret):
    return format_hotp_value(hotp_value(secret, next(yield_hotp_counters_from_time())))


def add_app(client):
    """The secret of the app, and the recovery codes that were shown."""
    secret = re.search(r"<code>(\w{32})</code>", client.get("/account/app/").text)[1]
    answer = client.post("/account/app/", {"code": code_of(secret)})
    assert answer["Location"] == "/account/recovery-codes/"
    codes = re.findall(r"<code>(\d{8})</code>", client.get(answer["Location"]).text)
    assert len(codes) == 10
    return secret, codes


def with_password(person):
    client = Client()
    answer = client.post("/login/", {"login": person.email, "password": PASSWORD})
    assert answer["Location"] == "/login/second-factor/"
    assert "_auth_user_id" not in client.session
    return client


def test_who_added_an_app_is_asked_for_its_code(client, person):
    secret, _ = add_app(sign_in(client, person))
    other = with_password(person)
    wrong = other.post("/login/second-factor/", {"code": "000000"})
    assert "That code is not right" in wrong.text
    Authenticator.objects.filter(type="totp").update(last_used_at=None)
    other.post("/login/second-factor/", {"code": code_of(secret)})
    assert other.session["_auth_user_id"] == str(person.pk)


def test_recovery_codes_are_shown_once_and_let_in_once(client, person):
    _, codes = add_app(sign_in(client, person))
    assert codes[0] not in client.get("/account/recovery-codes/").text
    other = with_password(person)
    other.post("/login/second-factor/", {"code": codes[0]})
    assert "_auth_user_id" in other.session
    again = with_password(person)
    again.post("/login/second-factor/", {"code": codes[0]})
    assert "_auth_user_id" not in again.session


def test_codes_cannot_be_tried_out(client, person):
    add_app(sign_in(client, person))
    other = with_password(person)
    for _ in range(5):
        other.post("/login/second-factor/", {"code": "000000"})
    page = other.post("/login/second-factor/", {"code": "000000"})
    assert "Too many tries" in page.text


def test_adding_or_removing_one_asks_who_it_is(client, person):
    add_app(sign_in(client, person))
    sixteen_minutes_later(client)
    for address in (
        "/account/app/remove/",
        "/account/passkeys/add/",
        "/account/recovery-codes/new/",
    ):
        answer = client.get(address)
        assert answer["Location"].startswith("/account/confirm/"), address


def test_each_way_to_show_who_one_is_leads_to_the_others(client, person):
    add_app(sign_in(client, person))
    assert "Use a code" in client.get("/account/confirm/").text
    assert "Use your password" in client.get("/account/confirm/code/").text


def test_who_lacks_what_policy_asks_for_is_led_there_before_anything_else(client, tenant, person):
    Policy.objects.update(second_factor_from_role=Role.APPROVER)
    sign_in(client, person)
    for address in ("/", "/approvals/", "/messages/", "/live/"):
        assert client.get(address)["Location"] == "/account/"
    assert client.post("/switches/x/off/").status_code == 404
    off = f"/switches/{tenant.pk}/off/"
    assert client.post(off, {"reason": "A test"})["Location"] == "/account/"
    assert "asks you for a second factor" in client.get("/account/").text
    add_app(client)
    assert client.get("/approvals/").status_code == 200


def test_roles_below_are_not_asked(client, tenant):
    Policy.objects.update(second_factor_from_role=Role.APPROVER)
    sign_in(client, make_person(tenant, Role.VIEWER))
    assert client.get("/messages/").status_code == 200


def test_recovery_codes_alone_are_no_second_factor(client, tenant, person):
    Policy.objects.update(second_factor_from_role=Role.APPROVER)
    add_app(sign_in(client, person))
    client.post("/account/app/remove/")
    assert client.get("/approvals/")["Location"] == "/account/"


def test_an_admin_resets_what_somebody_lost(client, tenant, person):
    theirs = Client()
    add_app(sign_in(theirs, person))
    sign_in(client, make_person(tenant, Role.ADMIN))
    assert "Reset the second factor" in client.get(f"/settings/people/{person.pk}/").text
    client.post(f"/settings/people/{person.pk}/reset-second-factor/")
    assert not Authenticator.objects.filter(user=person).exists()
    entry = AuditEntry.objects.get(tenant=tenant)
    assert (entry.verb, entry.target) == ("reset_second_factor", f"person:{person.email}")
    answer = Client().post("/login/", {"login": person.email, "password": PASSWORD})
    assert answer["Location"] == "/"


def test_people_who_share_an_address_do_not_keep_each_other_from_their_passkeys(client):
    for _ in range(20):
        answer = client.get("/login/passkey/", headers={"X-Requested-With": "XMLHttpRequest"})
        assert answer.status_code == 200
