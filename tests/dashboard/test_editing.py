"""Editing into a new version: compared first, saved exactly as compared, or not at all."""

import re
import uuid

import pytest

from sends.lifecycle import editing, review
from sends.lifecycle.intake import propose
from sends.models import Payload, Role, SendIntent
from sends.rules.payloads import thaw
from sends.rules.proposals import parse
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person

pytestmark = pytest.mark.django_db
HTML = "<p>Due on 9 October.</p>\r\n<p>Bye</p>"


@pytest.fixture
def agent():
    return make_agent_at()


@pytest.fixture
def person(client, agent):
    person = make_person(agent.tenant)
    client.force_login(person)
    return person


@pytest.fixture
def intent(agent):
    return make_intent(agent, text="Due on 9 October.", html=HTML)


def url(intent):
    return f"/messages/{intent.action.number}/edit/"


def fields(intent, **changes):
    return {
        "digest": intent.digest,
        "action_id": uuid.uuid4(),
        "to": "customer@example.org",
        "subject": intent.subject,
        "text": "Due on 9 October.",
        "html": HTML,
        "reason": "The date was wrong.",
        **changes,
    }


def compared(page):
    found = re.search(r'name="compared"[^>]* value="(\w{64})"', page.text)
    return found.group(1) if found else ""


def save(client, intent, **changes):
    """Compare, then save what was compared."""
    given = fields(intent, **changes)
    page = client.post(url(intent), given)
    return client.post(url(intent), {**given, "compared": compared(page)})


def message_of(intent):
    return thaw(bytes(Payload.objects.get(intent=intent).body)).message


def latest(intent):
    return SendIntent.objects.filter(action=intent.action).order_by("-version").first()


def test_the_form_holds_the_email_as_it_is(client, intent, person):
    page = client.get(url(intent)).text
    assert "customer@example.org" in page
    assert "&lt;p&gt;Due on 9 October.&lt;/p&gt;" in page
    assert intent.digest in page


def test_attachments_stay_unless_somebody_takes_them_off(client, agent, person):
    intent = make_intent(agent, html=HTML, files={"a.pdf": b"a", "b<i>\u202e.pdf": b"b"})
    page = client.get(url(intent)).text
    assert page.count('name="attachments"') == page.count(" checked>") == 2
    assert "b&lt;i&gt;<" in page

    save(client, intent, text="Both.", attachments=["0", "1"])
    both = latest(intent)
    save(client, both, text="Both.", attachments=["1"])
    one = latest(intent)

    assert message_of(both).attachments == message_of(intent).attachments
    assert message_of(one).attachments == message_of(intent).attachments[1:]
    assert one.attachment_uses.count() == 1


def test_taking_off_an_attachment_is_compared_like_everything_else(client, agent, person):
    intent = make_intent(agent, text="Due on 9 October.", html=HTML, files={"a.pdf": b"a"})
    page = client.post(url(intent), fields(intent)).text
    assert "1 change · new key" in page
    assert re.search(r"<del>.*a\.pdf", page)


def test_what_the_html_shows_goes_with_it(client, agent, person):
    logo = {"filename": "l.png", "content_type": "image/png", "content_base64": ""}
    inline = logo | {"content_id": "l", "inline": True}
    document = {"action_key": "k", "to": "jo@example.org", "html": HTML, "attachments": [inline]}
    intent = propose(parse(document), agent=agent).intent

    page = client.post(url(intent), fields(intent, html="", text="Hi", attachments=["0"]))

    assert page.status_code == 422
    assert "Some are part of the HTML" in page.text
    assert latest(intent) == intent


def test_the_first_post_compares_and_saves_nothing(client, intent, person):
    page = client.post(url(intent), fields(intent, text="Due on 19 October."))
    assert page.status_code == 200
    assert "<del>9</del>" in page.text
    assert "<ins>19</ins>" in page.text
    assert "1 change · new key · needs a new approval" in page.text
    assert latest(intent) == intent


def test_the_second_saves_what_was_compared(client, intent, person):
    answer = save(client, intent, text="Due on 19 October.", to="a@example.org\nJo <b@example.org>")
    newer = latest(intent)
    assert answer["Location"] == f"/approvals/{intent.action.number}/"
    assert (newer.version, newer.status, newer.author) == (2, Status.AWAITING_APPROVAL, person)
    intent.refresh_from_db()
    assert intent.status == Status.SUPERSEDED
    message = message_of(newer)
    assert message.text == "Due on 19 October."
    assert message.html == HTML  # to the byte, although browsers send other line ends
    assert [(box.name, box.address) for box in message.to] == [
        ("", "a@example.org"),
        ("Jo", "b@example.org"),
    ]


