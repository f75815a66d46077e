"""Claim, submit, settle, in this process, against the real sandbox."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from sends.lifecycle import worker
from sends.models import SendIntent, Switch, database_now
from sends.rules.outcomes import Outcome, Phase
from sends.rules.statuses import DeliveryState, Status
from tests.factories import make_intent
from tests.sandboxes import Sandbox
from tests.sending import make_agent_of, sandbox_with

pytestmark = pytest.mark.django_db(transaction=True)


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


def queued(sandbox: Sandbox, contract: str, to: str, **fields: object) -> SendIntent:
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
    assert intent.attempts.get().outcome == outcome
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
