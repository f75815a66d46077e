"""What of django-q2 we rely on, and that its poll asks the ledger."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django_q.brokers import get_broker
from django_q.models import OrmQ, Schedule
from django_q.signing import SignedPackage
from django_q.tasks import async_task

from sends import broker, schedule, tasks
from sends.conf import conf
from sends.rules.statuses import Status
from tests.factories import make_intent

pytestmark = pytest.mark.django_db


@pytest.fixture
def wake(monkeypatch: pytest.MonkeyPatch) -> Iterator[broker.LedgerORM]:
    """The broker as a pusher holds it, its beat and its sweep just done."""
    monkeypatch.setattr(broker, "LOOK_EVERY", 0.0)
    monkeypatch.setattr("django_q.brokers.orm.sleep", lambda seconds: None)
    monkeypatch.setattr("django.db.close_old_connections", lambda: None)
    found = get_broker()
    assert isinstance(found, broker.LedgerORM)
    assert functions(found.dequeue()) == [tasks.BEAT]
    assert functions(found.dequeue()) == [tasks.SWEEP]
    return found


def functions(packages: Any) -> list[str]:
    return [SignedPackage.loads(package)["func"] for _, package in packages or []]


def test_a_poll_finds_what_is_due_and_writes_nothing(wake: broker.LedgerORM) -> None:
    assert not wake.dequeue()
    make_intent(status=Status.QUEUED)

    [(receipt, package)] = wake.dequeue()

    assert receipt is None  # nothing to acknowledge
    task = SignedPackage.loads(package)
    assert (task["func"], task["args"], task["save"]) == (tasks.DRAIN, (), False)
    assert task["timeout"] == broker.TASK_TIMEOUT
    assert not OrmQ.objects.exists()


def test_other_tasks_still_come_through_the_queue(wake: broker.LedgerORM) -> None:
    async_task(tasks.SWEEP, broker=wake)

    [(receipt, package)] = wake.dequeue()

    assert receipt == OrmQ.objects.get().pk
    assert SignedPackage.loads(package)["func"] == tasks.SWEEP


def test_a_finished_beat_is_noted_and_nothing_else_is() -> None:
    conf.worker_beat.unlink(missing_ok=True)

    tasks.note_beat(task={"func": tasks.DRAIN})
    assert not conf.worker_beat.exists()

    tasks.note_beat(task={"func": tasks.BEAT})
    assert conf.worker_beat.exists()


def test_every_task_that_is_named_is_there() -> None:
    for dotted in (tasks.BEAT, tasks.DRAIN, tasks.TEND, tasks.SWEEP):
        module, _, name = dotted.rpartition(".")
        assert module == tasks.__name__
        assert callable(getattr(tasks, name))


def test_the_timetable_is_in_the_database_once() -> None:
    Schedule.objects.create(name="outbox: of an earlier release", func="sends.tasks.gone")

    schedule.sync()
    schedule.sync()

    rows = Schedule.objects.filter(name__startswith="outbox: ")
    assert {row.name: row.func for row in rows} == {
        name: func for name, (func, _) in schedule.TIMETABLE.items()
    }


def test_a_task_is_over_before_the_queue_would_hand_it_out_again() -> None:
    queue = settings.Q_CLUSTER
    assert queue["timeout"] == broker.TASK_TIMEOUT < queue["retry"]
    assert queue["catch_up"] is False
    assert queue["workers"] > conf.worker_drains
