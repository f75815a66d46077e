"""Results are saved once, whatever the database and other workers do meanwhile."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection

from sends.lifecycle import settle as settle_module
from sends.lifecycle.claim import Claimed, claim, dispatch
from sends.lifecycle.settle import settle
from sends.lifecycle.submit import Submitted
from sends.lifecycle.transitions import move
from sends.models import Evidence, Run, SendIntent, Switch, database_now
from sends.rules.outcomes import BlockScope, Happened, Outcome, Phase
from sends.rules.statuses import DeliveryState, Status
from tests.factories import make_agent_at, make_intent, make_run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_KEY", "sandbox_test_key")


def claimed(contract: str = "replay", count: int = 1, **fields: Any) -> list[Claimed]:
    """This many attempts, dispatched and waiting for their answer."""
    agent = make_agent_at(options={"contract": contract})
    for number in range(count):
        make_intent(agent, status=Status.QUEUED, to=f"customer-{number}@example.org", **fields)
    taken = claim("test", at_most=count)
    assert len(taken) == count
    ready = [one for one in taken if not one.needs_mark]
    return ready + dispatch([one for one in taken if one.needs_mark])


def accepted(one: Claimed, proof: str = "") -> Submitted:
    proof = proof or f"sbx_{one.intent_id.hex}"
    return Submitted(one, Happened(phase=Phase.ANSWERED, status=201, proof=proof))


def no_answer(one: Claimed) -> Submitted:
    return Submitted(one, Happened(phase=Phase.SENT, error="deadline"))


def intent_of(one: Claimed) -> SendIntent:
    return SendIntent.objects.get(pk=one.intent_id)


def refuse_in_the_database(condition: str) -> None:
    """Let the database refuse to close attempts of this kind, as a constraint would."""
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                "CREATE TRIGGER refuse_it BEFORE UPDATE ON sends_attempt FOR EACH ROW "
                f"WHEN {condition} BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )
        else:
            cursor.execute(
                "CREATE FUNCTION refuse_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                f"IF {condition} THEN RAISE EXCEPTION 'refused' USING ERRCODE = '23514'; END IF; "
                "RETURN NEW; END $$"
            )
            cursor.execute(
                "CREATE TRIGGER refuse_it BEFORE UPDATE ON sends_attempt "
                "FOR EACH ROW EXECUTE FUNCTION refuse_it()"
            )


@pytest.mark.parametrize("contract", ["replay", "none"])
def test_one_result_that_is_refused_does_not_cost_the_others_of_its_group(contract: str) -> None:
    results = [accepted(one) for one in claimed(contract, count=3)]
    bad = results[1].claimed
    refuse_in_the_database(f"NEW.provider_message_id = 'sbx_{bad.intent_id.hex}'")

    settle(results)

    statuses = [intent_of(result.claimed).status for result in results]
    assert statuses == [Status.SUBMITTED, Status.UNCERTAIN, Status.SUBMITTED]
    attempt = intent_of(bad).attempts.get()
    assert (attempt.outcome, attempt.error) == (Outcome.AMBIGUOUS, "unsavable")


def test_a_result_that_cannot_even_be_uncertain_is_left_to_the_watchdog() -> None:
    one, other = claimed(count=2)
    refuse_in_the_database(f"NEW.digest = '{intent_of(one).digest}'")

    settle([accepted(one), accepted(other)])

    assert intent_of(one).status == Status.IN_FLIGHT
    assert intent_of(other).status == Status.SUBMITTED


@pytest.mark.parametrize("contract", ["replay", "none"])
def test_saving_is_repeated_until_the_database_is_back(
    contract: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = claimed(contract)
    save, down = settle_module._save, [1, 2, 3]

    def save_when_up(results: Sequence[Submitted]) -> Any:
        if down:
            down.pop()
            raise OperationalError("the database system is starting up")
        return save(results)

    monkeypatch.setattr(settle_module, "_save", save_when_up)
    monkeypatch.setattr(settle_module, "SAVE_AGAIN_AFTER", timedelta(0))
    monkeypatch.setattr(settle_module.connection, "close", lambda: None)

    settle([accepted(one)])

    assert intent_of(one).status == Status.SUBMITTED
    assert not down


def test_the_answer_of_a_worker_that_lost_its_lease_is_evidence_and_nothing_more() -> None:
    [one] = claimed()
    intent = intent_of(one)
    move(
        intent,
        Status.RETRY_SCHEDULED,
        now=database_now(),
        in_doubt=True,
        next_attempt_at=database_now() + timedelta(minutes=1),
    )

    settle([no_answer(one)])

    intent.refresh_from_db()
    assert intent.status == Status.RETRY_SCHEDULED
    assert intent.attempts.get().outcome == Outcome.AMBIGUOUS
    assert not Evidence.objects.get().proves


def test_a_late_acceptance_settles_an_intent_that_had_become_uncertain() -> None:
    [one] = claimed("none")
    intent = intent_of(one)
    now = database_now()
    move(intent, Status.UNCERTAIN, now=now, in_doubt=True, window_opened_at=now)

    settle([accepted(one, "sbx_late")])

    intent.refresh_from_db()
    assert (intent.status, intent.provider_message_id) == (Status.SUBMITTED, "sbx_late")
    assert Evidence.objects.get().proves


def test_recipients_that_the_provider_refused_end_as_refused_and_the_others_go_on() -> None:
    agent = make_agent_at(options={"contract": "replay"})
    make_intent(agent, status=Status.QUEUED, to=("one@example.org", "two@example.org"))
    [one] = claim("test", at_most=1)
    happened = Happened(
        phase=Phase.ANSWERED, status=201, proof="sbx_1", refused=("TWO@example.org",)
    )

    settle([Submitted(one, happened)])

    intent = intent_of(one)
    states = dict(intent.deliveries.values_list("address", "state"))
    assert intent.attempts.get().outcome == Outcome.ACCEPTED_IN_PART
    assert states == {
        "one@example.org": DeliveryState.ACCEPTED,
        "two@example.org": DeliveryState.REFUSED,
    }


@pytest.mark.parametrize(
    ("scope", "blocked"), [(BlockScope.ACCOUNT, "account_id"), (BlockScope.SENDER, "sender_id")]
)
def test_a_block_turns_off_its_scope_and_the_intent_waits_uncounted(
    scope: BlockScope, blocked: str
) -> None:
    [one] = claimed()
    happened = Happened(
        phase=Phase.ANSWERED, status=403, says=Outcome.BLOCKED, block=scope, code="stopped"
    )

    settle([Submitted(one, happened)])

    intent = intent_of(one)
    off = Switch.objects.off(database_now())
    assert [switch.pk for switch in off] == [getattr(intent, blocked)]
    assert (intent.status, intent.retries_counted, intent.tries) == (Status.RETRY_SCHEDULED, 0, 0)


def test_every_retry_of_a_run_is_counted_against_its_budget() -> None:
    agent = make_agent_at(options={"contract": "replay"})
    run = make_run(agent)
    make_intent(agent, status=Status.QUEUED, run=run)
    [one] = claim("test", at_most=1)

    settle([no_answer(one)])

    assert Run.objects.get(pk=run.pk).retries_used == 1
