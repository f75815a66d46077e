"""The database itself refuses what the ledger must never do, whatever asks."""

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.transitions import move
from sends.models import (
    AnomalyKind,
    Approval,
    Attempt,
    Evidence,
    SendIntent,
    database_now,
    new_id,
    triggers,
)
from sends.rules.outcomes import Outcome
from sends.rules.statuses import CLAIMABLE, ENDED, LEGAL, Status
from tests.factories import make_attempt, make_intent, purge

GRID = [(before, after) for before in Status for after in Status if before is not after]


def raw(sql: str, *params: object) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, params)
        return cursor.rowcount


def columns_for(after: Status, intent: SendIntent) -> dict[str, object]:
    """The columns that the CHECKs want with a status, so that only the trigger can object."""
    now = database_now()
    columns: dict[str, object] = {
        "status": after,
        "fence": intent.fence + 1,
        "in_doubt": after is Status.UNCERTAIN or intent.in_doubt,
        "approved_digest": intent.digest,
        "lease_token": new_id() if after is Status.IN_FLIGHT else None,
        "lease_expires_at": now if after is Status.IN_FLIGHT else None,
        "next_attempt_at": now if after in CLAIMABLE else None,
        "accepted_at": intent.accepted_at,
    }
    if after in (Status.SUBMITTED, Status.DONE):
        columns["accepted_at"] = intent.accepted_at or now
    if after in (Status.SUBMITTED, Status.DEAD_LETTER):
        columns["in_doubt"] = False
    return columns


@pytest.mark.django_db
@pytest.mark.parametrize(("before", "after"), GRID, ids=lambda status: str(status))
def test_the_database_takes_exactly_the_legal_changes_of_status(
    before: Status, after: Status
) -> None:
    intent = make_intent(status=before)
    columns = columns_for(after, intent)

    try:
        with transaction.atomic():
            SendIntent.objects.filter(pk=intent.pk).update(**columns)
        taken = True
    except DatabaseError:
        taken = False

    assert taken == (after in LEGAL[before])


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "sql"),
    [
        (Status.QUEUED, "UPDATE sends_sendintent SET digest = 'x', approved_digest = 'x'"),
        (Status.QUEUED, "UPDATE sends_sendintent SET idempotency_key = 'x'"),
        (Status.QUEUED, "UPDATE sends_sendintent SET message_id = 'x'"),
        (Status.QUEUED, "UPDATE sends_sendintent SET subject = 'x'"),
        (Status.QUEUED, "UPDATE sends_sendintent SET version = 7"),
        (Status.QUEUED, "UPDATE sends_sendintent SET approved_digest = 'x'"),
        (Status.AWAITING_APPROVAL, "UPDATE sends_sendintent SET approvals_needed = 0"),
        (Status.QUEUED, "UPDATE sends_sendintent SET deadline = created_at"),
        (Status.IN_FLIGHT, "UPDATE sends_sendintent SET lease_token = NULL"),
        (Status.RETRY_SCHEDULED, "UPDATE sends_sendintent SET next_attempt_at = NULL"),
        (Status.SUBMITTED, "UPDATE sends_sendintent SET accepted_at = NULL"),
        (Status.SUBMITTED, "UPDATE sends_sendintent SET fence = fence - 1"),
        (Status.QUEUED, "UPDATE sends_sendintent SET status = 'cancelled'"),
        (Status.UNCERTAIN, "UPDATE sends_sendintent SET status = 'elsewhere', fence = fence + 1"),
        (Status.QUEUED, "DELETE FROM sends_sendintent"),
        (Status.QUEUED, "DELETE FROM sends_action"),
        (Status.QUEUED, "UPDATE sends_payload SET body = metadata"),
        (Status.QUEUED, "DELETE FROM sends_payload"),
        (Status.UNCERTAIN, "DELETE FROM sends_payload"),
        (Status.QUEUED, "UPDATE sends_delivery SET address = 'other@example.org'"),
    ],
)
def test_the_database_refuses(status: Status, sql: str) -> None:
    make_intent(status=status)

    with pytest.raises(DatabaseError):
        raw(sql)


