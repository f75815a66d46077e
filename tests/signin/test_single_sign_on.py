"""Signing in through an identity provider: what is believed, and the roles that follow."""

import json
import time

import pytest
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib.messages import get_messages
from django.core import mail
from django.test import Client

from sends.lifecycle import letters
from sends.lifecycle.configure import configure
from sends.lifecycle.people import invite, new_password_link
from sends.lifecycle.refusals import NotPossible
from sends.lifecycle.single_sign_on import Claims, arrive
from sends.models import AuditEntry, IdentityProvider, Membership, Person, Role, Tenant
from sends.rules.configuration import read
from tests import identity_provider
from tests.factories import make_person, make_tenant
from tests.lifecycle.races import at_once
from tests.signin.test_second_factor import add_app
from tests.signing_in import sixteen_minutes_later

pytestmark = pytest.mark.django_db
SETUP = """\
[[identity_providers]]
slug = "company"
name = "Example Company"
issuer = "{issuer}"
client_id = "outbox"
client_secret = "env:OIDC_SECRET"
email_domains = ["example.com"]
{more}

[[tenants]]
slug = "acme"
claimed_roles = [
  {{ provider = "company", value = "outbox", role = "approver" }},
  {{ provider = "company", value = "outbox-admins", role = "admin" }},
]
"""


@pytest.fixture(scope="module")
def server():
    with identity_provider.running() as provider:
        yield provider


@pytest.fixture
def provider(server, monkeypatch):
    monkeypatch.setenv("OIDC_SECRET", identity_provider.CLIENT_SECRET)
    fresh = identity_provider.Provider(issuer=server.issuer)
    for name in ("claims", "userinfo", "described", "key", "algorithm", "asked", "codes"):
        setattr(server, name, getattr(fresh, name))
    set_up(server)
    return server


def set_up(provider, more=""):
    configure(read(SETUP.format(issuer=provider.issuer, more=more), "outbox.toml"))


def sign_in(client, provider, next_page=""):
    there = client.get(f"/login/with/company/?next={next_page}")
    assert there.status_code == 302, there.text
    assert there["Location"].startswith(f"{provider.issuer}/authorize?")
    return client.get(provider.sign_in(there["Location"]))


def role_of(email="jo@example.com"):
    return Membership.objects.get(tenant__slug="acme", person__email=email).role


def test_a_new_person_is_let_in_with_the_role_of_the_claim(client, provider):
    answer = sign_in(client, provider, "/runs/")
    assert (answer.status_code, answer["Location"]) == (302, "/runs/")
    assert client.get("/runs/").status_code == 200
    assert role_of() == Role.APPROVER
    person = Person.objects.get()
    assert not person.has_usable_password()
    assert SocialAccount.objects.get().extra_data == {}
    entry = AuditEntry.objects.get(verb="map_role")
    assert (entry.actor, entry.target) == ("provider:company", "person:jo@example.com")


def test_the_sign_in_page_offers_the_provider(client, provider):
    page = client.get("/login/?next=/runs/").text
    assert "Sign in with Example Company" in page
    assert 'href="/login/with/company/?next=/runs/"' in page


def test_roles_are_mapped_anew_at_each_sign_in(client, provider):
    provider.claims["groups"] = ["outbox", "outbox-admins"]
    sign_in(client, provider)
    assert role_of() == Role.ADMIN
    provider.claims["groups"] = "outbox"
    sign_in(Client(), provider)
    assert role_of() == Role.APPROVER
    provider.claims["groups"] = ["other"]
    answer = sign_in(Client(), provider)
    assert answer["Location"] == "/login/"
    assert not Membership.objects.exists()
    assert client.get("/runs/").status_code == 403


@pytest.mark.django_db(transaction=True)
def test_two_first_sign_ins_at_once_make_one_person(provider):
    company = IdentityProvider.objects.get()
    claims = Claims("a-subject", "jo@example.com", is_verified=True, values=frozenset(["outbox"]))
    first, second = at_once(lambda: arrive(company, claims), lambda: arrive(company, claims))
    assert first == second == Person.objects.get()
    assert SocialAccount.objects.count() == 1


def test_who_has_no_role_by_the_claims_is_not_made(client, provider):
    provider.claims["groups"] = []
    answer = sign_in(client, provider)
    assert "gives you no role" in client.get(answer["Location"]).text
    assert not Person.objects.exists()


@pytest.mark.parametrize("groups", [7, True, {"outbox": True}, [None, ["outbox"]]])
def test_a_claim_of_another_kind_gives_no_role(client, provider, groups):
    provider.claims["groups"] = groups
    assert_turned_away(client, sign_in(client, provider))


