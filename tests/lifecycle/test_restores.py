"""A restored or copied database is noticed and stops; what it forgot may have been sent."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from django.db import connection

from sends.conf import conf
from sends.lifecycle import beats, claim, folder, resolve, restores, review, versions
from sends.lifecycle.folder import Memory
from sends.lifecycle.refusals import Invalid, NotAllowed, NotPossible
from sends.models import (
    Attempt,
    AuditEntry,
    Cause,
    Installation,
    Payload,
    Program,
    Restore,
    RestoreKind,
    Role,
    SendIntent,
    Switch,
    database_now,
    new_id,
)
from sends.models.home import home_of
from sends.rules.outcomes import Outcome
from sends.rules.payloads import thaw
from sends.rules.statuses import HOLD_BITS, Hold, Status
from tests.factories import make_agent_at, make_attempt, make_intent, make_person

pytestmark = pytest.mark.django_db

HELD = HOLD_BITS[Hold.RESTORED]
MINUTE = timedelta(minutes=1)
S = Status


@pytest.fixture(autouse=True)
def _fresh_installation() -> Iterator[None]:
    """Never used, and a data folder that knows nothing."""
    forget()
    yield
    forget()


def forget() -> None:
    claim.installation_id.cache_clear()
    Installation.objects.update(home="", beats=0, beat_at=None, backup_at=None)
    for path in (conf.data_dir / "installation.json", *conf.data_dir.glob("drain-*.lock")):
        path.unlink(missing_ok=True)


@pytest.fixture
def used() -> Installation:
    """An installation that was started and lives."""
    restores.notice()
    beats.beat(Program.WORKER)
    return Installation.objects.get()


@pytest.fixture
def restored(used: Installation) -> Installation:
    """A backup of ours was put in place, and noticed."""
    Installation.objects.update(backup_at=database_now())
    assert restores.notice() is not None
    return used


def switch() -> Switch:
    return Switch.objects.get(pk=Installation.objects.get().pk)


def is_on() -> bool:
    return not switch().causes


def older(beats_ago: int = 1) -> None:
    """The database as it was before its last beats, under a folder that remembers them."""
    installation = Installation.objects.get()
    folder.remember(Memory(installation.pk, installation.beats))
    Installation.objects.update(beats=installation.beats - beats_ago)


def before() -> datetime:
    """A time from before the backup."""
    return database_now() - MINUTE


# What is noticed


def test_nothing_is_noticed_at_the_first_start_nor_at_any_ordinary_one(used: Installation) -> None:
    for _ in range(3):
        assert restores.notice() is None
        beats.beat(Program.WEB)
        beats.beat(Program.WORKER)
    assert is_on()
    assert Installation.objects.get().home == home_of(connection) != ""


@pytest.mark.django_db(transaction=True)
def test_vacuum_and_analyze_leave_the_database_at_home(used: Installation) -> None:
    with connection.cursor() as cursor:
        cursor.execute("VACUUM")
        cursor.execute("ANALYZE")
    assert restores.notice() is None


def test_the_mark_of_a_backup_is_noticed_once(
    used: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    made_at = database_now() - MINUTE
    Installation.objects.update(backup_at=made_at)

    restore = restores.notice()

    assert restore is not None
    assert (restore.kind, restore.made_at) == (RestoreKind.BACKUP, made_at)
    assert not is_on()
    assert "doctor --after-restore" in switch().pause_reason
    assert restores.notice() is None
    assert caplog.messages == ["database was restored or copied"]


def test_a_database_that_counted_fewer_beats_than_its_folder_remembers_is_older(
    used: Installation,
) -> None:
    older()

    restore = restores.notice()

    assert restore is not None
    assert (restore.kind, restore.made_at) == (RestoreKind.OLDER, used.beat_at)
    assert not is_on()
    assert restores.notice() is None


def test_an_attempt_that_the_database_forgot_shows_that_it_is_older(used: Installation) -> None:
    with folder.open_slot(0) as slot:
        folder.note_attempt(slot, new_id())

    restore = restores.notice()

    assert restore is not None
    assert restore.kind == RestoreKind.OLDER
    assert restores.notice() is None


def test_an_attempt_that_is_there_shows_nothing(used: Installation) -> None:
    attempt = make_attempt(make_intent(status=S.IN_FLIGHT))
    with folder.open_slot(0) as slot:
        folder.note_attempt(slot, attempt.pk)
    assert restores.notice() is None


def test_what_was_forgotten_before_a_restore_was_noticed_is_no_second_one(
    restored: Installation,
) -> None:
    restores.after_restore(by="test")
    Restore.objects.update(noticed_at=database_now() + MINUTE)
    with folder.open_slot(0) as slot:
        folder.note_attempt(slot, new_id())
    assert restores.notice() is None


def test_a_database_in_another_place_was_moved_or_copied(used: Installation) -> None:
    Installation.objects.update(home="elsewhere")

    restore = restores.notice()

    assert restore is not None
    assert restore.kind == RestoreKind.ELSEWHERE
    assert Installation.objects.get().home == home_of(connection)
    assert not is_on()
    assert restores.notice() is None


def test_a_folder_that_was_used_with_another_installation_says_nothing(used: Installation) -> None:
    folder.remember(Memory(new_id(), used.beats + 1000))
    with folder.open_slot(0) as slot:
        folder.note_attempt(slot, new_id())
    assert restores.notice() is None


def test_a_folder_whose_memory_is_unreadable_says_nothing(used: Installation) -> None:
    (conf.data_dir / "installation.json").write_text('{"installation": 7')
    assert restores.notice() is None


def test_the_reason_replaces_that_of_an_earlier_pause(used: Installation) -> None:
    restores.pause(by="test", reason="maintenance")
    Installation.objects.update(backup_at=database_now())
    restores.notice()
    assert "restored or copied" in switch().pause_reason


def test_each_tenant_can_read_in_its_log_why_sending_stopped(used: Installation) -> None:
    tenants = [make_agent_at().tenant for _ in range(2)]
    Installation.objects.update(backup_at=database_now())
    restores.notice()
    for tenant in tenants:
        entry = tenant.audit_entries.get()
        assert (entry.actor, entry.verb) == ("system", "turn_off")
        assert "restored or copied" in entry.reason


def test_nothing_is_claimed_from_a_restored_database(restored: Installation) -> None:
    make_intent(status=S.QUEUED)
    assert claim.claim("a worker", at_most=1) == []


# Starting again


def test_what_was_only_moved_is_resumed_with_a_reason(used: Installation) -> None:
    Installation.objects.update(home="elsewhere")
    restores.notice()
    with pytest.raises(Invalid):
        restores.resume(by="test", reason=" ", was_moved=True)
    with pytest.raises(NotPossible, match="resume --moved"):
        restores.resume(by="test", reason="it looks fine")
    assert not is_on()

    restores.resume(by="test", reason="to a new disk", was_moved=True)

    assert is_on()
    assert restores.open_restore() is None
    assert restores.notice() is None


def test_an_older_copy_may_not_send_before_somebody_has_looked(restored: Installation) -> None:
    with pytest.raises(NotPossible, match="doctor --after-restore"):
        restores.resume(by="test", reason="never mind", was_moved=True)
    assert not is_on()
    restores.after_restore(by="test")
    restores.resume(by="test", reason="looked after")
    assert is_on()


def test_a_pause_from_the_command_line_stops_everybody(used: Installation) -> None:
    make_intent(status=S.QUEUED)
    restores.pause(by="test", reason="maintenance")
    assert claim.claim("a worker", at_most=1) == []
    restores.resume(by="test", reason="done")
    assert not switch().causes & Cause.PAUSED


# What may have been sent since


def test_it_refuses_while_sending_is_on(used: Installation) -> None:
    with pytest.raises(NotPossible, match="Pause it first"):
        restores.after_restore(by="test")
    with pytest.raises(NotPossible, match="Pause it first"):
        restores.after_restore(by="test", made_at=database_now())


@pytest.mark.parametrize("status", [S.QUEUED, S.RETRY_SCHEDULED, S.DEAD_LETTER])
def test_what_may_have_been_sent_is_uncertain_under_an_assumed_attempt(
    restored: Installation, status: Status
) -> None:
    intent = make_intent(status=status, now=before())
    closed_at = database_now() if status is S.DEAD_LETTER else None
    SendIntent.objects.filter(pk=intent.pk).update(closed_at=closed_at)

    settled = restores.after_restore(by="test")

    intent.refresh_from_db()
    attempt = intent.attempts.get()
    assert settled == restores.Settled(Restore.objects.get().made_at, uncertain=1, held=0)
    assert (intent.status, intent.in_doubt, intent.closed_at) == (S.UNCERTAIN, True, None)
    assert intent.window_opened_at == settled.made_at
    assert intent.attempt_count == attempt.number
    assert attempt.outcome == Outcome.AMBIGUOUS
    assert (attempt.opened_at, attempt.dispatched_at) == (settled.made_at, settled.made_at)
    assert attempt.closed_at is not None
    assert attempt.may_have_arrived
    assert intent.request_digest == attempt.request_digest


def test_what_was_in_flight_is_uncertain_by_the_attempt_that_was_open(
    restored: Installation,
) -> None:
    intent = make_intent(status=S.IN_FLIGHT, now=before())
    attempt = make_attempt(intent, opened_at=before())

    restores.after_restore(by="test")

    intent.refresh_from_db()
    attempt.refresh_from_db()
    assert (intent.status, intent.lease_token) == (S.UNCERTAIN, None)
    assert intent.window_opened_at == attempt.opened_at
    assert (attempt.outcome, attempt.may_have_arrived) == (Outcome.AMBIGUOUS, True)
    assert intent.attempts.count() == 1


def test_the_window_of_an_earlier_attempt_stays_open_no_longer(restored: Installation) -> None:
    long_ago = database_now() - timedelta(hours=20)
    intent = make_intent(
        status=S.RETRY_SCHEDULED, now=before(), in_doubt=True, window_opened_at=long_ago
    )
    restores.after_restore(by="test")
    intent.refresh_from_db()
    assert intent.window_opened_at == long_ago
    assert intent.replay_until is not None
    assert intent.replay_until < long_ago + timedelta(hours=24)


@pytest.mark.parametrize("status", [S.AWAITING_APPROVAL, S.CHANGES_REQUESTED])
def test_what_awaits_a_decision_is_held(restored: Installation, status: Status) -> None:
    intent = make_intent(status=status, now=before())
    settled = restores.after_restore(by="test")
    intent.refresh_from_db()
    assert (intent.status, intent.holds) == (status, HELD)
    assert (settled.uncertain, settled.held) == (0, 1)


@pytest.mark.parametrize(
    "status", [S.SUBMITTED, S.DONE, S.CANCELLED, S.SUPERSEDED, S.REJECTED, S.UNCERTAIN]
)
def test_what_is_over_or_uncertain_stays_as_it_is(restored: Installation, status: Status) -> None:
    intent = make_intent(status=status, now=before())
    fence = intent.fence
    assert restores.after_restore(by="test").uncertain == 0
    intent.refresh_from_db()
    assert (intent.status, intent.fence, intent.holds) == (status, fence, 0)
    assert not intent.attempts.exists()


def test_what_was_queued_for_later_cannot_have_gone_and_is_held(restored: Installation) -> None:
    later = database_now() + timedelta(days=1)
    scheduled = make_intent(status=S.QUEUED, now=before(), not_before=later)
    come = make_intent(status=S.QUEUED, now=before(), not_before=before())
    tried = make_intent(status=S.QUEUED, now=before(), not_before=later, attempt_count=1)

    settled = restores.after_restore(by="test")

    assert (settled.uncertain, settled.held) == (2, 1)
    scheduled.refresh_from_db()
    assert (scheduled.status, scheduled.holds) == (S.QUEUED, HELD)
    assert not scheduled.attempts.exists()
    for intent in (come, tried):
        intent.refresh_from_db()
        assert intent.status == S.UNCERTAIN


def test_a_dead_letter_that_was_accepted_stays_one(restored: Installation) -> None:
    intent = make_intent(status=S.DEAD_LETTER, now=before(), accepted_at=before())
    restores.after_restore(by="test")
    intent.refresh_from_db()
    assert intent.status == S.DEAD_LETTER


def test_an_older_version_and_what_is_purged_cannot_have_been_requeued(
    restored: Installation,
) -> None:
    older_version = make_intent(status=S.DEAD_LETTER, now=before())
    make_intent(older_version.agent, action=older_version.action, status=S.CANCELLED, now=before())
    purged = make_intent(status=S.DEAD_LETTER, now=before(), closed_at=before())
    SendIntent.objects.filter(pk=purged.pk).update(purged_at=database_now())
    Payload.objects.filter(intent=purged).delete()

    assert restores.after_restore(by="test").uncertain == 0


def test_what_was_proposed_after_the_restore_goes_its_way(restored: Installation) -> None:
    queued = make_intent(status=S.QUEUED, now=database_now() + MINUTE)
    awaiting = make_intent(now=database_now() + MINUTE)

    restores.after_restore(by="test")

    queued.refresh_from_db()
    awaiting.refresh_from_db()
    assert (queued.status, awaiting.holds) == (S.QUEUED, 0)


def test_more_than_one_step_and_one_that_was_killed_goes_on(
    restored: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restores, "BATCH", 2)
    agent = make_agent_at()
    for _ in range(5):
        make_intent(agent, status=S.QUEUED, now=before())
        make_intent(agent, now=before())
    restores._doubt_some(restores._restore_at(None))  # and then it was killed

    settled = restores.after_restore(by="test")

    assert (settled.uncertain, settled.held) == (5, 5)
    assert Attempt.objects.count() == 5
    entry = agent.tenant.audit_entries.order_by("sequence").last()
    assert entry is not None
    assert (entry.verb, bytes(entry.facts)) == (
        "after_restore",
        f'{{"held":5,"made_at":"{settled.made_at.isoformat()}","uncertain":5}}'.encode(),
    )


def test_once_it_is_done_there_is_nothing_to_repeat(restored: Installation) -> None:
    restores.after_restore(by="test")
    with pytest.raises(NotPossible, match="since the one looked after at"):
        restores.after_restore(by="test")


def test_what_was_found_not_accepted_is_not_doubted_again(restored: Installation) -> None:
    intent = make_intent(status=S.QUEUED, now=before())
    tenant = intent.tenant
    type(tenant.policy).objects.update(second_operator=False)
    operator = make_person(tenant, Role.OPERATOR)
    restore = restores._restore_at(None)
    restores._doubt_some(restore)
    resolve.mark_not_accepted(intent.pk, person=operator, value="log 1", note="not in the log")

    assert restores._doubt_some(restore) == 0


# The time of the backup


def test_a_given_time_is_taken_where_it_can_be(used: Installation) -> None:
    older()
    restores.notice()
    restore = Restore.objects.get()
    given = restore.made_at + (restore.noticed_at - restore.made_at) / 2
    assert restores.after_restore(by="test", made_at=given).made_at == given


@pytest.mark.parametrize("off", [-MINUTE, MINUTE], ids=["too early", "in the future"])
def test_a_time_at_which_it_cannot_have_been_made_is_refused(
    restored: Installation, off: timedelta
) -> None:
    with pytest.raises(Invalid, match="cannot be when it was copied"):
        restores.after_restore(by="test", made_at=database_now() + off)


def test_a_restore_that_nobody_noticed_is_declared_with_its_time(used: Installation) -> None:
    intent = make_intent(status=S.QUEUED, now=before())
    restores.pause(by="test", reason="the whole disk was put back")
    with pytest.raises(NotPossible, match="--backup-made-at"):
        restores.after_restore(by="test")

    made_at = database_now() - timedelta(hours=2)
    assert restores.after_restore(by="test", made_at=made_at).uncertain == 1

    intent.refresh_from_db()
    assert intent.window_opened_at == made_at
    assert Restore.objects.get().kind == RestoreKind.DECLARED


# Released


def test_an_operator_who_has_looked_lets_it_go_on(restored: Installation) -> None:
    intent = make_intent(now=before())
    operator = make_person(intent.tenant, Role.OPERATOR)
    approver = make_person(intent.tenant, Role.APPROVER)
    restores.after_restore(by="test")
    restores.resume(by="test", reason="looked after")
    review.approve(intent.pk, person=approver, digest=intent.digest)
    assert claim.claim("a worker", at_most=1) == []
    with pytest.raises(NotAllowed):
        restores.release(intent.pk, person=approver, reason="I guess")

    restores.release(intent.pk, person=operator, reason="not in the provider's log")

    intent.refresh_from_db()
    assert (intent.status, intent.holds) == (S.QUEUED, 0)
    with pytest.raises(NotPossible, match="not held"):
        restores.release(intent.pk, person=operator, reason="again")


def test_all_of_a_tenant_is_released_in_small_steps_each_email_on_record(
    restored: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restores, "BATCH", 2)
    agent, other = make_agent_at(), make_agent_at()
    intents = [make_intent(agent, now=before()) for _ in range(5)]
    elsewhere = make_intent(other, now=before())
    halted = make_intent(agent, now=before(), holds=HOLD_BITS[Hold.ANOMALY])
    restores.after_restore(by="test")

    def release_all() -> int:
        why = "not in the provider's log"
        return restores.release_all(by="test", reason=why, tenants=[agent.tenant])

    assert (release_all(), release_all()) == (6, 0)
    holds = {intent.pk: intent.holds for intent in SendIntent.objects.all()}
    assert not any(holds[intent.pk] for intent in intents)
    assert holds[elsewhere.pk] == HELD
    assert holds[halted.pk] == HOLD_BITS[Hold.ANOMALY]
    entries = AuditEntry.objects.filter(tenant=agent.tenant, verb="release")
    assert entries.count() == 6
    with pytest.raises(Invalid, match="where did you look"):
        restores.release_all(by="test", reason=" ", tenants=[other.tenant])


def test_nothing_is_released_before_everything_is_marked(restored: Installation) -> None:
    intent = make_intent(now=before(), holds=HELD)
    operator = make_person(intent.tenant, Role.OPERATOR)
    with pytest.raises(NotPossible, match="still being looked after"):
        restores.release(intent.pk, person=operator, reason="looked")
    with pytest.raises(NotPossible, match="still being looked after"):
        restores.release_all(by="test", reason="looked", tenants=[intent.tenant])


def test_the_next_version_is_held_like_the_one_before_until_it_is_released(
    restored: Installation,
) -> None:
    first = make_intent(now=before())
    approver = make_person(first.tenant, Role.APPROVER)
    operator = make_person(first.tenant, Role.OPERATOR)
    restores.after_restore(by="test")
    message = thaw(bytes(first.payload.body)).message

    second = versions.create_version(
        first.action, replace(message, subject="Corrected"), author=approver, now=database_now()
    )

    assert second.holds == HELD
    restores.release(second.pk, person=operator, reason="not in the provider's log")
    third = versions.create_version(
        first.action, replace(message, subject="Again"), author=approver, now=database_now()
    )
    assert third.holds == 0
