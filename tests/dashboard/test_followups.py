"""Writing to somebody again in the thread of an email that is out."""

import uuid

import pytest

from sends.models import Role, SendIntent, Suppression, SuppressionCause, database_now
from sends.rules.payloads import thaw
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person, make_tenant
from tests.lifecycle.tampering import no_triggers

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def agent():
    return make_agent_at()


@pytest.fixture
def out(agent, client):
    """An email that the provider took, read by an approver."""
    client.force_login(make_person(agent.tenant, Role.APPROVER))
    return make_intent(
        agent,
        status=Status.SUBMITTED,
        to=("a@example.org", "b@example.org"),
        cc=("c@example.net",),
        subject="Your order 7731",
    )


def url(intent):
    return f"/messages/{intent.action.number}/follow-up/"


def write(client, intent, **kwargs):
    given = {
        "action_id": uuid.uuid4(),
        "version": intent.version,
        "to": "a@example.org",
        "subject": "Re: Your order 7731",
        "text": "One more thing.",
        "reason": "The first one forgot the time.",
        **kwargs.pop("data", {}),
    }
    return client.post(url(intent), given, **kwargs)


def newest():
    return SendIntent.objects.order_by("pk").last()


def test_it_begins_to_the_same_people_in_the_same_thread(client, out):
    text = client.get(url(out)).text
    assert "a@example.org\nb@example.org" in text
    assert "c@example.net" in text
    assert 'value="Re: Your order 7731"' in text


def test_what_was_attached_is_offered_and_not_sent_again_by_itself(client, agent, out):
    out = make_intent(agent, status=Status.SUBMITTED, files={"a.pdf": b"a", "b.pdf": b"b"})
    page = client.get(url(out)).text
    assert page.count('name="attachments"') == 2
    assert " checked" not in page

    write(client, out)
    assert thaw(bytes(newest().payload.body)).message.attachments == ()
    write(client, out, data={"attachments": ["1"]})
    [one] = thaw(bytes(newest().payload.body)).message.attachments
    assert one.filename == "b.pdf"


def test_it_is_a_new_message_linked_both_ways_and_needs_approval(client, out):
    answer = write(client, out)
    created = newest()
    number = created.action.number
    assert answer["Location"] == f"/messages/{number}/"
    assert created.status == Status.AWAITING_APPROVAL
    assert thaw(bytes(created.payload.body)).message.in_reply_to == out.message_id
    assert f"#{out.action.number}</a>" in client.get(f"/messages/{number}/").text
    before = client.get(f"/messages/{out.action.number}/").text
    assert f"#{number}</a>" in before
    assert "The first one forgot the time." in before


def test_sent_twice_it_is_written_once(client, out):
    once = {"action_id": uuid.uuid4()}
    answers = {write(client, out, data=once)["Location"] for _ in range(2)}
    assert len(answers) == 1
    assert out.tenant.actions.count() == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"to": "nobody"}, "is not an address"),
        ({"to": ""}, "This field is required"),
        ({"text": ""}, "needs a body"),
        ({"reason": ""}, "Give a reason for the follow-up"),
        ({"cc": "a@example.org"}, "same recipient"),
    ],
)
@pytest.mark.parametrize("headers", [{}, HTMX])
def test_what_is_wrong_is_said_and_what_was_typed_is_kept(client, out, data, said, headers):
    answer = write(client, out, data={"subject": "Kept words", **data}, headers=headers)
    assert answer.status_code == 422
    assert said in answer.text
    assert "Kept words" in answer.text
    assert ("<html" in answer.text) is (not headers)


def test_htmx_is_led_to_the_new_message(client, out):
    answer = write(client, out, headers=HTMX)
    assert answer["HX-Redirect"] == f"/messages/{newest().action.number}/"


@pytest.mark.parametrize("status", [Status.QUEUED, Status.CANCELLED, Status.DEAD_LETTER])
def test_what_was_never_out_is_not_followed_up(client, agent, out, status):
    intent = make_intent(agent, status=status)
    answer = write(client, intent)
    assert answer.status_code == 409
    assert "was never sent" in answer.text


def test_to_a_suppressed_address_nothing_is_written(client, agent, out):
    Suppression.objects.create(
        tenant=agent.tenant,
        normal="a@example.org",
        cause=SuppressionCause.BOUNCED,
        since=database_now(),
    )
    answer = write(client, out)
    assert answer.status_code == 409
    assert out.tenant.actions.count() == 1


def test_a_viewer_may_not_write_and_a_stranger_finds_nothing(client, agent, out):
    client.force_login(make_person(agent.tenant, Role.VIEWER))
    assert client.get(url(out)).status_code == 403
    assert write(client, out).status_code == 403
    client.force_login(make_person(make_tenant(), Role.ADMIN))
    assert client.get(url(out)).status_code == 404


def test_where_the_text_was_deleted_it_says_so(client, out):
    with no_triggers(type(out.payload)):
        out.payload.delete()
    answer = client.get(url(out))
    assert answer.status_code == 409
    assert "no longer stored" in answer.text
