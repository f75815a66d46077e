"""The People page: an admin invites, changes roles, and lets nobody of another tenant show."""

import re
from dataclasses import replace

import pytest
from django.core import mail
from django.test import Client

from sends.dashboard import people
from sends.lifecycle import people as steps
from sends.lifecycle.refusals import TooLate
from sends.models import AuditEntry, Invitation, Membership, Person, Role
from tests.factories import make_person, make_tenant
from tests.signing_in import sixteen_minutes_later

pytestmark = pytest.mark.django_db
PASSWORD = "let me in please"
NEW = "correct horse battery"
SAME_ID = {"X-Request-ID": "the-same-for-all"}


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def admin(tenant, client):
    admin = make_person(tenant, Role.ADMIN)
    sign_in(client, admin)
    return admin


@pytest.fixture
def other(tenant):
    return make_person(tenant, Role.APPROVER)


def sign_in(client, person):
    client.post("/login/", {"login": person.email, "password": PASSWORD})


def link_in(page):
    return re.search(r"<code[^>]*>https?://[^/]+(/[^<]+)</code>", page.text)[1]


def invited(client, email="new@example.org", role=Role.OPERATOR):
    answer = client.post("/settings/people/invite/", {"email": email, "role": int(role)})
    assert answer.status_code == 200, answer.text
    return link_in(answer)


def about(person, verb=""):
    return f"/settings/people/{person.pk}/{verb}"


def without_values(page):
    """The page but for what is in its fields: tokens, where live updates go on; and times."""
    return re.sub(r'\svalue="[^"]*"|<time.*?</time>', "", page, flags=re.DOTALL)


def verbs(tenant):
    entries = AuditEntry.objects.filter(tenant=tenant).order_by("sequence")
    return list(entries.values_list("verb", flat=True))


def test_an_invited_person_sets_a_password_and_has_the_role(client, admin, tenant):
    link = invited(client)
    guest = Client()
    for _ in range(3):  # mail scanners look, too
        page = guest.get(link)
    assert "new@example.org" in page.text
    answer = guest.post(link, {"password1": NEW, "password2": NEW})
    assert answer["Location"] == "/login/"
    membership = Membership.objects.get(tenant=tenant, person__email="new@example.org")
    assert membership.role == Role.OPERATOR
    answer = guest.post("/login/", {"login": "new@example.org", "password": NEW})
    assert answer["Location"] == "/"
    assert verbs(tenant) == ["invite", "accept_invitation"]


def test_an_invitation_is_mailed_where_there_is_a_mail_server(client, admin, monkeypatch):
    monkeypatch.setattr(people, "conf", replace(people.conf, sends_mail=True))
    link = invited(client)
    (sent,) = mail.outbox
    assert sent.to == ["new@example.org"]
    assert link in sent.body


def test_a_mail_server_that_takes_nothing_leaves_the_link_to_hand_over(
    client, admin, monkeypatch, settings
):
    monkeypatch.setattr(people, "conf", replace(people.conf, sends_mail=True))
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    page = client.post("/settings/people/invite/", {"email": "new@example.org", "role": 1})
    assert "The mail server did not take the invitation." in page.text
    assert Client().get(link_in(page)).status_code == 200


def test_a_link_ends_with_its_use(client, admin):
    link = invited(client)
    Client().post(link, {"password1": NEW, "password2": NEW})
    again = Client().post(link, {"password1": "another good one", "password2": "another good one"})
    assert again.status_code == 404
    assert Person.objects.get(email="new@example.org").check_password(NEW)


def test_who_has_an_account_elsewhere_joins_after_signing_in(client, admin, tenant):
    known = make_person(make_tenant(), email="new@example.org")
    link = invited(client)
    guest = Client()
    assert "Sign in with this address, then join" in guest.get(link).text
    guest.post(link, {"password1": NEW, "password2": NEW})
    assert not tenant.memberships.filter(person=known).exists()
    sign_in(guest, known)
    guest.post(link)
    assert tenant.memberships.get(person=known).role == Role.OPERATOR
    known.refresh_from_db()
    assert known.check_password(PASSWORD)


