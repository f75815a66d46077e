"""What must hold after every step of the lifecycle, judged from rows and from the providers' books.

It asks the product nothing but its tables, `why_not_yet` and the chain of the audit log.
"""

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db import connection

from sends.lifecycle import chain
from sends.lifecycle.claim import Claimed
from sends.models import (
    Action,
    Anomaly,
    Approval,
    Attempt,
    AuditEntry,
    Delivery,
    Evidence,
    Run,
    SendIntent,
    Suppression,
    Switch,
    Tenant,
)
from sends.models.triggers import FROZEN
from sends.reports.waiting import why_not_yet_of
from sends.rules.statuses import LEGAL, Status
from tests.clocks import Clocks
from tests.promises.paper import Message, Provider, recipients

Row = dict[str, Any]
S = Status

ANOMALY, CANCEL_ASKED = 1, 2
UNDECIDED = {S.AWAITING_APPROVAL, S.CHANGES_REQUESTED}
WAITS_ITS_TURN = {S.QUEUED, S.RETRY_SCHEDULED}
ACTIVE = WAITS_ITS_TURN | {S.IN_FLIGHT, S.UNCERTAIN}
# The provider has it, or may: nobody claims that it was not sent.
MAY_BE_OUT = {S.SUBMITTED, S.DONE, S.IN_FLIGHT, S.RETRY_SCHEDULED, S.UNCERTAIN}
UNFINISHED = UNDECIDED | ACTIVE | {S.SUBMITTED}
MUST_SAY_WHY = {S.UNCERTAIN, S.DEAD_LETTER, S.CANCELLED, S.REJECTED, S.CHANGES_REQUESTED}

# Who may take a step back, or end doubt. Whatever is not listed is open to every legal edge.
ONLY_BY: Mapping[tuple[Status, Status], Collection[str]] = {
    (S.AWAITING_APPROVAL, S.QUEUED): ("propose", "propose_version", "approve"),
    (S.QUEUED, S.AWAITING_APPROVAL): ("undo", "sweep"),
    (S.RETRY_SCHEDULED, S.AWAITING_APPROVAL): ("sweep",),
    (S.REJECTED, S.AWAITING_APPROVAL): ("undo",),
    (S.CHANGES_REQUESTED, S.AWAITING_APPROVAL): ("undo",),
    (S.QUEUED, S.IN_FLIGHT): ("claim",),
    (S.RETRY_SCHEDULED, S.IN_FLIGHT): ("claim",),
    (S.IN_FLIGHT, S.QUEUED): ("dispatch", "settle"),
    (S.UNCERTAIN, S.RETRY_SCHEDULED): ("replay",),
    (S.UNCERTAIN, S.DEAD_LETTER): ("mark_not_accepted", "confirm_not_accepted"),
    (S.UNCERTAIN, S.SUBMITTED): ("settle", "apply_events", "ask_provider", "mark_accepted"),
    (S.DEAD_LETTER, S.QUEUED): ("requeue", "resend"),
    (S.QUEUED, S.UNCERTAIN): (),
    (S.DEAD_LETTER, S.UNCERTAIN): (),
}

# A recipient's states, worst last, as design.md ranks them.
RANKS = (
    *("waiting", "accepted", "no_news", "deferred", "dropped", "refused"),
    *("delivered", "bounced", "complained"),
)
MOVES = "test_moves"


@dataclass(frozen=True)
class Said:
    """What the test itself let a version say, and to whom."""

    subject: str
    text: str
    recipients: tuple[str, ...]