def test_tenants_that_do_not_name_the_provider_are_not_its_business(client, provider):
    sign_in(client, provider)
    elsewhere = make_tenant()
    Membership.objects.create(tenant=elsewhere, person=Person.objects.get(), role=Role.OPERATOR)
    sign_in(Client(), provider)
    assert Membership.objects.get(tenant=elsewhere).role == Role.OPERATOR


NOW = int(time.time())
WRONG = {
    "another nonce": {"nonce": "of-another-sign-in"},
    "no nonce": {"nonce": None},
    "another audience": {"aud": "another-client"},
    "several audiences, for another party": {"aud": ["outbox", "x"], "azp": "x"},
    "expired": {"exp": NOW - 3600, "iat": NOW - 7200},
    "no end": {"exp": None},
    "another issuer": {"iss": "https://login.example.net"},
    "nobody": {"sub": None},
    "an unverified address": {"email_verified": False},
    "an address that may or may not be verified": {"email_verified": None},
    "no address": {"email": ""},
    "an address of another domain": {"email": "jo@example.org"},
    "an address that only ends alike": {"email": "jo@notexample.com"},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG)
def test_what_is_not_right_lets_nobody_in(client, provider, claims):
    provider.claims = claims
    assert_turned_away(client, sign_in(client, provider))


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_a_token_without_a_signature_of_the_provider_lets_nobody_in(client, provider, algorithm):
    provider.algorithm = algorithm
    assert_turned_away(client, sign_in(client, provider))


def test_a_token_signed_by_somebody_else_lets_nobody_in(client, provider):
    provider.key = identity_provider.OTHER_KEY
    assert_turned_away(client, sign_in(client, provider))


def assert_turned_away(client, answer):
    assert (answer.status_code, answer["Location"]) == (302, "/login/")
    assert "There is a problem" not in client.get("/login/").text
    assert "_auth_user_id" not in client.session
    assert not Person.objects.exists()


def test_the_way_back_of_another_session_lets_nobody_in(client, provider):
    there = client.get("/login/with/company/")
    back = provider.sign_in(there["Location"])
    victim = Client()
    assert_turned_away(victim, victim.get(back))


def test_the_way_back_is_gone_once(client, provider):
    there = client.get("/login/with/company/")
    back = provider.sign_in(there["Location"])
    client.get(back)
    client.post("/logout/")
    client.get(back)
    assert "_auth_user_id" not in client.session


@pytest.mark.parametrize("end", ["error=access_denied", "error=server_error", "code=guess"])
def test_a_refusal_there_leads_back_to_the_sign_in_page(client, provider, end):
    there = client.get("/login/with/company/")
    state = provider.sign_in(there["Location"]).partition("&state=")[2]
    assert_turned_away(client, client.get(f"/login/with/company/callback/?{end}&state={state}"))


def test_what_is_not_believed_is_said_and_what_the_provider_answered_is_not(client, provider):
    provider.claims = {"nonce": "of-another-sign-in"}
    page = client.get(sign_in(client, provider)["Location"]).text
    assert "did not say who you are: its answer is of another sign-in. Try again." in page
    there = client.get("/login/with/company/")
    state = provider.sign_in(there["Location"]).partition("&state=")[2]
    answer = client.get(f"/login/with/company/callback/?code=guess&state={state}")
    page = client.get(answer["Location"]).text
    assert "Example Company did not say who you are. Try again." in page
    assert "invalid_request" not in page


def test_what_the_address_adds_does_not_reach_the_provider(client, provider):
    there = client.get(
        "/login/with/company/?auth_params=nonce%3Dx%26redirect_uri%3Dy&process=connect"
    )
    assert "nonce=x" not in there["Location"]
    assert "redirect_uri=http%3A%2F%2Flocalhost" in there["Location"]


def test_a_provider_that_is_not_there_is_no_server_error(client, provider):
    provider.described = {"issuer": "https://login.example.net"}
    answer = client.get("/login/with/company/")
    assert answer["Location"] == "/login/"
    assert client.get("/login/with/another/").status_code == 404


def test_claims_that_the_token_lacks_are_asked_for(client, provider):
    provider.claims = {"groups": None}
    provider.userinfo = {"sub": "248289761001", "groups": ["outbox-admins"]}
    sign_in(client, provider)
    assert role_of() == Role.ADMIN


def test_user_info_about_somebody_else_lets_nobody_in(client, provider):
    provider.claims = {"groups": None}
    provider.userinfo = {"sub": "another", "groups": ["outbox-admins"]}
    assert_turned_away(client, sign_in(client, provider))


