"""An agent's view of its runs."""

import uuid

import pytest

from sends.lifecycle import halts
from sends.models import Agent, Policy, Role, Run, Switch, SwitchKind
from sends.rules.statuses import Status
from tests.api.doors import Door, door, problem
from tests.factories import (
    make_agent,
    make_agent_at,
    make_intent,
    make_person,
    make_run,
    make_token,
)
from tests.lifecycle.races import at_once

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


@pytest.fixture
def api(agent: Agent) -> Door:
    return door(make_token(agent))


def test_a_run_is_found_by_its_id_and_by_its_name(agent: Agent, api: Door) -> None:
    run = make_run(agent, name="nightly/2026-07-01 ü", retry_limit=7)
    make_intent(agent, run=run)
    make_intent(agent, run=run)
    make_intent(agent, run=run, status=Status.DONE)
    by_id = api.get(f"/runs/{run.pk}").json()
    assert api.get(f"/runs/{run.name}").json() == by_id
    assert (by_id["id"], by_id["name"], by_id["retry_limit"]) == (str(run.pk), run.name, 7)
    assert by_id["intents"] == {"awaiting_approval": 2, "done": 1}
    assert (by_id["halted"], by_id["ended_at"]) == (False, None)


def test_a_halted_run_says_so_and_why(agent: Agent, api: Door) -> None:
    run = make_run(agent)
    halts.halt_run(run, person=make_person(agent.tenant), reason="Two customers complained")
    said = api.get(f"/runs/{run.pk}").json()
    assert (said["halted"], said["halt_reason"]) == (True, "Two customers complained")


def test_an_ended_run_says_so_and_why(agent: Agent, api: Door) -> None:
    run = make_run(agent)
    halts.end_run(run, person=make_person(agent.tenant, Role.OPERATOR), reason="Not needed")
    said = api.get(f"/runs/{run.pk}").json()
    assert said["ended_at"]
    assert said["end_reason"] == "Not needed"


def test_a_run_of_another_agent_is_not_there(agent: Agent) -> None:
    assert agent.sender is not None
    run = make_run(agent)
    for stranger in (make_agent(agent.sender), make_agent_at()):
        for name in (run.pk, run.name, uuid.uuid4()):
            problem(door(make_token(stranger)).get(f"/runs/{name}"), 404, "not_found")


def test_a_name_that_is_another_runs_id_means_the_run_of_that_name(agent: Agent, api: Door) -> None:
    foreign = make_run(make_agent_at())
    mine = make_run(agent, name=str(foreign.pk))
    assert api.get(f"/runs/{foreign.pk}").json()["id"] == str(mine.pk)
    assert Run.objects.count() == 2


def test_opening_a_run_and_opening_it_again(agent: Agent, api: Door) -> None:
    Policy.objects.filter(tenant=agent.tenant).update(retry_limit=7)
    first = api.post("/runs", {"name": "nightly ü"})
    again = api.post("/runs", {"name": "nightly ü"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert first["Location"] == first.json()["links"]["self"]
    assert (first.json()["retry_limit"], first.json()["intents"]) == (7, {})
    run = Run.objects.get()
    assert Switch.objects.get(pk=run.pk).kind == SwitchKind.RUN


def test_a_run_that_a_proposal_opened_is_that_run(api: Door) -> None:
    api.proposed(run="nightly")
    opened = api.post("/runs", {"name": "nightly"})
    assert opened.status_code == 200
    assert opened.json()["intents"] == {"awaiting_approval": 1}
    assert Run.objects.count() == 1


def test_a_run_that_was_ended_is_not_opened_again(agent: Agent, api: Door) -> None:
    run = make_run(agent)
    halts.end_run(run, person=make_person(agent.tenant, Role.OPERATOR), reason="Not needed")
    said = problem(api.post("/runs", {"name": run.name}), 409, "run_ended")
    assert said["next_step"] == "do_not_resend"


def test_names_of_runs_are_an_agents_own(agent: Agent, api: Door) -> None:
    assert agent.sender is not None
    other = door(make_token(make_agent(agent.sender)))
    ids = {door_.post("/runs", {"name": "nightly"}).json()["id"] for door_ in (api, other)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": None},
        {"name": "a\x00b"},
        {"name": "a\nb"},
        {"name": "\ud800"},
        {"name": "x" * 256},
        {"name": "x", "retry_limit": 1},
        [],
        "nightly",
    ],
)
def test_a_run_needs_a_name_and_nothing_else(api: Door, body: object) -> None:
    problem(api.post("/runs", body), 422, "wrong_fields")
    assert not Run.objects.exists()


def test_only_a_token_that_may_submit_opens_runs(agent: Agent) -> None:
    said = door(make_token(agent, "read")).post("/runs", {"name": "nightly"})
    problem(said, 403, "missing_scope")


def test_the_list_of_runs_a_page_at_a_time(agent: Agent, api: Door) -> None:
    names = [f"run-{number}" for number in range(5)]
    for name in names:
        api.post("/runs", {"name": name})
    make_run(make_agent_at())
    halts.halt_run(
        Run.objects.get(name="run-4"), person=make_person(agent.tenant), reason="Look at it"
    )
    seen, cursor = [], None
    for _ in range(3):
        page = api.get("/runs", limit=2, **({"cursor": cursor} if cursor else {})).json()
        seen += page["items"]
        cursor = page["next_cursor"]
    assert cursor is None
    assert [run["name"] for run in seen] == names[::-1]
    assert [run["halted"] for run in seen] == [True, False, False, False, False]
    problem(api.get("/runs", cursor="x"), 422, "wrong_fields")
    problem(api.get("/runs", name="x"), 422, "wrong_fields")


@pytest.mark.django_db(transaction=True)
def test_a_run_that_many_open_at_once_is_opened_once() -> None:
    token = make_token(make_agent_at())
    bodies = [{"name": "nightly"}] * 3
    answers = at_once(*[lambda body=body: door(token).post("/runs", body) for body in bodies])
    assert sorted(answer.status_code for answer in answers) == [200, 200, 201]
    assert Run.objects.count() == Switch.objects.filter(kind=SwitchKind.RUN).count() == 1
