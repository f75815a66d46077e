"""What would happen is what then happens, and asking leaves no trace."""

from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from sends.lifecycle import halts
from sends.models import (
    Agent,
    Cause,
    Installation,
    PolicyRule,
    Role,
    SendIntent,
    Suppression,
    SuppressionCause,
    Switch,
    database_now,
)
from tests.api.doors import MESSAGE, Door, door, problem
from tests.factories import make_agent_at, make_person, make_run, make_token

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


@pytest.fixture
def api(agent: Agent) -> Door:
    api = door(make_token(agent))
    api.get("/intents")  # the token was used: that is all a request leaves behind
    return api


def simulated(api: Door, **fields: Any) -> dict[str, Any]:
    answer = api.post("/intents/simulate", MESSAGE | fields)
    assert answer.status_code == 200, answer.content
    said: dict[str, Any] = answer.json()
    return said


def everything() -> dict[str, Any]:
    """Every row of every table, and on PostgreSQL every number that was ever given out."""
    rows: dict[str, Any] = {
        model._meta.db_table: list(model._default_manager.order_by("pk").values())
        for model in apps.get_models()
    }
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT sequencename, last_value FROM pg_sequences ORDER BY 1")
            rows["sequences"] = cursor.fetchall()
    return rows


def suppress(agent: Agent, address: str) -> None:
    Suppression.objects.create(
        tenant=agent.tenant,
        normal=address,
        cause=SuppressionCause.BOUNCED,
        since=database_now(),
    )


def ask_nobody(agent: Agent) -> None:
    PolicyRule.objects.create(policy=agent.tenant.policy, position=1, approvals=0)


def test_nothing_is_left_of_it(api: Door, agent: Agent) -> None:
    suppress(agent, "gone@example.org")
    over = make_run(agent, name="over", ended_at=agent.created_at)
    api.proposed()
    before = everything()
    for fields in (
        {"action_key": "new", "run": "never-opened", "triggered_by": "event:1"},
        {"action_key": "new", "to": ["gone@example.org"]},
        {"action_key": "new", "run": over.name},
        {"action_key": "new", "deadline": "2020-01-01T00:00:00Z"},
        {"action_key": "new", "sender": "nobody@example.com"},
        {"text": "Another text under the same key"},
        {},
    ):
        simulated(api, **fields)
        assert everything() == before
    ask_nobody(agent)
    before = everything()
    assert simulated(api, action_key="new")["becomes"] == "queued"
    assert everything() == before


def test_no_number_is_used_up(api: Door, agent: Agent) -> None:
    ask_nobody(agent)
    first = api.proposed(action_key="a")
    simulated(api, action_key="b")
    assert api.proposed(action_key="c")["number"] == first["number"] + 1


def test_who_would_have_to_approve_it_and_by_which_rule(api: Door, agent: Agent) -> None:
    PolicyRule.objects.create(policy=agent.tenant.policy, position=1, template="vip", approvals=2)
    PolicyRule.objects.create(
        policy=agent.tenant.policy, position=2, recipient_domain="example.net", approvals=0
    )
    usual = simulated(api)
    assert (usual["would"], usual["status"], usual["becomes"]) == (
        "create",
        201,
        "awaiting_approval",
    )
    assert usual["approvals"] == {"needed": 1, "rule": "default"}
    assert usual["why_not_yet"]["sentence"] == "Waits for a person to approve it."
    assert usual["intent"] is None
    vip = simulated(api, template="vip")["approvals"]
    assert vip == {"needed": 2, "rule": "template vip: two approvals"}
    own = simulated(api, to=["jo@example.net"])
    assert own["approvals"]["needed"] == 0
    assert own["becomes"] == "queued"


def test_it_says_of_each_recipient_whether_it_is_suppressed(api: Door, agent: Agent) -> None:
    suppress(agent, "gone@example.org")
    said = simulated(api, to=["jo@example.org"], cc=["Gone@Example.org"], run="r")
    assert (said["would"], said["status"]) == ("refuse", 422)
    assert said["problem"]["code"] == "suppressed_recipient"
    jo, gone = said["recipients"]
    assert (jo["pointer"], jo["address"], jo["suppressed"]) == ("/to/0", "jo@example.org", None)
    assert gone["pointer"] == "/cc/0"
    assert "is suppressed since" in gone["suppressed"]


def test_it_says_so_too_where_something_else_is_refused_first(api: Door, agent: Agent) -> None:
    suppress(agent, "gone@example.org")
    said = simulated(api, to=["gone@example.org"], deadline="2020-01-01T00:00:00Z")
    assert said["problem"]["errors"][0]["pointer"] == "/deadline"
    assert said["recipients"][0]["suppressed"]


