"""One email with all its history: what it shows to whom, and what may be done about it."""

import re
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from sends.lifecycle import resolve, review
from sends.lifecycle.anomalies import open_anomaly
from sends.models import (
    AnomalyKind,
    AuditEntry,
    Cause,
    Delivery,
    EventState,
    Payload,
    ProviderEvent,
    Role,
    SendIntent,
    Switch,
    database_now,
)
from sends.rules.outcomes import Outcome
from sends.rules.statuses import HOLD_BITS, DeliveryState, Hold, Status
from tests.factories import (
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_run,
    make_tenant,
)
from tests.lifecycle.tampering import no_triggers

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
HOUR = timedelta(hours=1)


@pytest.fixture
def agent():
    return make_agent_at()


@pytest.fixture
def operator(agent, client):
    person = make_person(agent.tenant, Role.OPERATOR)
    client.force_login(person)
    return person


def url(intent, verb=""):
    return f"/messages/{intent.action.number}/" + (f"{verb}/" if verb else "")


def post(client, intent, verb, data=(), **kwargs):
    given = {"action_id": uuid.uuid4(), "version": intent.version, **dict(data)}
    return client.post(url(intent, verb), given, **kwargs)


def fresh(intent):
    return SendIntent.objects.get(pk=intent.pk)


# What it shows


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("role", list(Role))
def test_every_status_is_shown_to_every_role(client, agent, status, role):
    intent = make_intent(agent, status=status)
    client.force_login(make_person(agent.tenant, role))
    page = client.get(url(intent))
    assert page.status_code == 200
    assert "Seal matches" in page.text or "Sealed" in page.text


def test_key_digest_and_ids_are_shown_in_full(client, agent, operator):
    intent = make_intent(agent, status=Status.SUBMITTED)
    text = client.get(url(intent)).text
    for known in (
        intent.idempotency_key,
        f'data-copy="{intent.digest}"',
        intent.provider_message_id,
        intent.action.action_key,
    ):
        assert known in text


def test_stations_say_how_far_it_has_come(client, agent, operator):
    now = database_now()
    intent = make_intent(
        agent, status=Status.SUBMITTED, now=now - HOUR, to=("a@example.org", "b@example.org")
    )
    make_attempt(intent, outcome=Outcome.THROTTLED)
    make_attempt(intent, outcome=Outcome.ACCEPTED)
    Delivery.objects.filter(intent=intent, position=0).update(
        state=DeliveryState.DELIVERED, changed_at=now
    )
    Delivery.objects.filter(intent=intent, position=1).update(
        state=DeliveryState.DEFERRED, changed_at=now, reason="421 4.7.0"
    )
    text = client.get(url(intent)).text
    for words in ("2 attempts", "Delivered to 1 of 2", "1 deferred since", "1 of 2 delivered"):
        assert words in text
    assert "421 4.7.0" in text


def test_the_timeline_tells_of_versions_decisions_attempts_and_deliveries(client, agent, operator):
    first = make_intent(
        agent,
    )
    approver = make_person(agent.tenant)
    review.approve(first.pk, person=approver, digest=first.digest)
    review.undo(first.pk, person=approver)
    review.ask_for_changes(
        first.pk,
        person=approver,
        digest=first.digest,
        note="The date is wrong, it is Thursday.",
        reason_code="wrong_facts",
    )
    text = client.get(url(first)).text
    for words in (
        f"Created by {agent.slug}",
        "Approval undone",
        "Asked for changes",
        "The date is wrong, it is Thursday.",
        approver.email,
    ):
        assert words in text
    assert "Decisions 3" in text


def test_the_timeline_is_narrowed_by_kind(client, agent, operator):
    intent = make_intent(agent, status=Status.SUBMITTED)
    make_attempt(
        intent,
        outcome=Outcome.ACCEPTED,
        http_status=200,
        seconds={"connect": 0.04, "sent": 0.11, "first_byte": 0.3, "end": 0.41},
        body='{"id": "sbx_1"}',
    )
    ProviderEvent.objects.create(
        account=intent.account,
        event_id="1",
        fingerprint="1",
        kind="deferred",
        recipient="customer@example.org",
        reason="421 4.7.0 Try again later",
        occurred_at=database_now(),
        received_at=database_now(),
        raw=b"{}",
        state=EventState.APPLIED,
        intent=intent,
    )
    everything = client.get(url(intent)).text
    assert "HTTP 200 after 0.41 s." in everything
    assert "connected 0.04 s · request sent 0.11 s · first byte 0.30 s · end 0.41 s" in everything
    assert "421 4.7.0 Try again later" in everything
    attempts = client.get(url(intent) + "?show=attempts").text
    assert "Attempt 1" in attempts
    assert "Try again later" not in attempts
    deliveries = client.get(url(intent) + "?show=delivery").text
    assert "Attempt 1" not in deliveries
    assert "Try again later" in deliveries
    assert "Created by" in client.get(url(intent) + "?show=nonsense").text