@pytest.mark.parametrize(
    "name",
    ["Doe, Jo", 'Jo "D" Doe', "Back\\slash", "  two  spaces ", "Dr. Jo", "a <b@c>", "שלום, יו"],
)
def test_a_name_stays_as_it_was_while_something_else_is_edited(client, agent, person, name):
    boxes = [{"name": name, "address": "jo@example.org"}, "al@example.org"]
    document = {"action_key": "a", "to": boxes, "subject": "One", "text": "Hello"}
    intent = propose(parse(document), agent=agent).intent
    form = client.get(url(intent)).context["form"]
    shown = form["to"].value()
    save(client, intent, to=shown, subject="Two", text="Hello", html="")
    message = message_of(latest(intent))
    assert (message.subject, message.to[0].name) == ("Two", name)
    assert [box.address for box in message.to] == ["jo@example.org", "al@example.org"]


def test_what_was_typed_after_the_comparison_is_compared_again(client, intent, person):
    page = client.post(url(intent), fields(intent, text="Due on 19 October."))
    given = fields(intent, text="Due on 29 October.", compared=compared(page))
    again = client.post(url(intent), given)
    assert "<ins>29</ins>" in again.text
    assert latest(intent) == intent


def test_nothing_changed_cannot_be_saved(client, intent, person):
    page = client.post(url(intent), fields(intent))
    assert "Nothing was changed" in page.text
    assert compared(page) == ""
    assert latest(intent) == intent


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"to": "not an address"}, "is not"),
        ({"to": " "}, "This field is required."),
        ({"text": "", "html": ""}, "text"),
        ({"reason": ""}, "Give a reason for the new version"),
        ({"cc": "customer@example.org"}, "the same recipient as To, line 1"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_is_kept(client, intent, person, changes, words):
    page = client.post(url(intent), fields(intent, **{"subject": "My subject", **changes}))
    assert page.status_code == 422
    assert "There is a problem" in page.text
    assert words in page.text
    assert "My subject" in page.text
    assert latest(intent) == intent


def test_a_base_that_changed_meanwhile_is_compared_with_and_not_overwritten(
    client, agent, intent, person
):
    given = fields(intent, text="My words.")
    page = client.post(url(intent), given)
    theirs = editing.edit(
        intent.pk,
        person=make_person(agent.tenant),
        message=message_of(intent).__class__(
            **{**vars(message_of(intent)), "text": "Their words."}
        ),
        digest=intent.digest,
        reason="mine first",
    )
    answer = client.post(url(intent), {**given, "compared": compared(page)})
    assert answer.status_code == 409
    assert "This email changed while you were editing" in answer.text
    assert "Their" in answer.text
    assert "My words." in answer.text
    assert latest(intent) == theirs
    # Having seen that, the person may save on top of it.
    again = {**given, "digest": theirs.digest, "compared": compared(answer)}
    client.post(url(intent), again)
    assert (latest(intent).version, message_of(latest(intent)).text) == (3, "My words.")


def test_sent_twice_it_makes_one_version(client, intent, person):
    given = fields(intent, text="Due on 19 October.")
    given["compared"] = compared(client.post(url(intent), given))
    for _ in range(2):
        client.post(url(intent), given)
    assert latest(intent).version == 2


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.IN_FLIGHT, "is being sent since"),
        (Status.UNCERTAIN, "We do not know whether version 1 was accepted"),
        (Status.SUBMITTED, "Send a follow-up instead"),
        (Status.REJECTED, "rejected"),
        (Status.CANCELLED, "cancelled"),
    ],
)
def test_what_is_out_or_may_be_is_not_edited(client, agent, person, status, words):
    intent = make_intent(agent, status=status)
    page = client.get(url(intent))
    assert page.status_code == 409
    assert words in page.text
    assert "<textarea" not in page.text
    assert client.post(url(intent), fields(intent)).status_code == 409


@pytest.mark.parametrize(
    "status",
    [Status.AWAITING_APPROVAL, Status.CHANGES_REQUESTED, Status.QUEUED, Status.DEAD_LETTER],
)
def test_what_was_never_taken_can_be_edited(client, agent, person, status):
    intent = make_intent(agent, status=status, text="Due on 9 October.", html=HTML)
    save(client, intent, text="Due on 19 October.")
    assert latest(intent).version == 2


def test_an_approval_of_the_old_version_does_not_carry_over(client, agent, intent, person):
    review.approve(intent.pk, person=make_person(agent.tenant), digest=intent.digest)
    save(client, intent, text="Due on 19 October.")
    assert latest(intent).status == Status.AWAITING_APPROVAL
    assert not latest(intent).approvals.exists()


def test_viewers_and_strangers_edit_nothing(client, intent):
    client.force_login(make_person(intent.tenant, Role.VIEWER))
    assert client.get(url(intent)).status_code == 403
    client.force_login(make_person(make_agent_at().tenant, Role.ADMIN))
    assert client.get(url(intent)).status_code == 404
