"""The inbox: who sees what, and each decision by each role, with HTMX and without."""

import re
import uuid
from datetime import timedelta

import pytest
from django.utils import timezone

from sends.lifecycle import cancelling, editing, review
from sends.lifecycle.halts import halt_run, turn_off
from sends.models import Approval, Payload, Role, SendIntent, Suppression, Verdict
from sends.rules.payloads import thaw
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import (
    make_account,
    make_agent,
    make_agent_at,
    make_intent,
    make_person,
    make_run,
    make_sender,
    make_tenant,
)

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true", "HX-Current-URL": "http://testserver/approvals/"}
WAIT = timedelta(seconds=30)


@pytest.fixture
def tenant():
    return make_tenant(undo_time=WAIT)


@pytest.fixture
def agent(tenant):
    return make_agent_at(tenant)


@pytest.fixture
def person(client, tenant):
    person = make_person(tenant)
    client.force_login(person)
    return person


def number(intent):
    return intent.action.number


def status(intent):
    return SendIntent.objects.get(pk=intent.pk).status


def post(client, intent, verb, *, htmx=False, query="", **data):
    given = {"version": intent.version, "digest": intent.digest, "action_id": uuid.uuid4(), **data}
    headers = HTMX if htmx else {}
    return client.post(f"/messages/{number(intent)}/{verb}/{query}", given, headers=headers)


def send_back(client, intent, outcome="changes", **data):
    words = {"reason_code": "tone", "note": "Please be kinder to them."}
    return post(client, intent, "send-back", outcome=outcome, **{**words, **data})


def next_version(intent, person, **changes):
    """Version 2 by a person, as an edit makes it."""
    before = thaw(bytes(Payload.objects.get(intent=intent).body)).message
    message = type(before)(**{**vars(before), **changes})
    return editing.edit(
        intent.pk, person=person, message=message, digest=intent.digest, reason="wrong date"
    )


# Reading


def test_the_oldest_comes_first_and_is_open_beside_the_list(client, agent, person):
    old, new = make_intent(agent, subject="Oldest"), make_intent(agent, subject="Newest")
    page = client.get("/approvals/")
    assert page.text.index(f'id="m{number(old)}"') < page.text.index(f'id="m{number(new)}"')
    assert re.search(r"<h2[^>]*>Oldest</h2>", page.text)
    assert "is-open" not in page.text


def test_an_address_with_a_number_opens_that_email(client, agent, person):
    make_intent(agent)
    second = make_intent(agent, subject="The second")
    page = client.get(f"/approvals/{number(second)}/")
    assert "pane-detail has-decide is-open" in page.text
    assert second.digest in page.text


def test_htmx_gets_the_email_alone_with_the_rows_that_changed(client, agent, person):
    first, second, third = (make_intent(agent) for _ in range(3))
    answer = client.get(
        f"/approvals/{number(second)}/",
        headers={
            **HTMX,
            "HX-Target": "detail",
            "HX-Current-URL": f"http://testserver/approvals/{number(third)}/",
        },
    )
    assert "<html" not in answer.text
    assert re.findall(r'<li [^>]*id="m(\d+)"', answer.text) == [
        str(number(second)),
        str(number(third)),
    ]
    assert answer.text.count('aria-current="true"') == 2  # the row, and the tab
    assert str(number(first)) not in re.findall(r'<li [^>]*id="m(\d+)"', answer.text)


def test_going_back_in_the_browser_gets_a_whole_page(client, agent, person):
    intent = make_intent(agent)
    headers = {**HTMX, "HX-History-Restore-Request": "true"}
    assert "<html" in client.get(f"/approvals/{number(intent)}/", headers=headers).text


def test_an_empty_list_says_what_would_be_there(client, person):
    assert "Nothing to approve" in client.get("/approvals/").text
    assert "Clear filters" in client.get("/approvals/?agent=nobody").text


