"""Emails of which nobody knows whether they were taken: what is known, and the ways out."""

import re
import uuid
from datetime import timedelta

import pytest

from sends.lifecycle import resolve
from sends.lifecycle.transitions import move
from sends.models import (
    Account,
    AuditEntry,
    Evidence,
    Policy,
    Role,
    SendIntent,
    Suppression,
    SuppressionCause,
    database_now,
)
from sends.rules.outcomes import Outcome, Phase
from sends.rules.statuses import Status
from tests.factories import (
    make_account,
    make_agent,
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_sender,
    make_tenant,
)
from tests.sending import make_agent_of, sandbox_with

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
HOUR = timedelta(hours=1)
VERBS = (
    *("replay", "ask-provider", "mark-accepted", "mark-not-accepted"),
    "confirm-not-accepted",
)


@pytest.fixture
def agent():
    return make_agent_at()


@pytest.fixture
def operator(agent, client):
    person = make_person(agent.tenant, Role.OPERATOR)
    client.force_login(person)
    return person


def uncertain(agent, since=HOUR, **fields):
    """One whose only attempt went out whole and got no answer, `since` ago."""
    now = database_now()
    fields.setdefault("window_opened_at", now - since)
    fields.setdefault("replay_until", now - since + timedelta(hours=22))
    intent = make_intent(agent, status=Status.UNCERTAIN, now=now - since, **fields)
    make_attempt(
        intent,
        outcome=Outcome.AMBIGUOUS,
        may_have_arrived=True,
        opened_at=now - since,
        phase=Phase.SENT,
        error="deadline",
        bytes_sent=2318,
        bytes_total=2318,
        seconds={"connect": 0.04, "sent": 0.11, "end": 30.0},
    )
    return intent


def without_contract(tenant=None, **options):
    account = make_account(tenant or make_tenant(), options={"contract": "none", **options})
    return make_agent(make_sender(account))


def page_of(intent):
    return f"/uncertain/{intent.action.number}/"


def post(client, intent, verb, data=(), prefix="", **kwargs):
    named = {"action_id": uuid.uuid4(), "version": intent.version, **dict(data)}
    given = {f"{prefix}-{name}" if prefix else name: value for name, value in named.items()}
    return client.post(f"/messages/{intent.action.number}/{verb}/", given, **kwargs)


def mark(client, intent, way, data=(), **kwargs):
    evidence = {"value": "msg_0191", "note": "It is in their log.", **dict(data)}
    return post(client, intent, f"mark-{way}", evidence, prefix=way, **kwargs)


def confirm(client, intent, **data):
    given = {"note": "I looked too.", "then": "leave", **data}
    return post(client, intent, "confirm-not-accepted", given, prefix="confirming")


def fresh(intent):
    return SendIntent.objects.get(pk=intent.pk)


def alone(tenant):
    Policy.objects.filter(tenant=tenant).update(second_operator=False)


# The list


def test_an_empty_list_says_what_would_be_there(client, agent, operator):
    assert "Nothing is uncertain" in client.get("/uncertain/").text


def test_the_soonest_to_end_comes_first_and_what_cannot_be_replayed_last(client, agent, operator):
    now = database_now()
    late = uncertain(agent, replay_until=now + 20 * HOUR)
    over = uncertain(agent, since=30 * HOUR)
    soon = uncertain(agent, replay_until=now + HOUR)
    never = uncertain(without_contract(agent.tenant), replay_until=None)
    text = client.get("/uncertain/").text
    order = [f"/uncertain/{intent.action.number}/" for intent in (soon, late, over, never)]
    assert re.findall(r'href="(/uncertain/\d+/)"', text) == order
    assert "for 59 min" in text
    assert text.count("not any more") == 2


def test_the_list_is_of_this_tenant_and_of_what_is_still_uncertain(client, agent, operator):
    uncertain(make_agent_at(), subject="Of others")
    make_intent(agent, status=Status.SUBMITTED, subject="Settled long ago")
    text = client.get("/uncertain/").text
    assert "Of others" not in text
    assert "Settled long ago" not in text


def test_the_list_asks_the_database_little(client, agent, operator, asks_at_most):
    for _ in range(5):
        uncertain(agent)
    with asks_at_most(8):
        client.get("/uncertain/")


def test_a_row_that_is_settled_while_the_list_is_open_says_so(client, agent, operator):
    intent = uncertain(agent)
    mark(client, intent, "accepted")
    answer = client.get(
        f"/live/?since=&ids={intent.pk}",
        headers={**HTMX, "HX-Current-URL": "http://testserver/uncertain/"},
    )
    assert f"#left-{intent.pk}" in answer.text
    assert "Settled: accepted by provider" in answer.text


