"""The agents' door: propose, repeat, change, withdraw, and see what became of it."""

import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sends.lifecycle import editing, review
from sends.models import (
    Agent,
    Direction,
    Evidence,
    EvidenceKind,
    Policy,
    ReasonCode,
    SendIntent,
    Suppression,
    SuppressionCause,
    database_now,
)
from sends.rules.next_steps import Step
from sends.rules.outcomes import Outcome
from sends.rules.payloads import Mailbox
from sends.rules.proposals import parse
from sends.rules.statuses import Status
from tests.api.doors import MESSAGE, Door, door, problem
from tests.factories import (
    make_agent,
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_run,
    make_token,
    purge,
)
from tests.lifecycle.races import at_once

pytestmark = pytest.mark.django_db
NOBODY = uuid.UUID(int=7)


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


@pytest.fixture
def api(agent: Agent) -> Door:
    return door(make_token(agent))


# Proposing


def test_a_proposal_and_its_replay_ask_the_database_little(api: Door, asks_at_most: Any) -> None:
    api.post("/intents", MESSAGE)  # the token's last use is written once a minute
    with asks_at_most(14):
        assert api.post("/intents", MESSAGE | {"action_key": "another"}).status_code == 201
    with asks_at_most(6):
        assert api.post("/intents", MESSAGE).status_code == 200


def test_a_proposal_is_taken_in_and_the_answer_says_what_to_do_next(api: Door) -> None:
    answer = api.post("/intents", MESSAGE)
    assert answer.status_code == 201
    intent = SendIntent.objects.get()
    said = answer.json()
    assert said | {"created_at": "", "status_at": "", "sentence": ""} == {
        "id": str(intent.pk),
        "number": 1,
        "status": "awaiting_approval",
        "action_key": "refund:7731",
        "key_derived": False,
        "version": 1,
        "idempotency_key": intent.idempotency_key,
        "digest": intent.digest,
        "replayed": False,
        "next_step": "wait",
        "sentence": "",
        "run": None,
        "subject": "Your refund",
        "created_at": "",
        "status_at": "",
        "links": {
            "self": f"http://localhost:8025/api/v1/intents/{intent.pk}",
            "dashboard": "http://localhost:8025/messages/1/",
            "current": None,
        },
    }
    assert "nothing has been sent" in said["sentence"]
    assert answer["Location"] == said["links"]["self"]
    assert api.get(f"/intents/{intent.pk}").status_code == 200


def test_the_same_again_is_a_replay_that_says_how_to_send_on_purpose(api: Door) -> None:
    first = api.proposed()
    answer = api.post("/intents", MESSAGE | {"reason": "I timed out"})
    assert answer.status_code == 200
    said = answer.json()
    assert said["replayed"] is True
    assert "use a new action_key" in said["sentence"]
    assert said | {"replayed": False, "sentence": ""} == first | {"sentence": ""}


def test_a_replay_has_the_present_status_and_points_to_the_current_version(
    agent: Agent, api: Door
) -> None:
    first = api.proposed()
    second = api.post(f"/intents/{first['id']}/versions", MESSAGE | {"text": "Better"}).json()
    said = api.post("/intents", MESSAGE).json()
    assert (said["id"], said["status"], said["next_step"]) == (
        first["id"],
        "superseded",
        "do_not_resend",
    )
    assert said["links"]["current"] == second["links"]["self"]


def test_other_content_under_the_key_is_a_conflict_with_the_way_out(api: Door) -> None:
    first = api.proposed()
    said = problem(api.post("/intents", MESSAGE | {"text": "x"}), 409, "action_key_reuse")
    assert said["next_step"] == "fix"
    assert f"/intents/{first['id']}/versions" in said["detail"]
    assert "new action_key" in said["detail"]


def test_a_trigger_that_was_answered_is_a_conflict(api: Door) -> None:
    api.proposed(triggered_by="evt_1", purpose="receipt")
    other = MESSAGE | {"action_key": "b", "triggered_by": "evt_1", "purpose": "receipt"}
    assert api.post("/intents", other).json()["replayed"] is True
    said = problem(api.post("/intents", other | {"text": "x"}), 409, "trigger_reuse")
    assert said["next_step"] == "do_not_resend"


