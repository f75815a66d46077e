"""Promise 7: queue, cache and scheduler only make things faster; without them nothing is wrong."""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest
from django.db import connection
from django_q.models import OrmQ, Schedule

from sends import broker, tasks
from sends.lifecycle import claim, events, halts, watchdog
from sends.models import Account, EventState, ProviderEvent, SendIntent
from sends.rules.statuses import DeliveryState, Status
from tests.factories import make_run
from tests.lifecycle.races import at_once
from tests.promises.stage import UNDER_WAY, Stage, WorkerProcess, await_that

pytestmark = pytest.mark.django_db(transaction=True)

S = Status


def fresh(intent: SendIntent) -> SendIntent:
    return SendIntent.objects.get(pk=intent.pk)


def all_at_rest() -> bool:
    return not SendIntent.objects.filter(status__in=UNDER_WAY).exists()


def test_tasks_delivered_twice_do_nothing_twice(stage: Stage) -> None:
    """Cases A14, H1, H2, H3: a task means "have a look", and the claim decides."""
    words = ["delivered", "lost-answer", "busy-503", "bad-request", "no-proof"]
    intents = [stage.approved(word) for word in words]
    every = (tasks.drain, tasks.tend, tasks.sweep, tasks.drain, tasks.tend, tasks.sweep)

    def again() -> bool:
        assert [a for a in at_once(*every) if isinstance(a, Exception)] == []
        return all_at_rest()

    await_that(again)

    stage.witness.ends(S.SUBMITTED, S.UNCERTAIN, S.DEAD_LETTER)
    for intent in intents:
        attempts = intent.attempts.count()
        requests = [r for r in stage.sandbox.requests() if r["tag"] == intent.pk.hex]
        assert len(requests) == attempts


def test_a_task_delivered_to_two_clusters_is_a_look_of_each(stage: Stage) -> None:
    for _ in range(6):
        stage.approved()
    first, second = stage.puppet_at("claimed"), stage.puppet()

    second.drain()
    second.has_drained()
    first.goes_on()
    first.has_drained()

    stage.work()
    stage.witness.ends(S.SUBMITTED)
    assert len(stage.sandbox.journal()) == stage.sandbox.stats()["requests"] == 6


def test_tasks_that_are_never_delivered_lose_nothing(stage: Stage) -> None:
    """No queue, no schedule, no cache: the poll asks the ledger itself."""
    running = stage.worker()
    running.is_working()
    Schedule.objects.all().delete()
    OrmQ.objects.all().delete()
    shutil.rmtree(running.data_dir / "cache", ignore_errors=True)

    stage.approved()
    stage.approved("busy-503")
    stage.approved("lost-answer")
    await_that(all_at_rest)

    if stage.contract == "replay":
        stage.witness.ends(S.SUBMITTED)
    else:
        stage.witness.ends(S.SUBMITTED, S.UNCERTAIN)


def test_nothing_is_enqueued_for_an_email(stage: Stage) -> None:
    """So no wake can be lost, and none comes before its row is committed (case H16)."""
    OrmQ.objects.all().delete()
    stage.approved()
    stage.work()

    assert not OrmQ.objects.exists()
    stage.witness.ends(S.SUBMITTED)


def test_a_drain_that_is_killed_is_somebody_else_s_work(stage: Stage) -> None:
    """Case H15, H21: the process that sends is killed in a cluster that goes on."""
    stage.policy = {"lease": timedelta(seconds=4)}
    stage.account = {"request_deadline": timedelta(seconds=3)}
    intent = stage.approved("slow")
    running = stage.worker()
    stage.sandbox.await_that(lambda sandbox: sandbox.stats()["accepted"])
    [busy] = await_that(lambda: draining(running))

    busy.kill()
    stage.approved("delivered")

    await_that(all_at_rest)
    assert fresh(intent).status == (S.SUBMITTED if stage.contract == "replay" else S.UNCERTAIN)
    stage.witness.ends(S.SUBMITTED, S.UNCERTAIN)
    assert len(stage.sandbox.journal()) == 2


def draining(running: WorkerProcess) -> list[psutil.Process]:
    """The one process that drains, or nothing: a second one only looks and ends."""
    busy = []
    for process in running.family():
        with suppress(psutil.NoSuchProcess):
            if tasks.DRAIN in " ".join(process.cmdline()):
                busy.append(process)
    return busy if len(busy) == 1 else []


@pytest.mark.parametrize("contract", ["none"], indirect=True)
def test_a_cluster_without_its_supervisor_stops_by_itself(stage: Stage) -> None:
    """Nobody would notice that it wedged. What it does meanwhile is harmless."""
    first = stage.worker()
    first.is_working()

    first.kill_supervisor()
    second = stage.worker(data_dir=first.data_dir)
    for _ in range(5):
        stage.approved()

    await_that(all_at_rest)
    await_that(lambda: not first.family())
    stage.witness.ends(S.SUBMITTED)
    assert len(stage.sandbox.journal()) == 5
    assert second.stop() == 0