def test_an_answer_of_the_provider_cannot_run_as_markup(client, agent, operator):
    intent = make_intent(agent, status=Status.SUBMITTED, subject="<script>alert(1)</script>")
    make_attempt(intent, outcome=Outcome.ACCEPTED, body="<img src=x onerror=alert(1)>")
    text = client.get(url(intent)).text
    assert "<script>alert" not in text
    assert "<img src=x" not in text


def test_a_seal_that_differs_is_a_red_note(client, agent, operator):
    intent = make_intent(agent, status=Status.SUBMITTED)
    make_attempt(intent, outcome=Outcome.ACCEPTED)
    assert "Seal matches in all 2 places" in client.get(url(intent)).text
    with no_triggers(Payload):
        body = bytes(intent.payload.body).replace(b"Hello", b"Howdy")
        Payload.objects.filter(intent=intent).update(body=body)
    text = client.get(url(intent)).text
    assert "The seal does not match everywhere" in text
    assert "Another seal: 1 stored email" in text


def test_it_says_why_it_is_not_sent_yet(client, agent, operator):
    run = make_run(agent)
    intent = make_intent(agent, run=run, status=Status.QUEUED)
    Switch.objects.filter(pk=run.pk).update(causes=Cause.PAUSED, pause_reason="wrong prices")
    text = client.get(url(intent)).text
    assert "Its run is halted: wrong prices" in text
    assert "Halted" in text


def test_versions_are_listed_and_each_can_be_opened(client, agent, operator):
    first = make_intent(agent, status=Status.SUPERSEDED, subject="First words")
    second = make_intent(agent, action=first.action, subject="Second words")
    current = client.get(url(first)).text
    assert "Second words" in current
    earlier = client.get(url(first) + "v/1/").text
    assert "First words" in earlier
    assert "This is an earlier version" in earlier
    assert second.digest[:4] in earlier
    assert client.get(url(first) + "v/3/").status_code == 404


def test_an_anomaly_and_what_ended_it_are_told(client, agent, operator):
    intent = make_intent(agent, status=Status.CANCELLED, end_reason="nobody decided by noon")
    open_anomaly(
        intent,
        kind=AnomalyKind.ACCEPTED_UNSENT,
        detail="The provider took this version although it was cancelled.",
        now=database_now(),
    )
    text = client.get(url(intent)).text
    assert "Anomaly: A version that was not to be sent was accepted" in text
    assert "Nobody decided by noon." in text


def test_another_tenants_message_is_not_there(client, agent, operator):
    foreign = make_intent(make_agent_at(make_tenant()))
    for verb in ("", "v/1", "cancel", "resend"):
        assert client.get(url(foreign, verb)).status_code == 404
    for verb in ("cancel", "resend", "retry-now"):
        assert post(client, foreign, verb).status_code == 404
    assert fresh(foreign).fence == foreign.fence


# Live


def test_a_page_looks_again_only_while_it_can_change(client, agent, operator):
    waiting = make_intent(agent, status=Status.QUEUED)
    assert "data-polls" in client.get(url(waiting)).text
    ended = make_intent(agent, status=Status.CANCELLED)
    assert "data-polls" not in client.get(url(ended)).text


def test_what_has_not_changed_is_not_sent_again(client, agent, operator):
    intent = make_intent(
        agent, status=Status.RETRY_SCHEDULED, next_attempt_at=database_now() + HOUR
    )
    page = client.get(url(intent)).text.partition('id="message"')[2]
    polls = page.partition('hx-get="')[2].partition('"')[0]
    assert client.get(polls, headers=HTMX).status_code == 204
    post(client, intent, "retry-now")
    changed = client.get(polls, headers=HTMX)
    assert changed.status_code == 200
    assert "<html" not in changed.text
    assert client.get(polls).status_code == 200  # without HTMX it is a page like any other


# What may be done


ALL = frozenset(Role)
APPROVERS = frozenset({Role.APPROVER, Role.OPERATOR, Role.ADMIN})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMIN})