@pytest.mark.parametrize(
    ("field", "header", "status"),
    [
        (None, "a", 201),
        ("a", "a", 201),
        ("a", "b", 422),
        ("a", "", 422),
        (None, "", 422),
        (None, None, 422),
    ],
)
def test_the_key_comes_in_the_body_or_in_the_header(
    api: Door, field: str | None, header: str | None, status: int
) -> None:
    body = MESSAGE | {"action_key": field}
    headers = {} if header is None else {"Idempotency-Key": header}
    answer = api.post("/intents", body, **headers)
    assert answer.status_code == status
    if status == 201:
        assert answer.json()["action_key"] == "a"
    else:
        (wrong,) = problem(answer, 422, "wrong_fields")["errors"]
        assert wrong["pointer"] == "/action_key"


def test_a_derived_key_is_named_as_derived(api: Door) -> None:
    said = api.proposed(action_key=None, run="r", template="t", context={"order": 7731})
    assert said["key_derived"] is True
    assert said["action_key"].startswith("derived:")
    assert said["run"]["name"] == "r"


def test_every_wrong_field_is_named_at_once(api: Door) -> None:
    body = {"to": ["nobody"], "subject": "a\r\nBcc: b@example.org", "attachments": {}}
    said = problem(api.post("/intents", body), 422, "wrong_fields")
    assert said["next_step"] == "fix"
    assert {wrong["pointer"]: wrong["code"] for wrong in said["errors"]} == {
        "/action_key": "required",
        "/attachments": "wrong_type",
        "/subject": "control_character",
        "/text": "required",
        "/to/0": "address",
    }
    assert all(wrong["detail"] for wrong in said["errors"])
    assert not SendIntent.objects.exists()


def test_nul_is_refused_by_name_on_both_databases(api: Door) -> None:
    body = MESSAGE | {"text": "a\x00", "context": {"k": ["\x00"]}, "metadata": {"\x00": 1}}
    said = problem(api.post("/intents", body), 422, "wrong_fields")
    assert {wrong["code"] for wrong in said["errors"]} == {"control_character"}
    assert len(said["errors"]) == 3


def test_a_suppressed_recipient_is_refused_and_nothing_is_created(agent: Agent, api: Door) -> None:
    Suppression.objects.create(
        tenant=agent.tenant,
        normal="customer@example.org",
        cause=SuppressionCause.COMPLAINED,
        since=database_now(),
    )
    answer = api.post("/intents", MESSAGE | {"to": ["Customer@Example.org"]})
    said = problem(answer, 422, "suppressed_recipient")
    assert said["next_step"] == "do_not_resend"
    assert [wrong["pointer"] for wrong in said["errors"]] == ["/to/0"]
    assert not SendIntent.objects.exists()


def test_an_ended_run_takes_nothing_in(agent: Agent, api: Door) -> None:
    api.proposed(run="r")
    agent_run = SendIntent.objects.get().run
    assert agent_run is not None
    agent_run.ended_at = database_now()
    agent_run.save(update_fields=["ended_at"])
    answer = api.post("/intents", MESSAGE | {"action_key": "b", "run": "r"})
    assert problem(answer, 409, "run_ended")["next_step"] == "do_not_resend"


@pytest.mark.django_db(transaction=True)
def test_of_identical_requests_at_once_one_is_201_and_the_others_200(agent: Agent) -> None:
    token = make_token(agent)
    answers = at_once(*[lambda: door(token).post("/intents", MESSAGE | {"run": "r"})] * 6)
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert SendIntent.objects.count() == 1


# Versions