@pytest.mark.django_db
@pytest.mark.parametrize("status", sorted(set(Status) - {Status.UNCERTAIN}))
def test_doubt_is_refused_where_nothing_can_be_in_doubt(status: Status) -> None:
    intent = make_intent(status=status)
    sql = "UPDATE sends_sendintent SET in_doubt = %s"

    if status in (Status.IN_FLIGHT, Status.RETRY_SCHEDULED):
        assert raw(sql, True) == 1
        intent.refresh_from_db()
        assert intent.in_doubt
    else:
        with pytest.raises(DatabaseError):
            raw(sql, True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Status.RETRY_SCHEDULED, Status.CANCELLED),
        (Status.RETRY_SCHEDULED, Status.SUPERSEDED),
        (Status.RETRY_SCHEDULED, Status.DEAD_LETTER),
        (Status.RETRY_SCHEDULED, Status.AWAITING_APPROVAL),
        (Status.IN_FLIGHT, Status.QUEUED),
        (Status.IN_FLIGHT, Status.DEAD_LETTER),
        (Status.IN_FLIGHT, Status.CANCELLED),
        (Status.UNCERTAIN, Status.RETRY_SCHEDULED),
    ],
)
def test_doubt_does_not_end_on_the_way_to_another_status(before: Status, after: Status) -> None:
    intent = make_intent(status=before, in_doubt=True)
    columns = columns_for(after, intent) | {"in_doubt": False}

    with pytest.raises(DatabaseError), transaction.atomic():
        SendIntent.objects.filter(pk=intent.pk).update(**columns)


@pytest.mark.django_db
def test_an_intent_is_born_awaiting_approval() -> None:
    intent = make_intent()
    intent.pk, intent.version, intent.status = new_id(), 2, Status.QUEUED
    intent.idempotency_key, intent.message_id = "other", "<other@example.com>"
    intent.approved_digest, intent.next_attempt_at = intent.digest, database_now()

    with pytest.raises(DatabaseError), transaction.atomic():
        intent.save(force_insert=True)


@pytest.mark.django_db
def test_what_a_provider_accepted_is_never_queued_again() -> None:
    intent = make_intent(status=Status.SUBMITTED)
    raw("UPDATE sends_sendintent SET status = 'dead_letter', fence = fence + 1")
    intent.refresh_from_db()
    columns = columns_for(Status.QUEUED, intent) | {"accepted_at": None}

    with pytest.raises(DatabaseError), transaction.atomic():
        SendIntent.objects.filter(pk=intent.pk).update(**columns)


@pytest.mark.django_db
def test_a_closed_attempt_is_never_rewritten() -> None:
    attempt = make_attempt(make_intent(status=Status.IN_FLIGHT), outcome=Outcome.AMBIGUOUS)

    with pytest.raises(DatabaseError), transaction.atomic():
        Attempt.objects.filter(pk=attempt.pk).update(outcome=Outcome.ACCEPTED)


@pytest.mark.django_db
def test_two_attempts_of_one_intent_are_never_open_at_once() -> None:
    intent = make_intent(status=Status.IN_FLIGHT)
    make_attempt(intent)

    with pytest.raises(DatabaseError), transaction.atomic():
        make_attempt(intent)


@pytest.mark.django_db
def test_at_most_one_version_of_an_action_may_be_sent() -> None:
    first = make_intent(status=Status.QUEUED)
    second = make_intent(first.agent, action=first.action)
    columns = columns_for(Status.QUEUED, second)

    with pytest.raises(DatabaseError), transaction.atomic():
        SendIntent.objects.filter(pk=second.pk).update(**columns)


@pytest.mark.django_db
@pytest.mark.parametrize("status", Status)
def test_only_an_intent_that_is_over_loses_its_content(status: Status) -> None:
    make_intent(status=status)
    is_over = status in ENDED - {Status.DEAD_LETTER}

    if is_over:
        assert raw(PURGE) == 1
        assert raw("DELETE FROM sends_payload") == 1
    else:
        with pytest.raises(DatabaseError, match="content"):
            raw(PURGE)
        with pytest.raises(DatabaseError, match="content"):
            raw("DELETE FROM sends_payload")


PURGE = "UPDATE sends_sendintent SET purged_at = created_at"


@pytest.mark.django_db
def test_a_payload_is_deleted_only_with_the_moment_on_record() -> None:
    make_intent(status=Status.CANCELLED)

    with pytest.raises(DatabaseError):
        raw("DELETE FROM sends_payload")