def test_a_replay_and_a_reuse_of_the_key(api: Door) -> None:
    first = api.proposed()
    replay = simulated(api)
    assert (replay["would"], replay["status"]) == ("replay", 200)
    assert replay["intent"]["id"] == first["id"]
    reuse = simulated(api, text="Something else")
    assert (reuse["would"], reuse["status"]) == ("refuse", 409)
    assert reuse["problem"]["code"] == "action_key_reuse"


def test_a_derived_key_is_named(api: Door) -> None:
    said = simulated(api, action_key=None, run="r", template="t", context_hash="c")
    assert said["key_derived"]
    assert said["action_key"].startswith("derived:")


def test_what_would_keep_it_from_going_out(api: Door, agent: Agent) -> None:
    ask_nobody(agent)
    run = make_run(agent, name="nightly", retry_limit=7, retries_used=3)
    assert simulated(api)["stops"] == []
    assert simulated(api)["why_not_yet"]["sentence"].startswith("Goes out")
    halts.halt_run(run, person=make_person(agent.tenant), reason="Two customers complained")
    Switch.objects.filter(pk=agent.sender.account_id).update(
        causes=Cause.BLOCKED, block_reason="the plan is used up"
    )
    Switch.objects.filter(pk=Installation.objects.get().pk).update(
        causes=Cause.PAUSED, pause_reason="maintenance"
    )
    said = simulated(api, run="nightly")
    sentences = [stop["sentence"] for stop in said["stops"]]
    assert len(sentences) == 3
    assert "maintenance" in sentences[0]
    assert "the plan is used up" in sentences[1]
    assert "Two customers complained" in sentences[2]
    assert said["why_not_yet"]["sentence"] == sentences[0]
    assert said["run"] == {
        "name": "nightly",
        "exists": True,
        "halted": True,
        "ended": False,
        "retries_left": 4,
    }


def test_an_ended_run_and_one_that_is_not_there_yet(api: Door, agent: Agent) -> None:
    run = make_run(agent, name="over")
    halts.end_run(run, person=make_person(agent.tenant, Role.OPERATOR), reason="Not needed")
    said = simulated(api, run="over")
    assert (said["problem"]["code"], said["run"]["ended"]) == ("run_ended", True)
    new = simulated(api, run="new")["run"]
    assert (new["exists"], new["retries_left"]) == (False, None)


def test_what_cannot_be_read_is_refused_as_at_the_intake(api: Door) -> None:
    bodies: list[Any] = [b"{", [], MESSAGE | {"to": [], "x": 1}, MESSAGE | {"action_key": "a b"}]
    for body in bodies:
        simulation, proposal = (api.post(p, body) for p in ("/intents/simulate", "/intents"))
        assert simulation.status_code == proposal.status_code
        assert simulation.json() | {"request_id": ""} == proposal.json() | {"request_id": ""}
    assert not SendIntent.objects.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"text": "Something else"},
        {"action_key": "new", "template": "vip"},
        {"action_key": "new", "deadline": "2020-01-01T00:00:00Z"},
        {"action_key": "new", "to": ["gone@example.org", "jo@example.org"]},
        {"action_key": "new", "run": "over"},
        {"action_key": "new", "sender": "nobody@example.com"},
        {"action_key": "new", "triggered_by": "event:1", "text": "Something else"},
    ],
    ids=str,
)
def test_what_it_says_is_what_then_happens(api: Door, agent: Agent, fields: dict[str, Any]) -> None:
    suppress(agent, "gone@example.org")
    make_run(agent, name="over", ended_at=agent.created_at)
    PolicyRule.objects.create(policy=agent.tenant.policy, position=1, template="vip", approvals=2)
    api.proposed(triggered_by="event:1")
    said = simulated(api, **fields)
    answer = api.post("/intents", MESSAGE | fields)
    assert said["status"] == answer.status_code
    if said["problem"]:
        assert said["problem"] | {"request_id": ""} == answer.json() | {"request_id": ""}
        return
    intent = answer.json()
    assert said["becomes"] == intent["status"]
    assert said["action_key"] == intent["action_key"]
    assert (said["would"] == "replay") == intent["replayed"]
    row = SendIntent.objects.get(pk=intent["id"])
    assert said["approvals"] == {"needed": row.approvals_needed, "rule": row.approval_rule}


def test_only_a_token_that_may_submit(agent: Agent) -> None:
    said = door(make_token(agent, "read")).post("/intents/simulate", MESSAGE)
    problem(said, 403, "missing_scope")