def test_requested_changes_are_read_and_answered_with_a_version(agent: Agent, api: Door) -> None:
    first = api.proposed()
    review.ask_for_changes(
        uuid.UUID(first["id"]),
        person=make_person(agent.tenant),
        digest=first["digest"],
        note="Name the order, please",
        reason_code=ReasonCode.WRONG_FACTS,
    )
    seen = api.get(f"/intents/{first['id']}").json()
    assert (seen["status"], seen["next_step"]) == ("changes_requested", "fix")
    assert (seen["decision"]["verdict"], seen["decision"]["note"], seen["decision"]["by"]) == (
        "changes",
        "Name the order, please",
        "person",
    )
    better = {"to": MESSAGE["to"], "subject": "Your refund 7731", "text": "It is on its way."}
    answer = api.post(f"/intents/{first['id']}/versions", better)
    assert answer.status_code == 201
    second = answer.json()
    assert (second["version"], second["number"], second["status"]) == (2, 1, "awaiting_approval")
    again = api.post(f"/intents/{first['id']}/versions", better)
    assert (again.status_code, again.json()["id"]) == (200, second["id"])
    old = api.get(f"/intents/{first['id']}").json()
    assert (old["status"], old["links"]["current"]) == ("superseded", second["links"]["self"])


def test_a_version_after_a_rejected_one_is_refused_for_good(agent: Agent, api: Door) -> None:
    first = make_intent(agent, status=Status.REJECTED)
    said = problem(api.post(f"/intents/{first.pk}/versions", MESSAGE), 422, "wrong_fields")
    assert said["errors"][0]["pointer"] == "/action_key"
    body = MESSAGE | {"action_key": None}
    said = problem(api.post(f"/intents/{first.pk}/versions", body), 409, "rejected")
    assert said["next_step"] == "do_not_resend"


@pytest.mark.parametrize(
    ("status", "code", "step"),
    [
        (Status.IN_FLIGHT, "in_flight", "wait"),
        (Status.UNCERTAIN, "in_doubt", "do_not_resend"),
        (Status.SUBMITTED, "already_accepted", "do_not_resend"),
        (Status.CANCELLED, "not_possible", "ask_a_person"),
    ],
)
def test_a_version_that_cannot_be_is_refused_with_a_next_step(
    agent: Agent, api: Door, status: Status, code: str, step: str
) -> None:
    first = make_intent(agent, status=status)
    answer = api.post(f"/intents/{first.pk}/versions", MESSAGE | {"action_key": None})
    assert problem(answer, 409, code)["next_step"] == step


def test_only_the_current_version_takes_one(api: Door) -> None:
    first = api.proposed()
    api.post(f"/intents/{first['id']}/versions", MESSAGE | {"text": "Second"})
    answer = api.post(f"/intents/{first['id']}/versions", MESSAGE | {"text": "Third"})
    assert problem(answer, 409, "version_changed")["next_step"] == "fix"


def test_what_a_person_rewrote_is_handled(agent: Agent, api: Door) -> None:
    first = api.proposed()
    editing.edit(
        uuid.UUID(first["id"]),
        person=make_person(agent.tenant),
        message=parse(MESSAGE | {"text": "Rewritten"}).message(Mailbox(_sender_of(agent))),
        digest=first["digest"],
        reason="clearer",
    )
    answer = api.post(f"/intents/{first['id']}/versions", MESSAGE | {"text": "Second"})
    assert problem(answer, 409, "version_changed")["next_step"] == "do_not_resend"


def _sender_of(agent: Agent) -> str:
    assert agent.sender is not None
    return agent.sender.address


# Decisions that can still be undone


UNDO_TIME = timedelta(seconds=30)
SENT_BACK = {Status.REJECTED: review.reject, Status.CHANGES_REQUESTED: review.ask_for_changes}


def sent_back(agent: Agent, to: Status, *, ago: timedelta) -> SendIntent:
    """Sent back by a person, that long ago, in a tenant with an undo time of 30 s."""
    Policy.objects.filter(tenant=agent.tenant).update(undo_time=UNDO_TIME)
    now = database_now() - ago
    intent = make_intent(agent, now=now, run=make_run(agent, name="r"))
    return SENT_BACK[to](
        intent.pk,
        person=make_person(agent.tenant),
        digest=intent.digest,
        note="Name the order, please",
        reason_code=ReasonCode.WRONG_FACTS,
        now=now,
    )


def repeated(intent: SendIntent, **fields: Any) -> dict[str, Any]:
    said = {"subject": intent.subject, "text": "Hello", "action_key": intent.action.action_key}
    return MESSAGE | said | fields


