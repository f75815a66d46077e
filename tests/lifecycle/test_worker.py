"""Claim, submit, settle, in this process, against the real sandbox."""

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection

from sends.lifecycle import worker
from sends.lifecycle.claim import Claimed, installation_id
from sends.lifecycle.submit import Submitted
from sends.models import (
    Account,
    AnomalyKind,
    Cause,
    Installation,
    SendIntent,
    Suppression,
    Switch,
    SwitchKind,
    database_now,
    new_id,
    triggers,
)
from sends.providers.http import Http
from sends.rules.outcomes import Outcome, Phase
from sends.rules.statuses import HOLD_BITS, DeliveryState, Hold, Status
from tests.factories import make_intent
from tests.sandboxes import Sandbox
from tests.sending import make_agent_of, sandbox_with

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[dict[str, Sandbox]]:
    with sandbox_with("replay") as replay, sandbox_with("none") as none:
        yield {"replay": replay, "none": none}


@pytest.fixture(params=["replay", "none"])
def contract(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sandbox(sandboxes: dict[str, Sandbox], contract: str) -> Sandbox:
    sandboxes[contract].reset()
    return sandboxes[contract]


def queued(
    sandbox: Sandbox, contract: str, to: str | tuple[str, ...], **fields: object
) -> SendIntent:
    agent = make_agent_of(sandbox, contract=contract)
    return make_intent(agent, status=Status.QUEUED, to=to, **fields)  # type: ignore[arg-type]


def test_an_approved_intent_is_sent_once(sandbox: Sandbox, contract: str) -> None:
    intent = queued(sandbox, contract, "delivered@example.org")

    assert worker.drain() == 1

    intent.refresh_from_db()
    attempt = intent.attempts.get()
    assert intent.status == Status.SUBMITTED
    assert (attempt.outcome, attempt.phase) == (Outcome.ACCEPTED, Phase.ANSWERED)
    assert attempt.dispatched_at is not None
    assert intent.provider_message_id == attempt.provider_message_id != ""
    assert intent.deliveries.get().state == DeliveryState.ACCEPTED
    [message] = sandbox.journal()
    assert message["tag"] == intent.pk.hex
    assert message["id"] == intent.provider_message_id
    assert worker.drain() == 0
    assert sandbox.stats()["requests"] == 1


def test_what_is_not_due_is_left_alone(sandbox: Sandbox, contract: str) -> None:
    later = database_now() + timedelta(minutes=1)
    queued(sandbox, contract, "delivered@example.org", next_attempt_at=later)

    assert worker.drain() == 0
    assert sandbox.stats()["requests"] == 0


@pytest.mark.parametrize("scope", ["tenant", "account", "sender"])
def test_a_scope_that_is_off_sends_nothing(sandbox: Sandbox, contract: str, scope: str) -> None:
    intent = queued(sandbox, contract, "delivered@example.org")
    Switch.objects.filter(pk=getattr(intent, f"{scope}_id")).update(causes=1)

    assert worker.drain() == 0
    assert sandbox.stats()["requests"] == 0


@pytest.mark.parametrize(
    ("word", "with_contract", "without", "outcome"),
    [
        ("bad-request", Status.DEAD_LETTER, Status.DEAD_LETTER, Outcome.REFUSED),
        ("suppressed", Status.DEAD_LETTER, Status.DEAD_LETTER, Outcome.SUPPRESSED),
        ("busy", Status.RETRY_SCHEDULED, Status.RETRY_SCHEDULED, Outcome.THROTTLED),
        ("busy-503", Status.RETRY_SCHEDULED, Status.RETRY_SCHEDULED, Outcome.TRANSIENT),
        ("lost-answer", Status.RETRY_SCHEDULED, Status.UNCERTAIN, Outcome.AMBIGUOUS),
        ("http-500", Status.RETRY_SCHEDULED, Status.UNCERTAIN, Outcome.AMBIGUOUS),
        ("no-proof", Status.RETRY_SCHEDULED, Status.UNCERTAIN, Outcome.AMBIGUOUS),
        ("badkey", Status.RETRY_SCHEDULED, Status.RETRY_SCHEDULED, Outcome.BLOCKED),
        ("rejected-body", Status.DEAD_LETTER, Status.DEAD_LETTER, Outcome.REFUSED),
        ("key-conflict", Status.UNCERTAIN, Status.UNCERTAIN, Outcome.KEY_CONFLICT),
        ("reset-before", Status.RETRY_SCHEDULED, Status.UNCERTAIN, Outcome.AMBIGUOUS),
    ],
)
def test_what_follows_each_fault(
    sandbox: Sandbox,
    contract: str,
    word: str,
    with_contract: Status,
    without: Status,
    outcome: Outcome,
) -> None:
    intent = queued(sandbox, contract, f"{word}@example.org")

    worker.drain()

    intent.refresh_from_db()
    # The wait before a second one may be next to nothing.
    assert intent.attempts.get(number=1).outcome == outcome
    assert intent.status == (with_contract if contract == "replay" else without)
    assert intent.in_doubt == (outcome in (Outcome.AMBIGUOUS, Outcome.KEY_CONFLICT))


def test_a_blocked_account_waits_until_it_is_mended(sandbox: Sandbox, contract: str) -> None:
    intent = queued(sandbox, contract, "badkey@example.org")
    worker.drain()

    switch = Switch.objects.get(pk=intent.account_id)

    intent.refresh_from_db()
    assert switch.causes == 2
    assert intent.retries_counted == 0
    assert worker.drain() == 0


def test_a_request_that_cannot_be_built_is_our_fault_and_is_not_sent(
    sandbox: Sandbox, contract: str
) -> None:
    intent = queued(sandbox, contract, "delivered@example.org")
    Account.objects.update(base_url="http://mail.example.com")  # not encrypted

    worker.drain()

    intent.refresh_from_db()
    attempt = intent.attempts.get()
    assert (intent.status, attempt.outcome) == (Status.DEAD_LETTER, Outcome.INTERNAL)
    assert "mail.example.com" in intent.end_reason
    assert sandbox.stats()["requests"] == 0


def test_a_credential_that_cannot_be_read_blocks_the_account(
    sandbox: Sandbox, contract: str
) -> None:
    intent = queued(sandbox, contract, "delivered@example.org")
    Account.objects.update(credential="env:NOWHERE_TO_BE_FOUND")

    worker.drain()

    intent.refresh_from_db()
    switch = Switch.objects.get(pk=intent.account_id)
    assert switch.causes == Cause.BLOCKED
    assert "NOWHERE_TO_BE_FOUND" in switch.block_reason
    assert (intent.status, intent.attempt_count) == (Status.QUEUED, 0)


def test_a_suppression_after_the_approval_stops_the_whole_intent(
    sandbox: Sandbox, contract: str
) -> None:
    to = ("delivered@example.org", "Second@Example.org")
    intent = queued(sandbox, contract, to)
    Suppression.objects.create(
        tenant=intent.tenant, normal="second@example.org", cause="person", since=database_now()
    )

    worker.drain()

    intent.refresh_from_db()
    assert intent.status == Status.DEAD_LETTER
    assert "Second@Example.org" in intent.end_reason
    assert sandbox.stats()["requests"] == 0


def alter_the_payload() -> None:
    """Past the triggers, as somebody with the rights of a database administrator could."""
    triggers.drop(connection)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE sends_payload SET body = metadata")
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL session_replication_role = DEFAULT")
    triggers.install(connection)


def test_bytes_that_are_not_those_approved_are_an_anomaly_and_are_not_sent(
    sandbox: Sandbox, contract: str
) -> None:
    intent = queued(sandbox, contract, "delivered@example.org")
    alter_the_payload()

    worker.drain()

    intent.refresh_from_db()
    assert intent.anomalies.get().kind == AnomalyKind.DIGEST_DIFFERS
    assert intent.holds == HOLD_BITS[Hold.ANOMALY]
    assert sandbox.stats()["requests"] == 0


def test_a_replay_whose_request_would_differ_is_not_sent(sandbox: Sandbox, contract: str) -> None:
    intent = queued(sandbox, contract, "lost-answer@example.org")
    worker.drain()
    SendIntent.objects.filter(status=Status.RETRY_SCHEDULED).update(
        next_attempt_at=database_now(), not_sooner_than=None
    )
    Account.objects.update(scope=new_id())

    worker.drain()

    intent.refresh_from_db()
    assert intent.status == Status.UNCERTAIN
    assert sandbox.stats()["requests"] == 1


def test_a_replay_is_recognised_and_heals_a_lost_answer(sandbox: Sandbox, contract: str) -> None:
    intent = queued(sandbox, contract, "lost-answer@example.org")
    worker.drain()
    SendIntent.objects.filter(status=Status.RETRY_SCHEDULED).update(
        next_attempt_at=database_now(), not_sooner_than=None
    )

    worker.drain()

    intent.refresh_from_db()
    healed = contract == "replay"
    assert intent.status == (Status.SUBMITTED if healed else Status.UNCERTAIN)
    assert sandbox.stats()["accepted"] == 1
    if healed:
        first, second = intent.attempts.order_by("number")
        assert second.replayed
        assert first.request_digest == second.request_digest
        assert first.idempotency_key == second.idempotency_key


def test_what_needs_no_mark_is_sent_although_marking_the_others_fails(
    sandboxes: dict[str, Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    for sandbox in sandboxes.values():
        sandbox.reset()
    marked = queued(sandboxes["none"], "none", "delivered@example.org")
    ready = queued(sandboxes["replay"], "replay", "delivered@example.org")

    def fail(claimed: object) -> None:
        raise ConnectionError("the database is away")

    monkeypatch.setattr(worker, "dispatch", fail)
    with pytest.raises(ConnectionError):
        worker.drain()

    ready.refresh_from_db()
    marked.refresh_from_db()
    assert (ready.status, marked.status) == (Status.SUBMITTED, Status.IN_FLIGHT)
    assert marked.attempts.get().dispatched_at is None
    assert sandboxes["none"].stats()["requests"] == 0


def test_a_worker_obeys_the_switch_of_an_installation_that_replaced_the_one_it_knew(
    sandbox: Sandbox, contract: str
) -> None:
    queued(sandbox, contract, "delivered@example.org")
    installation_id()
    restored = new_id()
    Installation.objects.update(id=restored)
    Switch.objects.create(pk=restored, kind=SwitchKind.INSTALLATION, causes=Cause.PAUSED)

    try:
        assert worker.drain() == 0
    finally:
        installation_id.cache_clear()  # the test's end brings the other one back
    assert sandbox.stats()["requests"] == 0


def test_a_slow_answer_does_not_keep_another_drain_from_starting(
    sandbox: Sandbox, contract: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(sandbox, contract, "delivered@example.org")
    monkeypatch.setattr(worker, "SLICE", timedelta(seconds=0.2))
    submit, was_free = worker.submit, []

    def submit_when_another_may_start(claimed: Claimed, http: Http) -> Submitted:
        deadline = time.monotonic() + 20
        while (slot := worker._take_slot()) is None and time.monotonic() < deadline:
            time.sleep(0.02)
        was_free.append(slot is not None)
        if slot is not None:
            slot.close()
        return submit(claimed, http)

    monkeypatch.setattr(worker, "submit", submit_when_another_may_start)

    assert worker.drain() == 1
    assert was_free == [True]
