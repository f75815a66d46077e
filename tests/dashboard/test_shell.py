"""The frame around every page: what it counts, warns of and offers, and to whom."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import AnonymousUser
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import include, path
from django.utils import timezone

from sends.conf import conf
from sends.dashboard import shell as shell_module
from sends.dashboard.shell import shell_of, shown
from sends.dashboard.zones import zone_of
from sends.models import Anomaly, AnomalyKind, Cause, Role, Switch, SwitchKind
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person, make_tenant

# Only the two addresses that the frame itself asks for; the rooms are tested with theirs.
switches = [
    path("switches/<uuid:scope>/off/", lambda request, scope: HttpResponse(), name="switch_off"),
    path("switches/<uuid:scope>/on/", lambda request, scope: HttpResponse(), name="switch_on"),
]
urlpatterns = [path("", include((switches, "dashboard")))]
pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


def request_of(person, address="/approvals/", **cookies):
    request = RequestFactory().get(address)
    request.user = person
    request.COOKIES = cookies
    return request


def shell_for(tenant, role=Role.OPERATOR, address="/approvals/"):
    return shell_of(request_of(make_person(tenant, role), address))


def pause(kind, row, tenant, causes=Cause.PAUSED, **columns):
    columns.setdefault("paused_at", timezone.now())
    Switch.objects.update_or_create(
        pk=row.pk, defaults={"tenant": tenant, "kind": kind, "causes": causes, **columns}
    )


@pytest.fixture
def agent():
    return make_agent_at()


def test_nobody_and_a_person_without_a_role_have_no_frame():
    stranger = make_person(make_tenant())
    stranger.memberships.all().delete()
    assert shell_of(request_of(AnonymousUser())) is None
    assert shell_of(request_of(stranger)) is None


def test_the_frame_says_who_where_and_as_what():
    tenant = make_tenant()
    shell = shell_for(tenant, Role.APPROVER, "/dead-letters/7/")
    assert (shell.role, shell.tenant, shell.current) == ("Approver", tenant.name, "dead_letters")


def test_each_room_counts_what_waits_in_it_and_nothing_of_another_tenant(agent):
    for status, count in (
        (Status.AWAITING_APPROVAL, 3),
        (Status.UNCERTAIN, 2),
        (Status.DEAD_LETTER, 2),
        (Status.QUEUED, 1),
    ):
        for _ in range(count):
            intent = make_intent(agent, status=status)
            make_intent(make_agent_at(), status=status)
    closed = make_intent(agent, status=Status.DEAD_LETTER)
    type(closed).objects.filter(pk=closed.pk).update(closed_at=timezone.now())
    Anomaly.objects.create(
        tenant=agent.tenant,
        action=intent.action,
        intent=intent,
        kind=AnomalyKind.KEY_CONFLICT,
        detail="409",
        opened_at=timezone.now(),
    )
    assert shell_for(agent.tenant).counts == ("3", "2", "2", "1")


def test_counts_stop_at_what_a_person_can_take_in():
    assert [shown(count) for count in (0, 1, 99, 100)] == ["", "1", "99", "99+"]


def test_all_counts_are_one_query_that_looks_at_no_more_than_it_shows(
    agent, monkeypatch, django_assert_num_queries
):
    monkeypatch.setattr(shell_module, "MOST", 2)
    for _ in range(3):
        make_intent(agent)
    shell = shell_for(agent.tenant)
    with django_assert_num_queries(1):
        assert shell.counts.approvals == "1+"


def test_paused_sending_is_said_with_its_reason_and_its_way_out(agent):
    pause(SwitchKind.TENANT, agent.tenant, agent.tenant, pause_reason="wrong prices")
    shell = shell_for(agent.tenant)
    (closed,) = shell.switches_off
    assert (closed.words, closed.reason) == ("All sending is paused", "wrong prices")
    assert closed.on_url == f"/switches/{agent.tenant.pk}/on/"
    assert shell.is_paused
    assert shell.pause_url == ""


def test_one_paused_account_is_named_and_the_rest_can_still_be_paused(agent):
    account = agent.sender.account
    pause(SwitchKind.ACCOUNT, account, agent.tenant)
    shell = shell_for(agent.tenant)
    assert [closed.words for closed in shell.switches_off] == [
        f"Sending through {account.slug} is paused"
    ]
    assert not shell.is_paused
    assert shell.pause_url == f"/switches/{agent.tenant.pk}/off/"


def test_a_blocked_account_is_not_paused_but_blocked(agent):
    account = agent.sender.account
    pause(SwitchKind.ACCOUNT, account, agent.tenant, Cause.BLOCKED, block_reason="bad key")
    shell = shell_for(agent.tenant)
    assert shell.switches_off == []
    assert [(block.words, block.reason) for block in shell.blocked] == [
        (f"{account.slug} is blocked", "bad key")
    ]


def test_a_pause_of_another_tenant_is_none_of_ours(agent):
    other = make_tenant()
    pause(SwitchKind.TENANT, other, other)
    assert shell_for(agent.tenant).switches_off == []


@pytest.mark.parametrize(
    ("role", "may_pause", "may_resume"),
    [
        (Role.VIEWER, False, False),
        (Role.APPROVER, True, False),
        (Role.OPERATOR, True, True),
        (Role.ADMIN, True, True),
    ],
)
def test_who_may_stop_and_who_may_start(agent, role, may_pause, may_resume):
    shell = shell_for(agent.tenant, role)
    assert bool(shell.pause_url) is may_pause
    pause(SwitchKind.TENANT, agent.tenant, agent.tenant)
    shell = shell_for(agent.tenant, role)
    assert bool(shell.switches_off[0].on_url) is may_resume


class TestSilence:
    """Due emails, and no worker: the one failure that shows nowhere else."""

    @pytest.fixture(autouse=True)
    def no_beat(self):
        conf.worker_beat.unlink(missing_ok=True)
        yield
        conf.worker_beat.unlink(missing_ok=True)

    def due(self, agent, minutes=5):
        since = timezone.now() - timedelta(minutes=minutes)
        make_intent(agent, status=Status.QUEUED, next_attempt_at=since)
        return since

    def test_nothing_due_is_no_silence(self, agent):
        assert shell_for(agent.tenant).silent_since is None

    def test_due_mail_that_nobody_takes_is_silence_since_it_was_due(self, agent):
        since = self.due(agent)
        assert shell_for(agent.tenant).silent_since == since

    def test_mail_just_due_is_not_yet_silence(self, agent):
        self.due(agent, minutes=0)
        assert shell_for(agent.tenant).silent_since is None

    def test_a_living_worker_is_not_silent(self, agent):
        self.due(agent)
        conf.worker_beat.touch()
        assert shell_for(agent.tenant).silent_since is None

    def test_paused_mail_waits_for_a_person_and_not_for_a_worker(self, agent):
        self.due(agent)
        pause(SwitchKind.TENANT, agent.tenant, agent.tenant)
        assert shell_for(agent.tenant).silent_since is None


@pytest.mark.parametrize(
    ("own", "cookie", "zone"),
    [
        ("", "", "UTC"),
        ("", "Europe/Paris", "Europe/Paris"),
        ("Asia/Tokyo", "Europe/Paris", "Asia/Tokyo"),
        ("Asia/Tokyo", "UTC", "UTC"),
        ("", "../../etc/passwd", "UTC"),
        ("", "Nowhere/At_all", "UTC"),
        ("", "Europe", "UTC"),
        ("", "\x00", "UTC"),
    ],
)
def test_the_zone_is_the_persons_own_then_the_browsers_then_utc(own, cookie, zone):
    person = make_person(make_tenant(), time_zone=own)
    assert zone_of(request_of(person, zone=cookie)).key == zone


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("UTC", "UTC"),
        ("Europe/Paris", "UTC+2"),
        ("Asia/Kolkata", "UTC+5:30"),
        ("America/St_Johns", "UTC-2:30"),
        ("Europe/London", "UTC+1"),
    ],
)
def test_an_offset_reads(zone, words):
    shell = shell_for(make_tenant())
    shell.now = datetime(2026, 10, 14, 12, 0, tzinfo=UTC)
    with timezone.override(zone):
        assert shell.zone_offset == words
