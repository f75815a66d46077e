"""Passwords: trying them out, a new one for who forgot it, and changing it."""

import re

import pytest
from django.contrib.auth.hashers import MD5PasswordHasher
from django.core import mail
from django.core.cache import cache
from django_q.models import OrmQ

from sends.lifecycle import letters
from sends.models import Role
from tests.factories import make_person, make_tenant

pytestmark = pytest.mark.django_db
PASSWORD = "let me in please"
NEW = "correct horse battery"


@pytest.fixture
def person():
    return make_person(make_tenant(), Role.APPROVER)


def sign_in(client, person, password=PASSWORD):
    return client.post("/login/", {"login": person.email, "password": password})


def test_an_unknown_address_and_a_wrong_password_get_the_same_page(client, person):
    def said(email):
        page = client.post("/login/", {"login": email, "password": "a guess of mine"}).text
        return re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", page).replace(email, "")

    assert said(person.email) == said("nobody@example.org")
    assert "Email or password is not right." in said(person.email)


def test_an_unknown_address_costs_as_many_hashes_as_a_wrong_password(client, person, monkeypatch):
    hashed = []
    encode = MD5PasswordHasher.encode
    monkeypatch.setattr(
        MD5PasswordHasher, "encode", lambda *args: hashed.append(1) or encode(*args)
    )
    counts = []
    person_off = make_person(make_tenant(), is_active=False)
    without = make_person(make_tenant())
    without.set_unusable_password()
    without.save()
    for email in (person.email, "nobody@example.org", person_off.email, without.email):
        hashed.clear()
        client.post("/login/", {"login": email, "password": "a guess of mine"})
        counts.append(len(hashed))
    assert counts == [1, 1, 1, 1]


def test_after_five_failures_even_the_right_password_waits(client, person):
    for _ in range(5):
        sign_in(client, person, "a guess of mine")
    page = sign_in(client, person)
    assert "Too many tries" in page.text
    assert "_auth_user_id" not in client.session
    cache.clear()
    assert sign_in(client, person).status_code == 302


def test_another_name_of_the_host_or_spelling_of_the_address_is_no_fresh_start(client, person):
    for port in range(5):
        given = {"login": person.email.title(), "password": "a guess of mine"}
        client.post("/login/", given, headers={"Host": f"localhost:{8000 + port}"})
    assert "Too many tries" in sign_in(client, person).text


def test_addresses_that_a_client_makes_up_are_no_fresh_start(client, person, settings):
    """Only what the proxy added counts; with less there than there should be, nothing does."""
    for proxies in (1, 2):
        settings.ALLAUTH_TRUSTED_PROXY_COUNT = proxies
        cache.clear()
        for number in range(20):
            given = {"login": f"{number}@example.org", "password": "a guess of mine"}
            noted = f"198.51.100.{number}, 192.0.2.1" if proxies == 1 else f"198.51.100.{number}"
            client.post("/login/", given, headers={"X-Forwarded-For": noted})
        assert (
            "Too many tries"
            in client.post(
                "/login/",
                {"login": person.email, "password": PASSWORD},
                headers={"X-Forwarded-For": "192.0.2.1" if proxies == 1 else ""},
            ).text
        )


@pytest.mark.parametrize(
    "letter", ["\N{LATIN SMALL LETTER LONG S}", "\N{LATIN SMALL LETTER DOTLESS I}"]
)
def test_an_address_that_only_folds_to_another_is_nobodys(client, letter):
    """PostgreSQL takes these letters for s and i, and each would be a fresh start of tries."""
    make_person(make_tenant(), email="jesica@example.org")
    alike = f"je{letter}ica@example.org" if letter.upper() == "S" else f"jes{letter}ca@example.org"
    page = client.post("/login/", {"login": alike, "password": PASSWORD})
    assert "Email or password is not right." in page.text
    letters.mail_reset(alike)
    assert mail.outbox == []
    given = {"login": "JESICA@Example.ORG", "password": PASSWORD}
    assert client.post("/login/", given).status_code == 302


def test_failures_of_one_address_do_not_keep_another_out(client, person):
    for _ in range(5):
        sign_in(client, person, "a guess of mine")
    assert sign_in(client, make_person(make_tenant())).status_code == 302


def test_asking_for_a_new_password_does_the_same_for_every_address(client, person):
    answers = []
    for email in (person.email, "nobody@example.org"):
        answer = client.post("/login/password/", {"email": email})
        answers.append((answer.status_code, answer["Location"]))
    assert answers[0] == answers[1] == (302, "/login/password/asked/")
    assert OrmQ.objects.count() == 2
    assert mail.outbox == []


def test_nobodys_mail_is_flooded_with_links(client, person):
    asked = [client.post("/login/password/", {"email": person.email}) for _ in range(6)]
    assert [answer.status_code for answer in asked] == [302] * 5 + [429]
    assert OrmQ.objects.count() == 5


def test_the_mailed_link_sets_a_password_once(client, person):
    letters.mail_reset(person.email.upper())
    link = re.search(r"https?://[^/]+(/\S+)", mail.outbox[0].body)[1]
    assert client.get(link).status_code == client.get(link).status_code == 302
    form = client.get(link)["Location"]
    answer = client.post(form, {"password1": NEW, "password2": NEW})
    assert (answer.status_code, answer["Location"]) == (302, "/login/")
    assert "no longer good" in client.get(link, follow=True).text
    assert sign_in(client, person, NEW).status_code == 302


def test_a_weak_password_is_refused_by_the_link(client, person):
    path = letters.reset_link(person).partition("//")[2].partition("/")[2]
    form = client.get(f"/{path}")["Location"]
    page = client.post(form, {"password1": "short", "password2": "short"})
    assert "There is a problem" in page.text
    person.refresh_from_db()
    assert person.check_password(PASSWORD)


@pytest.mark.parametrize("kind", ["unknown", "switched off", "without a password"])
def test_nothing_is_mailed_to_who_cannot_sign_in_with_a_password(person, kind):
    email = person.email
    if kind == "unknown":
        email = "nobody@example.org"
    elif kind == "switched off":
        person.is_active = False
    else:
        person.set_unusable_password()
    person.save()
    letters.mail_reset(email)
    assert mail.outbox == []


def test_changing_the_password_ends_the_other_sessions(client, person):
    sign_in(client, person)
    other = type(client)()
    sign_in(other, person)
    new = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}
    assert client.post("/account/password/", new).status_code == 302
    assert client.get("/approvals/").status_code == 200
    assert other.get("/approvals/").status_code == 302


def test_the_password_is_not_changed_without_the_one_until_now(client, person):
    sign_in(client, person)
    client.post("/account/password/", {"oldpassword": "guess", "password1": NEW, "password2": NEW})
    person.refresh_from_db()
    assert person.check_password(PASSWORD)


def test_nobody_signs_up(client):
    for address in ("/signup/", "/login/signup/", "/accounts/signup/", "/account/email/"):
        assert client.get(address).status_code == 404
