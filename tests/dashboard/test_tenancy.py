"""A person in several tenants: the address says which one, and nothing of another shows."""

from urllib.parse import unquote

import pytest
from django.urls import get_script_prefix

from sends.models import Membership, Role, Switch
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person

pytestmark = pytest.mark.django_db


@pytest.fixture
def first():
    return make_agent_at()


@pytest.fixture
def second():
    return make_agent_at()


@pytest.fixture
def person(first, second, client):
    person = make_person(first.tenant, Role.OPERATOR)
    Membership.objects.create(tenant=second.tenant, person=person, role=Role.VIEWER)
    client.force_login(person)
    return person


def of(agent, address):
    return f"/t/{agent.tenant.slug}{address}"


def test_who_belongs_to_one_tenant_sees_no_prefix(client, first):
    make_intent(first)
    client.force_login(make_person(first.tenant))
    page = client.get("/approvals/")
    assert page.status_code == 200
    assert "/t/" not in page.text


def test_who_belongs_to_several_is_led_to_the_one_joined_first(client, person, first):
    answer = client.get("/approvals/?view=mine")
    assert (answer.status_code, answer["Location"]) == (302, of(first, "/approvals/?view=mine"))


def test_every_address_of_a_page_stays_in_its_tenant(client, person, second):
    make_intent(second, subject="Of the second")
    page = client.get(of(second, "/messages/")).text
    assert "Of the second" in page
    leads = {part.split('"')[0] for part in page.split('href="/')[1:]}
    outside = {lead for lead in leads if not lead.startswith(("t/", "static/"))}
    assert outside == set()
    assert get_script_prefix() == "/"


def test_two_tabs_show_their_own_tenant_and_role(client, person, first, second):
    mine, other = make_intent(first, subject="Mine"), make_intent(second, subject="Other")
    page = client.get(of(first, "/messages/")).text
    assert mine.subject in page
    assert other.subject not in page
    assert client.get(of(first, f"/messages/{mine.action.number}/cancel/")).status_code == 200
    assert client.get(of(second, f"/messages/{other.action.number}/cancel/")).status_code == 403


def test_a_form_acts_in_the_tenant_of_its_address(client, person, first, second):
    off = f"/switches/{first.tenant_id}/off/"
    answer = client.post(of(second, off), {"reason": "A test"})
    assert answer.status_code == 403
    client.get(of(first, off))
    answer = client.post(of(first, off), {"reason": "A test"})
    assert answer.status_code == 422  # no action_id; but the door let it in
    assert not Switch.objects.get(pk=first.tenant_id).causes


def test_a_tenant_one_does_not_belong_to_is_one_that_is_not(client, person):
    foreign, page = make_agent_at(), {}
    for slug in (foreign.tenant.slug, "there-is-none"):
        answer = client.get(f"/t/{slug}/messages/", headers={"X-Request-ID": "the-same"})
        assert answer.status_code == 404
        page[slug] = answer.text.replace(slug, "")
    assert len(set(page.values())) == 1


def test_who_is_not_signed_in_learns_nothing_and_comes_back(client, first):
    for slug in (first.tenant.slug, "there-is-none"):
        answer = client.get(f"/t/{slug}/runs/")
        assert unquote(answer["Location"]) == f"/t/{slug}/login/?next=/t/{slug}/runs/"


def test_after_signing_in_one_is_in_the_tenant_of_the_address(client, first, second):
    person = make_person(first.tenant)
    Membership.objects.create(tenant=second.tenant, person=person, role=Role.VIEWER)
    answer = client.post(
        of(second, "/login/") + f"?next={of(second, '/runs/')}",
        {"login": person.email, "password": "let me in please", "next": of(second, "/runs/")},
    )
    assert answer["Location"] == of(second, "/runs/")


def test_programs_are_not_asked_for_by_tenant(client, person, first):
    for address in ("/api/v1/docs", "/healthz", "/webhooks/x", "/t/x/runs/"):
        assert client.get(of(first, address)).status_code == 404


def test_live_updates_know_the_room_behind_the_tenant(client, person, second):
    intent = make_intent(second, status=Status.UNCERTAIN)
    answer = client.get(
        of(second, "/live/") + f"?ids={intent.pk}",
        headers={
            "HX-Request": "true",
            "HX-Current-URL": f"http://testserver{of(second, '/messages/')}",
        },
    )
    assert answer.status_code == 200
    assert str(intent.pk) in answer.text or f"m{intent.action.number}" in answer.text


def test_the_rail_offers_the_tenants_of_who_has_several(client, person, first, second):
    page = client.get(of(second, "/messages/")).text
    assert f'href="/t/{first.tenant.slug}/"' in page
    assert f'href="/t/{second.tenant.slug}/"' in page
