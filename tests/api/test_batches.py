"""Many proposals at once: each with its own answer, in order, and none at the cost of another."""

import json
from typing import Any

import pytest
from django.db import connection

from sends.api import batches, requests
from sends.conf import conf
from sends.lifecycle import intake
from sends.models import Agent, Run, SendIntent, Suppression, SuppressionCause, database_now
from tests.api.doors import MESSAGE, Door, door, problem
from tests.factories import make_agent_at, make_run, make_token

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


@pytest.fixture
def api(agent: Agent) -> Door:
    return door(make_token(agent))


def message(number: int, **fields: Any) -> dict[str, Any]:
    return MESSAGE | {"action_key": f"order:{number}", "text": f"Order {number}"} | fields


def taken(api: Door, body: Any) -> dict[str, Any]:
    answer = api.post("/intents/batch", body)
    assert answer.status_code == 200, answer.content
    said: dict[str, Any] = answer.json()
    return said


def statuses(said: dict[str, Any]) -> list[int]:
    return [item["status"] for item in said["items"]]


def test_each_message_has_its_own_answer_in_order(api: Door, agent: Agent) -> None:
    Suppression.objects.create(
        tenant=agent.tenant,
        normal="gone@example.org",
        cause=SuppressionCause.BOUNCED,
        since=database_now(),
    )
    ended = make_run(agent, name="over", ended_at=agent.created_at)
    first = api.proposed(**message(0))
    said = taken(
        api,
        [
            message(1),
            message(0),
            message(0, text="Something else"),
            message(2, to=["gone@example.org"]),
            message(3, run=ended.name),
            message(4, to=["not an address"], surprise=1),
            "not an object",
            message(5),
        ],
    )
    assert statuses(said) == [201, 200, 409, 422, 409, 422, 422, 201]
    assert (said["created"], said["replayed"], said["refused"]) == (2, 1, 5)
    assert [item["index"] for item in said["items"]] == list(range(8))
    keys = ["order:1", "order:0", "order:0", "order:2", "order:3", "order:4", None, "order:5"]
    assert [item["action_key"] for item in said["items"]] == keys
    for item in said["items"]:
        assert (item["intent"] is None) == (item["status"] >= 400)
        assert (item["problem"] is None) == (item["status"] < 400)
    items = said["items"]
    assert items[1]["intent"]["id"] == first["id"]
    assert items[1]["intent"]["replayed"]
    codes = ["action_key_reuse", "suppressed_recipient", "run_ended", "wrong_fields"]
    assert [item["problem"]["code"] for item in items[2:6]] == codes
    assert [wrong["pointer"] for wrong in items[5]["problem"]["errors"]] == ["/surprise", "/to/0"]
    assert SendIntent.objects.count() == 3


def test_an_answer_in_a_batch_is_what_the_single_door_says(api: Door) -> None:
    bodies = [message(1), message(2, to=[]), message(1, text="Another")]
    in_batch = taken(api, bodies)["items"]
    for body, item in zip(bodies, in_batch, strict=True):
        alone = api.post("/intents", body)
        if item["status"] == 201:
            assert (
                alone.json()
                | {"replayed": False}
                | {
                    "next_step": item["intent"]["next_step"],
                    "sentence": item["intent"]["sentence"],
                }
                == item["intent"]
            )
        else:
            assert alone.status_code == item["status"]
            assert alone.json() | {"request_id": ""} == item["problem"] | {"request_id": ""}


def test_a_batch_may_be_repeated_and_sent_again_in_parts(api: Door) -> None:
    batch = [message(number) for number in range(4)]
    first = taken(api, batch[:2])
    again = taken(api, batch)
    once_more = taken(api, batch[::-1])
    assert statuses(again) == [200, 200, 201, 201]
    assert statuses(once_more) == [200] * 4
    ids = [item["intent"]["id"] for item in again["items"]]
    assert [item["intent"]["id"] for item in first["items"]] == ids[:2]
    assert [item["intent"]["id"] for item in once_more["items"]] == ids[::-1]
    assert SendIntent.objects.count() == 4


