"""What a claim takes, what it leaves, and until when the first byte may go."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from sends.lifecycle import claim as claim_module
from sends.lifecycle import events
from sends.lifecycle.claim import Claimed, claim
from sends.lifecycle.settle import settle
from sends.lifecycle.submit import Submitted
from sends.models import Account, Cause, Payload, SendIntent, Suppression, Switch, database_now
from sends.providers.adapter import Event
from sends.providers.http import clock
from sends.rules.deliveries import EventKind
from sends.rules.outcomes import Happened, Outcome, Phase
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import make_agent_at, make_attempt, make_intent
from tests.lifecycle.races import (
    PATIENCE_SECONDS,
    at_once,
    wait_until_someone_waits_for_a_lock,
)
from tests.lifecycle.tampering import no_triggers

pytestmark = pytest.mark.django_db

NO_ANSWER = Happened(phase=Phase.SENT, error="deadline")


@pytest.fixture(autouse=True)
def credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_KEY", "sandbox_test_key")


def queued(**options: object) -> SendIntent:
    agent = make_agent_at(options={"contract": "replay"} | options)
    return make_intent(agent, status=Status.QUEUED)


def claim_one() -> Claimed:
    [claimed] = claim("test", at_most=1)
    return claimed


def make_due(intent: SendIntent) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(
        next_attempt_at=database_now(), not_sooner_than=None
    )


def in_doubt(**options: object) -> SendIntent:
    """Tried once without an answer, and due for a replay."""
    intent = queued(**options)
    settle([Submitted(claim_one(), NO_ANSWER)])
    make_due(intent)
    intent.refresh_from_db()
    assert (intent.status, intent.in_doubt) == (Status.RETRY_SCHEDULED, True)
    return intent


@pytest.mark.parametrize(
    "tightened",
    [
        {"no_replay": True},
        {"replay_window": timedelta(seconds=21)},
        {"options": {"contract": "none"}},
    ],
    ids=["no replay at all", "a window that is over", "another plan"],
)
def test_a_contract_tightened_since_the_retry_was_scheduled_binds_the_retry(
    tightened: dict[str, object],
) -> None:
    intent = in_doubt()
    SendIntent.objects.filter(pk=intent.pk).update(
        window_opened_at=database_now() - timedelta(seconds=2)
    )
    Account.objects.update(**tightened)

    assert claim("test", at_most=1) == []

    intent.refresh_from_db()
    assert intent.status == Status.UNCERTAIN
    assert intent.attempts.count() == 1


def test_what_may_have_arrived_is_not_repeated_past_the_window_by_a_worker_that_stood_still() -> (
    None
):
    intent = in_doubt(window_seconds=60)
    assert intent.replay_until is not None
    before = clock()

    replay = claim_one()

    left = (intent.replay_until - database_now()).total_seconds()
    assert replay.not_after - before <= left + 1
    assert left < 41


def test_a_worker_that_stood_still_sends_nothing_past_the_deadline_of_the_email() -> None:
    agent = make_agent_at(options={"contract": "replay"})
    deadline = database_now() + timedelta(seconds=30)
    make_intent(agent, status=Status.QUEUED, deadline=deadline)
    before = clock()

    assert claim_one().not_after - before <= 30


def test_a_first_attempt_may_begin_as_long_as_its_answer_can_come_before_the_lease_ends() -> None:
    queued(window_seconds=60)
    before = clock()

    assert 99 <= claim_one().not_after - before <= 101


def test_the_time_in_which_it_was_held_up_is_not_time_of_trying() -> None:
    intent = in_doubt()
    began = intent.retrying_since
    assert began is not None
    halted_for = timedelta(hours=3)
    SendIntent.objects.filter(pk=intent.pk).update(next_attempt_at=database_now() - halted_for)

    claim_one()

    intent.refresh_from_db()
    assert intent.retrying_since is not None
    assert halted_for <= intent.retrying_since - began < halted_for + timedelta(minutes=1)


def test_an_attempt_keeps_whether_its_provider_remembers_refusals() -> None:
    """A requeue asks: under the same key such a provider would only refuse it again."""
    intent = queued()
    claim_one()
    assert intent.attempts.get().contract["failures_remembered"] is False


def test_a_provider_that_nobody_knows_blocks_its_own_account_only() -> None:
    stranger, good = queued(), queued()
    Account.objects.filter(pk=stranger.account_id).update(provider="gone")

    assert [one.intent_id for one in claim("test", at_most=2)] == [good.pk]

    switch = Switch.objects.get(pk=stranger.account_id)
    assert switch.causes == Cause.BLOCKED
    assert "gone" in switch.block_reason


def test_an_email_whose_bytes_cannot_be_read_stops_only_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bad, good = queued(), queued()
    thaw = claim_module.thaw

    def thaw_all_but_one(body: bytes) -> object:
        if body == bytes(bad.payload.body):
            raise ValueError("made by another release")
        return thaw(body)

    monkeypatch.setattr(claim_module, "thaw", thaw_all_but_one)

    claimed = {one.intent_id: one for one in claim("test", at_most=2)}

    assert claimed[good.pk].request is not None
    assert claimed[bad.pk].request is None
    assert "another release" in claimed[bad.pk].fault


def test_an_email_whose_bytes_are_gone_stops_only_itself() -> None:
    bad, good = queued(), queued()
    with no_triggers(Payload):
        Payload.objects.filter(intent=bad).delete()

    assert [one.intent_id for one in claim("test", at_most=2)] == [good.pk]

    bad.refresh_from_db()
    assert bad.holds == HOLD_BITS[Hold.ANOMALY]


def test_what_follows_a_claim_and_fails_does_not_keep_it_from_being_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stranger, good = queued(), queued()
    Account.objects.filter(pk=stranger.account_id).update(credential="env:NOWHERE_TO_BE_FOUND")

    def fail(*args: object, **kwargs: object) -> None:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(claim_module, "turn_off", fail)

    assert [one.intent_id for one in claim("test", at_most=2)] == [good.pk]


@pytest.mark.django_db(transaction=True)
def test_a_suppression_is_committed_only_after_what_was_claimed_without_seeing_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = make_agent_at(options={"contract": "replay"})
    bounced = make_intent(agent, status=Status.SUBMITTED)
    make_attempt(bounced, outcome=Outcome.ACCEPTED)
    intent = make_intent(agent, status=Status.QUEUED)
    event = Event(
        event_id="evt_1",
        kind=EventKind.BOUNCED,
        recipient="customer@example.org",
        provider_message_id=bounced.provider_message_id,
        tag="",
        message_id="",
        reason="no such mailbox",
        occurred_at=None,
        fingerprint="1",
    )
    events.store(agent.sender.account, [event], b"{}", database_now())
    looked = threading.Event()
    open_attempt = claim_module.open_attempt

    def wait_and_open(*args: Any) -> Any:
        looked.set()
        wait_until_someone_waits_for_a_lock()
        assert not Suppression.objects.exists()
        return open_attempt(*args)

    def bounce() -> int:
        assert looked.wait(PATIENCE_SECONDS)
        return events.apply_received()

    monkeypatch.setattr(claim_module, "open_attempt", wait_and_open)

    claimed, applied = at_once(claim_one, bounce)

    assert (claimed.intent_id, applied) == (intent.pk, 1)
    assert Suppression.objects.get().normal == "customer@example.org"
