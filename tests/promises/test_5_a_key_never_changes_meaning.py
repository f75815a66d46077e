"""Promise 5: same intent, same key, same request, on every attempt, in every process, for ever."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sends.lifecycle import claim, editing, worker
from sends.lifecycle.requeue import requeue
from sends.models import Account, Anomaly, AnomalyKind, Attempt, SendIntent, database_now, new_id
from sends.rules.outcomes import Outcome
from sends.rules.payloads import thaw
from sends.rules.statuses import Status
from tests.promises.stage import Stage

pytestmark = pytest.mark.django_db(transaction=True)

S = Status


def fresh(intent: SendIntent) -> SendIntent:
    return SendIntent.objects.get(pk=intent.pk)


def make_due(intent: SendIntent) -> None:
    SendIntent.objects.filter(pk=intent.pk).update(
        next_attempt_at=database_now(), not_sooner_than=None
    )


def test_attempts_of_different_processes_make_one_request(stage: Stage) -> None:
    """Hash seeds, process ids and clocks are not part of it."""
    intent = stage.approved()
    # Retry-After keeps each process from making the next attempt, too.
    stage.sandbox.script("busy", tag=intent.pk.hex, times=2)
    for seed in ("1", "2", "3"):
        stage.env |= {"PYTHONHASHSEED": seed}
        puppet = stage.puppet()
        make_due(intent)
        puppet.drain()
        puppet.has_drained()

    stage.work()

    attempts = Attempt.objects.filter(intent=intent)
    assert attempts.count() == 3
    assert len(set(attempts.values_list("worker", flat=True))) == 3
    assert len(set(attempts.values_list("request_digest", flat=True))) == 1
    assert {r["key"] for r in stage.sandbox.requests()} == {intent.idempotency_key}
    assert stage.sandbox.stats()["conflicts"] == 0
    stage.witness.ends(S.SUBMITTED)


def test_a_requeued_dead_letter_goes_under_the_key_it_had(stage: Stage) -> None:
    """Case A31: after an outage the same version comes back, under the same identity."""
    stage.sandbox.script("not-found", times=1)
    intent = stage.approved()
    stage.work()
    assert fresh(intent).status == S.DEAD_LETTER

    requeue(intent.pk, person=stage.operator, reason="mended at the provider")
    stage.work()

    assert {r["key"] for r in stage.sandbox.requests()} == {intent.idempotency_key}
    assert len(stage.sandbox.journal()) == 1
    stage.witness.ends(S.SUBMITTED)


def another_organisation(account: Account) -> None:
    Account.objects.filter(pk=account.pk).update(scope=new_id())


def another_address(account: Account) -> None:
    url = account.base_url.replace("127.0.0.1", "localhost")
    Account.objects.filter(pk=account.pk).update(base_url=url)


@pytest.mark.parametrize("contract", ["replay"], indirect=True)
@pytest.mark.parametrize("change", [another_organisation, another_address])
def test_a_replay_that_would_not_be_the_same_request_is_not_sent(
    stage: Stage, change: Callable[[Account], None]
) -> None:
    """A key is known within one organisation only; elsewhere it would be a second message."""
    intent = stage.approved("lost-answer")
    worker.drain()
    assert fresh(intent).status == S.RETRY_SCHEDULED

    change(intent.account)
    stage.work()

    assert fresh(intent).status == S.UNCERTAIN
    assert "differ" in fresh(intent).end_reason
    assert stage.sandbox.stats()["requests"] == 1


@pytest.mark.parametrize("contract", ["replay"], indirect=True)
def test_a_provider_that_knows_our_key_with_another_request_stops_everything(
    stage: Stage,
) -> None:
    """Case A28: a conflict is neither "already sent" nor "send again": a person has to look."""
    intent = stage.approved("key-conflict")

    stage.work()
    stage.take_turns(1)

    assert fresh(intent).status == S.UNCERTAIN
    assert intent.attempts.get().outcome == Outcome.KEY_CONFLICT
    assert Anomaly.objects.get().kind == AnomalyKind.KEY_CONFLICT
    assert stage.sandbox.stats()["requests"] == 1
    stage.witness.ends(S.UNCERTAIN)


@pytest.mark.parametrize("contract", ["replay"], indirect=True)
def test_conflict_replay_and_in_progress_are_told_apart(stage: Stage) -> None:
    """Case A28, the other two: both lead to the one message that the provider has."""
    running, replayed = stage.approved("key-in-progress"), stage.approved("lost-answer")

    stage.work()

    stage.witness.ends(S.SUBMITTED)
    assert Outcome.KEY_IN_PROGRESS in running.attempts.values_list("outcome", flat=True)
    assert replayed.attempts.order_by("-number")[0].replayed
    assert len(stage.sandbox.journal()) == 2


def test_no_two_intents_share_a_key(stage: Stage) -> None:
    """Case A29: versions, actions and recipients each have their own."""
    first = stage.proposed()
    second = editing.edit(
        first.pk,
        person=stage.operator,
        message=replace(thaw(bytes(first.payload.body)).message, text="Goodbye"),
        digest=first.digest,
        reason="says it better",
    )
    others = [stage.proposed(f"delivered+{number}") for number in range(3)]

    keys = [i.idempotency_key for i in (first, second, *others)]
    assert len(keys) == len(set(keys))
    tags = [i.message_id for i in (first, second, *others)]
    assert len(tags) == len(set(tags))


def test_a_released_claim_leaves_the_key_as_it_was(stage: Stage) -> None:
    """Nothing was dispatched, so the next attempt is the first that the provider sees."""
    intent = stage.approved()
    if stage.contract == "none":
        claim.claim("gone", at_most=1)
        stage.age_leases()
    stage.work()

    assert {r["key"] for r in stage.sandbox.requests()} == {intent.idempotency_key}
    assert stage.sandbox.stats()["requests"] == 1
    stage.witness.ends(S.SUBMITTED)