# One of them


def test_it_shows_what_happened_the_evidence_and_what_is_promised(client, agent, operator):
    intent = uncertain(agent)
    text = client.get(page_of(intent)).text
    for words in (
        "We do not know whether the provider took this email",
        "Time left to replay safely: 20 h 59 min",
        "Attempt 1: no answer",
        "All 2,318 bytes were sent. Nothing came back in 30 s.",
        "The whole request left, and no clear answer came",
        "attempt 1: 2,318 of 2,318 bytes",
        "200 with the first answer",
        "24 hours, from the completion of the first request with the key, per organisation",
        "The key is good for 24 hours from the first attempt",
    ):
        assert words in text, words


def test_an_attempt_with_a_clear_answer_is_no_evidence_of_doubt(client, agent, operator):
    intent = uncertain(agent)
    make_attempt(intent, outcome=Outcome.AMBIGUOUS, may_have_arrived=True, phase=Phase.DISPATCHED)
    make_attempt(intent, outcome=Outcome.THROTTLED, phase=Phase.ANSWERED)
    text = client.get(page_of(intent)).text
    assert text.count("The whole request left") == 1
    assert "Only a part of the request left" in text
    assert "attempt 2: 0 of 0 bytes" in text


def test_without_a_contract_nothing_is_promised_and_nothing_replayed(client, operator, agent):
    intent = uncertain(without_contract(agent.tenant), replay_until=None)
    text = client.get(page_of(intent)).text
    assert "It cannot be replayed safely" in text
    assert text.count("Not documented") >= 3
    assert "a second one could send a second email" in text
    assert "/replay/" not in text
    # Where it can be looked up, asking comes first; it is offered once.
    assert text.count("/ask-provider/") == 2  # action and hx-post of one form


def test_where_only_a_person_can_tell_there_are_the_two_marks(client, operator, agent):
    intent = uncertain(without_contract(agent.tenant, look_up=False), replay_until=None)
    text = client.get(page_of(intent)).text
    assert "/ask-provider/" not in text
    assert "/replay/" not in text
    assert "/mark-accepted/" in text
    assert "/mark-not-accepted/" in text


def test_after_the_window_replay_is_a_line_and_no_button(client, agent, operator):
    intent = uncertain(agent, since=23 * HOUR)
    text = client.get(page_of(intent)).text
    assert "No time is left to replay safely" in text
    assert "Replaying could send a second email" in text
    assert "/replay/" not in text


def test_other_emails_of_that_minute_are_evidence(client, agent, operator):
    intent = uncertain(agent, since=timedelta(seconds=5))
    for outcome in (Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.THROTTLED):
        make_attempt(make_intent(agent, status=Status.SUBMITTED), outcome=outcome)
    assert "2 of 3 other attempts in that minute were accepted" in client.get(page_of(intent)).text


def test_silence_is_evidence_only_where_news_has_come_before(client, agent, operator):
    intent = uncertain(agent)
    assert "No delivery event" not in client.get(page_of(intent)).text
    Account.objects.filter(pk=intent.account_id).update(webhook_seen_at=database_now())
    assert "No delivery event for 1 h" in client.get(page_of(intent)).text


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER])
def test_who_may_not_settle_sees_all_and_who_can(client, agent, role):
    intent = uncertain(agent)
    client.force_login(make_person(agent.tenant, role))
    text = client.get(page_of(intent)).text
    assert "An operator settles this." in text
    assert "All 2,318 bytes were sent." in text
    main = text.partition('id="uncertain"')[2].partition("</main>")[0]
    assert "<form" not in main
    for verb in VERBS:
        assert post(client, intent, verb).status_code == 403
        assert post(client, intent, verb, headers=HTMX).status_code == 403
    assert fresh(intent).fence == intent.fence


def test_what_is_of_another_tenant_is_not_there(client, agent, operator):
    foreign = uncertain(make_agent_at())
    assert client.get(page_of(foreign)).status_code == 404
    for verb in VERBS:
        assert post(client, foreign, verb).status_code == 404
    assert fresh(foreign).fence == foreign.fence


def test_the_one_before_and_after_are_a_step_away(client, agent, operator):
    now = database_now()
    first, second, third = (
        uncertain(agent, replay_until=now + hours * HOUR) for hours in (1, 2, 3)
    )
    text = client.get(page_of(second)).text
    assert "2 of 3" in text
    assert f'href="{page_of(first)}"' in text
    assert f'href="{page_of(third)}"' in text


def test_a_detail_asks_the_database_little(client, agent, operator, asks_at_most):
    intent = uncertain(agent)
    with asks_at_most(15 + 2):  # no worker has shown itself: two more to see that
        client.get(page_of(intent))