def test_another_tenants_email_is_not_found(client, person):
    stranger = make_tenant()
    stranger.last_number = 776
    stranger.save(update_fields=["last_number"])
    foreign = make_intent(make_agent_at(stranger))
    assert client.get("/approvals/777/").status_code == 404
    assert post(client, foreign, "approve").status_code == 404
    assert send_back(client, foreign).status_code == 404
    assert client.post("/messages/777/undo/", {"action_id": uuid.uuid4()}).status_code == 404


def test_what_an_agent_wrote_is_never_run_and_odd_letters_are_named(client, agent, person):
    make_intent(
        agent, subject="<script>alert(1)</script> \u202etxt", text="zero\u200bwidth", html=None
    )
    page = client.get("/approvals/?tab=text").text
    assert "<script>alert" not in page
    assert '<span class="odd">U+202E</span>' in page
    assert '<span class="odd">U+200B</span>' in page


def test_a_viewer_sees_the_list_but_neither_body_nor_controls(client, tenant, agent):
    client.force_login(make_person(tenant, Role.VIEWER))
    intent = make_intent(agent, text="Between us", html="<p>Between us</p>")
    for tab in ("html", "text", "headers", "changes", "history"):
        page = client.get(f"/approvals/{number(intent)}/?tab={tab}").text
        assert "Between us" not in page
        assert "/payload/" not in page
        assert "/approve/" not in page
    assert "An approver decides this" in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("agent=refunds", {"refund"}),
        ("sender=billing@mail.example.com", {"refund"}),
        ("domain=example.net", {"mixed"}),
        ("template=reminder", {"mixed"}),
        ("run=monday", {"plain"}),
        ("run=monday&agent=refunds", set()),
        ("view=nonsense", {"refund", "mixed", "plain"}),
    ],
)
def test_filters(client, tenant, agent, person, query, found):
    account = make_account(tenant)
    refunds = make_agent(make_sender(account, address="billing@mail.example.com"), slug="refunds")
    made = {
        "refund": make_intent(refunds),
        "mixed": make_intent(agent, to="a@example.org", cc=("b@example.net",), template="reminder"),
        "plain": make_intent(agent, run=make_run(agent, name="monday")),
    }
    page = client.get(f"/approvals/?{query}").text
    assert {name for name, it in made.items() if f'id="m{number(it)}"' in page} == found


def test_by_run_the_emails_of_one_run_stand_together(client, agent, person):
    first, second = make_run(agent, name="monday"), make_run(agent, name="tuesday")
    for run in (first, second, first, None):
        make_intent(agent, run=run)
    page = client.get("/approvals/?view=runs").text
    assert page.count("Halt run…") == 2
    assert "Without a run" in page
    assert "2 from" in page


def test_the_list_is_read_in_pages_without_losing_one(client, agent, person, monkeypatch):
    monkeypatch.setattr("sends.dashboard.inbox.PAGE", 2)
    made = [make_intent(agent) for _ in range(5)]
    seen, address = [], "/approvals/"
    while address:
        page = client.get(address).text
        seen += re.findall(r'<li [^>]*id="m(\d+)"', page)
        newer = re.search(r'rel="next"\s+href="([^"]+)"', page)
        address = newer.group(1).replace("&amp;", "&") if newer else ""
    assert seen == [str(number(intent)) for intent in made]


def test_list_and_detail_ask_the_database_little(client, agent, person, asks_at_most):
    run = make_run(agent)
    for _ in range(3):
        intent = make_intent(agent, run=run, html="<p>x</p>", to=("a@example.org", "b@example.org"))
    client.get("/approvals/")
    with asks_at_most(24):  # list, detail, frame and session in one page
        client.get("/approvals/")
    with asks_at_most(15):
        client.get(f"/approvals/{number(intent)}/", headers={**HTMX, "HX-Target": "detail"})


# Approving


