"""Pausing and resuming from the dashboard: who may, what it asks, what it answers."""

import uuid

import pytest
from django.utils import timezone

from sends.models import AuditEntry, Cause, Role, Switch, SwitchKind
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person, make_run, make_tenant

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true", "HX-Current-URL": "http://testserver/messages/"}


@pytest.fixture
def agent():
    return make_agent_at()


@pytest.fixture
def tenant(agent):
    return agent.tenant


def turn(client, scope, way, reason="wrong prices", **kwargs):
    data = {"reason": reason, "action_id": uuid.uuid4(), "back": "/messages/?q=1"}
    return client.post(f"/switches/{scope.pk}/{way}/", data | kwargs.pop("data", {}), **kwargs)


def is_paused(scope):
    return bool(Switch.objects.get(pk=scope.pk).causes & Cause.PAUSED)


def test_an_approver_pauses_and_an_operator_resumes_each_with_a_reason(client, tenant):
    client.force_login(make_person(tenant, Role.APPROVER))
    assert turn(client, tenant, "off")["Location"] == "/messages/?q=1"
    assert is_paused(tenant)
    assert turn(client, tenant, "on").status_code == 403
    assert is_paused(tenant)
    client.force_login(make_person(tenant, Role.OPERATOR))
    turn(client, tenant, "on", "prices are right again")
    assert not is_paused(tenant)
    reasons = AuditEntry.objects.order_by("sequence").values_list("reason", flat=True)
    assert list(reasons) == ["wrong prices", "prices are right again"]


def test_htmx_gets_the_frame_as_it_is_now_and_an_empty_dialog(client, tenant):
    client.force_login(make_person(tenant, Role.OPERATOR))
    form = client.get(f"/switches/{tenant.pk}/off/", headers=HTMX)
    assert "<html" not in form.text
    answer = turn(client, tenant, "off", headers=HTMX)
    assert "All sending is paused" in answer.text
    assert "<form" not in answer.text


def test_without_a_reason_nothing_is_paused(client, tenant):
    client.force_login(make_person(tenant))
    answer = turn(client, tenant, "off", " ")
    assert answer.status_code == 422
    assert "Give a reason" in answer.text
    assert not is_paused(tenant)


def test_the_form_says_how_much_is_on_the_wire(client, agent):
    make_intent(agent, status=Status.IN_FLIGHT)
    client.force_login(make_person(agent.tenant))
    for scope in (agent.tenant, agent.sender, agent.sender.account):
        page = client.get(f"/switches/{scope.pk}/off/")
        assert "1 is on the wire" in page.text


def test_one_account_and_one_sender_are_paused_by_name(client, agent):
    client.force_login(make_person(agent.tenant))
    account = agent.sender.account
    assert f"sending through {account.slug}" in client.get(f"/switches/{account.pk}/off/").text
    turn(client, account, "off")
    turn(client, agent.sender, "off")
    assert is_paused(account)
    assert is_paused(agent.sender)
    assert not is_paused(agent.tenant)


def test_what_is_paused_already_says_by_whom(client, tenant):
    Switch.objects.filter(pk=tenant.pk).update(
        causes=Cause.PAUSED,
        paused_by="lead@example.com",
        paused_at=timezone.now(),
        pause_reason="a bad template",
    )
    client.force_login(make_person(tenant))
    page = client.get(f"/switches/{tenant.pk}/off/")
    assert "lead@example.com" in page.text
    assert "a bad template" in page.text
    assert "<textarea" not in page.text


def test_sent_twice_it_is_turned_once(client, tenant):
    client.force_login(make_person(tenant, Role.OPERATOR))
    once = {"action_id": uuid.uuid4()}
    turn(client, tenant, "off", data=once)
    turn(client, tenant, "on")
    turn(client, tenant, "off", data=once)
    assert not is_paused(tenant)


def test_what_belongs_to_others_or_to_another_page_is_not_found(client, agent):
    client.force_login(make_person(agent.tenant, Role.ADMIN))
    installation = Switch.objects.get(kind=SwitchKind.INSTALLATION)
    for scope in (make_tenant(), make_run(agent), installation):
        assert turn(client, scope, "off").status_code == 404


def test_it_never_leads_back_to_another_host(client, tenant):
    client.force_login(make_person(tenant))
    answer = turn(client, tenant, "off", data={"back": "https://evil.example.net/"})
    assert answer["Location"] == "/"