@pytest.mark.parametrize(
    ("status", "control", "roles"),
    [
        (Status.AWAITING_APPROVAL, "/approvals/", APPROVERS),
        (Status.AWAITING_APPROVAL, "edit/", APPROVERS),
        (Status.AWAITING_APPROVAL, "cancel/", OPERATORS),
        (Status.AWAITING_APPROVAL, "follow-up/", frozenset()),
        (Status.QUEUED, "cancel/", OPERATORS),
        (Status.QUEUED, "edit/", APPROVERS),
        (Status.QUEUED, "retry-now/", frozenset()),
        (Status.RETRY_SCHEDULED, "retry-now/", OPERATORS),
        (Status.RETRY_SCHEDULED, "cancel/", OPERATORS),
        (Status.IN_FLIGHT, "cancel/", frozenset()),
        (Status.IN_FLIGHT, "follow-up/", APPROVERS),
        (Status.UNCERTAIN, "edit/", frozenset()),
        (Status.UNCERTAIN, "cancel/", frozenset()),
        (Status.UNCERTAIN, 'id="to-uncertain"', ALL),
        (Status.SUBMITTED, "follow-up/", APPROVERS),
        (Status.SUBMITTED, "cancel/", frozenset()),
        (Status.DEAD_LETTER, "resend/", OPERATORS),
        (Status.DEAD_LETTER, "edit/", APPROVERS),
        (Status.CANCELLED, "edit/", frozenset()),
        (Status.SUPERSEDED, "cancel/", frozenset()),
    ],
)
def test_a_control_is_drawn_for_those_who_may(client, agent, status, control, roles):
    intent = make_intent(agent, status=status)
    number = intent.action.number
    wanted = {"/approvals/": 'id="to-approval"'}.get(control, control)
    wanted = wanted if wanted.startswith("id=") else f"/messages/{number}/{wanted}"
    for role in Role:
        client.force_login(make_person(agent.tenant, role))
        page = client.get(url(intent)).text
        head = page.partition('id="message"')[2].partition("<h2>")[0]
        assert (wanted in head) is (role in roles), role


@pytest.mark.parametrize("verb", ["cancel", "resend", "retry-now"])
@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER])
def test_who_may_not_gets_403_and_nothing_happens(client, agent, verb, role):
    intent = make_intent(agent, status=Status.RETRY_SCHEDULED)
    client.force_login(make_person(agent.tenant, role))
    assert post(client, intent, verb, {"reason": "x"}).status_code == 403
    assert post(client, intent, verb, {"reason": "x"}, headers=HTMX).status_code == 403
    assert fresh(intent).fence == intent.fence


def test_cancelling_asks_why_and_leads_back(client, agent, operator):
    intent = make_intent(agent, status=Status.QUEUED)
    assert "Cancel this email" in client.get(url(intent, "cancel")).text
    assert post(client, intent, "cancel").status_code == 422
    answer = post(client, intent, "cancel", {"reason": "sent by hand"})
    assert answer["Location"] == url(intent)
    assert (fresh(intent).status, fresh(intent).end_reason) == (Status.CANCELLED, "sent by hand")
    page = client.get(url(intent)).text
    assert "is not sent." in page
    assert "Sent by hand." in page


def test_in_a_dialog_the_form_comes_alone_and_the_message_changes_behind_it(
    client, agent, operator
):
    intent = make_intent(agent, status=Status.QUEUED)
    form = client.get(url(intent, "cancel"), headers=HTMX)
    assert "<html" not in form.text
    assert 'id="dialog-title"' in form.text
    answer = post(client, intent, "cancel", {"reason": "sent by hand"}, headers=HTMX)
    assert answer.status_code == 200
    assert 'hx-swap-oob="outerHTML"' in answer.text
    assert "data-count=uncertain" in answer.text
    assert "<html" not in answer.text
    assert "Cancelled" in answer.text


def test_cancelling_twice_with_one_form_is_recorded_once(client, agent, operator):
    intent = make_intent(agent, status=Status.QUEUED)
    once = {"reason": "sent by hand", "action_id": uuid.uuid4()}
    for _ in range(2):
        assert post(client, intent, "cancel", once).status_code == 302
    assert AuditEntry.objects.filter(verb="cancel").count() == 1


def test_what_the_provider_took_meanwhile_is_not_cancelled(client, agent, operator):
    intent = make_intent(agent, status=Status.SUBMITTED)
    for headers in ({}, HTMX):
        answer = post(client, intent, "cancel", {"reason": "no"}, headers=headers)
        assert answer.status_code == 409
        assert "can no longer be taken back" in answer.text
        assert ("<html" in answer.text) is (not headers)
        assert "no</textarea>" in answer.text  # what was typed is kept
    assert fresh(intent).status == Status.SUBMITTED


