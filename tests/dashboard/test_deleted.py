"""After retention or an erasure every screen says so, and none of them fails."""

from datetime import timedelta

import pytest
from django.db import transaction

from sends.lifecycle import cancelling, erasure, refusals, requeue, resolve, versions
from sends.models import Delivery, Role, SendIntent, database_now
from sends.reports.deadletters import grouped
from sends.rules.outcomes import Outcome
from sends.rules.payloads import Mailbox, Message
from sends.rules.statuses import ENDED, Status
from tests.api.doors import Door
from tests.dashboard.test_every_address import TABLE, World
from tests.factories import (
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_run,
    make_token,
    purge,
)

pytestmark = pytest.mark.django_db

GONE = "What it said was deleted"
JANE = "jane@example.org"


@pytest.fixture
def agent():
    return make_agent_at()


def ended(agent, status, **fields):
    if status is Status.DEAD_LETTER:
        fields["closed_at"] = database_now()
    intent = make_intent(agent, status=status, to=JANE, html="<p>Hello</p>", **fields)
    make_attempt(intent, outcome=Outcome.REFUSED)
    return intent


@pytest.fixture(params=["purged", "erased"])
def deleted(request, agent):
    """Makes an intent of this status whose content is gone, in one of the two ways."""

    def make(status, **fields):
        intent = ended(agent, status, **fields)
        if request.param == "purged":
            return purge(intent)
        erasure.erase(agent.tenant, JANE)
        intent.refresh_from_db()
        return intent

    return make


ROOMS = (
    "anomalies",
    "approvals",
    "dead-letters",
    "live",
    "messages",
    "payload",
    "runs",
    "uncertain",
)
READ = [r for r in TABLE if TABLE[r][0] != "405" and r.partition("/")[0] in ROOMS]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
@pytest.mark.parametrize("status", [Status.DONE, Status.DEAD_LETTER])
def test_every_page_can_be_read(agent, deleted, status, role):
    run = make_run(agent)
    intent = deleted(status, run=run)
    values = {
        "number": intent.action.number,
        "uncertain_number": intent.action.number,
        "version": 1,
        "scope": agent.tenant_id,
        "digest": intent.digest,
        "run_id": run.pk,
        "anomaly_id": run.pk,
        "intent_id": intent.pk,
        "account": agent.sender.account.slug,
        "place": 0,
    }
    for group in grouped(agent.tenant, are_closed=True).groups:
        values["group"] = group.signature.id
    values.setdefault("group", "none")
    world = World(agent.tenant, values)
    client = world.client(role)
    for route in READ:
        assert client.get(world.address(route)).status_code < 500, route


@pytest.mark.parametrize("status", sorted(ENDED))
def test_the_page_of_the_message_says_that_and_when(client, agent, deleted, status):
    intent = deleted(status)
    client.force_login(make_person(agent.tenant))
    page = client.get(f"/messages/{intent.action.number}/").text
    assert GONE in page
    assert f"{intent.purged_at:%Y-%m-%dT%H:%M}" in page
    assert "Raw source" not in page


def test_an_erased_recipient_stands_nowhere_on_it(client, agent):
    intent = ended(agent, Status.DONE, subject="Jane's refund")
    erased = erasure.erase(agent.tenant, JANE)
    client.force_login(make_person(agent.tenant))
    for address in (f"/messages/{intent.action.number}/", "/messages/"):
        page = client.get(address).text
        assert "jane" not in page.lower()
        assert "(erased)" in page
    assert "A recipient was erased" in client.get(f"/messages/{intent.action.number}/").text
    assert erased.pseudonym in client.get(f"/messages/{intent.action.number}/").text


def test_the_bytes_are_gone_and_their_address_says_so(client, agent, deleted):
    intent = deleted(Status.DONE)
    client.force_login(make_person(agent.tenant))
    for part in ("html", "text", "raw", "eml"):
        answer = client.get(f"/payload/{intent.digest}/{part}/")
        assert answer.status_code == 410
        assert "deleted" in answer.text or "erased" in answer.text


def test_the_approvals_room_shows_it_as_history(client, agent, deleted):
    intent = deleted(Status.CANCELLED)
    client.force_login(make_person(agent.tenant))
    page = client.get(f"/approvals/{intent.action.number}/").text
    assert "Its digest, decisions and history stay." in page


def test_it_can_be_found(client, agent, deleted):
    intent = deleted(Status.DONE)
    client.force_login(make_person(agent.tenant))
    for query in (f"%23{intent.action.number}", intent.idempotency_key, intent.message_id):
        page = client.get(f"/messages/?q={query}").text
        assert f"/messages/{intent.action.number}/" in page


@pytest.mark.parametrize("room", ["edit", "follow-up"])
def test_nothing_is_written_from_it(client, agent, deleted, room):
    status = Status.DEAD_LETTER if room == "edit" else Status.DONE
    intent = deleted(status)
    client.force_login(make_person(agent.tenant))
    answer = client.get(f"/messages/{intent.action.number}/{room}/")
    assert answer.status_code == 409
    assert "What this email said was deleted at" in answer.text


def test_a_dead_letter_without_content_stays_closed(agent, deleted):
    intent = deleted(Status.DEAD_LETTER)
    person = make_person(agent.tenant, Role.OPERATOR)
    for act in (requeue.requeue, requeue.reopen):
        with pytest.raises(refusals.NotPossible, match="was deleted"):
            act(intent.pk, person=person)
    with pytest.raises(refusals.NotPossible, match="was deleted"):
        resolve.resend(intent.pk, person=person, reason="again")
    cancelling.cancel(intent.pk, person=person, reason="not needed")
    intent.refresh_from_db()
    assert intent.status == Status.CANCELLED


def test_no_version_follows_one_without_content(agent, deleted):
    intent = deleted(Status.DEAD_LETTER)
    message = Message(
        sender=Mailbox(agent.sender.address), to=(Mailbox("x@example.net"),), text="Hello"
    )
    with pytest.raises(refusals.NotPossible, match="was deleted"), transaction.atomic():
        versions.create_version(intent.action, message, agent=agent, now=database_now())


def test_one_that_a_restore_made_uncertain_is_not_replayed(agent):
    """A backup was restored after it was purged: nobody knows, and there is nothing to repeat."""
    intent = purge(ended(agent, Status.DEAD_LETTER))
    SendIntent.objects.filter(pk=intent.pk).update(
        status=Status.UNCERTAIN, in_doubt=True, fence=intent.fence + 1, closed_at=None
    )
    person = make_person(agent.tenant, Role.OPERATOR)
    with pytest.raises(refusals.NotPossible, match="was deleted"):
        resolve.replay(intent.pk, person=person)
    assert resolve.mark_accepted(intent.pk, person=person, value="abc", note="seen").accepted_at


def test_agents_are_told_too(client, agent, deleted):
    intent = deleted(Status.DONE)
    said = Door(make_token(agent), client).get(f"/intents/{intent.pk}").json()
    assert (said["metadata"], said["attachments"]) == ({}, [])
    assert said["purged_at"] is not None
    assert said["status"] == "done"


def test_an_address_is_known_to_have_been_sent_to_until_it_is_erased(client, agent):
    ended(agent, Status.DONE)
    erasure.erase(agent.tenant, JANE)
    assert not Delivery.objects.filter(normal=JANE).exists()
    waiting = make_intent(agent, to=JANE, now=database_now() + timedelta(seconds=1))
    client.force_login(make_person(agent.tenant))
    page = client.get(f"/approvals/{waiting.action.number}/").text
    assert "First email to this address" in page
