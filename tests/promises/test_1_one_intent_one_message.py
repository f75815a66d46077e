"""Promise 1: at most one message per intent, whatever happens to workers, tasks and connections."""

from datetime import timedelta

import pytest

from sends.lifecycle import claim, worker
from sends.models import SendIntent
from sends.rules.outcomes import Outcome
from sends.rules.statuses import Status
from tests.lifecycle.races import at_once
from tests.promises.stage import Stage, await_that

pytestmark = pytest.mark.django_db(transaction=True)

S = Status


@pytest.mark.parametrize(
    ("point", "with_contract", "without", "taken"),
    [
        # The claim's transaction was never committed: as if it had not happened.
        ("claiming", S.SUBMITTED, S.SUBMITTED, 1),
        # Without a contract no dispatch mark was written: nothing left, so it may go again.
        ("claimed", S.SUBMITTED, S.SUBMITTED, 1),
        # The mark is there, the request is not: only a contract lets us find out by repeating.
        ("dispatched", S.SUBMITTED, S.UNCERTAIN, 0),
        ("answered", S.SUBMITTED, S.UNCERTAIN, 1),
        ("saving", S.SUBMITTED, S.UNCERTAIN, 1),
        ("saved", S.SUBMITTED, S.SUBMITTED, 1),
    ],
)
def test_a_worker_killed_anywhere_costs_no_second_message(
    stage: Stage, point: str, with_contract: Status, without: Status, taken: int
) -> None:
    intent = stage.approved()
    stage.puppet_at(point).kill()
    stage.witness.look()

    stage.age_leases()
    stage.work()

    stage.witness.ends(with_contract if stage.contract == "replay" else without)
    intent.refresh_from_db()
    expected = 1 if intent.status == S.SUBMITTED else taken
    assert len(stage.sandbox.journal()) == expected


def test_a_worker_killed_while_the_provider_has_the_request(stage: Stage) -> None:
    stage.approved("slow")
    puppet = stage.puppet()
    puppet.drain()
    stage.sandbox.await_that(lambda sandbox: sandbox.stats()["accepted"])
    puppet.kill()

    stage.age_leases()
    stage.work()

    stage.witness.ends(S.SUBMITTED if stage.contract == "replay" else S.UNCERTAIN)
    assert len(stage.sandbox.journal()) == 1


@pytest.mark.parametrize("point", ["claimed", "dispatched", "answered"])
def test_a_worker_that_slept_past_its_lease_sends_nothing_a_second_time(
    stage: Stage, point: str
) -> None:
    # It may begin for a second after the claim; nobody waits for it longer than three.
    stage.policy = {"lease": timedelta(seconds=3)}
    stage.account = {"request_deadline": timedelta(seconds=2)}
    intent = stage.approved()
    puppet = stage.puppet_at(point)
    puppet.freeze()
    puppet.goes_on()  # it would, were it awake
    stage.work()
    stage.witness.look()
    requests = stage.sandbox.stats()["requests"]

    puppet.thaw()
    puppet.has_drained()

    stage.work()
    stage.witness.look()
    intent.refresh_from_db()
    if point != "answered":
        # Its own request never left: it looked at the clock before the first byte.
        assert stage.sandbox.stats()["requests"] == requests
    if stage.contract == "none" and point == "dispatched":
        stage.witness.ends(S.UNCERTAIN)
        assert stage.sandbox.journal() == []
    else:
        # Also where the answer came too late to settle it: what it proves is not lost.
        stage.witness.ends(S.SUBMITTED)
        assert len(stage.sandbox.journal()) == 1


def test_workers_that_race_for_the_same_rows_take_each_once(stage: Stage) -> None:
    """Cases A1, A3, A4."""
    intents = [stage.approved() for _ in range(24)]
    puppets = [stage.puppet(), stage.puppet()]

    for puppet in puppets:
        puppet.drain()
    worker.drain()

    assert sum(puppet.has_drained() for puppet in puppets) <= len(intents)
    stage.work()
    stage.witness.ends(S.SUBMITTED)
    assert len(stage.sandbox.journal()) == stage.sandbox.stats()["requests"] == len(intents)
    assert set(SendIntent.objects.values_list("attempt_count", flat=True)) == {1}