def test_what_was_replaced_meanwhile_is_not_cancelled(client, agent, operator):
    first = make_intent(agent, status=Status.SUPERSEDED)
    second = make_intent(agent, action=first.action, status=Status.QUEUED)
    answer = post(client, first, "cancel", {"reason": "no"})
    assert answer.status_code == 409
    assert "version 2" in answer.text
    assert fresh(second).status == Status.QUEUED


def test_what_a_restore_holds_is_released_with_a_reason(client, agent, operator):
    intent = make_intent(agent, holds=HOLD_BITS[Hold.RESTORED])
    page = client.get(url(intent)).text
    assert "restored from a backup" in page
    assert url(intent, "release") in page
    assert "Look at the provider first" in client.get(url(intent, "release")).text

    answer = post(client, intent, "release", {"reason": "not in the provider's log"})

    assert answer["Location"] == url(intent)
    assert fresh(intent).holds == 0
    page = client.get(url(intent)).text
    assert url(intent, "release") not in page
    assert "Released, after a restore" in page
    assert post(client, intent, "release", {"reason": "again"}).status_code == 409


def test_a_retry_is_made_now(client, agent, operator):
    intent = make_intent(
        agent, status=Status.RETRY_SCHEDULED, next_attempt_at=database_now() + HOUR
    )
    answer = post(client, intent, "retry-now", headers=HTMX)
    assert answer.status_code == 200
    assert "is tried again now" in answer.text
    assert fresh(intent).next_attempt_at <= timezone.now()


def test_a_wait_that_was_asked_for_stands(client, agent, operator):
    until = database_now() + HOUR
    intent = make_intent(
        agent, status=Status.RETRY_SCHEDULED, next_attempt_at=until, not_sooner_than=until
    )
    for headers in ({}, HTMX):
        answer = post(client, intent, "retry-now", headers=headers)
        assert answer.status_code == 409
        assert "may not be tried before" in answer.text
        assert "autofocus" in answer.text
    assert fresh(intent).next_attempt_at == until


def test_a_form_without_its_id_changes_nothing(client, agent, operator):
    intent = make_intent(
        agent, status=Status.RETRY_SCHEDULED, next_attempt_at=database_now() + HOUR
    )
    answer = post(client, intent, "retry-now", {"action_id": "x"})
    assert answer.status_code == 422
    assert "could not be read" in answer.text
    assert fresh(intent).next_attempt_at == intent.next_attempt_at


def test_a_dead_letter_is_sent_again(client, agent, operator):
    intent = make_intent(
        agent, status=Status.DEAD_LETTER, approval_expires_at=database_now() + HOUR
    )
    answer = post(client, intent, "resend", {"reason": "their server is back"})
    assert answer["Location"] == url(intent)
    assert fresh(intent).status == Status.QUEUED


def test_what_may_have_arrived_is_sent_again_as_a_new_version(client, agent, operator):
    intent = make_intent(
        agent, status=Status.DEAD_LETTER, approval_expires_at=database_now() + HOUR
    )
    make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True)
    post(client, intent, "resend", {"reason": "not in their log"})
    newer = SendIntent.objects.get(action=intent.action, version=2)
    assert (newer.resend_of, newer.status) == (intent, Status.AWAITING_APPROVAL)
    text = client.get(url(intent)).text
    assert "The same content again, under a new key." in text
    assert "Sent again as a new version" in text


def test_findings_stand_in_the_timeline_with_who_made_them(client, agent, operator):
    now = database_now()
    intent = make_intent(agent, status=Status.UNCERTAIN, now=now - HOUR)
    resolve.mark_accepted(
        intent.pk, person=operator, value="msg_1", note="It is in their log", now=now
    )
    text = client.get(url(intent)).text
    assert "Found accepted" in text
    assert "It is in their log. Shown by msg_1." in text
    assert operator.email in text


def test_it_asks_the_database_little(client, agent, operator, asks_at_most):
    run = make_run(agent)
    intent = make_intent(agent, run=run, status=Status.RETRY_SCHEDULED)
    for _ in range(5):
        make_attempt(intent, outcome=Outcome.THROTTLED)
    with asks_at_most(15):
        client.get(url(intent))


def test_ids_are_unique_on_the_page(client, agent, operator):
    intent = make_intent(agent, status=Status.RETRY_SCHEDULED)
    ids = re.findall(r'\sid="([^"]+)"', client.get(url(intent)).text)
    assert len(ids) == len(set(ids))
