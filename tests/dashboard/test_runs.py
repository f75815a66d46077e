"""Runs: what is shown of them, and who may halt, resume and end one."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from sends.lifecycle.halts import end_run, halt_run, resume_run
from sends.models import Agent, AuditEntry, Cause, Role, Run, SendIntent, Switch, database_now
from sends.reports import runs as report
from sends.rules.budgets import Ended
from sends.rules.outcomes import Outcome
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import make_agent_at, make_attempt, make_intent, make_person, make_run

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
FILL = {
    Status.SUBMITTED: 3,
    Status.QUEUED: 2,
    Status.RETRY_SCHEDULED: 1,
    Status.IN_FLIGHT: 1,
    Status.AWAITING_APPROVAL: 2,
    Status.UNCERTAIN: 1,
    Status.DEAD_LETTER: 1,
    Status.CANCELLED: 1,
}


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


@pytest.fixture
def run(agent: Agent) -> Run:
    """A run with emails in every kind of state."""
    run = make_run(agent, name="reminders")
    for status, count in FILL.items():
        for _ in range(count):
            make_intent(agent, status=status, run=run)
    return run


@pytest.fixture
def client_of(client: Client, agent: Agent) -> Any:
    def signed_in(role: Role = Role.OPERATOR) -> Client:
        client.force_login(make_person(agent.tenant, role))
        return client

    return signed_in


def operator(run: Run) -> Any:
    return make_person(run.tenant, Role.OPERATOR, email=f"ops-{uuid.uuid4().hex[:6]}@example.com")


def post(client: Client, run: Run, verb: str, **data: Any) -> Any:
    headers = data.pop("headers", None)
    data = {"reason": "a good reason", "action_id": str(uuid.uuid4()), **data}
    return client.post(f"/runs/{run.pk}/{verb}/", data, headers=headers)


def is_halted(run: Run) -> bool:
    return bool(Switch.objects.get(pk=run.pk).causes & Cause.PAUSED)


def text_of(answer: Any) -> str:
    return " ".join(answer.text.split())


def failing(agent: Agent, run: Run | None, failed: int, of: int) -> None:
    """So many attempts, a moment ago."""
    for number in range(of):
        intent = make_intent(agent, status=Status.IN_FLIGHT, run=run)
        outcome = Outcome.TRANSIENT if number < failed else Outcome.ACCEPTED
        make_attempt(intent, outcome=outcome)


# The list


def test_the_list_says_how_each_run_goes(agent: Agent, run: Run, client_of: Any) -> None:
    Run.objects.filter(pk=run.pk).update(retries_used=30)
    failing(agent, run, 9, 20)
    page = text_of(client_of(Role.VIEWER).get("/runs/"))
    assert "reminders</a>" in page
    assert "30 of 40" in page
    assert "nearly used" in page
    assert "45%" in page
    assert "9 of 20" in page


def test_the_list_does_not_ask_more_for_more_runs(
    agent: Agent, client_of: Any, asks_at_most: Any
) -> None:
    for _ in range(5):
        make_intent(agent, run=make_run(agent))
    client = client_of()
    # Three for who asks, four for the frame, four of its own.
    with asks_at_most(11):
        client.get("/runs/")


def test_the_list_is_read_page_by_page_in_both_directions(
    agent: Agent, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "PAGE", 2)
    now = database_now()
    # Two began at the same moment: the page ends between them.
    starts = [now - timedelta(hours=hours) for hours in (5, 3, 3, 1)]
    runs = [make_run(agent, started_at=start) for start in starts]
    order = sorted(runs, key=lambda run: (run.started_at, run.pk), reverse=True)
    client = client_of()

    def shown(page: Any) -> list[Run]:
        return [row.run for row, _ in page.context["rows"]]

    first = client.get("/runs/")
    assert shown(first) == order[:2]
    assert first.context["newer"] == ""
    second = client.get(first.context["older"])
    assert shown(second) == order[2:]
    assert second.context["older"] == ""
    assert shown(client.get(second.context["newer"])) == order[:2]
    assert shown(client.get("/runs/?before=nonsense")) == order[:2]


def test_another_tenants_runs_are_not_there(agent: Agent, client_of: Any) -> None:
    other = make_run(make_agent_at(), name="theirs")
    client = client_of(Role.ADMIN)
    assert "No runs" in client.get("/runs/").text
    assert client.get(f"/runs/{other.pk}/").status_code == 404
    assert client.get(f"/runs/{other.pk}/halt/").status_code == 404
    for verb in ("halt", "resume", "cancel"):
        assert post(client, other, verb).status_code == 404
    assert not is_halted(other)


# One run


def test_a_run_shows_its_emails_by_state(run: Run, client_of: Any) -> None:
    page = text_of(client_of(Role.VIEWER).get(f"/runs/{run.pk}/"))
    for words in (
        "3 accepted or delivered",
        "3 approved, not sent yet",
        "1 being sent",
        "2 awaiting a decision",
        "1 uncertain",
        "1 dead letter",
        "1 cancelled or rejected",
    ):
        assert words in page
    assert "<form" not in page.split('id="content"')[1].split("</main>")[0]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda run: None, "Running"),
        (lambda run: halt_run(run, person=operator(run), reason="wrong prices"), "wrong prices"),
        (lambda run: end_run(run, person=operator(run), reason="not needed"), "Ended: not needed"),
    ],
    ids=["running", "halted", "ended"],
)
def test_a_run_says_how_it_stands(run: Run, client_of: Any, made: Any, words: str) -> None:
    made(run)
    page = client_of().get(f"/runs/{run.pk}/")
    assert words in page.text
    assert text_of(page).count("Started by agent") == 1


def test_a_run_without_open_work_is_finished(agent: Agent, client_of: Any) -> None:
    run = make_run(agent)
    make_intent(agent, status=Status.SUBMITTED, run=run)
    assert "Nothing of this run is left to do" in client_of().get(f"/runs/{run.pk}/").text


def test_retries_are_cells_by_their_cause(agent: Agent, client_of: Any) -> None:
    run = make_run(agent, retries_used=4, retry_limit=6)
    intent = make_intent(agent, status=Status.RETRY_SCHEDULED, run=run)
    for outcome in (Outcome.THROTTLED, Outcome.THROTTLED, Outcome.AMBIGUOUS):
        make_attempt(intent, outcome=outcome, next_attempt_at=database_now())
    make_attempt(intent, outcome=Outcome.NOT_SENT)  # the last one: no retry followed
    budget = report.retry_budget(run)
    assert budget.causes == {Ended.SLOWED: 2, Ended.UNCLEAR: 1}
    page = client_of().get(f"/runs/{run.pk}/")
    assert page.context["cells"] == ["move", "move", "unsure", "rest", "", ""]
    assert "2 told to slow down" in page.text


def test_a_large_budget_is_a_bar(agent: Agent, client_of: Any) -> None:
    run = make_run(agent, retries_used=250, retry_limit=1000)
    page = client_of().get(f"/runs/{run.pk}/")
    assert page.context["cells"] == []
    assert "25 percent of 1000 retries used" in page.text


def test_the_failure_rate_is_not_judged_from_few_attempts(agent: Agent, client_of: Any) -> None:
    run = make_run(agent)
    failing(agent, run, 3, 4)
    assert "too few to judge" in client_of().get(f"/runs/{run.pk}/").text
    failing(agent, run, 10, 20)
    page = text_of(client_of().get(f"/runs/{run.pk}/"))
    assert "13 of 24 failed" in page
    assert "Failure rate 54 percent, limit 40 percent" in page


def test_attempts_are_drawn_twice_and_written_as_a_table(agent: Agent, client_of: Any) -> None:
    run = make_run(agent)
    failing(agent, run, 1, 3)
    page = client_of().get(f"/runs/{run.pk}/")
    assert page.text.count('class="chart ') == 2
    assert "Show as table" in page.text
    assert sum(sum(counts) for _, counts in page.context["table"]) == 3


def test_one_run_takes_few_queries(
    agent: Agent, run: Run, client_of: Any, asks_at_most: Any
) -> None:
    halt_run(run, person=operator(run), reason="wrong prices")
    client = client_of()
    with asks_at_most(17):
        client.get(f"/runs/{run.pk}/")


# Halting


def test_an_approver_halts_and_is_told_what_waits(run: Run, client_of: Any) -> None:
    client = client_of(Role.APPROVER)
    asked = text_of(client.get(f"/runs/{run.pk}/halt/"))
    assert "3 emails will wait. 1 is being sent now and will finish." in asked
    answer = post(client, run, "halt", back="/approvals/?view=runs")
    assert answer["Location"] == "/approvals/?view=runs"
    assert is_halted(run)
    page = text_of(client.get(f"/runs/{run.pk}/"))
    assert "reminders is halted. 3 emails wait." in page
    assert "Halted: a good reason" in page
    assert 'id="resume"' not in page
    assert 'id="end"' not in page


def test_the_form_to_halt_opens_in_a_dialog(run: Run, client_of: Any) -> None:
    client = client_of(Role.APPROVER)
    asked = client.get(f"/runs/{run.pk}/halt/", headers=HTMX)
    assert "<html" not in asked.text
    answer = post(client, run, "halt", back=f"/runs/{run.pk}/", headers=HTMX)
    assert answer["HX-Redirect"] == f"/runs/{run.pk}/"
    assert is_halted(run)


def test_it_never_leads_to_another_host(run: Run, client_of: Any) -> None:
    answer = post(client_of(), run, "halt", back="https://evil.example.net/")
    assert answer["Location"] == f"/runs/{run.pk}/"


@pytest.mark.parametrize("verb", ["halt", "resume", "cancel"])
@pytest.mark.parametrize("headers", [None, HTMX], ids=["page", "htmx"])
def test_without_a_reason_nothing_happens(
    run: Run, client_of: Any, verb: str, headers: Any
) -> None:
    if verb == "resume":
        halt_run(run, person=operator(run), reason="wrong prices")
    was = is_halted(run)
    sent = {"reason": " ", "add_retries": "7", "headers": headers}
    answer = post(client_of(), run, verb, **sent)
    assert answer.status_code == 422
    assert "Give a reason" in answer.text
    assert "There is a problem" in answer.text
    assert ("<html" in answer.text) is (headers is None)
    if verb == "resume":
        assert 'value="7"' in answer.text
    run.refresh_from_db()
    assert is_halted(run) is was
    assert run.ended_at is None


def test_who_halts_second_reads_who_was_first(run: Run, client_of: Any) -> None:
    first = make_person(run.tenant, Role.APPROVER, email="lead@example.com")
    halt_run(run, person=first, reason="wrong prices")
    for headers in (None, HTMX):
        answer = post(client_of(), run, "halt", headers=headers)
        assert answer.status_code == 409
        assert "lead@example.com halted it at" in answer.text
        assert "wrong prices" in answer.text


def test_sent_twice_it_is_halted_once(run: Run, client_of: Any) -> None:
    client, once = client_of(), str(uuid.uuid4())
    post(client, run, "halt", action_id=once)
    resume_run(run, person=operator(run), reason="right again")
    assert post(client, run, "halt", action_id=once).status_code == 302
    assert not is_halted(run)


# Resuming


def test_an_operator_resumes_and_adds_retries(run: Run, client_of: Any) -> None:
    Run.objects.filter(pk=run.pk).update(retries_used=40)
    halt_run(run, person=operator(run), reason="wrong prices")
    client = client_of()
    page = text_of(client.get(f"/runs/{run.pk}/"))
    assert "3 held emails may be sent, those approved first" in page
    assert "2 still need a decision" in page
    assert "1 uncertain and 1 dead letter stay where they are" in page
    assert 'name="add_retries" value="20"' in page
    answer = post(client, run, "resume", add_retries="20")
    assert answer["Location"] == f"/runs/{run.pk}/"
    assert not is_halted(run)
    run.refresh_from_db()
    assert run.retry_limit == 60


def test_who_resumes_second_reads_who_was_first(run: Run, client_of: Any) -> None:
    first = make_person(run.tenant, Role.OPERATOR, email="ops@example.com")
    halt_run(run, person=first, reason="wrong prices")
    resume_run(run, person=first, reason="right again")
    for headers in (None, HTMX):
        answer = post(client_of(), run, "resume", add_retries="0", headers=headers)
        assert answer.status_code == 409
        assert "ops@example.com resumed it at" in answer.text
        assert "a good reason</textarea>" in answer.text


def test_while_most_still_fails_one_has_to_say_that_one_knows(
    agent: Agent, run: Run, client_of: Any
) -> None:
    failing(agent, None, 12, 20)
    halt_run(run, person=operator(run), reason="wrong prices")
    client = client_of()
    assert "Resume although 60% still fail" in client.get(f"/runs/{run.pk}/").text
    assert post(client, run, "resume", add_retries="0").status_code == 422
    assert is_halted(run)
    post(client, run, "resume", add_retries="0", although="on")
    assert not is_halted(run)


@pytest.mark.parametrize("added", ["-1", "201", "many", ""])
def test_retries_that_make_no_sense_are_not_added(run: Run, client_of: Any, added: str) -> None:
    halt_run(run, person=operator(run), reason="wrong prices")
    assert post(client_of(), run, "resume", add_retries=added).status_code == 422
    assert is_halted(run)


# Ending


def test_an_operator_ends_it_and_what_is_unsent_is_cancelled(run: Run, client_of: Any) -> None:
    client = client_of()
    page = text_of(client.get(f"/runs/{run.pk}/"))
    assert "Cancel 6 emails" in page
    answer = post(client, run, "cancel")
    assert answer["Location"] == f"/runs/{run.pk}/"
    page = text_of(client.get(answer["Location"]))
    assert "reminders was ended, 6 emails cancelled. 2 emails cannot be cancelled yet." in page
    assert "2 emails wait until it is certain whether they were taken" in page
    assert "Halt run" not in page
    states = set(SendIntent.objects.filter(run=run).values_list("status", flat=True))
    assert states == {Status.SUBMITTED, Status.IN_FLIGHT, Status.UNCERTAIN, Status.CANCELLED}
    uncertain = SendIntent.objects.get(run=run, status=Status.UNCERTAIN)
    assert uncertain.holds & HOLD_BITS[Hold.CANCEL_ASKED]


def test_who_ends_it_twice_is_told_the_same_and_who_comes_second_who_was_first(
    run: Run, client_of: Any
) -> None:
    client = client_of()
    post(client, run, "cancel", reason="not needed")
    assert post(client, run, "cancel").status_code == 302
    assert AuditEntry.objects.filter(verb="end_run").count() == 1
    for verb in ("cancel", "halt"):
        answer = post(client_of(), run, verb)
        assert answer.status_code == 409
        assert "not needed" in answer.text


# Who may


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.VIEWER, set()),
        (Role.APPROVER, {"halt"}),
        (Role.OPERATOR, {"halt", "resume", "cancel"}),
        (Role.ADMIN, {"halt", "resume", "cancel"}),
    ],
)
def test_who_may_do_what(agent: Agent, client_of: Any, role: Role, allowed: set[str]) -> None:
    client = client_of(role)
    for verb in ("halt", "resume", "cancel"):
        run = make_run(agent)
        if verb == "resume":
            halt_run(run, person=operator(run), reason="wrong prices")
        page = client.get(f"/runs/{run.pk}/").text
        assert (f"/runs/{run.pk}/{verb}/" in page) is (verb in allowed)
        for headers in (None, HTMX):
            answer = post(client, run, verb, add_retries="0", headers=headers)
            if verb not in allowed:
                assert answer.status_code == 403
