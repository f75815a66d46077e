"""Promise 6: "we do not know" is a state of its own, with its reason, until something proves it."""

from datetime import timedelta
from typing import Any

import pytest

from sends.lifecycle import cancelling, halts, refusals, review, watchdog
from sends.lifecycle.resolve import ask_provider, mark_not_accepted, replay, resend
from sends.models import SendIntent, Suppression, SuppressionCause, database_now
from sends.rules.outcomes import Outcome
from sends.rules.payloads import thaw
from sends.rules.statuses import Status
from tests.promises.stage import Stage, await_that

pytestmark = pytest.mark.django_db(transaction=True)

S = Status


def fresh(intent: SendIntent) -> SendIntent:
    return SendIntent.objects.get(pk=intent.pk)


@pytest.mark.parametrize("contract", ["none"], indirect=True)
def test_without_a_contract_no_unclear_answer_is_ever_repeated(stage: Stage) -> None:
    """Cases A5, A18, E16: whatever the answer looks like, if it may have been taken."""
    words = ["lost-answer", "accept-reset", "no-proof", "http-500", "reset-after", "cut-json"]
    for word in words:
        stage.approved(word)
    stage.work()
    requests = stage.sandbox.stats()["requests"]

    stage.take_turns(3)

    stage.witness.ends(S.UNCERTAIN)
    assert stage.sandbox.stats()["requests"] == requests == len(words)
    for intent in SendIntent.objects.all():
        attempt = intent.attempts.get()
        assert attempt.outcome == Outcome.AMBIGUOUS
        assert intent.end_reason
        assert attempt.reason


@pytest.mark.parametrize("contract", ["replay"], indirect=True)
def test_replays_end_with_the_window_of_the_contract(stage: Stage) -> None:
    """Invariant 5, case E18: after the window only evidence or a person counts."""
    stage.account = {
        "options": {"contract": "replay", "window_seconds": 4},
        "request_deadline": timedelta(seconds=1),
    }
    intent = stage.approved("silent")

    stage.work()

    stage.witness.ends(S.UNCERTAIN)
    assert intent.attempts.count() >= 2
    assert "window" in fresh(intent).end_reason or "time in which" in fresh(intent).end_reason
    requests = stage.sandbox.stats()["requests"]
    await_that(lambda: fresh(intent).replay_until < database_now())  # type: ignore[operator]
    stage.take_turns(2)
    assert stage.sandbox.stats()["requests"] == requests
    with pytest.raises(refusals.Refused):
        replay(intent.pk, person=stage.operator)


@pytest.mark.parametrize("contract", ["replay"], indirect=True)
def test_a_window_that_closes_while_the_intent_is_stopped(stage: Stage) -> None:
    """A stop hides nothing: the intent becomes uncertain, and starting again repeats nothing."""
    stage.account = {"options": {"contract": "replay", "window_seconds": 3600}}
    intent = stage.approved("lost-answer")
    stage.work(until=lambda: fresh(intent).status == S.RETRY_SCHEDULED)
    halts.turn_off(stage.tenant.pk, by=stage.approver, reason="look at this first")
    # As if an hour had passed.
    SendIntent.objects.filter(pk=intent.pk).update(replay_until=database_now())

    stage.take_turns(1)
    assert fresh(intent).status == S.UNCERTAIN
    halts.turn_on(stage.tenant.pk, by=stage.operator, reason="looked at it")
    stage.take_turns(1)

    stage.witness.ends(S.UNCERTAIN)
    assert stage.sandbox.stats()["requests"] == 1


def in_doubt(stage: Stage) -> SendIntent:
    """An intent that the provider has taken, and of which we do not know that yet."""
    intent = stage.approved("lost-answer")
    expected = S.RETRY_SCHEDULED if stage.contract == "replay" else S.UNCERTAIN
    stage.work(until=lambda: fresh(intent).status == expected)
    return intent


def suppress(stage: Stage, intent: SendIntent) -> None:
    delivery = intent.deliveries.get()
    Suppression.objects.create(
        tenant=stage.tenant,
        normal=delivery.normal,
        cause=SuppressionCause.BOUNCED,
        since=database_now(),
    )


def withdraw(stage: Stage, intent: SendIntent) -> None:
    cancelling.withdraw(intent.pk, agent=stage.agent)


def lapse(stage: Stage, intent: SendIntent) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(approval_expires_at=database_now())


def spend(stage: Stage, intent: SendIntent) -> None:
    stage.tenant.policy.max_attempts = 1
    stage.tenant.policy.save()