def test_nobody_else_can_use_the_link(client, admin, tenant):
    make_person(make_tenant(), email="new@example.org")
    link = invited(client)
    stranger = make_person(make_tenant())
    guest = Client()
    sign_in(guest, stranger)
    guest.post(link)
    assert not tenant.memberships.filter(person=stranger).exists()
    assert Invitation.objects.get().accepted_at is None


def test_inviting_looks_the_same_whether_there_is_an_account(client, admin):
    make_person(make_tenant(), email="known@example.org")
    pages = []
    for email in ("known@example.org", "fresh@example.org"):
        page = client.post("/settings/people/invite/", {"email": email, "role": 1})
        told = without_values(page.text).replace(email, "").replace(link_in(page), "")
        pages.append(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "", told))
        invitation = Invitation.objects.get(email=email)
        client.post(f"/settings/people/invitations/{invitation.pk}/revoke/", follow=True)
    assert pages[0] == pages[1]


def test_a_second_invitation_ends_the_first(client, admin):
    first = invited(client)
    invited(client)
    assert Client().get(first).status_code == 404


def test_an_invitation_taken_back_is_over(client, admin, tenant):
    link = invited(client)
    invitation = Invitation.objects.get()
    client.post(f"/settings/people/invitations/{invitation.pk}/revoke/")
    assert Client().get(link).status_code == 404
    assert verbs(tenant) == ["invite", "revoke_invitation"]


@pytest.mark.parametrize("end", ["removed", "lowered", "switched off"])
def test_what_a_former_admin_promised_lets_nobody_in(client, admin, tenant, end):
    link = invited(client, role=Role.ADMIN)
    if end == "removed":
        tenant.memberships.filter(person=admin).delete()
    elif end == "lowered":
        tenant.memberships.filter(person=admin).update(role=Role.OPERATOR)
    else:
        Person.objects.filter(pk=admin.pk).update(is_active=False)
    guest = Client()
    for answer in (guest.get(link), guest.post(link, {"password1": NEW, "password2": NEW})):
        assert answer.status_code == 404
        assert f"is no longer admin of {tenant}" in answer.text
    assert not Person.objects.filter(email="new@example.org").exists()
    assert Invitation.objects.get().accepted_at is None

    successor = Client()
    sign_in(successor, make_person(tenant, Role.ADMIN))
    page = successor.get("/settings/people/").text
    assert f"void: {admin} is no longer admin here" in page
    answer = successor.post(
        "/settings/people/invite/", {"email": "new@example.org", "role": int(Role.VIEWER)}
    )
    assert "void:" not in answer.text


def test_who_stops_being_admin_while_the_link_is_used_lets_nobody_in(tenant):
    """The page is asked first; what decides is asked again in the transaction."""
    admin = make_person(tenant, Role.ADMIN)
    link = steps.invite("new@example.org", role=Role.ADMIN, tenant=tenant, by=admin).link
    tenant.memberships.filter(person=admin).delete()
    with pytest.raises(TooLate, match="no longer admin"):
        steps.accept(link.strip("/").rpartition("/")[2], password=NEW)
    assert Invitation.objects.get().accepted_at is None


def test_who_belongs_here_is_not_invited_again(client, admin, other):
    answer = client.post(
        "/settings/people/invite/", {"email": other.email.upper(), "role": int(Role.ADMIN)}
    )
    assert answer.status_code == 409
    assert "belongs to" in answer.text


def test_an_address_that_only_folds_to_another_is_not_invited(client, admin):
    email = "je\N{LATIN SMALL LETTER LONG S}@example.org"
    answer = client.post("/settings/people/invite/", {"email": email, "role": int(Role.VIEWER)})
    assert answer.status_code == 409
    assert not Invitation.objects.exists()


def test_a_role_changes_and_holds_at_once(client, admin, tenant, other):
    theirs = Client()
    sign_in(theirs, other)
    assert theirs.get("/settings/people/").status_code == 403
    client.post(about(other, "role/"), {"role": int(Role.ADMIN)})
    assert theirs.get("/settings/people/").status_code == 200
    entry = AuditEntry.objects.get(tenant=tenant)
    assert entry.verb == "change_role"
    assert entry.target == f"person:{other.email}"


