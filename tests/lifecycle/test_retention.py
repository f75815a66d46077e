"""Retention deletes what policy no longer keeps, and nothing that anybody may still need."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sends.lifecycle import chain, requeue, retention
from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.refusals import NotPossible
from sends.lifecycle.retention import Purged
from sends.lifecycle.transitions import move
from sends.models import (
    Action,
    ActionResult,
    AnomalyKind,
    AttachmentContent,
    AuditEntry,
    EventState,
    Payload,
    Policy,
    ProviderEvent,
    Role,
    SendIntent,
    Tenant,
    database_now,
    new_id,
)
from sends.rules.statuses import ENDED, UNFINISHED, Status
from tests.factories import make_agent_at, make_intent, make_person, make_tenant
from tests.lifecycle.races import at_once

DAY = timedelta(days=1)
LONG_AGO = timedelta(days=800)


def long_ended(status: Status, **fields: Any) -> SendIntent:
    """An intent that is in this status since long ago; a dead letter was closed then."""
    then = database_now() - LONG_AGO
    if status is Status.DEAD_LETTER:
        fields = {"closed_at": then} | fields
    return make_intent(status=status, now=then, **fields)


def has_content(intent: SendIntent) -> bool:
    intent.refresh_from_db()
    there = Payload.objects.filter(intent=intent).exists()
    assert there == (intent.purged_at is None)
    return there


def purge_of(tenant: Tenant, **more: Any) -> Purged:
    return next(done for done in retention.purge(**more) if done.tenant == tenant)


def make_event(intent: SendIntent | None, **fields: Any) -> ProviderEvent:
    then = fields.pop("received_at", database_now() - LONG_AGO)
    account = intent.account if intent else fields.pop("account")
    return ProviderEvent.objects.create(
        **{
            "account": account,
            "event_id": new_id().hex,
            "fingerprint": "f",
            "kind": "delivered",
            "recipient": "customer@example.org",
            "raw": b'{"to": "customer@example.org"}',
            "state": EventState.APPLIED if intent else EventState.FOREIGN,
            "intent": intent,
            "occurred_at": then,
            "received_at": then,
        }
        | fields
    )


@pytest.mark.django_db
@pytest.mark.parametrize("status", Status)
def test_the_content_of_what_is_over_goes_and_all_other_stays(status: Status) -> None:
    intent = long_ended(status)

    retention.purge()

    assert has_content(intent) == (status not in ENDED)


@pytest.mark.django_db
@pytest.mark.parametrize("status", sorted(ENDED))
def test_each_class_is_kept_for_its_own_time(status: Status) -> None:
    tenant = make_tenant(**{f"keep_{status}": 10 * DAY})
    agent = make_agent_at(tenant)
    now = database_now()
    older, younger = now - 11 * DAY, now - 9 * DAY

    def ended(at: datetime) -> SendIntent:
        closed = {"closed_at": at} if status is Status.DEAD_LETTER else {}
        return make_intent(agent, status=status, now=at, **closed)

    old, young = ended(older), ended(younger)
    assert retention.due(tenant).emails == {status: 1}

    retention.purge()

    assert (has_content(old), has_content(young)) == (False, True)


@pytest.mark.django_db
def test_for_ever_is_for_ever_and_0_is_at_once() -> None:
    tenant = make_tenant(keep_done=None, keep_cancelled=timedelta(0))
    agent = make_agent_at(tenant)
    then = database_now() - LONG_AGO
    kept = make_intent(agent, status=Status.DONE, now=then)
    gone = make_intent(agent, status=Status.CANCELLED)

    retention.purge()

    assert (has_content(kept), has_content(gone)) == (True, False)


@pytest.mark.django_db
def test_a_dead_letter_counts_from_when_it_was_closed() -> None:
    dead = long_ended(Status.DEAD_LETTER, closed_at=database_now() - DAY)
    asked_about = long_ended(Status.DEAD_LETTER, closed_at=None)

    retention.purge()

    assert has_content(dead)
    assert has_content(asked_about)


@pytest.mark.django_db
def test_what_is_kept_beside_the_content() -> None:
    intent = long_ended(Status.DONE, subject="Your order")

    retention.purge()

    intent.refresh_from_db()
    assert (intent.subject, len(intent.digest)) == ("Your order", 64)
    assert intent.deliveries.get().address == "customer@example.org"


@pytest.mark.django_db
def test_a_file_goes_with_the_last_email_that_carries_it() -> None:
    agent, then = make_agent_at(), database_now() - LONG_AGO
    shared, own = {"terms.pdf": b"terms"}, {"bill.pdf": b"bill"}
    make_intent(agent, status=Status.DONE, now=then, files=shared | own)
    waiting = make_intent(agent, status=Status.QUEUED, now=then, files=shared)

    with CaptureQueriesContext(connection) as asked:
        retention.purge()

    left = AttachmentContent.objects.get()
    assert bytes(left.body) == b"terms"
    read = [q["sql"] for q in asked.captured_queries if q["sql"].startswith("SELECT")]
    assert not any('"sends_attachmentcontent"."body"' in sql for sql in read)
    move(waiting, Status.CANCELLED, now=then, next_attempt_at=None)
    retention.purge()
    assert not AttachmentContent.objects.exists()


@pytest.mark.django_db
def test_an_open_anomaly_keeps_every_version_of_its_message() -> None:
    first = long_ended(Status.SUPERSEDED)
    second = make_intent(
        first.agent, action=first.action, status=Status.CANCELLED, now=first.created_at
    )
    open_anomaly(second, kind=AnomalyKind.ACCEPTED_UNSENT, detail="taken", now=database_now())

    retention.purge()

    assert has_content(first)
    assert has_content(second)


@pytest.mark.django_db
@pytest.mark.parametrize("later", sorted(UNFINISHED))
def test_a_version_that_is_not_over_keeps_those_before_it(later: Status) -> None:
    first = long_ended(Status.SUPERSEDED)
    make_intent(first.agent, action=first.action, status=later)

    retention.purge()

    assert has_content(first)


@pytest.mark.django_db
def test_raw_events_go_after_their_time_and_say_when() -> None:
    intent = long_ended(Status.DONE)
    old, foreign = make_event(intent), make_event(None, account=intent.account)
    young = make_event(intent, received_at=database_now() - DAY)
    new = make_event(None, account=intent.account, state=EventState.RECEIVED)

    done = purge_of(intent.tenant)

    assert done.events == 2
    for event in (old, foreign, young, new):
        event.refresh_from_db()
    assert (bytes(old.raw), bytes(foreign.raw)) == (b"", b"")
    assert old.purged_at
    assert foreign.purged_at
    assert young.raw
    assert new.raw
    assert not young.purged_at
    assert old.recipient == "customer@example.org"


@pytest.mark.django_db
@pytest.mark.parametrize("status", sorted(set(Status) - ENDED))
def test_raw_events_of_what_is_not_over_stay(status: Status) -> None:
    event = make_event(long_ended(status))

    retention.purge()

    event.refresh_from_db()
    assert event.raw


@pytest.mark.django_db
def test_what_was_deleted_is_one_entry_in_the_log() -> None:
    intent = long_ended(Status.DONE)
    make_event(intent)

    retention.purge()
    retention.purge()

    entry = AuditEntry.objects.get(tenant=intent.tenant)
    assert (entry.actor, entry.verb) == ("system", "purge")
    assert bytes(entry.facts) == b'{"emails":{"done":1},"events":1}'
    assert chain.check(intent.tenant).broken == ""


@pytest.mark.django_db
def test_a_count_deletes_nothing() -> None:
    intent = long_ended(Status.DONE)
    make_event(intent)

    found = retention.due(intent.tenant)

    assert (found.emails, found.events) == ({"done": 1}, 1)
    assert has_content(intent)


@pytest.mark.django_db
def test_it_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    agent, then = make_agent_at(), database_now() - LONG_AGO
    for _ in range(5):
        make_intent(agent, status=Status.CANCELLED, now=then)

    first = purge_of(agent.tenant, stop_after=timedelta(0))
    assert (first.emails.total(), first.is_done) == (0, False)

    second = purge_of(agent.tenant)
    assert (second.emails.total(), second.is_done) == (5, True)


@pytest.mark.django_db
def test_a_run_that_fails_half_way_records_what_it_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    agent, then = make_agent_at(), database_now() - LONG_AGO
    for _ in range(2):
        make_intent(agent, status=Status.CANCELLED, now=then)
    delete, calls = retention.delete_content, []

    def once(*args: Any) -> int:
        calls.append(args)
        if len(calls) == 2:
            raise ConnectionError
        return delete(*args)

    monkeypatch.setattr(retention, "delete_content", once)
    with pytest.raises(ConnectionError):
        retention.purge()

    assert bytes(AuditEntry.objects.get().facts) == b'{"emails":{"cancelled":1},"events":0}'


@pytest.mark.django_db
def test_kept_answers_of_forms_are_forgotten_after_a_week() -> None:
    person = make_person(make_tenant())
    now = database_now()
    ActionResult.objects.create(person=person, action_id=new_id(), verb="x", made_at=now)

    retention.purge(now=now + timedelta(days=6))
    assert ActionResult.objects.count() == 1
    retention.purge(now=now + timedelta(days=8))
    assert not ActionResult.objects.exists()


@pytest.mark.django_db
def test_sessions_that_ran_out_are_forgotten() -> None:
    person = make_person(make_tenant())
    standing, over = SessionStore(), SessionStore()
    over.set_expiry(timedelta(0))
    for session in (standing, over):
        session.create()
        UserSession.objects.create(user=person, session_key=session.session_key, ip="127.0.0.1")

    retention.purge()

    for kept in (Session, UserSession):
        keys = kept.objects.values_list("session_key", flat=True)
        assert list(keys) == [standing.session_key]


@pytest.mark.django_db(transaction=True)
def test_two_at_once_delete_each_thing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 3)
    agent, then = make_agent_at(), database_now() - LONG_AGO
    intents = [make_intent(agent, status=Status.DONE, now=then) for _ in range(20)]

    answers = at_once(retention.purge, retention.purge, retention.purge)

    assert not [answer for answer in answers if isinstance(answer, Exception)]
    # What one of them had locked the others left; and nothing was counted twice.
    counted = sum(done.emails.total() for answer in answers for done in answer)
    gone = sum(not has_content(intent) for intent in intents)
    assert counted == gone
    retention.purge()
    assert not any(has_content(intent) for intent in intents)
    assert chain.check(agent.tenant).broken == ""


@pytest.mark.django_db(transaction=True)
def test_a_message_that_somebody_decides_about_is_left_for_the_next_time() -> None:
    dead = long_ended(Status.DEAD_LETTER)
    person = make_person(dead.tenant, Role.OPERATOR)

    def reopen() -> None:
        requeue.reopen(dead.pk, person=person)

    reopened, purged = at_once(reopen, retention.purge)

    assert not isinstance(purged, Exception)
    dead.refresh_from_db()
    if has_content(dead):
        assert reopened is None
        assert dead.closed_at is None
    else:  # the purge was first: it was closed then, and the person is told
        assert isinstance(reopened, NotPossible)
        assert dead.closed_at is not None


@pytest.mark.django_db(transaction=True)
def test_it_does_not_wait_for_who_decides() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("SQLite lets one transaction write at a time")
    decided, other = long_ended(Status.CANCELLED), long_ended(Status.CANCELLED)

    with transaction.atomic():
        Action.objects.select_for_update().get(pk=decided.action_id)
        at_once(retention.purge)

        assert has_content(decided)
        assert not has_content(other)


@pytest.mark.django_db(transaction=True)
def test_deleted_bytes_are_not_left_in_the_files_of_sqlite() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL frees its pages by vacuum")
    secret = "The-Blue-Heron-Flies-At-Midnight" * 400  # also on pages of its own
    intent = long_ended(Status.DONE, text=secret)
    name = Path(str(connection.settings_dict["NAME"]))
    files = [name, name.with_name(f"{name.name}-wal")]

    def is_there() -> bool:
        return any(b"Blue-Heron" in file.read_bytes() for file in files if file.exists())

    assert is_there()
    retention.purge()
    assert not has_content(intent)
    assert not is_there()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(sorted(Status)),
        st.integers(min_value=0, max_value=800),  # days since it came there
        st.booleans(),  # closed, or past its undo time
        st.sampled_from(["alone", "earlier version", "anomaly"]),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.django_db(transaction=True)
@settings(
    max_examples=12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=STEPS, keep=st.sampled_from([None, timedelta(0), 30 * DAY, 365 * DAY]))
def test_whatever_is_in_the_ledger_nothing_that_is_needed_goes(
    steps: list[tuple[Status, int, bool, str]], keep: timedelta | None
) -> None:
    agent = make_agent_at()
    Policy.objects.filter(tenant=agent.tenant).update(
        **{f"keep_{status}": keep for status in ENDED}, keep_events=keep
    )
    now = database_now()
    for status, days, settled, company in steps:
        then = now - timedelta(days=days)
        fields: dict[str, Any] = {}
        if status is Status.DEAD_LETTER and settled:
            fields["closed_at"] = then
        if status is Status.REJECTED and not settled:
            fields["undo_until"] = now + timedelta(hours=1)
        intent = make_intent(agent, status=status, now=then, **fields)
        make_event(intent, received_at=then)
        if company == "earlier version" and status in (Status.CANCELLED, Status.SUPERSEDED):
            make_intent(agent, action=intent.action, status=Status.UNCERTAIN)
        elif company == "anomaly":
            with transaction.atomic():
                open_anomaly(intent, kind=AnomalyKind.TWICE, detail="twice", now=now)
    digests = set(SendIntent.objects.values_list("pk", "digest"))
    before = {i.pk: i for i in SendIntent.objects.filter(tenant=agent.tenant)}

    retention.purge()

    assert digests <= set(SendIntent.objects.values_list("pk", "digest"))
    for intent in SendIntent.objects.filter(tenant=agent.tenant).prefetch_related("events"):
        was = before[intent.pk]
        versions = SendIntent.objects.filter(action=intent.action_id)
        needed = (
            keep is None
            or any(_is_open(version, now) for version in versions)
            or intent.action.anomalies.filter(closed_at=None).exists()
        )
        assert (intent.status, intent.fence) == (was.status, was.fence)
        old = keep is not None and (was.closed_at or was.status_at) <= now - keep
        assert has_content(intent) == (needed or not old)
        for event in intent.events.all():
            if needed:
                assert event.raw
    assert chain.check(agent.tenant).broken == ""


def _is_open(intent: SendIntent, now: datetime) -> bool:
    if intent.status == Status.REJECTED:
        return intent.undo_until is not None and intent.undo_until >= now
    if intent.status == Status.DEAD_LETTER:
        return intent.closed_at is None
    return intent.status not in ENDED