def test_a_batch_that_was_cut_off_in_the_middle_goes_on_where_it_was(
    api: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = intake.propose, []

    def cut(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt  # the process is gone, not the proposal refused
        return real(*args, **kwargs)

    batch = [message(number) for number in range(4)]
    with monkeypatch.context() as patched:
        patched.setattr(batches.intake, "propose", cut)
        with pytest.raises(KeyboardInterrupt):
            api.post("/intents/batch", batch)
    assert SendIntent.objects.count() == 2
    assert statuses(taken(api, batch)) == [200, 200, 201, 201]


def test_a_message_twice_in_one_batch_is_taken_in_once(api: Door) -> None:
    said = taken(api, [message(1), message(1)])
    assert statuses(said) == [201, 200]


def test_a_member_that_is_no_json_harms_no_other(api: Door) -> None:
    good = json.dumps(message(1)).encode()
    huge = b'{"text": "' + b"x" * conf.limits.request + b'"}'
    raw = b'[{"a":}, {"a": 1, "a": 2}, {"text": NaN}, ' + huge + b", " + good + b"]"
    said = taken(api, raw)
    assert statuses(said) == [400, 400, 400, 413, 201]
    assert [i["problem"]["code"] for i in said["items"][:4]] == ["not_json"] * 3 + ["too_large"]


def test_our_own_mistake_with_one_message_harms_no_other(
    api: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = intake.propose

    def fail_for_one(proposal: Any, **kwargs: Any) -> Any:
        if proposal.action_key == "order:1":
            raise RuntimeError("secret detail")
        return real(proposal, **kwargs)

    monkeypatch.setattr(batches.intake, "propose", fail_for_one)
    said = taken(api, [message(0), message(1), message(2)])
    assert statuses(said) == [201, 500, 201]
    assert "secret detail" not in json.dumps(said)


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"", 400, "not_json"),
        (b"{}", 400, "not_json"),
        (b"[{}", 400, "not_json"),
        (b'[{"text": "\xff"]', 400, "not_json"),
        (b"[" * 10_000, 400, "not_json"),
        (b"[1, " * 3 + b"]", 400, "not_json"),
        (json.dumps([{}] * (requests.MOST_AT_ONCE + 1)).encode(), 413, "too_large"),
    ],
)
def test_what_is_no_batch_is_one_problem(api: Door, raw: bytes, status: int, code: str) -> None:
    problem(api.post("/intents/batch", raw), status, code)
    assert not SendIntent.objects.exists()


def test_a_batch_that_is_too_large_is_one_problem(
    api: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_BATCH_BYTES", 1000)
    problem(api.post("/intents/batch", [message(1, text="x" * 2000)]), 413, "too_large")
    assert not SendIntent.objects.exists()


def test_a_batch_of_nothing(api: Door) -> None:
    assert taken(api, []) == {"created": 0, "replayed": 0, "refused": 0, "items": []}


def test_one_key_cannot_stand_for_a_whole_batch(api: Door) -> None:
    answer = api.post("/intents/batch", [message(1)], **{"Idempotency-Key": "all-of-them"})
    said = problem(answer, 422, "wrong_fields")
    assert said["errors"][0]["pointer"] == "/action_key"
    assert not SendIntent.objects.exists()


def test_only_a_token_that_may_submit(agent: Agent) -> None:
    problem(door(make_token(agent, "read")).post("/intents/batch", []), 403, "missing_scope")
    problem(door("").post("/intents/batch", []), 401, "unauthorized")


@pytest.mark.django_db(transaction=True)
def test_each_message_has_a_transaction_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = door(make_token(make_agent_at()))
    real, seen = intake.propose, []

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append((connection.in_atomic_block, SendIntent.objects.count()))
        return real(*args, **kwargs)

    monkeypatch.setattr(batches.intake, "propose", watched)
    taken(api, [message(number, run="r") for number in range(3)])
    assert seen == [(False, 0), (False, 1), (False, 2)]
    assert Run.objects.count() == 1
