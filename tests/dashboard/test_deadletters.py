"""Dead letters in groups: what is shown to whom, and what becomes of each email."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from sends.lifecycle.requeue import close, requeue
from sends.models import (
    Agent,
    AuditEntry,
    Delivery,
    Direction,
    Evidence,
    EvidenceKind,
    Role,
    SendIntent,
    Suppression,
    SuppressionCause,
    database_now,
)
from sends.reports import deadletters as report
from sends.reports.deadletters import grouped
from sends.rules.outcomes import Outcome
from sends.rules.signatures import DeadClass
from sends.rules.statuses import DeliveryState, Status
from tests.factories import make_agent_at, make_attempt, make_intent, make_person, make_run

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true", "HX-Target": "group"}
HOUR = timedelta(hours=1)


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


@pytest.fixture
def client_of(client: Client, agent: Agent) -> Any:
    def signed_in(role: Role = Role.OPERATOR) -> Client:
        client.force_login(make_person(agent.tenant, role))
        return client

    return signed_in


def dead(agent: Agent, outcome: Outcome = Outcome.THROTTLED, **fields: Any) -> SendIntent:
    """A dead letter whose last attempt made it one."""
    now = fields.pop("now", None) or database_now()
    attempt = {
        "http_status": 429,
        "code": "too_many",
        "reason": "HTTP 429 too_many: Too many requests",
        **fields.pop("attempt", {}),
    }
    fields = {"approval_expires_at": now + HOUR, "end_reason": "all attempts are used up", **fields}
    intent = make_intent(agent, status=Status.DEAD_LETTER, now=now, **fields)
    make_attempt(intent, outcome=outcome, opened_at=now, **attempt)
    return intent


def refused(agent: Agent, **fields: Any) -> SendIntent:
    return dead(
        agent,
        Outcome.REFUSED,
        attempt={"http_status": 400, "code": "bad", "reason": "HTTP 400 bad: Not understood"},
        **fields,
    )


def bounced(agent: Agent, said: str = "550 5.1.1 User unknown", **fields: Any) -> SendIntent:
    now = database_now()
    intent = make_intent(agent, status=Status.DEAD_LETTER, accepted_at=now, now=now, **fields)
    Delivery.objects.filter(intent=intent).update(
        state=DeliveryState.BOUNCED, reason=said, failed_at=now
    )
    return intent


def suppress(agent: Agent, address: str) -> None:
    Suppression.objects.create(
        tenant=agent.tenant,
        normal=address,
        cause=SuppressionCause.BOUNCED,
        since=database_now(),
    )


def id_of(intent: SendIntent, *, are_closed: bool = False) -> str:
    for group in grouped(intent.tenant, are_closed=are_closed).groups:
        if any(letter.intent.pk == intent.pk for letter in group.letters):
            return group.signature.id
    raise AssertionError(f"{intent} is in no group")


def post(client: Client, verb: str, *intents: SendIntent, group: str = "", **data: Any) -> Any:
    headers = data.pop("headers", None)
    group = group or id_of(intents[0], are_closed=verb == "reopen")
    show = "?show=closed" if verb == "reopen" else ""
    sent = {"emails": [str(i.pk) for i in intents], "action_id": str(uuid.uuid4()), **data}
    return client.post(f"/dead-letters/{group}/{verb}/{show}", sent, headers=headers)


def status_of(intent: SendIntent) -> str:
    intent.refresh_from_db()
    return intent.status


# Grouping


def test_what_ended_alike_is_one_group_and_the_latest_comes_first(agent: Agent) -> None:
    two = [dead(agent), dead(agent)]
    one = refused(agent)
    found = grouped(agent.tenant)
    assert [len(group.letters) for group in found.groups] == [1, 2]
    assert found.groups[0].letters[0].intent == one
    assert {letter.intent for letter in found.groups[1].letters} == set(two)
    assert found.count == 3
    assert not found.is_capped


def found_not_accepted(agent: Agent) -> SendIntent:
    intent = dead(agent, Outcome.AMBIGUOUS)
    Evidence.objects.create(
        intent=intent,
        kind=EvidenceKind.PERSON,
        direction=Direction.NOT_ACCEPTED,
        proves=True,
        summary="asked them",
        person=make_person(agent.tenant, Role.OPERATOR),
        found_at=intent.status_at,
    )
    return intent


def suppressed_after_approval(agent: Agent) -> SendIntent:
    reason = "a@example.org was suppressed after this email was approved"
    return make_intent(agent, status=Status.DEAD_LETTER, end_reason=reason)


def suppressed_between_retries(agent: Agent) -> SendIntent:
    intent = suppressed_after_approval(agent)
    make_attempt(intent, outcome=Outcome.TRANSIENT, opened_at=intent.status_at - HOUR)
    return intent


def window_over(agent: Agent) -> SendIntent:
    now = database_now()
    return make_intent(agent, status=Status.DEAD_LETTER, now=now, replay_until=now - HOUR)


@pytest.mark.parametrize(
    ("happened", "kind"),
    [
        (dead, DeadClass.SPENT),
        (refused, DeadClass.CONTENT),
        (bounced, DeadClass.BOUNCED),
        (found_not_accepted, DeadClass.FOUND),
        (suppressed_after_approval, DeadClass.POLICY),
        (suppressed_between_retries, DeadClass.POLICY),
        (window_over, DeadClass.SPENT),
    ],
)
def test_how_it_ended_is_read_from_the_ledger(agent: Agent, happened: Any, kind: DeadClass) -> None:
    intent = happened(agent)
    (group,) = grouped(intent.tenant).groups
    assert group.signature.kind is kind


def test_only_so_many_are_read_and_the_page_says_so(
    agent: Agent, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "MOST", 2)
    for _ in range(3):
        dead(agent)
    page = client_of().get("/dead-letters/").text
    assert "newest 2 dead letters" in page
    assert "Open 2+" in page


def test_another_tenants_are_never_shown(agent: Agent, client_of: Any) -> None:
    other = dead(make_agent_at())
    page = client_of().get("/dead-letters/")
    assert "No dead letters" in page.text
    inside = client_of().get(f"/dead-letters/{id_of(other)}/")
    assert f"#{other.action.number}" not in inside.text
    answer = post(client_of(), "requeue", other)
    assert answer.status_code == 422
    assert status_of(other) == Status.DEAD_LETTER


# Reading


def test_the_filters_show_what_may_be_repeated_what_bounced_and_what_was_closed(
    agent: Agent, client_of: Any
) -> None:
    client = client_of()
    throttled, gone, shut = dead(agent), bounced(agent), refused(agent)
    close(shut.pk, person=make_person(agent.tenant, Role.OPERATOR), reason="not needed")

    def groups(show: str) -> set[str]:
        lines = client.get("/dead-letters/", {"show": show}).context["lines"]
        return {line.group.signature.kind for line in lines}

    assert groups("") == {DeadClass.SPENT, DeadClass.BOUNCED}
    assert groups("repeat") == {DeadClass.SPENT}
    assert groups("recipient") == {DeadClass.BOUNCED}
    assert groups("closed") == {DeadClass.CONTENT}
    assert groups("nonsense") == groups("")
    assert throttled != gone


def test_a_group_says_what_can_be_requeued_and_why_the_rest_stays_out(
    agent: Agent, client_of: Any
) -> None:
    dead(agent)
    out = dead(agent, to="gone@example.org")
    suppress(agent, "gone@example.org")
    page = client_of().get(f"/dead-letters/{id_of(out)}/")
    assert page.context["can_be"] == 1
    assert page.context["stay_out"] == 1
    assert f"#{out.action.number}: gone@example.org was suppressed at" in page.text
    picked = [row.letter.intent for row in page.context["rows"] if row.is_picked]
    assert out not in picked
    assert len(picked) == 1
    assert f"/messages/{out.action.number}/edit/" in page.text
    assert "HTTP 429" in page.text


def test_a_bounced_one_offers_a_follow_up_and_no_requeue(agent: Agent, client_of: Any) -> None:
    intent = bounced(agent)
    page = client_of().get(f"/dead-letters/{id_of(intent)}/").text
    assert f"/messages/{intent.action.number}/follow-up/" in page
    assert "0 can be requeued" in page
    assert "Requeue <span" not in page
    assert "550 5.1.1 User unknown" in page


def test_the_cause_looks_fixed_once_the_provider_takes_others(agent: Agent, client_of: Any) -> None:
    intent = dead(agent, now=database_now() - HOUR)
    url = f"/dead-letters/{id_of(intent)}/"
    assert "The cause looks fixed" not in client_of().get(url).text
    make_intent(agent, status=Status.SUBMITTED)
    make_intent(make_agent_at(agent.tenant), status=Status.SUBMITTED)  # through another account
    assert "accepted 1 email since" in " ".join(client_of().get(url).text.split())


def test_a_group_that_is_settled_says_so_and_names_the_next(agent: Agent, client_of: Any) -> None:
    dead(agent)
    page = client_of().get("/dead-letters/0123456789abcdef/")
    assert page.status_code == 200
    assert "Nothing is left in this group" in page.text
    assert "Next group: 429 Too many requests" in page.text


def test_htmx_gets_the_group_and_the_rows_that_changed(agent: Agent, client_of: Any) -> None:
    one, two = dead(agent), refused(agent)
    was = f"http://testserver/dead-letters/{id_of(two)}/"
    answer = client_of().get(
        f"/dead-letters/{id_of(one)}/", headers={**HTMX, "HX-Current-URL": was}
    )
    assert "<html" not in answer.text
    assert answer.text.count("hx-swap-oob") == 2
    assert answer.text.count('aria-current="true"') == 1
    assert "no-store" in answer["Cache-Control"]
    assert "HX-Request" in answer["Vary"]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.APPROVER])
def test_who_may_not_decide_reads_and_has_no_controls(
    agent: Agent, client_of: Any, role: Role
) -> None:
    intent = dead(agent)
    client = client_of(role)
    page = client.get(f"/dead-letters/{id_of(intent)}/").text
    assert "An operator requeues or closes these." in page
    assert 'type="checkbox"\n                         form=' not in page
    assert "formaction" not in page
    for verb in ("requeue", "close", "reopen"):
        url = f"/dead-letters/{id_of(intent)}/{verb}/"
        assert client.post(url).status_code == 403
        assert client.post(url, headers=HTMX).status_code == 403
    assert status_of(intent) == Status.DEAD_LETTER


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMIN])
def test_an_operator_decides(agent: Agent, client_of: Any, role: Role) -> None:
    intent = dead(agent)
    assert post(client_of(role), "requeue", intent).status_code == 302
    assert status_of(intent) == Status.QUEUED


def test_the_queries_do_not_grow_with_the_group(
    agent: Agent, client_of: Any, asks_at_most: Any
) -> None:
    for _ in range(6):
        dead(agent)
        bounced(agent)
    client = client_of()
    url = f"/dead-letters/{id_of(dead(agent))}/"
    with asks_at_most(18):
        client.get(url)


# Deciding


def test_what_was_selected_is_requeued_and_each_of_the_rest_says_why_not(
    agent: Agent, client_of: Any
) -> None:
    first, second, out, other = (dead(agent, to=f"{name}@example.org") for name in "abcd")
    suppress(agent, "c@example.org")
    group = id_of(first)
    answer = post(client_of(), "requeue", first, second, out)
    assert answer["Location"] == f"/dead-letters/{group}/"
    assert [status_of(i) for i in (first, second)] == [Status.QUEUED, Status.QUEUED]
    assert [status_of(i) for i in (out, other)] == [Status.DEAD_LETTER, Status.DEAD_LETTER]
    page = client_of().get(answer["Location"]).text
    assert f"2 emails were requeued: #{first.action.number}, #{second.action.number}." in page
    assert f"Left out: #{out.action.number}. c@example.org was suppressed" in page


def test_htmx_gets_the_group_as_it_is_now_with_list_counts_and_words(
    agent: Agent, client_of: Any
) -> None:
    intent, stays = dead(agent), dead(agent)
    answer = post(client_of(), "requeue", intent, headers=HTMX)
    assert answer.status_code == 200
    assert "<html" not in answer.text
    assert "1 email was requeued" in answer.text
    assert f"#{stays.action.number}</a>" in answer.text
    assert f"#{intent.action.number}</a>" not in answer.text
    for part in ("dead-letter-filters", "dead-letter-groups", "says"):
        assert f'id="{part}"' in answer.text
    assert "[data-count=dead_letters]" in answer.text


def test_the_last_of_a_group_leaves_it_empty(agent: Agent, client_of: Any) -> None:
    answer = post(client_of(), "requeue", dead(agent), headers=HTMX)
    assert "Nothing is left in this group" in answer.text
    assert "1 email was requeued" in answer.text


def test_who_comes_second_reads_who_was_first(agent: Agent, client_of: Any) -> None:
    mine, theirs = dead(agent), dead(agent)
    group = id_of(mine)
    first = make_person(agent.tenant, Role.OPERATOR, email="ops@example.com")
    requeue(theirs.pk, person=first)
    answer = post(client_of(), "requeue", mine, theirs, group=group, headers=HTMX)
    assert answer.status_code == 200
    assert f"Left out: #{theirs.action.number}. ops@example.com requeued it at" in answer.text
    answer = post(client_of(), "requeue", theirs, group=group, headers=HTMX)
    assert answer.status_code == 409
    assert "No email was requeued." in answer.text


def test_sent_twice_each_email_is_requeued_once(agent: Agent, client_of: Any) -> None:
    intent = dead(agent)
    group, once = id_of(intent), str(uuid.uuid4())
    client = client_of()
    for _ in range(2):
        answer = post(client, "requeue", intent, group=group, action_id=once, headers=HTMX)
        assert "1 email was requeued" in answer.text
    assert AuditEntry.objects.filter(verb="requeue").count() == 1


def test_closing_takes_a_reason_and_can_be_taken_back(agent: Agent, client_of: Any) -> None:
    intent = dead(agent)
    client = client_of()
    answer = post(client, "close", intent, reason="  ", headers=HTMX)
    assert answer.status_code == 422
    assert "Give a reason" in answer.text
    assert "There is a problem" in answer.text
    intent.refresh_from_db()
    assert intent.closed_at is None

    post(client, "close", intent, reason="the customer was called")
    intent.refresh_from_db()
    assert intent.closed_at is not None
    assert "No dead letters" in client.get("/dead-letters/").text
    closed = client.get("/dead-letters/", {"show": "closed"}).text
    assert f"#{intent.action.number}</a>" in closed
    assert "Reopen" in closed

    post(client, "reopen", intent)
    intent.refresh_from_db()
    assert intent.closed_at is None
    verbs = AuditEntry.objects.order_by("sequence").values_list("verb", "reason")
    assert list(verbs) == [("close", "the customer was called"), ("reopen", "")]


def test_without_a_selection_nothing_is_done_and_what_was_typed_stays(
    agent: Agent, client_of: Any
) -> None:
    intent = dead(agent)
    group = id_of(intent)
    answer = post(client_of(), "close", group=group, reason="called them")
    assert answer.status_code == 422
    assert "Select at least one email" in answer.text
    assert "called them" in answer.text
    assert "<title>Error:" in " ".join(answer.text.split()).replace("<title> ", "<title>")


@pytest.mark.parametrize("emails", ["nonsense", "0199e2b0-0000-7000-8000-000000000000"])
def test_what_is_no_email_of_ours_is_refused(agent: Agent, client_of: Any, emails: str) -> None:
    answer = post(client_of(), "requeue", group=id_of(dead(agent)), emails=[emails])
    assert answer.status_code == 422


def test_the_browser_demands_no_reason_for_requeuing(agent: Agent, client_of: Any) -> None:
    """One form for both: a required field would stop the other button without a word."""
    page = client_of().get(f"/dead-letters/{id_of(dead(agent))}/").text
    textarea = page.split("<textarea")[1].split(">")[0]
    assert 'form="picks"' in textarea
    assert "required" not in textarea


def test_runs_are_counted(agent: Agent, client_of: Any) -> None:
    run = make_run(agent)
    intent = dead(agent, run=run)
    page = client_of().get(f"/dead-letters/{id_of(intent)}/").text
    assert "1 agent, 1 run<" in page