def test_two_workers_with_folders_of_their_own_share_the_work(stage: Stage) -> None:
    """Case H7: two containers, one database, each row once."""
    both = [stage.worker(), stage.worker()]
    for running in both:
        running.is_working()

    for number in range(20):
        stage.approved(f"delivered+{number}")
    await_that(all_at_rest)

    stage.witness.ends(S.SUBMITTED)
    assert len(stage.sandbox.journal()) == stage.sandbox.stats()["requests"] == 20


@pytest.mark.parametrize("contract", ["none"], indirect=True)
def test_two_workers_in_one_folder_are_refused(stage: Stage) -> None:
    first = stage.worker()
    first.is_working()

    second = stage.worker(data_dir=first.data_dir)

    assert second.has_stopped() != 0
    assert "OUTBOX_DATA_DIR" in second.log.read_text()
    stage.witness.look()


def test_the_wake_asks_the_claim_s_own_question(stage: Stage) -> None:
    """What is due wakes a worker, and what no claim would take does not keep one awake."""
    assert _looks() == []
    intent = stage.approved()
    assert _looks() == [tasks.DRAIN]
    SendIntent.objects.filter(pk=intent.pk).update(holds=1)
    assert _looks() == []
    stage.witness.look()


def _looks() -> list[str]:
    due = [tasks.DRAIN] if claim.anything_due() else []
    if watchdog.anything_to_tend():
        due.append(tasks.TEND)
    return due


def test_a_poll_that_fails_is_repeated(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that restarts is asked again; the stock loop would give up for ten seconds."""
    monkeypatch.setattr(broker.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(broker.db.connections, "close_all", lambda: None)
    wake = broker.LedgerORM("outbox")
    monkeypatch.setattr(wake, "_due", lambda: 1 / 0)

    assert wake.dequeue() is None
    stage.witness.look()


@contextmanager
def webhooks_of(stage: Stage, events_mode: str = "normal") -> Iterator[None]:
    """Where the sandbox's events arrive and are kept, as the web door keeps them."""
    secret = Path(stage.folder) / "webhook-secret"
    secret.write_text("whsec_of_this_test")
    account = stage.agent.sender.account  # type: ignore[union-attr]
    Account.objects.filter(pk=account.pk).update(webhook_secrets=[f"file:{secret}"])
    account.refresh_from_db()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                events.receive(account, self.headers, raw)  # type: ignore[arg-type]
            finally:
                connection.close()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    stage.sandbox.configure(
        webhook=f"http://127.0.0.1:{server.server_port}/",
        webhook_secret="whsec_of_this_test",
        events={"mode": events_mode},
    )
    try:
        yield
    finally:
        stage.sandbox.configure(events={"mode": "off"})
        server.shutdown()
        server.server_close()


# What the sandbox tells of each word in the end, and what therefore stays.
NEWS = {
    "delivered": DeliveryState.DELIVERED,
    "complain": DeliveryState.COMPLAINED,
    "bounce": DeliveryState.BOUNCED,
}


def states_of(intents: dict[str, SendIntent]) -> dict[str, str]:
    return {word: intent.deliveries.get().state for word, intent in intents.items()}


@pytest.mark.parametrize("mode", ["normal", "before-answer", "doubled", "changed-ids", "reversed"])
def test_events_lead_to_one_end_whenever_they_come(stage: Stage, mode: str) -> None:
    """Cases C3, C5 and invariant 9: before the answer, twice, backwards."""
    with webhooks_of(stage, mode):
        intents = {word: stage.approved(word) for word in ("delivered", "complain", "bounce")}
        await_that(lambda: stage.take_turns(1) or states_of(intents) == NEWS)
        await_that(lambda: set(stage.sandbox.stats()["events"]) == {"sent"})
        stage.take_turns(1)

    assert states_of(intents) == NEWS
    assert fresh(intents["bounce"]).status == S.DEAD_LETTER
    assert not ProviderEvent.objects.filter(state=EventState.RECEIVED).exists()
    stage.witness.ends(S.DONE, S.DEAD_LETTER)


def test_an_event_settles_what_no_answer_did(stage: Stage) -> None:
    """Case A19: accepted without an answer, and the event that names our tag proves it."""
    stage.account = {"request_deadline": timedelta(seconds=1)}
    with webhooks_of(stage):
        intent = stage.approved("silent-delivered")
        await_that(lambda: stage.take_turns(1) or fresh(intent).status == S.DONE)

    assert fresh(intent).accepted_at is not None
    assert len(stage.sandbox.journal()) == 1
    stage.witness.ends(S.DONE)


def test_a_run_that_was_ended_is_over_whatever_was_queued(stage: Stage) -> None:
    """The end is in the ledger before any worker hears of it."""
    run = make_run(stage.agent)
    intents = [stage.approved(run=run) for _ in range(3)]
    halts.end_run(run, person=stage.operator, reason="not needed any more")

    stage.take_turns(2)

    assert {fresh(i).status for i in intents} == {S.CANCELLED}
    assert stage.sandbox.stats()["requests"] == 0
    stage.witness.ends(S.CANCELLED)