@pytest.mark.parametrize("status", SENT_BACK)
def test_what_can_still_be_undone_is_seen_as_undecided_everywhere(
    agent: Agent, api: Door, status: Status
) -> None:
    intent = sent_back(agent, status, ago=timedelta(0))
    whole = api.get(f"/intents/{intent.pk}").json()
    replay = api.post("/intents", repeated(intent))
    (listed,) = api.get("/intents", status="awaiting_approval").json()["items"]
    assert replay.status_code == 200
    for said in (whole, replay.json(), listed):
        assert (said["status"], said["next_step"]) == ("awaiting_approval", "wait")
        assert said["status_at"] == said["created_at"]
    assert (whole["decision"], whole["end_reason"]) == (None, "")
    assert whole["why_not_yet"]["sentence"] == "Waits for a person to approve it."
    assert api.get("/intents", status=status).json()["items"] == []
    assert api.get("/runs/r").json()["intents"] == {"awaiting_approval": 1}
    assert "Name the order" not in str([whole, replay.json(), listed])


@pytest.mark.parametrize("status", SENT_BACK)
def test_a_decision_is_seen_once_its_undo_time_is_over(
    agent: Agent, api: Door, status: Status
) -> None:
    intent = sent_back(agent, status, ago=UNDO_TIME + timedelta(seconds=1))
    whole = api.get(f"/intents/{intent.pk}").json()
    replay = api.post("/intents", repeated(intent)).json()
    (listed,) = api.get("/intents", status=status).json()["items"]
    assert [said["status"] for said in (whole, replay, listed)] == [status] * 3
    assert (whole["decision"]["note"], whole["end_reason"]) == ("Name the order, please",) * 2
    assert api.get("/intents", status="awaiting_approval").json()["items"] == []
    assert api.get("/runs/r").json()["intents"] == {status: 1}


def test_of_two_approvals_the_first_is_seen_while_a_no_can_be_undone(
    agent: Agent, api: Door
) -> None:
    Policy.objects.filter(tenant=agent.tenant).update(approvals=2, undo_time=UNDO_TIME)
    first = api.proposed()
    told: dict[str, Any] = {"digest": first["digest"], "note": "", "reason_code": ReasonCode.TONE}
    review.approve(uuid.UUID(first["id"]), person=make_person(agent.tenant), digest=first["digest"])
    before = api.get(f"/intents/{first['id']}").json()
    review.reject(uuid.UUID(first["id"]), person=make_person(agent.tenant), **told)
    assert before["decision"]["verdict"] == "approve"
    assert api.get(f"/intents/{first['id']}").json() == before


def test_a_version_waits_until_a_rejection_is_final(agent: Agent, api: Door) -> None:
    intent = sent_back(agent, Status.REJECTED, ago=timedelta(0))
    path, better = f"/intents/{intent.pk}/versions", MESSAGE | {"action_key": None}
    said = problem(api.post(path, better), 409, "being_decided")
    assert said["next_step"] == "wait"
    said = problem(api.post("/intents", repeated(intent, text="x")), 409, "action_key_reuse")
    assert "rejected" not in str(said)
    SendIntent.objects.update(undo_until=database_now() - timedelta(seconds=1))
    problem(api.post(path, better), 409, "rejected")


def test_an_agents_own_correction_overtakes_a_request_for_changes(agent: Agent, api: Door) -> None:
    intent = sent_back(agent, Status.CHANGES_REQUESTED, ago=timedelta(0))
    answer = api.post(f"/intents/{intent.pk}/versions", MESSAGE | {"action_key": None})
    assert (answer.status_code, answer.json()["version"]) == (201, 2)


# Withdrawing


def test_a_message_is_taken_back_and_again_without_harm(api: Door) -> None:
    first = api.proposed()
    for body in (None, {}, {"reason": None}, {"reason": "paid meanwhile"}):
        answer = api.post(f"/intents/{first['id']}/withdraw", body)
        assert answer.status_code == 200
        assert answer.json()["status"] == "cancelled"


def test_what_the_provider_took_is_not_taken_back(agent: Agent, api: Door) -> None:
    intent = make_intent(agent, status=Status.SUBMITTED)
    answer = api.post(f"/intents/{intent.pk}/withdraw")
    assert problem(answer, 409, "already_accepted")["next_step"] == "do_not_resend"