def test_an_account_that_was_there_is_only_entered_where_the_set_up_says_so(client, provider):
    tenant = Tenant.objects.get(slug="acme")
    person = make_person(tenant, Role.VIEWER, email="jo@example.com")
    answer = sign_in(client, provider)
    assert "has an account here" in client.get(answer["Location"]).text
    assert role_of() == Role.VIEWER
    set_up(provider, "matches_address = true")
    sign_in(client, provider)
    assert client.session["_auth_user_id"] == str(person.pk)
    assert role_of() == Role.APPROVER


def squatted(provider, **fields):
    """An account at the address that somebody else set up, who is signed in with it."""
    set_up(provider, "matches_address = true")
    person = make_person(make_tenant(), Role.VIEWER, email="jo@example.com")
    Person.objects.filter(pk=person.pk).update(**fields)
    squatter = Client()
    squatter.post("/login/", {"login": person.email, "password": "let me in please"})
    Authenticator.objects.create(user=person, type=Authenticator.Type.WEBAUTHN, data={})
    return person, squatter


def test_who_set_an_account_up_before_its_owner_came_is_out_of_it(client, provider):
    person, squatter = squatted(provider)
    assert squatter.get("/account/").status_code == 200
    sign_in(client, provider)
    assert client.session["_auth_user_id"] == str(person.pk)
    person.refresh_from_db()
    assert not person.has_usable_password()
    assert not Authenticator.objects.exists()
    assert squatter.get("/account/").status_code == 302
    entry = AuditEntry.objects.get(verb="map_role")
    assert json.loads(entry.facts)["matched_by"] == "address"


@pytest.mark.parametrize("letter", ["\N{KELVIN SIGN}", "\N{LATIN SMALL LETTER LONG S}"])
def test_an_address_that_only_folds_to_another_enters_no_account(client, provider, letter):
    """Who has it there is somebody else, though Python or PostgreSQL takes one for the other."""
    set_up(provider, "matches_address = true")
    for name in ("kim", "sim"):
        make_person(make_tenant(), email=f"{name}@example.com")
    provider.claims = {"email": f"{letter}im@example.com"}
    assert "letters that no address of a person here has" in messages_of(sign_in(client, provider))
    assert "_auth_user_id" not in client.session


def test_what_its_owner_sets_up_afterwards_stays(client, provider):
    person, _ = squatted(provider)
    sign_in(client, provider)
    Authenticator.objects.create(user=person, type=Authenticator.Type.WEBAUTHN, data={})
    sign_in(Client(), provider)
    assert Authenticator.objects.exists()
    assert client.get("/account/").status_code == 200


def test_the_way_in_for_emergencies_stays_whole_when_the_address_is_matched(client, provider):
    """A password that lets in when all else fails is never left without its second factor."""
    person, earlier = squatted(provider, break_glass=True)
    sign_in(client, provider)
    person.refresh_from_db()
    assert person.check_password("let me in please")
    assert Authenticator.objects.filter(user=person).exists()
    assert earlier.get("/account/").status_code == 302
    given = {"login": person.email, "password": "let me in please"}
    assert Client().post("/login/", given)["Location"] == "/login/second-factor/"


@pytest.mark.parametrize("kind", ["known to a provider", "for emergencies"])
def test_no_admin_makes_a_password_for_who_may_get_roles_elsewhere(client, provider, kind):
    """Alone in this tenant now; the next sign-in there may give a role in the other one."""
    here, admin = make_tenant(), Client()
    by = make_person(here, Role.ADMIN)
    admin.post("/login/", {"login": by.email, "password": "let me in please"})
    if kind == "known to a provider":
        sign_in(client, provider)
        person = Person.objects.get(email="jo@example.com")
        Membership.objects.filter(person=person).delete()
        Membership.objects.create(tenant=here, person=person, role=Role.VIEWER)
    else:
        person = make_person(here, Role.VIEWER, break_glass=True)
    page = admin.post(f"/settings/people/{person.pk}/new-password/", follow=True).text
    assert f"manage.py changepassword {person.email}" in page
    assert "login/password" not in page
    assert not AuditEntry.objects.filter(verb="reset_password").exists()


def test_whom_the_claims_give_no_role_takes_nothing_over(client, provider):
    person, _ = squatted(provider)
    provider.claims["groups"] = []
    sign_in(client, provider)
    person.refresh_from_db()
    assert person.has_usable_password()


