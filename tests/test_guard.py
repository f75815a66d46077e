"""Nothing is written while the ledger is not guarded."""

from datetime import timedelta

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import RequestFactory

from sends.guard import LedgerGuard
from sends.lifecycle import watchdog, worker
from sends.models import SendIntent, database_now, triggers
from sends.rules.statuses import Status
from tests.factories import make_intent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def without_a_trigger() -> None:
    table = ' ON "sends_attempt"' if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f'DROP TRIGGER "attempt_closed"{table}')


def test_a_write_is_refused_by_name_and_a_read_is_not(without_a_trigger: None) -> None:
    guard = LedgerGuard(lambda request: HttpResponse("done"))

    assert guard(RequestFactory().get("/")).status_code == 200
    refused = guard(RequestFactory().post("/"))

    assert refused.status_code == 503
    assert b"attempt_closed" in refused.content
    assert b"manage.py migrate" in refused.content


def test_writing_goes_on_as_soon_as_the_trigger_is_back(without_a_trigger: None) -> None:
    guard = LedgerGuard(lambda request: HttpResponse("done"))
    guard(RequestFactory().post("/"))

    triggers.install(connection)

    assert guard(RequestFactory().post("/")).status_code == 200


def test_a_worker_sends_nothing_while_a_trigger_is_missing(without_a_trigger: None) -> None:
    intent = make_intent(status=Status.QUEUED)

    assert worker.drain() == 0

    intent.refresh_from_db()
    assert intent.status == Status.QUEUED


def test_nothing_is_tended_while_a_trigger_is_missing(without_a_trigger: None) -> None:
    intent = make_intent()
    long_ago = database_now() - timedelta(days=1)
    SendIntent.objects.filter(pk=intent.pk).update(decide_by=long_ago)

    watchdog.tend(sweep_too=True)

    intent.refresh_from_db()
    assert intent.status == Status.AWAITING_APPROVAL
    triggers.install(connection)
    watchdog.tend(sweep_too=True)
    intent.refresh_from_db()
    assert intent.status == Status.CANCELLED