@pytest.mark.parametrize("htmx", [False, True])
def test_approving_queues_it_and_opens_the_next(client, agent, person, htmx):
    first, second, third = (make_intent(agent, subject=f"No {i}") for i in range(3))
    answer = post(client, second, "approve", htmx=htmx, next=number(third))
    assert status(second) == Status.QUEUED
    address = f"/approvals/{number(third)}/"
    if not htmx:
        assert answer["Location"] == address
        return
    assert answer["HX-Push-Url"] == address
    assert f'<div id="m{number(second)}" hx-swap-oob="delete">' in answer.text
    assert f"#{number(second)} approved" in answer.text
    assert "Undo approval" in answer.text
    assert re.search(r"<h2[^>]*autofocus[^>]*>No 2</h2>", answer.text)
    assert f"#{number(second)} approved. Sends in" in answer.text
    assert status(first) == status(third) == Status.AWAITING_APPROVAL


def test_the_last_one_leaves_nothing_to_approve(client, agent, person):
    answer = post(client, make_intent(agent), "approve", htmx=True)
    assert answer["HX-Push-Url"] == "/approvals/"
    assert "Nothing to approve" in answer.text


def test_filters_stay_while_one_decides(client, agent, person):
    first, second = make_intent(agent), make_intent(agent)
    query = f"?agent={agent.slug}"
    answer = post(client, first, "approve", query=query)
    assert answer["Location"] == f"/approvals/{number(second)}/{query}"


def test_a_double_click_approves_once_and_answers_the_same(client, agent, person):
    intent = make_intent(agent, approvals_needed=2)
    once = uuid.uuid4()
    answers = [post(client, intent, "approve", htmx=True, action_id=once) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert Approval.objects.filter(intent=intent).count() == 1


@pytest.mark.parametrize("verb", ["approve", "send-back", "undo"])
def test_a_viewer_decides_nothing(client, tenant, agent, verb):
    client.force_login(make_person(tenant, Role.VIEWER))
    intent = make_intent(agent)
    data = {"outcome": "reject", "reason_code": "tone"}
    assert post(client, intent, verb, **data).status_code == 403
    assert post(client, intent, verb, htmx=True, **data).status_code == 403
    assert status(intent) == Status.AWAITING_APPROVAL


@pytest.mark.parametrize("role", [Role.APPROVER, Role.OPERATOR, Role.ADMIN])
def test_whoever_may_decide_approves(client, tenant, agent, role):
    client.force_login(make_person(tenant, role))
    intent = make_intent(agent)
    post(client, intent, "approve")
    assert status(intent) == Status.QUEUED


def test_a_decision_is_never_made_by_opening_an_address(client, agent, person):
    intent = make_intent(agent)
    for verb in ("approve", "undo"):
        assert client.get(f"/messages/{number(intent)}/{verb}/").status_code == 405
    assert client.get(f"/messages/{number(intent)}/send-back/").status_code == 200
    assert status(intent) == Status.AWAITING_APPROVAL


def test_the_first_of_two_approvals_leaves_my_list_and_says_so(client, tenant, agent, person):
    intent = make_intent(agent, approvals_needed=2)
    answer = post(client, intent, "approve", htmx=True)
    assert "1 of 2 approvals" in answer.text
    assert "A different person has to approve it as well" in answer.text
    assert row(intent) not in client.get("/approvals/").text
    assert row(intent) in client.get("/approvals/?view=mine").text
    other = make_person(tenant)
    client.force_login(other)
    page = client.get("/approvals/?view=second").text
    assert row(intent) in page
    assert str(person.email) in page
    post(client, intent, "approve")
    assert status(intent) == Status.QUEUED


def row(intent):
    return f'id="m{number(intent)}"'


def test_the_author_of_a_version_is_not_offered_to_approve_it(client, agent, person):
    intent = make_intent(agent)
    newer = next_version(intent, person, text="On Friday.")
    page = client.get(f"/approvals/{number(newer)}/").text
    assert "You wrote this version; somebody else has to approve it." in page
    assert "/approve/" not in page
    answer = post(client, newer, "approve", htmx=True)
    assert answer.status_code == 409
    assert status(newer) == Status.AWAITING_APPROVAL


# Sending back


@pytest.mark.parametrize(
    ("outcome", "becomes"),
    [("changes", Status.CHANGES_REQUESTED), ("reject", Status.REJECTED)],
)
@pytest.mark.parametrize("htmx", [False, True])
def test_sending_back(client, agent, person, outcome, becomes, htmx):
    intent, other = make_intent(agent), make_intent(agent)
    answer = send_back(client, intent, outcome, htmx=htmx)
    assert status(intent) == becomes
    decision = Approval.objects.get(intent=intent)
    assert (decision.reason_code, decision.note) == ("tone", "Please be kinder to them.")
    address = f"/approvals/{number(other)}/"
    assert (answer["HX-Push-Url"] if htmx else answer["Location"]) == address


def test_the_form_opens_with_what_was_pressed(client, agent, person):
    intent = make_intent(agent)
    form = client.get(f"/messages/{number(intent)}/send-back/?outcome=reject", headers=HTMX)
    assert "<html" not in form.text
    assert re.search(r'value="reject"[^>]* checked', form.text)
    whole = client.get(f"/messages/{number(intent)}/send-back/?outcome=changes").text
    assert re.search(r'value="changes"[^>]* checked', whole)
    assert row(intent) in whole


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"note": ""}, "Say what is wrong"),
        ({"note": "short"}, "at least 10 characters"),
        ({"reason_code": ""}, "Choose a reason"),
        ({"outcome": ""}, "Choose what should happen"),
        ({"outcome": "reject", "reason_code": "other", "note": ""}, "Say what is wrong"),
    ],
)
def test_what_is_missing_is_said_and_nothing_decided(client, agent, person, data, words):
    intent = make_intent(agent)
    for htmx in (False, True):
        outcome = data.get("outcome", "changes")
        rest = {name: value for name, value in data.items() if name != "outcome"}
        answer = send_back(client, intent, outcome, htmx=htmx, **rest)
        assert answer.status_code == 422
        assert words in answer.text
        assert "There is a problem" in answer.text
    assert "<title>\n" not in answer.text
    assert status(intent) == Status.AWAITING_APPROVAL


