"""What must hold whatever happened: the ledger against the journals of the sandboxes.

`look` may be asked at any moment, also while workers work; `ends` when nothing is left to do.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Q

from sends.lifecycle import audit
from sends.lifecycle.accounts import facts_of, sender_facts
from sends.models import (
    Anomaly,
    Approval,
    Attempt,
    AuditEntry,
    Direction,
    Evidence,
    SendIntent,
    Suppression,
    Switch,
    SwitchKind,
    Verdict,
    database_now,
)
from sends.providers.adapter import Submission
from sends.providers.registry import adapter_for
from sends.rules.outcomes import TOOK_IT, Outcome
from sends.rules.payloads import seal, thaw
from sends.rules.statuses import ACCEPTED, APPROVED, CLAIMABLE, LEGAL, UNDECIDED, Status
from tests.sandboxes import Sandbox

Message = dict[str, Any]

# Where an intent may be while the provider has it: accepted, or nobody says that it was not.
MAY_BE_OUT = ACCEPTED | {Status.IN_FLIGHT, Status.RETRY_SCHEDULED, Status.UNCERTAIN}
# How an intent may end, and stay for good unless a person does something.
ENDS = ACCEPTED | {
    Status.DEAD_LETTER,
    Status.CANCELLED,
    Status.SUPERSEDED,
    Status.REJECTED,
    Status.UNCERTAIN,
}
# A person's word, in the audit log, for a step back that nothing else may take.
STEPS_BACK = {
    (Status.UNCERTAIN, Status.RETRY_SCHEDULED): "replay",
    (Status.DEAD_LETTER, Status.QUEUED): "requeue",
}

# `since` is written before the suppression commits, and only from its commit on does it count.
COMMITS_WITHIN = timedelta(seconds=1)


class Witness:
    """Judges by what the providers' own journals say, which the outbox cannot write."""

    def __init__(self, *sandboxes: Sandbox) -> None:
        self.sandboxes = sandboxes
        self._seen: dict[Any, tuple[int, Status]] = {}

    def look(self) -> None:
        """Every promise that holds at every moment. Raises AssertionError."""
        before = self._messages()
        with _one_snapshot():
            intents = list(
                SendIntent.objects.select_related("action", "account", "sender", "payload")
            )
            after = self._messages()
            assert set(before) <= {intent.pk.hex for intent in intents}, "a message of no intent"
            for intent in intents:
                attempts = list(intent.attempts.order_by("number"))
                # A worker may be sending right now: what the first look at the journal found was
                # taken before the ledger was read, what the second one lacks was not.
                was_taken, is_taken = before[intent.pk.hex], after[intent.pk.hex]
                self._one_message(intent, is_taken)
                self._one_next_step(intent, attempts)
                self._what_was_approved(intent, attempts, was_taken)
                self._one_key(intent, attempts)
                self._no_repeat_outside_the_contract(intent, attempts)
                self._never_rounded(intent, attempts, was_taken, is_taken)
                self._never_back_by_itself(intent)
            self._one_version(intents, before)
            self._nothing_after_a_stop()

    def _messages(self) -> dict[str, list[Message]]:
        by_tag: dict[str, list[Message]] = defaultdict(list)
        for sandbox in self.sandboxes:
            for message in sandbox.journal():
                by_tag[message["tag"]].append(message)
        return by_tag

    def ends(self, *expected: Status) -> None:
        """Nothing is lost: every intent is at an end, or waits for a person; `expected` ones."""
        self.look()
        now = database_now()
        for intent in SendIntent.objects.all():
            status = Status(intent.status)
            assert status in ENDS | UNDECIDED or _is_stopped(intent), _of(intent)
            assert not expected or status in expected, f"{_of(intent)}: {intent.end_reason}"
            if status in (Status.UNCERTAIN, Status.DEAD_LETTER, Status.CANCELLED):
                assert intent.end_reason, f"{_of(intent)} does not say why"
        assert not SendIntent.objects.lease_expired(now).exists()

    def _one_message(self, intent: SendIntent, messages: Sequence[Message]) -> None:
        """Promise 1. There is no exception: who sends again makes another version."""
        assert len(messages) <= 1, f"{_of(intent)} was accepted {len(messages)} times"

    def _one_version(self, intents: Iterable[SendIntent], by_tag: dict[str, list[Message]]) -> None:
        """Of one action a second version goes out only where a person resent it, on the record."""
        out: dict[Any, list[SendIntent]] = defaultdict(list)
        for intent in intents:
            if by_tag[intent.pk.hex]:
                out[intent.action_id].append(intent)
        for versions in out.values():
            keys = Counter(intent.idempotency_key for intent in versions)
            assert set(keys.values()) == {1}, "two versions under one key"
            later = sorted(versions, key=lambda intent: intent.version)[1:]
            for intent in later:
                assert _was_chosen(intent), f"{_of(intent)} went out beside an earlier version"

    def _one_next_step(self, intent: SendIntent, attempts: Sequence[Attempt]) -> None:
        """Promise 2: some rule, timer or person owns what comes next."""
        status = Status(intent.status)
        open_attempts = [attempt for attempt in attempts if attempt.closed_at is None]
        if status is Status.IN_FLIGHT:
            assert intent.lease_expires_at is not None, _of(intent)
            assert [a.lease_token for a in open_attempts] == [intent.lease_token], _of(intent)
        else:
            assert not open_attempts, f"{_of(intent)} has an attempt that nobody makes"
        if status in CLAIMABLE:
            assert intent.next_attempt_at is not None, _of(intent)
        if status in UNDECIDED:
            assert intent.decide_by is not None, _of(intent)
        assert intent.in_doubt == (status is Status.UNCERTAIN) or status in (
            Status.IN_FLIGHT,
            Status.RETRY_SCHEDULED,
        ), _of(intent)

    def _what_was_approved(
        self, intent: SendIntent, attempts: Sequence[Attempt], messages: Sequence[Message]
    ) -> None:
        """Promises 3 and 4: each attempt had its approvals, of the very bytes that arrived."""
        if intent.status in APPROVED:
            assert intent.approved_digest == intent.digest, _of(intent)
        approvals = list(
            Approval.objects.filter(intent=intent, digest=intent.digest, verdict=Verdict.APPROVE)
        )
        for attempt in attempts:
            if attempt.outcome == Outcome.RELEASED and not attempt.dispatched_at:
                continue
            assert attempt.digest == intent.digest, _of(intent)
            standing = [
                a
                for a in approvals
                if a.made_at <= attempt.opened_at
                and (a.undone_at is None or a.undone_at > attempt.opened_at)
            ]
            others = [a for a in standing if a.person_id != intent.author_id or not a.person_id]
            assert others, f"{_of(intent)} left unapproved"
        for message in messages:
            assert seal(bytes(intent.payload.body)) == intent.digest, _of(intent)
            assert message["digest"] == _digest_on_the_wire(intent), _of(intent)
            assert message["message_id"] == intent.message_id, _of(intent)

    def _one_key(self, intent: SendIntent, attempts: Sequence[Attempt]) -> None:
        """Promise 5: one key and one request, on every attempt and for ever."""
        requests = {attempt.request_digest for attempt in attempts} - {""}
        assert len(requests) <= 1, f"{_of(intent)} made different requests"
        assert {attempt.idempotency_key for attempt in attempts} <= {intent.idempotency_key}
        assert [attempt.number for attempt in attempts] == [*range(1, len(attempts) + 1)]

    def _no_repeat_outside_the_contract(
        self, intent: SendIntent, attempts: Sequence[Attempt]
    ) -> None:
        """Promise 6: after an attempt that may have arrived only the contract lets one follow."""
        first = None
        for attempt in attempts:
            made = attempt.dispatched_at is not None and attempt.outcome != Outcome.RELEASED
            if first is not None and made:
                assert attempt.contract["recovery"] == "replay", f"{_of(intent)} was repeated"
                window = timedelta(seconds=first.contract["window_seconds"])
                assert attempt.opened_at <= first.opened_at + window, f"{_of(intent)} too late"
            if first is None and attempt.may_have_arrived and attempt.outcome not in TOOK_IT:
                first = attempt

    def _never_rounded(
        self,
        intent: SendIntent,
        attempts: Sequence[Attempt],
        was_taken: Sequence[Message],
        is_taken: Sequence[Message],
    ) -> None:
        """Promise 6: what was taken is never called unsent, nor sent what nobody took."""
        status = Status(intent.status)
        if was_taken and status not in MAY_BE_OUT and intent.accepted_at is None:
            by_a_person = intent.evidence.filter(
                person__isnull=False, direction=Direction.NOT_ACCEPTED
            )
            anomaly = Anomaly.objects.filter(action=intent.action_id)
            assert by_a_person.exists() or anomaly.exists(), f"{_of(intent)}, but it was taken"
        if was_taken and status is Status.RETRY_SCHEDULED:
            assert intent.in_doubt, f"{_of(intent)} without doubt, but it was taken"
        if intent.accepted_at is not None and not is_taken:
            said = intent.evidence.filter(person__isnull=False, direction=Direction.ACCEPTED)
            assert said.exists(), f"{_of(intent)}, but no journal has it"
        if status is Status.UNCERTAIN:
            proven = Evidence.objects.filter(
                intent=intent, proves=True, direction=Direction.ACCEPTED
            )
            assert not proven.exists(), f"{_of(intent)} although it is proven"
            assert any(a.may_have_arrived for a in attempts), _of(intent)

    def _never_back_by_itself(self, intent: SendIntent) -> None:
        """Along legal edges only, one for each step of the fence; back only by a person's word."""
        before = self._seen.get(intent.pk)
        status = Status(intent.status)
        self._seen[intent.pk] = (intent.fence, status)
        if before is None:
            return
        fence, was = before
        steps = intent.fence - fence
        assert steps >= 0, f"{_of(intent)}: the fence went back"
        assert status in _reached_from(was, steps), f"{_of(intent)} was {was} {steps} steps ago"
        verb = STEPS_BACK.get((was, status))
        if verb is not None:
            target = audit.message_target(intent)
            assert AuditEntry.objects.filter(target=target, verb=verb).exists(), _of(intent)

    def _nothing_after_a_stop(self) -> None:
        """Promise 4, for the stops that have a moment: switches and suppressions."""
        for switch in Switch.objects.filter(causes__gt=0):
            scope = (
                Q(intent__isnull=switch.kind != SwitchKind.INSTALLATION)
                | Q(intent__tenant=switch.pk)
                | Q(account=switch.pk)
                | Q(intent__sender=switch.pk)
                | Q(intent__run=switch.pk)
            )
            for since in filter(None, (switch.paused_at, switch.blocked_at)):
                after = Attempt.objects.filter(scope, dispatched_at__gt=since)
                assert not after.exists(), f"{switch.kind} is off since {since}"
        for suppression in Suppression.objects.filter(released_at=None):
            after = Attempt.objects.filter(
                intent__tenant=suppression.tenant_id,
                intent__deliveries__normal=suppression.normal,
                dispatched_at__gt=suppression.since + COMMITS_WITHIN,
            )
            assert not after.exists(), f"{suppression.normal} is suppressed"