class Judge:
    """Looks after every step; remembers what may never change."""

    def __init__(self, tenant: Tenant, providers: Mapping[UUID, Provider], clocks: Clocks) -> None:
        self.tenant = tenant
        self.providers = providers
        self.clocks = clocks
        self.said: dict[UUID, Said] = {}
        self.rows: dict[UUID, Row] = {}
        self._frozen: dict[UUID, list[Any]] = {}
        self._closed: dict[UUID, Row] = {}
        self._accepted: dict[UUID, datetime] = {}
        self._moves_seen = 0
        self.read()

    def read(self) -> dict[UUID, Row]:
        self.rows = {row["id"]: row for row in SendIntent.objects.order_by("id").values()}
        return self.rows

    def everything(self) -> Any:
        """All that a refused wish must leave as it was."""
        return (
            self.read(),
            list(Switch.objects.order_by("id").values()),
            *(table.objects.count() for table in (Approval, Evidence, AuditEntry)),
        )

    # -- after each call

    def moves(self, doing: str) -> None:
        """Every change of status since the last call was along a legal edge, and `doing`'s own."""
        self.read()
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT id, intent, before, after FROM {MOVES} WHERE id > %s ORDER BY id",
                [self._moves_seen],
            )
            found = cursor.fetchall()
        for number, intent, before, after in found:
            self._moves_seen = number
            edge = (Status(before), Status(after))
            assert edge[1] in LEGAL[edge[0]], f"{intent}: {before} -> {after}"
            assert doing in ONLY_BY.get(edge, [doing]), f"{intent}: {before} -> {after} by {doing}"

    def may_leave(self, claimed: Claimed, before: Row, *, dispatch: bool) -> None:
        """All that forbids a request to leave, asked at the moment that commits that it does."""
        now, row = self.clocks.now, before
        request = claimed.request
        assert request is not None
        if dispatch:
            assert (row["status"], row["lease_token"]) == (S.IN_FLIGHT, claimed.lease_token)
        else:
            assert row["status"] in WAITS_ITS_TURN
            for floor in ("next_attempt_at", "not_sooner_than", "not_before"):
                assert row[floor] is None or row[floor] <= now, f"left before {floor}"
        assert row["holds"] == 0, "left although it was held"
        assert row["deadline"] is None or row["deadline"] > now, "left after its deadline"
        assert row["in_doubt"] or row["approval_expires_at"] > now, "its approval had lapsed"
        self._was_approved(row)
        self._scopes_are_open(row, now)
        self._repeat_is_covered(claimed, row, now)
        content = json.loads(request.body)
        self._says_what_was_sealed(row, request.headers, content)
        standing = Suppression.objects.filter(tenant=self.tenant, released_at=None)
        suppressed = set(standing.values_list("normal", flat=True))
        assert not suppressed & {r.lower() for r in recipients(content)}, "sent to a suppressed one"

    def _was_approved(self, row: Row) -> None:
        standing = Approval.objects.filter(
            intent=row["id"], digest=row["digest"], verdict="approve", undone_at=None
        )
        people = set(standing.values_list("person_id", flat=True))
        if None in people and row["approvals_needed"] == 0 and row["author_id"] is None:
            return
        people -= {None}
        assert len(people) >= max(row["approvals_needed"], 1), "too few have approved it"
        assert people - {row["author_id"]}, "only its author has approved it"

    def _scopes_are_open(self, row: Row, now: datetime) -> None:
        scopes = {row[f"{kind}_id"] for kind in ("tenant", "account", "sender", "run")}
        for switch in Switch.objects.all():
            if switch.pk in scopes or switch.kind == "installation":
                assert not switch.causes, f"left while its {switch.kind} was off"
                assert switch.resume_at is None or switch.resume_at <= now
        ended = Run.objects.filter(pk=row["run_id"], ended_at__isnull=False)
        assert not ended.exists(), "left although its run was ended"
        latest = Action.objects.get(pk=row["action_id"]).latest_version
        assert row["version"] == latest, "an older version left"

    def _repeat_is_covered(self, claimed: Claimed, row: Row, now: datetime) -> None:
        """After an attempt that may have arrived only the contract, and in its window."""
        earlier = Attempt.objects.filter(intent=row["id"], may_have_arrived=True)
        first = earlier.order_by("number").first()
        assert not row["in_doubt"] or first is not None
        if first is None:
            return
        window = self.providers[row["account_id"]].window
        assert window is not None, "repeated without a contract"
        assert now < first.opened_at + timedelta(seconds=window), "repeated after the window"
        assert claimed.request is not None
        assert first.request_digest == claimed.request.digest, "another request under one key"

    def _says_what_was_sealed(
        self, row: Row, headers: Mapping[str, str], content: Mapping[str, Any]
    ) -> None:
        said = self.said[row["id"]]
        assert (content["subject"], content["text"]) == (said.subject, said.text)
        assert recipients(content) == said.recipients
        assert content["tag"] == row["id"].hex
        assert content["message_id"] == row["message_id"]
        assert headers["Idempotency-Key"] == row["idempotency_key"]

    # -- after each step

    def look(self) -> None:
        rows = self.read()
        attempts: dict[UUID, list[Row]] = defaultdict(list)
        for attempt in Attempt.objects.order_by("number").values():
            attempts[attempt["intent_id"]].append(attempt)
        anomalous = set(Anomaly.objects.filter(closed_at=None).values_list("action_id", flat=True))
        evidence = list(Evidence.objects.values())
        taken = self._taken()
        for row in rows.values():
            self._never_changes(row)
            self._doubt_and_holds(row, row["action_id"] in anomalous)
            self._has_an_owner(row, attempts[row["id"]])
            self._one_key(row, attempts[row["id"]])
            found = [fact for fact in evidence if fact["intent_id"] == row["id"]]
            self._never_rounded(row, attempts[row["id"]], taken[row["id"].hex], found)
        self._closed_stay_closed(attempts)
        self._one_active_version()
        self._one_message(taken, evidence)
        self._says_what_it_waits_for()

    def _taken(self) -> dict[str, list[Message]]:
        taken: dict[str, list[Message]] = defaultdict(list)
        for provider in self.providers.values():
            for message in provider.journal:
                taken[message.tag].append(message)
            for key, bodies in provider.bodies.items():
                assert len(bodies) == 1, f"the key {key} came with different requests"
        return taken

    def _never_changes(self, row: Row) -> None:
        columns = [SendIntent._meta.get_field(name).attname for name in FROZEN["SendIntent"]]
        values = [row[column] for column in columns]
        assert self._frozen.setdefault(row["id"], values) == values
        if row["id"] in self._accepted or row["accepted_at"] is not None:
            assert self._accepted.setdefault(row["id"], row["accepted_at"]) == row["accepted_at"]

    def _doubt_and_holds(self, row: Row, is_anomalous: bool) -> None:
        status = Status(row["status"])
        assert not row["in_doubt"] or status in (S.IN_FLIGHT, S.RETRY_SCHEDULED, S.UNCERTAIN)
        assert row["in_doubt"] or status is not S.UNCERTAIN
        assert row["holds"] in range(4)
        if row["accepted_at"] is None and status not in (S.SUPERSEDED, S.CANCELLED):
            assert bool(row["holds"] & ANOMALY) == is_anomalous, _of(row)

    def _has_an_owner(self, row: Row, attempts: Sequence[Row]) -> None:
        """Some rule, timer or person owns the next step; and one attempt at a time."""
        status = Status(row["status"])
        still_open = [a for a in attempts if a["closed_at"] is None]
        assert len(still_open) <= 1, _of(row)
        if status is S.IN_FLIGHT:
            assert [a["lease_token"] for a in still_open] == [row["lease_token"]], _of(row)
            assert row["lease_expires_at"] is not None
        else:
            assert row["lease_token"] is None
            # Evidence may accept what a worker still asks about; its answer closes the attempt.
            assert not still_open or row["accepted_at"] is not None, _of(row)
        assert status not in WAITS_ITS_TURN or row["next_attempt_at"] is not None, _of(row)
        assert status not in UNDECIDED or row["decide_by"] is not None, _of(row)
        assert status not in MUST_SAY_WHY or row["end_reason"], f"{_of(row)} does not say why"

    def _one_key(self, row: Row, attempts: Sequence[Row]) -> None:
        assert [a["number"] for a in attempts] == [*range(1, len(attempts) + 1)], _of(row)
        assert {a["idempotency_key"] for a in attempts} <= {row["idempotency_key"]}, _of(row)
        assert {a["digest"] for a in attempts} <= {row["digest"]}, _of(row)
        assert len({a["request_digest"] for a in attempts} - {""}) <= 1, _of(row)
        assert row["attempt_count"] == len(attempts), _of(row)

    def _never_rounded(
        self, row: Row, attempts: Sequence[Row], taken: Sequence[Message], evidence: Sequence[Row]
    ) -> None:
        """What was taken is never called unsent, nor sent what nobody took."""
        status = Status(row["status"])
        proven = [fact for fact in evidence if fact["proves"]]
        not_taken = [f for f in proven if f["direction"] == "not_accepted" and f["person_id"]]
        if taken and row["accepted_at"] is None:
            is_said = status in MAY_BE_OUT and (row["in_doubt"] or status is S.IN_FLIGHT)
            assert is_said or not_taken or _has_anomaly(row), f"{_of(row)}, but it was taken"
        if row["accepted_at"] is not None and not taken:
            said = [f for f in proven if f["direction"] == "accepted" and f["person_id"]]
            assert said, f"{_of(row)}, but no provider has it"
        if status is S.UNCERTAIN:
            assert any(a["may_have_arrived"] for a in attempts), _of(row)
            assert not [f for f in proven if f["direction"] == "accepted"], _of(row)

    def _closed_stay_closed(self, attempts: Mapping[UUID, Iterable[Row]]) -> None:
        for of_intent in attempts.values():
            for attempt in of_intent:
                if attempt["closed_at"] is not None:
                    assert self._closed.setdefault(attempt["id"], attempt) == attempt

    def _one_active_version(self) -> None:
        active = [row["action_id"] for row in self.rows.values() if row["status"] in ACTIVE]
        assert len(active) == len(set(active)), "two versions of one message may be sent"

    def _one_message(self, taken: Mapping[str, Sequence[Message]], evidence: Sequence[Row]) -> None:
        """One message an intent; of one action a second only where people chose that."""
        out: dict[UUID, list[Row]] = defaultdict(list)
        for tag, messages in taken.items():
            assert len(messages) <= 1, f"accepted {len(messages)} times"
            if messages:
                row = self.rows[UUID(tag)]
                out[row["action_id"]].append(row)
        for versions in out.values():
            versions.sort(key=lambda row: row["version"])
            for earlier, later in pairwise(versions):
                found = [
                    fact
                    for fact in evidence
                    if fact["intent_id"] == earlier["id"]
                    and fact["proves"]
                    and fact["direction"] == "not_accepted"
                    and fact["person_id"]
                ]
                assert found, f"{_of(later)} went out beside {_of(earlier)}"
                approvals = Approval.objects.filter(intent=later["id"], verdict="approve")
                assert approvals.filter(person__isnull=False).exists(), _of(later)

    def _says_what_it_waits_for(self) -> None:
        unfinished = [pk for pk, row in self.rows.items() if row["status"] in UNFINISHED]
        intents = SendIntent.objects.filter(pk__in=unfinished)
        intents = intents.select_related("account", "sender").prefetch_related("approvals")
        waiting = why_not_yet_of(intents, self.clocks.now)
        for pk in unfinished:
            assert pk in waiting, f"{_of(self.rows[pk])} waits for nothing"
            assert waiting[pk].sentence.strip()

    # -- after the sweep, and at the end

    def what_is_next_is_true(self) -> None:
        """After a sweep, what "goes out as soon as a worker is free" may really be claimed."""
        now = self.clocks.now
        waiting = SendIntent.objects.filter(status__in=WAITS_ITS_TURN)
        waiting = waiting.select_related("account", "sender")
        due = set(SendIntent.objects.due(now).values_list("pk", flat=True))
        for pk, what in why_not_yet_of(waiting, now).items():
            if what.sentence.startswith("Goes out as soon as"):
                assert pk in due, f"{_of(self.read()[pk])} is never claimed"

    def deliveries_follow(self, facts: Collection[tuple[str, str, str]]) -> None:
        """A delivery is what the set of its events says, in whatever order they came."""
        accepted = {pk for pk, row in self.rows.items() if row["accepted_at"] is not None}
        in_part = set(
            Attempt.objects.filter(outcome="accepted_in_part").values_list("intent_id", flat=True)
        )
        for delivery in Delivery.objects.all():
            tag, address = delivery.intent_id.hex, delivery.address
            told = {kind for t, to, kind in facts if (t, to) == (tag, address)}
            told.add("accepted" if delivery.intent_id in accepted else "waiting")
            worst = max(told, key=RANKS.index)
            allowed = {worst}
            if RANKS.index(worst) <= RANKS.index("deferred"):
                allowed.add("no_news")
            if delivery.intent_id in in_part and RANKS.index(worst) < RANKS.index("refused"):
                allowed.add("refused")
            assert delivery.state in allowed, f"{delivery.state}, after {sorted(told)}"

    def provider_ids(self) -> set[str]:
        """The providers' ids that we learnt from an answer, a look-up or an event."""
        return {
            str(found)
            for table in (SendIntent, Attempt)
            for found in table.objects.values_list("provider_message_id", flat=True)
        }

    def chain_holds(self) -> None:
        assert chain.check(self.tenant).broken == ""

    def nothing_is_lost(self) -> None:
        """With workers at work, everything is at an end or waits for a person."""
        for row in self.read().values():
            status = Status(row["status"])
            assert status not in WAITS_ITS_TURN | {S.IN_FLIGHT}, f"{_of(row)} for ever"