def test_a_rejection_may_go_without_words(client, agent, person):
    intent = make_intent(agent)
    send_back(client, intent, "reject", note="")
    assert status(intent) == Status.REJECTED


# Undo


@pytest.mark.parametrize("htmx", [False, True])
@pytest.mark.parametrize("decision", ["approve", "changes", "reject"])
def test_undo_brings_it_back(client, agent, person, decision, htmx):
    intent = make_intent(agent)
    if decision == "approve":
        post(client, intent, "approve")
    else:
        send_back(client, intent, decision)
    page = client.get("/approvals/").text
    assert f"/messages/{number(intent)}/undo/" in page
    answer = post(client, intent, "undo", htmx=htmx)
    assert status(intent) == Status.AWAITING_APPROVAL
    address = f"/approvals/{number(intent)}/"
    if htmx:
        assert answer["HX-Retarget"] == "#approvals"
        assert answer["HX-Push-Url"] == address
        assert row(intent) in answer.text
    else:
        assert answer["Location"] == address


def test_several_decisions_are_undone_one_by_one(client, agent, person):
    for _ in range(2):
        post(client, make_intent(agent), "approve")
    assert "2 decided" in client.get("/approvals/").text
    assert "Undo last" in client.get("/approvals/").text


def test_too_late_to_undo_is_said_in_place_of_the_strip(client, agent, person):
    intent = make_intent(agent)
    post(client, intent, "approve")
    SendIntent.objects.filter(pk=intent.pk).update(
        status=Status.IN_FLIGHT,
        fence=2,
        lease_token=uuid.uuid4(),
        lease_expires_at=timezone.now() + WAIT,
    )
    for htmx in (True, False):
        answer = post(client, intent, "undo", htmx=htmx)
        assert answer.status_code == 409
        assert "Too late to undo. Sending started at" in answer.text
        assert f"/messages/{number(intent)}/" in answer.text
    assert "UTC" not in answer.text.split("Sending started at")[1][:20]