@pytest.mark.django_db
def test_a_dead_letter_keeps_its_content_until_it_is_closed() -> None:
    intent = make_intent(status=Status.DEAD_LETTER)
    with pytest.raises(DatabaseError):
        raw(PURGE)

    SendIntent.objects.filter(pk=intent.pk).update(closed_at=database_now())

    assert raw(PURGE) == 1


@pytest.mark.django_db
def test_a_rejected_email_keeps_its_content_until_that_cannot_be_undone() -> None:
    soon, past = database_now() + timedelta(hours=1), database_now() - timedelta(seconds=1)
    intent = make_intent(status=Status.REJECTED, undo_until=soon)
    with pytest.raises(DatabaseError):
        raw(PURGE)

    SendIntent.objects.filter(pk=intent.pk).update(undo_until=past)

    assert raw(PURGE) == 1


@pytest.mark.django_db
def test_an_earlier_version_keeps_its_content_while_a_later_one_is_not_over() -> None:
    first = make_intent(status=Status.SUPERSEDED)
    second = make_intent(first.agent, action=first.action, status=Status.QUEUED)
    with pytest.raises(DatabaseError):
        raw(PURGE + " WHERE version = 1")

    move(second, Status.CANCELLED, now=database_now(), next_attempt_at=None)

    assert raw(PURGE) == 2


@pytest.mark.django_db
def test_what_an_open_anomaly_is_about_keeps_its_content() -> None:
    intent = make_intent(status=Status.CANCELLED)
    open_anomaly(intent, kind=AnomalyKind.ACCEPTED_UNSENT, detail="it bounced", now=database_now())
    with pytest.raises(DatabaseError):
        raw(PURGE)

    raw("UPDATE sends_anomaly SET closed_at = opened_at")

    assert raw(PURGE) == 1


@pytest.mark.django_db
def test_content_that_was_deleted_stays_deleted_and_is_never_sent() -> None:
    intent = purge(make_intent(status=Status.DEAD_LETTER, closed_at=database_now()))

    with pytest.raises(DatabaseError):
        raw("UPDATE sends_sendintent SET purged_at = NULL")
    with pytest.raises(DatabaseError, match="never sent"):
        SendIntent.objects.filter(pk=intent.pk).update(**columns_for(Status.QUEUED, intent))


ERASED = [
    ("sends_sendintent", "subject"),
    ("sends_sendintent", "note"),
    ("sends_sendintent", "first_recipient"),
    ("sends_delivery", "address"),
    ("sends_attempt", "body"),
    ("sends_evidence", "summary"),
    ("sends_approval", "note"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("table", "column"), ERASED, ids=lambda name: name)
def test_what_names_a_person_changes_only_once_its_intent_is_erased(
    table: str, column: str
) -> None:
    now = database_now()
    intent = purge(make_intent(status=Status.CANCELLED))
    make_attempt(intent, outcome=Outcome.NOT_SENT)
    Evidence.objects.create(
        intent=intent, kind="person", direction="neither", summary="x", found_at=now
    )
    Approval.objects.create(intent=intent, digest=intent.digest, verdict="reject", made_at=now)
    change = f"UPDATE {table} SET {column} = 'other'"
    with pytest.raises(DatabaseError):
        raw(change)

    raw("UPDATE sends_sendintent SET erased_at = purged_at")

    assert raw(change) == 1


@pytest.mark.django_db
def test_an_intent_with_its_content_is_not_erased() -> None:
    make_intent(status=Status.CANCELLED)

    with pytest.raises(DatabaseError):
        raw("UPDATE sends_sendintent SET erased_at = created_at")


@pytest.mark.django_db(transaction=True)
def test_the_triggers_come_back_when_migrations_rebuild_the_tables() -> None:
    make_intent(status=Status.QUEUED, deadline=database_now() + timedelta(days=1))
    assert triggers.missing(connection) == []
    triggers.drop(connection)
    if connection.vendor == "sqlite":
        assert triggers.missing(connection)
        for name in [*triggers.FROZEN, "Payload", "Evidence", "AuditEntry"]:
            rebuild(name)

    call_command("migrate", verbosity=0)

    assert triggers.missing(connection) == []
    with pytest.raises(DatabaseError):
        raw("UPDATE sends_sendintent SET status = 'submitted', fence = fence + 1")


def rebuild(name: str) -> None:
    """What a migration that alters a column does on SQLite: copy, drop, rename."""
    from django.apps import apps

    with connection.schema_editor() as editor:
        editor._remake_table(apps.get_model("sends", name))