def test_every_id_and_field_stands_once_on_the_page(client, agent, operator):
    alone(agent.tenant)
    ids = re.findall(r'\sid="([^"]+)"', client.get(page_of(uncertain(agent))).text)
    assert len(ids) == len(set(ids))


# Settling


def test_a_replay_is_scheduled_and_the_page_says_so(client, agent, operator):
    intent = uncertain(agent)
    answer = post(client, intent, "replay", headers=HTMX)
    assert answer.status_code == 200
    assert "is replayed with the same key" in answer.text
    assert "the answer decides what follows" in answer.text
    assert 'id="settle"' not in answer.text
    assert "<html" not in answer.text
    assert fresh(intent).status == Status.RETRY_SCHEDULED


def test_without_htmx_one_is_led_back(client, agent, operator):
    intent = uncertain(agent)
    answer = post(client, intent, "replay")
    assert answer["Location"] == page_of(intent)
    page = client.get(page_of(intent)).text
    assert "is replayed with the same key" in page


def test_replayed_twice_with_one_form_it_is_recorded_once(client, agent, operator):
    intent = uncertain(agent)
    once = {"action_id": uuid.uuid4()}
    for _ in range(2):
        assert post(client, intent, "replay", once).status_code == 302
    assert AuditEntry.objects.filter(verb="replay").count() == 1


def test_a_replay_to_a_suppressed_address_is_refused(client, agent, operator):
    intent = uncertain(agent)
    Suppression.objects.create(
        tenant=agent.tenant,
        normal="customer@example.org",
        cause=SuppressionCause.COMPLAINED,
        since=database_now(),
    )
    for headers in ({}, HTMX):
        answer = post(client, intent, "replay", headers=headers)
        assert answer.status_code == 409
        assert "customer@example.org was suppressed" in answer.text
        assert "autofocus" in answer.text
    assert fresh(intent).status == Status.UNCERTAIN


def test_marked_as_accepted_with_evidence(client, agent, operator):
    intent = uncertain(agent)
    answer = mark(client, intent, "accepted", {"provider_message_id": "sbx_77"}, headers=HTMX)
    assert answer.status_code == 200
    assert "Settled: accepted by provider" in answer.text
    settled = fresh(intent)
    assert (settled.status, settled.provider_message_id) == (Status.SUBMITTED, "sbx_77")
    assert Evidence.objects.get(intent=intent).value == "msg_0191"


@pytest.mark.parametrize("way", ["accepted", "not-accepted"])
@pytest.mark.parametrize("missing", ["value", "note"])
def test_a_mark_needs_its_evidence(client, agent, operator, way, missing):
    intent = uncertain(agent)
    for headers in ({}, HTMX):
        answer = mark(client, intent, way, {missing: " "}, headers=headers)
        assert answer.status_code == 422
        assert "it is kept as evidence" in answer.text
        assert answer.text.count("There is a problem") == 1
        assert re.search(r"<details\s+open", answer.text)
    assert "<title>Error:" in re.sub(r"\s+", " ", mark(client, intent, way, {missing: ""}).text)
    assert fresh(intent).status == Status.UNCERTAIN


def test_a_second_operator_confirms_that_it_was_not_accepted(client, agent, operator):
    intent = uncertain(agent)
    answer = mark(client, intent, "not-accepted", headers=HTMX)
    assert "Another operator has to confirm it" in answer.text
    assert "You made this finding" in answer.text
    assert fresh(intent).status == Status.UNCERTAIN

    assert confirm(client, intent).status_code == 409
    again = mark(client, intent, "not-accepted")
    assert again.status_code == 409
    assert "another operator has to confirm it" in again.text

    client.force_login(make_person(agent.tenant, Role.OPERATOR))
    page = client.get(page_of(intent)).text
    assert operator.email in page
    assert "Confirm: not accepted" in page
    assert confirm(client, intent, note="").status_code == 422
    assert confirm(client, intent).status_code == 302
    assert fresh(intent).status == Status.DEAD_LETTER
    assert "Settled: found not accepted" in client.get(page_of(intent)).text
    assert "awaits confirmation" not in client.get("/uncertain/").text


def test_a_finding_that_waits_is_marked_in_the_list(client, agent, operator):
    mark(client, uncertain(agent), "not-accepted")
    assert "awaits confirmation" in client.get("/uncertain/").text