def test_nobody_is_offered_to_undo_what_another_decided(client, tenant, agent, person):
    intent = make_intent(agent)
    review.approve(intent.pk, person=make_person(tenant), digest=intent.digest)
    assert "/undo/" not in client.get("/approvals/").text
    answer = post(client, intent, "undo")
    assert answer.status_code == 409
    assert status(intent) == Status.QUEUED


def test_while_sending_is_paused_the_strip_waits_without_a_countdown(client, tenant, agent, person):
    turn_off(tenant.pk, by=person, reason="wrong prices")
    answer = post(client, make_intent(agent), "approve", htmx=True)
    assert "Sending is paused: wrong prices" in answer.text
    assert "data-seconds" not in answer.text


# Conflicts


@pytest.mark.parametrize("htmx", [True, False])
def test_an_email_that_changed_is_not_approved_and_both_seals_are_shown(
    client, tenant, agent, person, htmx
):
    intent = make_intent(agent, subject="Old")
    newer = next_version(intent, make_person(tenant), subject="New")
    answer = post(client, intent, "approve", htmx=htmx)
    assert answer.status_code == 409
    assert "This email changed while you had it open" in answer.text
    assert f"/approvals/{number(intent)}/?tab=changes" in answer.text
    if htmx:
        assert answer["HX-Retarget"] == "#decide"
        for digest in (intent.digest, newer.digest):
            assert f"{digest[:4]} {digest[4:8]}" in answer.text
    assert status(newer) == Status.AWAITING_APPROVAL
    page = client.get(f"/approvals/{number(intent)}/?tab=changes").text
    assert "<del>Old</del>" in page
    assert "<ins>New</ins>" in page
    assert newer.digest in page


def test_a_typed_reason_goes_along_to_the_new_version(client, tenant, agent, person):
    intent = make_intent(agent)
    next_version(intent, make_person(tenant), subject="New")
    answer = send_back(client, intent, "reject", htmx=True, note="They never ordered this.")
    again = re.search(r'href="(/messages/\d+/send-back/[^"]+)"', answer.text).group(1)
    form = client.get(again.replace("&amp;", "&")).text
    assert "They never ordered this." in form
    assert re.search(r'value="reject"[^>]* checked', form)


@pytest.mark.parametrize("htmx", [True, False])
def test_who_comes_second_sees_who_was_first(client, tenant, agent, person, htmx):
    intent, lead = make_intent(agent), make_person(tenant)
    review.reject(
        intent.pk, person=lead, digest=intent.digest, note="", reason_code="wrong_recipient"
    )
    answer = post(client, intent, "approve", htmx=htmx)
    assert answer.status_code == 409
    assert f"{lead.email} rejected it at" in answer.text
    assert "Your approval was not counted." in answer.text


def test_the_same_decision_by_another_is_no_alarm(client, tenant, agent, person):
    intent = make_intent(agent)
    review.approve(intent.pk, person=make_person(tenant), digest=intent.digest)
    answer = post(client, intent, "approve", htmx=True)
    assert answer.status_code == 409
    assert "Approved by somebody else already" in answer.text
    assert "t-good" in answer.text


def test_a_forged_digest_approves_nothing(client, agent, person):
    intent = make_intent(agent)
    assert post(client, intent, "approve", digest="0" * 64).status_code == 409
    assert post(client, intent, "approve", digest="nonsense").status_code == 409
    assert status(intent) == Status.AWAITING_APPROVAL