def test_of_many_claims_at_one_instant_each_intent_goes_to_one(stage: Stage) -> None:
    intents = [stage.approved() for _ in range(12)]

    def take(name: str) -> list[claim.Claimed]:
        return claim.claim(name, at_most=5)

    answers = at_once(*(lambda name=name: take(name) for name in "abcdefgh"))

    taken = [claimed.intent_id for claims in answers for claimed in claims]
    assert len(taken) == len(set(taken))
    for claims in answers:
        claim.dispatch([one for one in claims if not one.contract.may_replay])
    stage.age_leases()
    stage.work()
    stage.witness.ends()
    assert SendIntent.objects.count() == len(intents)


def test_broken_connections_and_answers_cost_no_second_message(stage: Stage) -> None:
    """Cases A5, A7, A18, A19 and the fault menu: what was taken is taken once."""
    words = [
        "lost-answer",
        "cut-answer",
        "accept-reset",
        "cut-json",
        "non-utf8",
        "no-proof",
        "http-500",
        "http-502-taken",
        "reset-before",
        "reset-after",
        "html-200",
        "busy-503",
    ]
    intents = {word: stage.approved(word) for word in words}

    stage.work()

    stage.witness.ends(S.SUBMITTED, S.UNCERTAIN)
    for word, intent in intents.items():
        intent.refresh_from_db()
        takes_nothing_for_sure = word == "busy-503"
        if stage.contract == "replay" or takes_nothing_for_sure:
            assert intent.status == S.SUBMITTED, word
        elif word != "non-utf8":
            assert intent.status == S.UNCERTAIN, word
    requests = stage.sandbox.requests()
    for intent in intents.values():
        sent = [request for request in requests if request["tag"] == intent.pk.hex]
        # Nobody below us repeats a request: every physical try is an attempt with its row.
        assert len(sent) <= intent.attempts.count()


def test_the_try_number_lives_in_the_ledger_and_has_a_ceiling(stage: Stage) -> None:
    """Cases A6, H4: neither a success in between nor a killed worker sets it back."""
    stage.policy = {"max_attempts": 3}
    intent = stage.approved("http-500-always")
    if stage.contract == "none":
        intent = stage.approved("busy-503")
        SendIntent.objects.filter(pk=intent.pk).update(retries_counted=2)
    stage.work()

    intent.refresh_from_db()
    assert intent.attempts.count() <= 3
    assert intent.status == (S.UNCERTAIN if stage.contract == "replay" else S.DEAD_LETTER)
    stage.witness.look()


def test_a_poisonous_message_stops_after_so_many_killed_workers(stage: Stage) -> None:
    """Case H4: an attempt counts from before the call, so it cannot kill workers for ever."""
    stage.policy = {"max_attempts": 2}
    intent = stage.approved()
    for _ in range(2):
        await_that(claim.anything_due)
        stage.puppet_at("claimed" if stage.contract == "none" else "dispatched").kill()
        stage.age_leases()
        stage.take_turns(1)
        await_that(lambda: stage.take_turns(1) or intent_is_free(intent))

    stage.work()

    intent.refresh_from_db()
    assert intent.attempts.count() == 2
    assert intent.status == (S.UNCERTAIN if stage.contract == "replay" else S.DEAD_LETTER)
    stage.witness.ends()


def intent_is_free(intent: SendIntent) -> bool:
    intent.refresh_from_db()
    return intent.status != S.IN_FLIGHT


def test_the_slower_of_two_finishers_overwrites_nothing(stage: Stage) -> None:
    """Case A27: the late result is kept as evidence, the settled intent stays settled."""
    intent = stage.approved()
    puppet = stage.puppet_at("answered")
    stage.age_leases()
    stage.work()
    intent.refresh_from_db()
    before = (intent.status, intent.fence)

    puppet.goes_on()
    puppet.has_drained()

    intent.refresh_from_db()
    assert intent.evidence.get().kind == "late_answer"
    assert intent.status == S.SUBMITTED
    if stage.contract == "replay":
        assert (intent.status, intent.fence) == before
    assert intent.attempts.get(number=1).outcome == Outcome.AMBIGUOUS
    stage.witness.ends(S.SUBMITTED)
    assert len(stage.sandbox.journal()) == 1