def test_who_signs_in_there_is_asked_for_the_second_factor_here_as_well(client, provider):
    sign_in(client, provider)
    _, codes = add_app(client)
    other = Client()
    answer = sign_in(other, provider, "/runs/")
    assert answer["Location"] == "/login/second-factor/"
    assert other.get("/runs/").status_code == 302
    assert "Your second factor" in other.get("/login/second-factor/").text
    answer = other.post("/login/second-factor/", {"code": codes[0]})
    assert answer["Location"] == "/runs/"
    assert other.get("/runs/").status_code == 200


def test_the_same_subject_of_another_issuer_is_somebody_else(client, provider):
    sign_in(client, provider)
    with identity_provider.running() as other:
        set_up(other)
        answer = sign_in(Client(), other)
    assert "has an account here" in messages_of(answer)


def messages_of(answer):
    return " ".join(str(message) for message in get_messages(answer.wsgi_request))


def test_who_was_switched_off_stays_out(client, provider):
    sign_in(client, provider)
    Person.objects.update(is_active=False)
    fresh = Client()
    sign_in(fresh, provider)
    assert "_auth_user_id" not in fresh.session


def test_where_it_is_the_only_way_passwords_let_in_only_for_emergencies(client, provider):
    tenant = Tenant.objects.get(slug="acme")
    person = make_person(tenant, Role.ADMIN)
    set_up(provider, "is_only_way = true")
    given = {"login": person.email, "password": "let me in please"}
    assert "Email or password is not right." in client.post("/login/", given).text
    Person.objects.filter(pk=person.pk).update(break_glass=True)
    assert client.post("/login/", given).status_code == 302


def test_where_it_is_the_only_way_no_link_to_a_password_is_made(client, provider):
    tenant = Tenant.objects.get(slug="acme")
    person, by = make_person(tenant, Role.VIEWER), make_person(tenant, Role.ADMIN)
    set_up(provider, "is_only_way = true")
    with pytest.raises(NotPossible, match="let nobody in"):
        new_password_link(person, tenant=tenant, by=by)
    letters.mail_reset(person.email)
    assert mail.outbox == []
    Person.objects.filter(pk=person.pk).update(break_glass=True)
    letters.mail_reset(person.email)
    assert [sent.to for sent in mail.outbox] == [[person.email]]


def test_where_it_is_the_only_way_the_sign_in_page_says_so_first(client, provider):
    assert "In an emergency" not in client.get("/login/").text
    set_up(provider, "is_only_way = true")
    page = client.get("/login/").text
    assert page.index("Sign in with Example Company") < page.index("In an emergency")


def test_where_it_is_the_only_way_an_invited_person_goes_it_too(client, provider):
    """A password chosen on the page of the link would let nobody in."""
    elsewhere = make_tenant()
    by = make_person(elsewhere, Role.ADMIN)
    link = invite("jo@example.com", role=Role.VIEWER, tenant=elsewhere, by=by).link
    path = "/" + link.split("/", 3)[3]
    set_up(provider, "is_only_way = true")
    assert "Sign in with this address, then join" in client.get(path).text
    client.post(path, {"password1": "correct horse battery", "password2": "correct horse battery"})
    assert not Person.objects.filter(email="jo@example.com").exists()
    assert sign_in(client, provider, path)["Location"] == path
    client.post(path)
    assert Membership.objects.get(tenant=elsewhere, person__email="jo@example.com")


def test_who_has_no_password_here_confirms_by_signing_in_there_again(client, provider):
    provider.claims["groups"] = ["outbox-admins"]
    sign_in(client, provider)
    assert client.get("/settings/people/").status_code == 200
    sixteen_minutes_later(client)
    answer = client.get("/settings/people/")
    assert answer["Location"] == "/login/with/company/?next=%2Fsettings%2Fpeople%2F"
    there = client.get(answer["Location"])
    assert "prompt=login" in there["Location"]
    assert "max_age=0" in there["Location"]
    answer = client.get(provider.sign_in(there["Location"]))
    assert answer["Location"] == "/settings/people/"
    assert client.get("/settings/people/").status_code == 200


@pytest.mark.parametrize("auth_time", [None, NOW - 16 * 60, "now"], ids=["none", "old", "a word"])
def test_a_sign_in_there_that_is_not_fresh_does_not_confirm(client, provider, auth_time):
    provider.claims = {"groups": ["outbox-admins"], "auth_time": auth_time}
    sign_in(client, provider)
    there = client.get("/settings/people/")
    assert there["Location"].startswith("/login/with/company/")
    answer = client.get(provider.sign_in(client.get(there["Location"])["Location"]))
    assert "did not say that you signed in there just now" in messages_of(answer)
    assert client.get("/settings/people/").status_code == 302
    assert client.get("/runs/").status_code == 200