@contextmanager
def _one_snapshot() -> Iterator[None]:
    """Everything read as it was at one moment, so that workers may go on meanwhile."""
    alone = not connection.in_atomic_block
    with transaction.atomic():
        if alone and connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield


def _is_stopped(intent: SendIntent) -> bool:
    scopes = (intent.tenant_id, intent.account_id, intent.sender_id, intent.run_id)
    off = Switch.objects.filter(causes__gt=0)
    installation = off.filter(tenant=None).exists()
    return bool(intent.holds) or installation or off.filter(pk__in=filter(None, scopes)).exists()


def _was_chosen(intent: SendIntent) -> bool:
    """Whether a person approved this version although an earlier one may have arrived."""
    people = Approval.objects.filter(
        intent=intent, verdict=Verdict.APPROVE, person__isnull=False, digest=intent.digest
    )
    return people.exists()


def _digest_on_the_wire(intent: SendIntent) -> str:
    """SHA-256 of the body that this payload alone makes of it."""
    account = intent.account
    submission = Submission(
        frozen=thaw(bytes(intent.payload.body)),
        sender=sender_facts(intent.sender),
        tag=intent.pk.hex,
        wire_key=intent.idempotency_key,
    )
    body = adapter_for(account.provider).compose(submission, facts_of(account))[3]
    return hashlib.sha256(body).hexdigest()


def _reached_from(status: Status, steps: int) -> set[Status]:
    """The statuses that exactly so many legal transitions lead to."""
    reached = {status}
    for _ in range(min(steps, 50)):
        reached = {after for before in reached for after in LEGAL[before]}
    return reached


def _of(intent: SendIntent) -> str:
    return f"intent {intent.pk} to {intent.first_recipient} is {intent.status}"