def test_what_is_on_the_wire_is_cancelled_once_it_is_settled(agent: Agent, api: Door) -> None:
    intent = make_intent(agent, status=Status.IN_FLIGHT)
    answer = api.post(f"/intents/{intent.pk}/withdraw")
    assert (answer.status_code, answer.json()["status"]) == (200, "in_flight")


def test_a_withdrawal_says_why_or_nothing(api: Door) -> None:
    first = api.proposed()
    problem(api.post(f"/intents/{first['id']}/withdraw", {"why": "x"}), 422, "wrong_fields")
    problem(api.post(f"/intents/{first['id']}/withdraw", b"{"), 400, "not_json")


# One


def test_everything_about_an_intent(agent: Agent, api: Door) -> None:
    intent = make_intent(agent, status=Status.UNCERTAIN)
    now = database_now()
    make_attempt(intent, outcome=Outcome.AMBIGUOUS, dispatched_at=now, reason="no answer")
    Evidence.objects.create(
        intent=intent,
        kind=EvidenceKind.LOOK_UP,
        direction=Direction.NEITHER,
        summary="nothing found",
        found_at=now,
    )
    said = api.get(f"/intents/{intent.pk}").json()
    assert (said["status"], said["in_doubt"], said["next_step"]) == (
        "uncertain",
        True,
        "do_not_resend",
    )
    assert said["why_not_yet"]["sentence"]
    (attempt,) = said["attempts"]
    assert (attempt["number"], attempt["outcome"], attempt["idempotency_key"]) == (
        1,
        "ambiguous",
        intent.idempotency_key,
    )
    assert attempt["opened_at"]
    assert attempt["dispatched_at"]
    assert attempt["closed_at"]
    assert [(d["address"], d["state"]) for d in said["deliveries"]] == [
        ("customer@example.org", "waiting")
    ]
    assert [(e["kind"], e["direction"]) for e in said["evidence"]] == [("look_up", "neither")]
    assert (said["decision"], said["metadata"]) == (None, {})


def test_an_accepted_one_has_the_providers_ids(agent: Agent, api: Door) -> None:
    intent = make_intent(agent, status=Status.SUBMITTED, provider_thread_id="thr_1")
    said = api.get(f"/intents/{intent.pk}").json()
    assert (said["provider_message_id"], said["provider_thread_id"]) == (
        f"sbx_{intent.pk.hex}",
        "thr_1",
    )


def test_an_open_attempt_has_no_outcome_yet(agent: Agent, api: Door) -> None:
    intent = make_intent(agent, status=Status.IN_FLIGHT)
    make_attempt(intent)
    (attempt,) = api.get(f"/intents/{intent.pk}").json()["attempts"]
    assert (attempt["outcome"], attempt["closed_at"]) == (None, None)


def test_metadata_comes_back_as_it_was_given(api: Door) -> None:
    metadata = {"case": 9, "tags": ["a", None], "ü": {"x": 1.5}}
    first = api.proposed(metadata=metadata)
    assert api.get(f"/intents/{first['id']}").json()["metadata"] == metadata


def test_an_intent_whose_payload_was_purged_can_still_be_seen(agent: Agent, api: Door) -> None:
    intent = make_intent(agent, status=Status.CANCELLED)
    purge(intent)
    assert api.get(f"/intents/{intent.pk}").json()["metadata"] == {}


@pytest.mark.parametrize("status", list(Status))
def test_every_status_can_be_read_and_has_a_next_step(
    agent: Agent, api: Door, status: Status
) -> None:
    intent = make_intent(agent, status=status)
    said = api.get(f"/intents/{intent.pk}").json()
    assert said["status"] == status
    assert said["next_step"] in Step.values


# Whose


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "/intents/{id}"),
        ("post", "/intents/{id}/versions"),
        ("post", "/intents/{id}/withdraw"),
    ],
)
def test_what_is_another_agents_is_not_there(agent: Agent, method: str, path: str) -> None:
    assert agent.sender is not None
    intent = make_intent(agent)
    strangers = [door(make_token(make_agent(agent.sender))), door(make_token(make_agent_at()))]
    for stranger in strangers:
        body = () if method == "get" else (MESSAGE | {"action_key": None},)
        if path.endswith("withdraw"):
            body = ({},)
        seen = getattr(stranger, method)(path.format(id=intent.pk), *body)
        absent = getattr(stranger, method)(path.format(id=NOBODY), *body)
        said = problem(seen, 404, "not_found")
        # Whether it exists cannot be told.
        assert said["detail"].replace(str(intent.pk), "") == problem(absent, 404, "not_found")[
            "detail"
        ].replace(str(NOBODY), "")
    intent.refresh_from_db()
    assert intent.status == Status.AWAITING_APPROVAL


