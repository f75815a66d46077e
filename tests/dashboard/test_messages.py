"""The list of all emails: pages, filters as text and as fields, and states that change."""

import re

import pytest

from sends.dashboard import messages
from sends.models import Approval, Cause, Delivery, Role, Switch, Verdict, database_now
from sends.rules.statuses import DeliveryState, Status
from tests.factories import make_agent_at, make_intent, make_person, make_run

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


@pytest.fixture
def agent():
    return make_agent_at()


@pytest.fixture(autouse=True)
def viewer(agent, client):
    person = make_person(agent.tenant, Role.VIEWER)
    client.force_login(person)
    return person


def numbers(answer):
    return [int(number) for number in re.findall(r'href="/messages/(\d+)/', answer.text)]


def table(answer):
    return answer.text.partition("<tbody>")[2].partition("</tbody>")[0]


def test_an_empty_list_says_what_appears_here(client):
    assert "No emails yet" in client.get("/messages/").text


def test_a_search_without_a_hit_offers_to_clear_it(client, agent):
    make_intent(agent)
    text = client.get("/messages/?q=refund").text
    assert "Nothing matches" in text
    assert "Clear filters" in text


def test_a_viewer_sees_every_email_the_newest_first(client, agent):
    intents = [make_intent(agent, status=status) for status in Status]
    answer = client.get("/messages/")
    assert numbers(answer) == [intent.action.number for intent in reversed(intents)]
    assert f"{len(intents)} emails of the last 90 days" in re.sub(r"\s+", " ", answer.text)


def test_pages_lead_there_and_back_without_a_gap(client, agent, monkeypatch):
    monkeypatch.setattr(messages, "PAGE", 2)
    made = [make_intent(agent).action.number for _ in range(5)][::-1]
    seen, address, pages = [], "/messages/", 0
    while address:
        answer = client.get(address)
        seen += numbers(answer)
        last, pages = address, pages + 1
        address = link(answer, "next")
    assert (seen, pages) == (made, 3)
    back = client.get(link(client.get(last), "prev"))
    assert numbers(back) == made[2:4]
    first = client.get(link(back, "prev"))
    assert numbers(first) == made[:2]
    assert link(first, "prev") == ""
    assert numbers(client.get(link(first, "next"))) == made[2:4]


def link(answer, rel):
    found = re.search(rf'rel="{rel}"\s+href="([^"]+)"', answer.text)
    return "/messages/" + found[1].replace("&amp;", "&") if found else ""


def test_pages_keep_the_search(client, agent, monkeypatch):
    monkeypatch.setattr(messages, "PAGE", 1)
    for subject in ("Refund one", "Refund two", "Other"):
        make_intent(agent, subject=subject)
    second = client.get(link(client.get("/messages/?q=refund"), "next"))
    assert "Refund one" in second.text
    assert 'value="refund"' in second.text


def test_a_count_ends_at_a_thousand(client, agent, monkeypatch):
    monkeypatch.setattr(messages, "PAGE", 1)
    monkeypatch.setattr(messages, "MOST_COUNTED", 2)
    for _ in range(3):
        make_intent(agent)
    assert "2+ email" in client.get("/messages/").text
    # Words are looked for row by row; counting them would read on to the end.
    counted = client.get("/messages/?q=order")
    assert not re.search(r"\d+\+? email", counted.text)


@pytest.mark.parametrize("page", ["?before=x", "?after=x", "?before=", "?q=" + "a" * 5000])
def test_nonsense_in_the_address_is_the_first_page(client, agent, page):
    make_intent(agent, subject="a" * 900)
    assert client.get(f"/messages/{page}").status_code == 200


def test_what_is_not_understood_is_said(client, agent):
    make_intent(agent)
    text = client.get("/messages/?q=stat:uncertain").text
    assert "stat: is not a filter" in text
    assert "<tbody>" not in text
    assert "<title>Error:" in re.sub(r"\s+", " ", text)


def test_fields_write_the_text_that_could_have_been_typed(client, agent):
    run = make_run(agent, name="14 Oct, 08:00")
    intent = make_intent(agent, run=run, status=Status.UNCERTAIN, subject="Refund")
    make_intent(agent, subject="Refund")
    answer = client.get(
        "/messages/",
        {"filter": "1", "q": "refund state:queued", "state": "uncertain", "run": run.name},
    )
    assert numbers(answer) == [intent.action.number]
    assert 'value="refund state:uncertain run:&quot;14 Oct, 08:00&quot;"' in answer.text
    assert re.search(r'<option value="uncertain"\s+selected', answer.text)
    assert "<details open" in re.sub(r"\s+", " ", answer.text)