@pytest.mark.parametrize("later", [suppress, withdraw, lapse, spend])
def test_what_comes_later_never_makes_a_doubt_a_no(stage: Stage, later: Any) -> None:
    """It ends accepted if a replay shows that, else uncertain: never cancelled nor given up."""
    intent = in_doubt(stage)
    later(stage, intent)

    stage.take_turns(2)
    await_that(lambda: stage.take_turns(1) or fresh(intent).status in _settled(stage, later))

    assert fresh(intent).status in (S.UNCERTAIN, S.SUBMITTED, S.RETRY_SCHEDULED)
    stage.witness.look()
    assert len(stage.sandbox.journal()) == 1


def _settled(stage: Stage, later: Any) -> tuple[Status, ...]:
    if stage.contract == "replay" and later is withdraw:
        return (S.RETRY_SCHEDULED, S.UNCERTAIN)  # held, until its window closes
    return (S.UNCERTAIN, S.SUBMITTED)


@pytest.mark.parametrize("contract", ["replay"], indirect=True)
@pytest.mark.parametrize("word", ["bad-request", "suppressed", "badkey", "forbidden"])
def test_a_later_refusal_settles_only_its_own_attempt(stage: Stage, word: str) -> None:
    """The first attempt was taken, the replay is refused: that is no proof that it was not."""
    intent = in_doubt(stage)
    stage.sandbox.script(word, tag=intent.pk.hex, times=None)

    stage.work(until=lambda: fresh(intent).status == S.UNCERTAIN)

    assert intent.attempts.count() == 2
    assert fresh(intent).in_doubt
    stage.witness.look()


def test_a_late_answer_settles_what_was_uncertain(stage: Stage) -> None:
    """Case A10: the worker lost its lease while it waited; its answer still proves acceptance."""
    intent = stage.approved()
    puppet = stage.puppet_at("answered")
    stage.age_leases()
    stage.work(until=lambda: fresh(intent).status != S.IN_FLIGHT)
    if stage.contract == "none":
        assert fresh(intent).status == S.UNCERTAIN
        assert "lost" in intent.attempts.get().reason

    puppet.goes_on()
    puppet.has_drained()

    stage.witness.look()
    assert fresh(intent).status == S.SUBMITTED
    evidence = intent.evidence.get(kind="late_answer")
    assert evidence.proves
    assert evidence.value == fresh(intent).provider_message_id


def test_a_look_up_proves_only_by_a_hit(stage: Stage) -> None:
    """Case A19: our own key or tag leads back to the intent; finding nothing proves nothing."""
    stage.account = {
        "request_deadline": timedelta(seconds=1),
        "options": {"contract": stage.contract, "window_seconds": 3},
    }
    found, lost = stage.approved("silent-found"), stage.approved("silent")
    stage.work()
    stage.witness.ends(S.UNCERTAIN)

    ask_provider(found.pk, person=stage.operator)
    evidence = ask_provider(lost.pk, person=stage.operator)

    assert fresh(found).status == S.SUBMITTED
    assert fresh(lost).status == S.UNCERTAIN
    assert not evidence.proves
    stage.witness.ends(S.SUBMITTED, S.UNCERTAIN)


@pytest.mark.parametrize("contract", ["none"], indirect=True)
def test_who_sends_again_does_so_under_a_new_key_and_on_the_record(stage: Stage) -> None:
    """Promise 1's one exception: a person chose it, and the first one stays what it is."""
    intent = in_doubt(stage)
    mark_not_accepted(
        intent.pk, person=stage.operator, value="ticket 5", note="their support does not find it"
    )
    stage.take_turns(1)
    assert fresh(intent).status == S.DEAD_LETTER
    assert len(stage.sandbox.journal()) == 1

    newer = resend(intent.pk, person=stage.operator, reason="the customer waits for it")
    stage.take_turns(1)
    assert len(stage.sandbox.journal()) == 1, "not before somebody approved it"
    stage.sandbox.script("delivered", tag=newer.pk.hex)
    review.approve(newer.pk, person=stage.approver, digest=newer.digest)
    stage.work()

    assert fresh(newer).status == S.SUBMITTED
    assert newer.resend_of == intent
    assert newer.idempotency_key != intent.idempotency_key
    assert thaw(bytes(newer.payload.body)).message == thaw(bytes(intent.payload.body)).message
    assert len(stage.sandbox.journal()) == 2
    stage.witness.look()


def test_a_lease_must_be_seen_expired_twice(stage: Stage) -> None:
    """A clock that jumped once proves nothing about a worker."""
    intent = stage.approved()
    puppet = stage.puppet_at("dispatched")
    stage.age_leases()

    assert watchdog.expire_leases() == 0
    assert watchdog.expire_leases() == 0
    assert fresh(intent).status == S.IN_FLIGHT

    puppet.goes_on()
    puppet.has_drained()
    stage.witness.ends(S.SUBMITTED)