@pytest.mark.parametrize(
    ("then", "status", "leads_to"),
    [
        ("leave", Status.DEAD_LETTER, "/uncertain/{}/"),
        ("close", Status.DEAD_LETTER, "/uncertain/{}/"),
        ("resend", Status.QUEUED, "/uncertain/{}/"),
        ("edit", Status.DEAD_LETTER, "/messages/{}/edit/"),
    ],
)
def test_one_may_go_on_in_the_same_step(client, agent, operator, then, status, leads_to):
    alone(agent.tenant)
    intent = uncertain(agent, approval_expires_at=database_now() + HOUR)
    answer = mark(client, intent, "not-accepted", {"then": then})
    assert answer["Location"] == leads_to.format(intent.action.number)
    assert fresh(intent).status == status
    assert (fresh(intent).closed_at is not None) is (then == "close")


def test_after_the_window_sending_again_is_a_new_version(client, agent, operator):
    alone(agent.tenant)
    intent = uncertain(agent, since=30 * HOUR)
    mark(client, intent, "not-accepted", {"then": "resend"})
    newer = SendIntent.objects.get(action=intent.action, version=2)
    assert (newer.resend_of, newer.status) == (intent, Status.AWAITING_APPROVAL)


def test_where_it_cannot_be_sent_again_the_finding_stands(client, agent, operator):
    alone(agent.tenant)
    intent = uncertain(agent, approval_expires_at=database_now())
    answer = mark(client, intent, "not-accepted", {"then": "resend"}, headers=HTMX)
    assert answer.status_code == 409
    assert "approval is too old" in answer.text
    assert "found not accepted" in answer.text
    assert fresh(intent).status == Status.DEAD_LETTER


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("headers", [{}, HTMX])
def test_what_was_settled_meanwhile_is_said_and_not_settled_again(
    client, agent, operator, verb, headers
):
    intent = uncertain(agent)
    resolve.mark_accepted(
        intent.pk, person=make_person(agent.tenant, Role.OPERATOR), value="x", note="Found it"
    )
    before = fresh(intent).fence
    way = {
        "mark-accepted": "accepted",
        "mark-not-accepted": "not-accepted",
        "confirm-not-accepted": "confirming",
    }.get(verb, "")
    evidence = {"value": "y", "note": "Not there", "then": "leave"}
    answer = post(client, intent, verb, evidence, prefix=way, headers=headers)
    assert answer.status_code == 409
    assert "Settled: accepted by provider" in answer.text
    assert "Found it" in answer.text
    assert 'id="settle"' not in answer.text
    assert fresh(intent).fence == before


def test_an_open_page_turns_into_settled_by_itself_and_never_under_ones_hands(
    client, agent, operator
):
    intent = uncertain(agent)
    assert client.get(page_of(intent), headers=HTMX).status_code == 204
    mark(client, intent, "accepted")
    answer = client.get(page_of(intent), headers=HTMX)
    assert "Settled: accepted by provider" in answer.text
    assert "data-polls" not in answer.text
    assert "<form" not in answer.text


def test_a_page_of_what_never_was_uncertain_says_where_it_stands(client, agent, operator):
    intent = make_intent(agent, status=Status.QUEUED)
    text = client.get(page_of(intent)).text
    assert "Settled: approved" in text or "Approved" in text
    assert 'id="settle"' not in text


def test_a_form_that_cannot_be_read_changes_nothing(client, agent, operator):
    intent = uncertain(agent)
    answer = post(client, intent, "replay", {"action_id": "x"})
    assert answer.status_code == 422
    assert "could not be read" in answer.text
    assert post(client, intent, "replay", {"version": 9}).status_code == 404
    assert fresh(intent).status == Status.UNCERTAIN


# Asking the provider


def test_asking_finds_nothing_and_proves_nothing(client, agent):
    with sandbox_with("replay") as sandbox:
        agent = make_agent_of(sandbox)
        client.force_login(make_person(agent.tenant, Role.OPERATOR))
        intent = uncertain(agent)
        answer = post(client, intent, "ask-provider", headers=HTMX)
    assert answer.status_code == 200
    assert "no messages found" in answer.text
    assert fresh(intent).status == Status.UNCERTAIN
    text = client.get(page_of(intent)).text
    assert "Asked the provider" in text


def test_a_provider_that_cannot_be_asked_is_said_to_be_so(client, agent, operator):
    intent = uncertain(without_contract(agent.tenant, look_up=False), replay_until=None)
    answer = post(client, intent, "ask-provider")
    assert answer.status_code == 409
    assert "cannot be asked" in answer.text


def test_after_a_replay_under_way_the_page_says_what_is_waited_for(client, agent, operator):
    intent = uncertain(agent)
    move(
        intent,
        Status.RETRY_SCHEDULED,
        now=database_now(),
        next_attempt_at=database_now() + HOUR,
    )
    assert "the answer decides what follows" in client.get(page_of(intent)).text