def test_a_list_has_the_agents_own_alone(agent: Agent, api: Door) -> None:
    assert agent.sender is not None
    mine = make_intent(agent)
    make_intent(make_agent(agent.sender))
    make_intent()
    assert [item["id"] for item in api.get("/intents").json()["items"]] == [str(mine.pk)]


# Lists


def test_a_list_is_read_page_by_page_newest_first_without_gaps(agent: Agent, api: Door) -> None:
    made = [str(make_intent(agent).pk) for _ in range(5)]
    seen, cursor, pages = [], None, 0
    while pages < 10:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = api.get("/intents", **query).json()
        seen += [item["id"] for item in page["items"]]
        pages += 1
        if pages == 1:
            make_intent(agent)  # what comes meanwhile does not shift the pages
        if (cursor := page["next_cursor"]) is None:
            break
    assert seen == made[::-1]
    assert pages == 3


def test_a_list_is_filtered(agent: Agent, api: Door) -> None:
    waiting = api.proposed(run="r")
    api.proposed(action_key="b")
    api.post(f"/intents/{waiting['id']}/versions", MESSAGE | {"text": "Second"})

    def found(**query: Any) -> list[tuple[str, int]]:
        items = api.get("/intents", **query).json()["items"]
        return sorted((item["action_key"], item["version"]) for item in items)

    assert found() == [("b", 1), ("refund:7731", 1), ("refund:7731", 2)]
    assert found(status="superseded") == [("refund:7731", 1)]
    assert found(status=["superseded", "awaiting_approval"]) == found()
    assert found(run="r") == [("refund:7731", 1), ("refund:7731", 2)]
    assert found(run="other") == []
    assert found(action_key="b") == [("b", 1)]


def test_a_replaced_version_in_a_list_points_to_the_current_one(api: Door) -> None:
    first = api.proposed()
    second = api.post(f"/intents/{first['id']}/versions", MESSAGE | {"text": "Second"}).json()
    items = api.get("/intents").json()["items"]
    assert [item["links"]["current"] for item in items] == [None, second["links"]["self"]]


def test_a_page_costs_the_same_number_of_queries_however_long(agent: Agent, api: Door) -> None:
    for number in range(4):
        first = api.proposed(action_key=f"k{number}", run="r")
        api.post(f"/intents/{first['id']}/versions", MESSAGE | {"text": "x", "action_key": None})
    api.get("/intents")

    def queries(limit: int) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert len(api.get("/intents", limit=limit).json()["items"]) == limit
        return len(captured)

    assert queries(8) == queries(2)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({"status": "sent"}, "/status"),
        ({"since": "yesterday"}, "/since"),
        ({"since": "2026-07-01T09:00:00Z"}, "/since"),
        ({"since": "_" * 86}, "/since"),
        ({"since": "", "cursor": "AAAAAAAAAAAAAAAAAAAAAA"}, "/cursor"),
        ({"cursor": "x"}, "/cursor"),
        ({"cursor": "!!"}, "/cursor"),
        ({"cursor": "é"}, "/cursor"),
        ({"limit": 0}, "/limit"),
        ({"limit": 101}, "/limit"),
        ({"run": "a\x00"}, "/run"),
        ({"action_key": "a\x00"}, "/action_key"),
    ],
)
def test_a_wrong_filter_is_named(api: Door, query: dict[str, Any], pointer: str) -> None:
    said = problem(api.get("/intents", **query), 422, "wrong_fields")
    assert pointer in {wrong["pointer"] for wrong in said["errors"]}


def test_a_filter_that_does_not_exist_is_named(api: Door) -> None:
    said = problem(api.get("/intents", state="queued"), 422, "wrong_fields")
    assert [wrong["pointer"] for wrong in said["errors"]] == ["/state"]