def test_a_field_that_cannot_be_read_is_said(client, agent):
    answer = client.get("/messages/", {"filter": "1", "since": "yesterday", "state": "lost"})
    assert "There is a problem" in answer.text


def test_htmx_gets_what_was_found_and_the_address_it_has(client, agent):
    make_intent(agent)
    answer = client.get("/messages/?q=state:awaiting_approval", headers=HTMX)
    assert "<html" not in answer.text
    assert answer["HX-Push-Url"] == "/messages/?q=state%3Aawaiting_approval"
    assert re.search(r'<option value="awaiting_approval"\s+selected', answer.text)
    assert client.get("/messages/", headers=HTMX)["HX-Push-Url"] == "/messages/"
    history = {**HTMX, "HX-History-Restore-Request": "true"}
    assert "<html" in client.get("/messages/", headers=history).text


def test_an_older_version_that_is_found_is_opened_as_such(client, agent):
    first = make_intent(agent, status=Status.SUPERSEDED)
    make_intent(agent, action=first.action)
    text = client.get(f"/messages/?q={first.idempotency_key}").text
    assert f'href="/messages/{first.action.number}/v/1/"' in text


# States


def state_in(client):
    return re.findall(r"</svg>([^<]+)</span>", table(client.get("/messages/")))


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (["accepted"], ["Accepted by provider"]),
        (["delivered"], ["Delivered"]),
        (["delivered", "delivered"], ["Delivered"]),
        (["delivered", "deferred"], ["Deferred", "1 of 2 delivered"]),
        (["delivered", "bounced", "deferred"], ["Bounced", "1 of 3 delivered"]),
        (["delivered", "accepted"], ["Accepted by provider", "1 of 2 delivered"]),
        (["complained", "delivered"], ["Complained", "1 of 2 delivered"]),
        (["no_news"], ["No news"]),
        (["delivered", "no_news"], ["No news", "1 of 2 delivered"]),
    ],
)
def test_what_was_taken_shows_its_worst_recipient(client, agent, states, shown):
    addresses = tuple(f"{place}@example.org" for place in range(len(states)))
    intent = make_intent(agent, status=Status.SUBMITTED, to=addresses)
    for position, state in enumerate(states):
        Delivery.objects.filter(intent=intent, position=position).update(state=DeliveryState(state))
    assert state_in(client) == shown


def test_a_bounced_dead_letter_is_shown_as_bounced_and_a_closed_one_as_closed(client, agent):
    now = database_now()
    bounced = make_intent(agent, status=Status.SUBMITTED)
    Delivery.objects.filter(intent=bounced).update(state=DeliveryState.BOUNCED)
    make_intent(agent, status=Status.DEAD_LETTER, closed_at=now)
    assert state_in(client) == ["Dead letter, closed", "Bounced"]


def test_one_of_two_approvals_and_what_stops_it_stand_beside_the_state(client, agent):
    run = make_run(agent)
    make_intent(agent, status=Status.QUEUED)
    make_intent(agent, run=run, status=Status.RETRY_SCHEDULED)
    approved = make_intent(agent)
    Approval.objects.create(
        intent=approved,
        digest=approved.digest,
        verdict=Verdict.APPROVE,
        person=make_person(agent.tenant),
        made_at=database_now(),
    )
    assert state_in(client) == ["1 of 2 approvals", "Retry scheduled", "Approved"]
    Switch.objects.filter(pk=run.pk).update(causes=Cause.PAUSED)
    Switch.objects.filter(pk=agent.sender.pk).update(causes=Cause.BLOCKED)
    assert state_in(client) == [
        *("1 of 2 approvals", "Retry scheduled", "Halted", "Approved", "On hold"),
    ]


def test_states_change_in_an_open_list(client, agent):
    intent = make_intent(agent, status=Status.SUBMITTED)
    foreign = make_intent(make_agent_at(), status=Status.SUBMITTED)
    Delivery.objects.update(state=DeliveryState.DELIVERED)
    answer = client.get(
        f"/live/?ids={intent.pk},{foreign.pk}",
        headers={**HTMX, "HX-Current-URL": "http://testserver/messages/?q=1"},
    )
    assert f"#state-{intent.pk}" in answer.text
    assert str(foreign.pk) not in answer.text


def test_it_asks_the_database_little(client, agent, asks_at_most):
    for status in (Status.SUBMITTED, Status.AWAITING_APPROVAL, Status.QUEUED):
        make_intent(agent, status=status)
    with asks_at_most(8 + 2):  # no worker has shown itself: two more to see that
        client.get("/messages/")