@contextmanager
def moves_noted() -> Iterator[None]:
    """Let the database itself note each change of a status, whoever makes it.

    Call it in a transaction that is rolled back.
    """
    columns = "(id {}, intent varchar(36), before varchar(20), after varchar(20))"
    values = f"INSERT INTO {MOVES} (intent, before, after) VALUES (NEW.id, OLD.status, NEW.status);"
    when = "AFTER UPDATE ON sends_sendintent FOR EACH ROW WHEN (OLD.status <> NEW.status)"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"CREATE TABLE {MOVES} {columns.format('bigserial')}")
            body = f"BEGIN {values} RETURN NULL; END"
            cursor.execute(
                f"CREATE FUNCTION {MOVES}_note() RETURNS trigger LANGUAGE plpgsql AS $${body}$$"
            )
            cursor.execute(f"CREATE TRIGGER {MOVES} {when} EXECUTE FUNCTION {MOVES}_note()")
        else:
            cursor.execute(f"CREATE TABLE {MOVES} {columns.format('integer PRIMARY KEY')}")
            cursor.execute(f"CREATE TRIGGER {MOVES} {when} BEGIN {values} END")
    yield


class Complaints(logging.Handler):
    """What the product logged as a fault of its own: a step that was swallowed is no success."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trouble = record.exc_info[1] if record.exc_info else ""
        self.told.append(f"{record.getMessage()}: {trouble!r}")


def _has_anomaly(row: Row) -> bool:
    return Anomaly.objects.filter(action=row["action_id"]).exists()


def _of(row: Row) -> str:
    return f"intent {row['id']} is {row['status']}"