def test_a_suppressed_recipient_leaves_editing_or_rejecting(client, tenant, agent, person):
    intent = make_intent(agent, to="gone@example.org")
    Suppression.objects.create(
        tenant=tenant, normal="gone@example.org", cause="bounced", since=timezone.now()
    )
    assert "A recipient is suppressed" in client.get("/approvals/").text
    answer = post(client, intent, "approve", htmx=True)
    assert answer.status_code == 409
    assert "gone@example.org was suppressed at" in answer.text
    assert f"/messages/{number(intent)}/edit/" in answer.text


def test_what_lapsed_or_was_withdrawn_is_told(client, agent, person):
    lapsed = make_intent(agent, decide_by=timezone.now() - WAIT)
    withdrawn = make_intent(agent)
    cancelling.withdraw(withdrawn.pk, agent=agent, reason="sold out")
    for intent, words in ((lapsed, "Nobody decided by"), (withdrawn, "cancelled")):
        answer = post(client, intent, "approve", htmx=True)
        assert answer.status_code == 409
        assert words in answer.text


def test_the_emails_of_a_halted_run_can_still_be_decided(client, tenant, agent, person):
    run = make_run(agent)
    intent = make_intent(agent, run=run)
    halt_run(run, person=person, reason="too many failures")
    assert "The run was halted" in client.get("/approvals/").text
    answer = post(client, intent, "approve", htmx=True)
    assert "Its run is halted: too many failures" in answer.text
    assert status(intent) == Status.QUEUED


def test_an_email_that_is_decided_says_so_when_it_is_opened(client, agent, person):
    intent = make_intent(agent)
    post(client, intent, "approve")
    page = client.get(f"/approvals/{number(intent)}/").text
    assert "Already decided" in page
    assert "/approve/" not in page


# Live


def live(client, *intents, query="", opened=""):
    return client.get(
        "/live/",
        {"ids": ",".join(str(intent.pk) for intent in intents)},
        headers={**HTMX, "HX-Current-URL": f"http://testserver/approvals/{opened}{query}"},
    ).text


def test_a_row_decided_elsewhere_turns_grey_where_it_stands(client, tenant, agent, person):
    intent, other, lead = make_intent(agent), make_intent(agent), make_person(tenant)
    review.reject(intent.pk, person=lead, digest=intent.digest, note="", reason_code="tone")
    answer = live(client, intent, other, opened=f"{number(intent)}/")
    assert f"Rejected by {lead.email}" in answer
    assert "is-gone" in answer
    assert row(other) not in answer


def test_newer_emails_are_offered_not_inserted(client, agent, person):
    shown = make_intent(agent)
    for _ in range(2):
        new = make_intent(agent)
    answer = live(client, shown)
    assert "2 newer emails · show them" in answer
    assert row(new) not in answer
    assert "newer" not in live(client, shown, query="?agent=nobody").replace('id="newer"', "")


def test_rows_of_another_tenant_are_not_told(client, person):
    foreign = make_intent(make_agent_at(), status=Status.QUEUED)
    assert "is-gone" not in live(client, foreign)


def test_the_history_tells_every_decision_and_its_end(client, tenant, agent, person):
    intent = make_intent(agent)
    post(client, intent, "approve")
    post(client, intent, "undo")
    send_back(client, intent, "changes")
    assert Approval.objects.filter(verdict=Verdict.CHANGES).exists()
    page = client.get(f"/approvals/{number(intent)}/?tab=history").text
    for words in ("Created by", "Approved", "Approval undone", "Changes requested", "kinder"):
        assert words in page


def test_who_decides_the_same_email_in_two_windows_is_told_so(client, agent, person):
    intent = make_intent(agent)
    post(client, intent, "approve")
    answer = post(client, intent, "approve", htmx=True)
    assert answer.status_code == 409
    assert "You decided this already" in answer.text


def test_what_a_restore_holds_says_that_it_may_have_been_sent(client, agent, person):
    intent = make_intent(agent, holds=HOLD_BITS[Hold.RESTORED])
    page = client.get(f"/approvals/{number(intent)}/").text
    assert "It may have been sent already" in page
    assert post(client, intent, "approve").status_code == 302
    assert status(intent) == Status.QUEUED