@pytest.mark.parametrize("act", ["role/", "remove/"])
def test_the_last_admin_stays(client, admin, tenant, other, act):
    client.post(about(admin, act), {"role": int(Role.VIEWER)}, follow=True)
    assert tenant.memberships.get(person=admin).role == Role.ADMIN
    assert verbs(tenant) == []


def test_one_of_two_admins_may_go(client, admin, tenant):
    second = make_person(tenant, Role.ADMIN)
    client.post(about(second, "remove/"))
    assert not tenant.memberships.filter(person=second).exists()


def test_who_is_removed_is_let_into_no_room(client, admin, other):
    theirs = Client()
    sign_in(theirs, other)
    client.post(about(other, "remove/"))
    assert theirs.get("/approvals/").status_code == 403


def test_switching_off_ends_every_session_and_keeps_out(client, admin, other):
    theirs = Client()
    sign_in(theirs, other)
    client.post(about(other, "switch-off/"))
    assert theirs.get("/approvals/")["Location"].startswith("/login/")
    sign_in(theirs, other)
    assert "_auth_user_id" not in theirs.session
    client.post(about(other, "switch-on/"))
    sign_in(theirs, other)
    assert theirs.get("/approvals/").status_code == 200


def test_an_admin_ends_the_sessions_of_another(client, admin, other):
    theirs = Client()
    sign_in(theirs, other)
    client.post(about(other, "sign-out/"))
    assert theirs.get("/approvals/").status_code == 302


@pytest.mark.parametrize("act", ["switch-off/", "sign-out/", "reset-second-factor/"])
def test_an_account_that_others_rely_on_is_not_one_admins_alone(client, admin, other, act):
    Membership.objects.create(tenant=make_tenant(), person=other, role=Role.ADMIN)
    page = client.post(about(other, act), follow=True).text
    assert "not yours alone" in page
    other.refresh_from_db()
    assert other.is_active


def test_a_link_to_a_new_password_is_shown_once_and_only_by_whom_the_account_is(
    client, admin, other
):
    link = link_in(client.post(about(other, "new-password/")))
    guest = Client()
    form = guest.get(link)["Location"]
    guest.post(form, {"password1": NEW, "password2": NEW})
    other.refresh_from_db()
    assert other.check_password(NEW)

    Membership.objects.create(tenant=make_tenant(), person=other, role=Role.VIEWER)
    page = client.post(about(other, "new-password/"), follow=True).text
    assert "not yours alone" in page
    assert "login/password" not in page


def test_a_person_of_another_tenant_is_one_that_is_not(client, admin):
    foreign = make_person(make_tenant(), Role.VIEWER)
    missing = Person(email="nobody@example.org")
    for verb in ("", "role/", "remove/", "switch-off/", "new-password/"):
        answers = []
        for person in (foreign, missing):
            method = client.post if verb else client.get
            answer = method(about(person, verb), {"role": 1}, headers=SAME_ID)
            answers.append((answer.status_code, without_values(answer.text)))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404


def test_who_signed_in_long_ago_is_asked_again_and_comes_back(client, admin):
    sixteen_minutes_later(client)
    answer = client.get("/settings/people/")
    assert answer["Location"] == "/account/confirm/?next=%2Fsettings%2Fpeople%2F"
    answer = client.post(
        "/settings/people/invite/",
        {"email": "new@example.org", "role": 1},
        headers={"Referer": "http://testserver/settings/people/"},
    )
    assert answer["Location"] == "/account/confirm/?next=%2Fsettings%2Fpeople%2F"
    assert not Invitation.objects.exists()
    wrong = client.post("/account/confirm/", {"password": "guess", "next": "/settings/people/"})
    assert "That is not your password." in wrong.text
    answer = client.post("/account/confirm/", {"password": PASSWORD, "next": "/settings/people/"})
    assert answer["Location"] == "/settings/people/"
    assert client.get("/settings/people/").status_code == 200
