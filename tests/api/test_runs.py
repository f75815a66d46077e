"""An agent's view of its runs."""

import uuid

import pytest

from sends.lifecycle import halts
from sends.models import Agent, Role, Run
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
