"""Random lives of messages: people, agents, workers, providers and clocks in any order.

Each rule is one thing that somebody may do at any moment. The real lifecycle does it, against
providers on paper, and the judge looks after every step.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sends.lifecycle import (
    anomalies,
    cancelling,
    claim,
    editing,
    events,
    halts,
    intake,
    requeue,
    resolve,
    review,
    settle,
    submit,
    watchdog,
)
from sends.lifecycle.claim import Claimed
from sends.lifecycle.refusals import Refused
from sends.lifecycle.submit import Submitted
from sends.models import (
    Account,
    Agent,
    Anomaly,
    Cause,
    Person,
    Policy,
    ReasonCode,
    Role,
    Run,
    SendIntent,
    Suppression,
    SuppressionCause,
    Switch,
    Tenant,
)
from sends.providers.http import Answer
from sends.providers.registry import adapter_for
from sends.rules.outcomes import Phase
from sends.rules.payloads import Mailbox, Message
from sends.rules.proposals import WrongProposal, parse
from sends.rules.statuses import CLAIMABLE, Status
from tests.clocks import Clocks, by_hand
from tests.factories import make_account, make_agent, make_person, make_sender, make_tenant
from tests.promises import paper
from tests.promises.judge import Complaints, Judge, Said, moves_noted
from tests.promises.paper import Fault, Provider

# A request that its sender gave up may still land, but not after the longest that one may take.
LANDS_WITHIN = 20
PHASES = {
    "connecting": Phase.CONNECTING,
    "connected": Phase.CONNECTED,
    "partly": Phase.DISPATCHED,
    "sent": Phase.SENT,
}
EVENTS = ("accepted", "delivered", "deferred", "bounced", "complained", "refused", "dropped")
IDS = (
    ("message_id_provider", "tag", "message_id"),
    ("message_id_provider",),
    ("tag",),
    ("message_id",),
)
S = Status
# What people may do, and to what: mostly tried where it is possible.
DECISIONS: Mapping[str, Collection[Status]] = {
    "approve": {S.AWAITING_APPROVAL},
    "reject": {S.AWAITING_APPROVAL},
    "ask_for_changes": {S.AWAITING_APPROVAL},
    "undo": {S.QUEUED, S.REJECTED, S.CHANGES_REQUESTED, S.RETRY_SCHEDULED},
    "cancel": set(S),
    "edit": {S.AWAITING_APPROVAL, S.CHANGES_REQUESTED, S.RETRY_SCHEDULED, S.DEAD_LETTER},
    "follow_up": {S.SUBMITTED, S.DONE, S.UNCERTAIN},
}
STOPS = ("turn_off", "turn_on", "turn_on", "halt_run", "resume_run", "end_run", "suppress")
FINDINGS = ("replay", "ask_provider", "mark_accepted", "mark_not_accepted", "confirm_not_accepted")
REVIVALS = ("requeue", "resend", "close", "reopen", "retry_now")
RECIPIENTS = (
    ("ann@example.org",),
    ("bob@example.net",),
    ("ann@example.org", "carl@example.com"),
    ("Bob@example.net", "dora@example.org"),
)

some = st.integers(0, 11)  # which of those that there are
who = st.integers(0, 4)
operators = st.integers(1, 4)  # and one who is none
# What befalls one request; None: its worker is killed after the call.
accidents = st.sampled_from([*Fault, None])
delays = st.integers(1, LANDS_WITHIN)
spans = st.sampled_from(
    [
        *(timedelta(seconds=seconds) for seconds in (0, 1, 3, 10, 31, 61, 95, 119, 121, 200)),
        *(timedelta(minutes=minutes) for minutes in (5, 14, 15, 61)),
        *(timedelta(hours=hours) for hours in (22, 25, 24 * 8)),
    ]
)


@dataclass
class World:
    """What every example begins with: a tenant with people and three ways to send."""

    clocks: Clocks
    tenant: Tenant
    people: list[Person]
    agents: list[Agent]
    windows: Mapping[UUID, float | None]
    complaints: Complaints

    def providers(self) -> dict[UUID, Provider]:
        return {
            account: Provider(f"p{number}", window)
            for number, (account, window) in enumerate(self.windows.items())
        }


@contextmanager
def world() -> Iterator[World]:
    """A world whose clocks are moved by hand; in a transaction that is rolled back."""
    complaints = Complaints()
    logger = logging.getLogger("sends")
    claim.installation_id.cache_clear()
    with moves_noted(), by_hand() as hands, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SANDBOX_KEY", "sandbox_test_key")
        tenant = make_tenant()
        roles = (Role.APPROVER, Role.APPROVER, Role.OPERATOR, Role.OPERATOR, Role.ADMIN)
        people = [make_person(tenant, role) for role in roles]
        agents, windows = [], {}
        for number, options in enumerate(
            (
                {"contract": "replay", "window_seconds": 900},
                {"contract": "none"},
                {"contract": "replay"},
            )
        ):
            account = make_account(tenant, options=options, base_url=f"http://127.0.0.1:9/{number}")
            is_replay = options["contract"] == "replay"
            windows[account.pk] = float(options.get("window_seconds", 86400)) if is_replay else None
            agents.append(make_agent(make_sender(account)))
        logger.addHandler(complaints)
        try:
            yield World(hands, tenant, people, agents, windows, complaints)
        finally:
            logger.removeHandler(complaints)
            claim.installation_id.cache_clear()


class Wire:
    """Stands where the HTTP room is: carries bytes to the provider on paper, and its words back."""

    def __init__(self, provider: Provider, clocks: Clocks) -> None:
        self.provider, self.clocks = provider, clocks
        self.fault, self.delay = Fault.NONE, 0
        self.not_found = False

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes = b"",
        not_after: float | None = None,
        **options: Any,
    ) -> Answer:
        if method == "GET":
            return self._look_up(url)
        if not_after is not None and self.clocks.elapsed > not_after:
            return Answer(Phase.CONNECTED, error="too_late")
        reply = self.provider.receive(
            headers, body, self.fault, delay=self.delay, now=self.clocks.elapsed
        )
        if reply.status is None:
            return Answer(PHASES[reply.reached], error=reply.error)
        return _answer(reply.status, reply.content, reply.headers)

    def close(self) -> None:
        pass

    def _look_up(self, url: str) -> Answer:
        if self.fault is not Fault.NONE:
            return Answer(Phase.SENT, error="deadline")
        by, _, value = url.rpartition("?")[2].partition("=")
        found = [] if self.not_found else self.provider.find(by, value)
        return _answer(200, {"messages": found}, {})


def _answer(status: int, content: Any, headers: Mapping[str, str]) -> Answer:
    body = b"<html>" if content is None else paper.written(content)
    return Answer(Phase.ANSWERED, status=status, headers=headers, body=body)


class Lifecycle(RuleBasedStateMachine):
    """Subclass it with a `world`."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.clocks = self.world.clocks
        self.clocks.reset()
        self.world.complaints.told.clear()
        self.savepoint = transaction.atomic()
        self.savepoint.__enter__()
        self.providers = self.world.providers()
        self.judge = Judge(self.world.tenant, self.providers, self.clocks)
        self.numbers = count(1)
        self.intents: list[UUID] = []
        self.unmarked: list[Claimed] = []
        self.going: list[Claimed] = []
        self.answers: list[Submitted] = []
        self.letters: list[tuple[UUID, bytes]] = []
        self.delivered: list[tuple[UUID, bytes]] = []
        self.set_back = timedelta()
        self.is_sound = False

    def teardown(self) -> None:
        try:
            if self.is_sound:
                self.recover()
        finally:
            transaction.set_rollback(True)
            self.savepoint.__exit__(None, None, None)

    @invariant()
    def all_promises_hold(self) -> None:
        self.is_sound = False
        assert self.world.complaints.told == []
        self.judge.look()
        self.is_sound = True

    @initialize(
        approvals=st.sampled_from([0, 1, 1, 2]),
        undo_seconds=st.sampled_from([0, 30]),
        second_operator=st.booleans(),
        max_attempts=st.sampled_from([2, 4, 40]),
        begun=st.lists(st.tuples(some, some, st.integers(0, 3)), min_size=2, max_size=5),
        wrong=st.lists(accidents, max_size=4),
    )
    def begin(
        self,
        approvals: int,
        undo_seconds: int,
        second_operator: bool,
        max_attempts: int,
        begun: list[tuple[int, int, int]],
        wrong: list[Fault | None],
    ) -> None:
        """A policy, and a few messages: not approved, or sent for a first time, well or badly."""
        Policy.objects.filter(tenant=self.world.tenant).update(
            approvals=approvals,
            undo_time=timedelta(seconds=undo_seconds),
            second_operator=second_operator,
            max_attempts=max_attempts,
            approval_valid_for=timedelta(days=2),
        )
        for number, (agent, to, people) in enumerate(begun):
            self.propose(agent + number, number, 0, to, number)
            for person in range(min(people, approvals)):
                self._approve(self.intents[-1], person)
        if wrong:
            self.time_passes(timedelta(seconds=31))
            self.work(wrong, 1)

    # -- agents

    @rule(agent=some, key=some, words=st.integers(0, 2), to=some, run=st.integers(0, 3))
    def propose(self, agent: int, key: int, words: int, to: int, run: int) -> None:
        document = self._proposal(words, to) | {"action_key": f"key-{key}"}
        if run < 2:
            document["run"] = f"run-{run}"
        self._propose(document, agent)

    @rule(agent=some, to=some, not_before=spans, time_left=spans, trigger=some)
    def propose_with_times(
        self, agent: int, to: int, not_before: timedelta, time_left: timedelta, trigger: int
    ) -> None:
        start = self.clocks.now + not_before
        end = start + time_left + timedelta(seconds=1)
        times = {"not_before": start.isoformat(), "deadline": end.isoformat()}
        document = self._proposal(0, to) | times | {"action_key": f"timed-{next(self.numbers)}"}
        if trigger < 3:
            document["triggered_by"] = f"event-{trigger}"
        self._propose(document, agent)

    @precondition(lambda self: self.intents)
    @rule(intent=some, words=st.integers(0, 3), to=some, is_new=st.booleans())
    def change_or_withdraw(self, intent: int, words: int, to: int, is_new: bool) -> None:
        pk = self._pick(self.intents, intent)
        agent = SendIntent.objects.get(pk=pk).agent
        if agent is None:
            return
        if is_new:
            document = self._proposal(words, to)
            proposal = parse(document, needs_key=False)
            taken = self._do("propose_version", intake.propose_version, pk, proposal, agent=agent)
            self._note_taken(taken, document)
        else:
            self._do("withdraw", cancelling.withdraw, pk, agent=agent)

    def _propose(self, document: dict[str, Any], agent: int) -> None:
        agent_row = self._pick(self.world.agents, agent)
        taken = self._do("propose", intake.propose, parse(document), agent=agent_row)
        self._note_taken(taken, document)

    def _proposal(self, words: int, to: int) -> dict[str, Any]:
        recipients = self._pick(RECIPIENTS, to)
        return {"to": list(recipients), "subject": f"Order {words}", "text": f"Words {words}"}

    def _note_taken(self, taken: intake.Taken | None, document: Mapping[str, Any]) -> None:
        if taken is None:
            return
        said = Said(document["subject"], document["text"], tuple(document["to"]))
        if taken.replayed:
            assert self.judge.said[taken.intent.pk] == said, "answered with something else"
        else:
            self._note(taken.intent, said)

    def _note(self, intent: SendIntent, said: Said) -> None:
        assert intent.pk not in self.judge.said
        self.judge.said[intent.pk] = said
        self.intents.append(intent.pk)

    # -- people decide

    @precondition(lambda self: self.intents)
    @rule(
        verb=st.sampled_from([*DECISIONS, "approve", "approve"]), intent=some, person=who, to=some
    )
    def decide(self, verb: str, intent: int, person: int, to: int) -> None:
        pk, by = self._one_of(intent, DECISIONS[verb]), self._by(person)
        row = SendIntent.objects.get(pk=pk)
        message, said = self._message(row, to)
        seen: dict[str, Any] = {"person": by, "digest": row.digest}
        words: dict[str, Any] = {"note": "Say it more kindly.", "reason_code": str(ReasonCode.TONE)}
        written = {"message": message, "reason": "better so"}
        match verb:
            case "approve":
                self._do(verb, review.approve, pk, **seen)
            case "reject":
                self._do(verb, review.reject, pk, **seen, **words)
            case "ask_for_changes":
                self._do(verb, review.ask_for_changes, pk, **seen, **words)
            case "undo":
                self._do(verb, review.undo, pk, person=by)
            case "cancel":
                self._do(verb, cancelling.cancel, pk, person=by, reason="not needed")
            case "edit":
                newer = self._do(verb, editing.edit, pk, **seen, **written)
                if newer is not None:
                    self._note(newer, said)
            case "follow_up":
                created = self._do(verb, editing.follow_up, pk, person=by, **written)
                if created is not None:
                    self._note(created, said)

    @precondition(lambda self: self._are_there(Status.AWAITING_APPROVAL))
    @rule(first=who, others=st.integers(0, 1))
    def approve_all(self, first: int, others: int) -> None:
        for pk in self.intents:
            for person in range(first, first + 1 + others):
                if self._is(pk, Status.AWAITING_APPROVAL):
                    self._approve(pk, person)

    def _approve(self, pk: UUID, person: int) -> None:
        digest = self.judge.rows[pk]["digest"]
        self._do("approve", review.approve, pk, person=self._by(person), digest=digest)

    def _message(self, like: SendIntent, to: int) -> tuple[Message, Said]:
        words = f"Better words {next(self.numbers)}"
        recipients = self._pick(RECIPIENTS, to)
        boxes = tuple(Mailbox(address) for address in recipients)
        sender = Mailbox(like.sender.address, like.sender.name)
        message = Message(sender=sender, to=boxes, subject=words, text=words)
        return message, Said(words, words, recipients)

    # -- people stop and start

    @rule(verb=st.sampled_from(STOPS), which=some, person=who)
    def stop_or_go(self, verb: str, which: int, person: int) -> None:
        by, words = self._by(person), {"reason": "so it is"}
        runs = list(Run.objects.order_by("pk"))
        match verb:
            case "turn_off":
                switch = self._pick(list(Switch.objects.order_by("pk")), which)
                self._do(verb, halts.turn_off, switch.pk, by=by, **words)
            case "turn_on":
                self._turn_all_on(by)
            case "halt_run" if runs:
                self._do(verb, halts.halt_run, self._pick(runs, which), person=by, **words)
            case "resume_run" if runs:
                self._do(verb, halts.resume_run, self._pick(runs, which), person=by, **words)
            case "end_run" if runs:
                self._do(verb, halts.end_run, self._pick(runs, which), person=by, **words)
            case "suppress":
                self._suppress_or_release(which)

    def _turn_all_on(self, by: Person) -> None:
        for switch in Switch.objects.exclude(causes=0).order_by("pk"):
            for cause in Cause:
                again = {"by": by, "reason": "go on", "cause": cause}
                self._do("turn_on", halts.turn_on, switch.pk, **again)

    def _suppress_or_release(self, which: int) -> None:
        addresses = sorted({to.lower() for boxes in RECIPIENTS for to in boxes})
        normal = self._pick(addresses, which)
        standing = Suppression.objects.filter(normal=normal, released_at=None)
        if standing.update(released_at=self.clocks.database_now()):
            return
        Suppression.objects.create(
            tenant=self.world.tenant,
            normal=normal,
            cause=SuppressionCause.PERSON,
            since=self.clocks.database_now(),
        )

    def _by(self, number: int) -> Person:
        return self._pick(self.world.people, number)

    # -- workers

    @rule(at_most=st.integers(1, 4))
    def claim(self, at_most: int) -> None:
        before = self.judge.read()
        claimed = self._work("claim", claim.claim, "test", at_most=at_most) or []
        for one in claimed:
            if not one.needs_mark:
                self.judge.may_leave(one, before[one.intent_id], dispatch=False)
                self.going.append(one)
            else:
                self.unmarked.append(one)

    @precondition(lambda self: self.unmarked)
    @rule(how_many=st.integers(1, 4))
    def dispatch(self, how_many: int) -> None:
        batch, self.unmarked = self.unmarked[:how_many], self.unmarked[how_many:]
        before = self.judge.read()
        for one in self._work("dispatch", claim.dispatch, batch):
            self.judge.may_leave(one, before[one.intent_id], dispatch=True)
            self.going.append(one)

    @precondition(lambda self: self.going)
    @rule(which=some, fault=accidents, delay=delays)
    def submit(self, which: int, fault: Fault | None, delay: int) -> None:
        one = self.going.pop(which % len(self.going))
        wire = Wire(self.providers[one.account_id], self.clocks)
        wire.fault, wire.delay = fault or Fault.NONE, delay
        answer = self._work("submit", submit.submit, one, wire)
        if fault is not None:
            self.answers.append(answer)

    @precondition(lambda self: self.answers)
    @rule(first=some, how_many=st.integers(1, 3))
    def settle(self, first: int, how_many: int) -> None:
        start = first % len(self.answers)
        batch = self.answers[start : start + how_many]
        del self.answers[start : start + how_many]
        self._work("settle", settle.settle, batch)

    @rule(wrong=st.lists(accidents, max_size=3), delay=delays)
    def work(self, wrong: list[Fault | None], delay: int) -> None:
        """A drain without a stop, the first requests of it with these faults."""
        self.claim(4)
        if self.unmarked:
            self.dispatch(4)
        while self.going:
            self.submit(0, wrong.pop(0) if wrong else Fault.NONE, delay)
        if self.answers:
            self.settle(0, len(self.answers))

    @precondition(lambda self: self.unmarked or self.going or self.answers)
    @rule(which=some)
    def crash(self, which: int) -> None:
        """A worker is killed before the call, or after it and before its result is saved."""
        hands: Sequence[list[Any]] = [h for h in (self.unmarked, self.going, self.answers) if h]
        del hands[which % len(hands)][0]

    @rule(span=spans, wrong=st.lists(accidents, min_size=1, max_size=4), delay=delays)
    def keep_trying(self, span: timedelta, wrong: list[Fault | None], delay: int) -> None:
        """A fault each time that something is due, with a watchdog between the times."""
        for fault in wrong:
            self.work([fault], delay)
            self.tend(span)
            self.all_promises_hold()

    @rule(step=st.sampled_from(["expire_leases", "sweep", "apply_events"]))
    def housekeeping(self, step: str) -> None:
        match step:
            case "expire_leases":
                self._work(step, watchdog.expire_leases)
            case "sweep":
                self._work(step, watchdog.sweep)
                self.judge.what_is_next_is_true()
            case "apply_events":
                self._work(step, events.apply_received)

    @rule(span=spans)
    def tend(self, span: timedelta) -> None:
        """Some time with a watchdog in it."""
        self.time_passes(span)
        self.housekeeping("expire_leases")
        self.time_passes(timedelta(seconds=2))
        self.housekeeping("expire_leases")
        self.housekeeping("sweep")
        self.housekeeping("apply_events")

    # -- providers tell

    @precondition(lambda self: any(p.journal for p in self.providers.values()))
    @rule(
        which=some,
        kinds=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=3),
        to=some,
        names=st.sampled_from(IDS),
        is_late=st.booleans(),
    )
    def news(
        self, which: int, kinds: list[str], to: int, names: tuple[str, ...], is_late: bool
    ) -> None:
        books = [(pk, m) for pk, p in self.providers.items() for m in p.journal]
        account, message = self._pick(books, which)
        recipient = self._pick(message.recipients, to)
        for kind in kinds:
            name, at = f"evt_{next(self.numbers)}", self.clocks.database_now().isoformat()
            letter = paper.event(message, kind, recipient, event_id=name, at=at, names=names)
            self.letters.append((account, letter))
            if not is_late:
                self._deliver(account, letter)

    @precondition(lambda self: self.letters)
    @rule(which=some)
    def news_again_or_late(self, which: int) -> None:
        self._deliver(*self._pick(self.letters, which))

    @rule(account=some, kind=st.sampled_from(EVENTS))
    def news_of_a_stranger(self, account: int, kind: str) -> None:
        stranger = paper.Message("x_1", "0" * 32, "", "<x@example.org>", ("ann@example.org",), 0)
        name, to = f"evt_{next(self.numbers)}", "ann@example.org"
        letter = paper.event(stranger, kind, to, event_id=name, at="?", names=IDS[0])
        events.store(*self._letter(self._pick(list(self.providers), account), letter))

    def _deliver(self, account: UUID, letter: bytes) -> None:
        events.store(*self._letter(account, letter))
        if (account, letter) not in self.delivered:
            self.delivered.append((account, letter))

    def _letter(self, account: UUID, letter: bytes) -> tuple[Account, Any, bytes, Any]:
        row = Account.objects.get(pk=account)
        told = adapter_for(row.provider).events(letter)
        return row, told, letter, self.clocks.database_now()

    # -- operators settle

    @precondition(lambda self: self._are_there(Status.UNCERTAIN))
    @rule(verb=st.sampled_from(FINDINGS), intent=some, person=operators, luck=st.integers(0, 4))
    def settle_doubt(self, verb: str, intent: int, person: int, luck: int) -> None:
        pk, by = self._one_of(intent, {Status.UNCERTAIN}), self._by(person)
        finding = {"value": "their log", "note": "as their log has it"}
        match verb:
            case "replay":
                self._do(verb, resolve.replay, pk, person=by)
            case "ask_provider":
                self._ask_provider(pk, by, luck)
            case "mark_accepted":
                self._do(verb, resolve.mark_accepted, pk, person=by, **finding)
            case "mark_not_accepted":
                marked = self._do(verb, resolve.mark_not_accepted, pk, person=by, **finding)
                if marked is not None and marked.status == Status.UNCERTAIN:
                    assert resolve.awaiting_confirmation(marked), "the finding is forgotten"
            case "confirm_not_accepted":
                self._do(verb, resolve.confirm_not_accepted, pk, person=by)

    def _ask_provider(self, pk: UUID, by: Person, luck: int) -> None:
        wire = Wire(self.providers[self.judge.rows[pk]["account_id"]], self.clocks)
        wire.fault = Fault.SERVER_ERROR if luck == 0 else Fault.NONE
        wire.not_found = luck == 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(resolve, "Http", lambda **options: wire)
            self._do("ask_provider", resolve.ask_provider, pk, person=by)

    @precondition(lambda self: self._are_there(Status.DEAD_LETTER, Status.RETRY_SCHEDULED))
    @rule(verb=st.sampled_from(REVIVALS), intent=some, person=operators)
    def revive(self, verb: str, intent: int, person: int) -> None:
        status = Status.RETRY_SCHEDULED if verb == "retry_now" else Status.DEAD_LETTER
        pk, by = self._one_of(intent, {status}), self._by(person)
        match verb:
            case "requeue":
                self._do(verb, requeue.requeue, pk, person=by)
            case "resend":
                again = self._do(verb, resolve.resend, pk, person=by, reason="it never arrived")
                if again is not None and again.pk != pk:
                    self._note(again, self.judge.said[pk])
            case "close":
                self._do(verb, requeue.close, pk, person=by, reason="seen")
            case "reopen":
                self._do(verb, requeue.reopen, pk, person=by)
            case "retry_now":
                self._do(verb, requeue.retry_now, pk, person=by)

    @precondition(lambda self: Anomaly.objects.filter(closed_at=None).exists())
    @rule(which=some, person=operators)
    def close_anomaly(self, which: int, person: int) -> None:
        pk = self._pick(list(Anomaly.objects.order_by("pk").values_list("pk", flat=True)), which)
        by = self._by(person)
        self._do("close_anomaly", anomalies.close_anomaly, pk, person=by, reason="looked at")

    def _is(self, pk: UUID, *statuses: Status) -> bool:
        return self.judge.rows[pk]["status"] in statuses

    def _are_there(self, *statuses: Status) -> bool:
        return any(row["status"] in statuses for row in self.judge.rows.values())

    def _one_of(self, number: int, statuses: Collection[Status]) -> UUID:
        """Mostly one that is in one of these; sometimes any, and the wish is refused."""
        there = [pk for pk in self.intents if self._is(pk, *statuses)]
        if not there or number % 4 == 3:
            return self._pick(self.intents, number)
        return self._pick(there, number // 4 if len(there) > 3 else number)

    # -- time

    @rule(span=spans, seconds_back=st.sampled_from([0, 0, 1, 3]))
    def clock(self, span: timedelta, seconds_back: int) -> None:
        """Time passes; and the clock is set back a little, by less in all than any margin."""
        self.time_passes(span)
        back = timedelta(seconds=seconds_back)
        if self.set_back + back <= timedelta(seconds=8):
            self.set_back += back
            self.clocks.set_back(back)

    def time_passes(self, span: timedelta) -> None:
        self.clocks.forward(span)
        self._land()

    def _land(self) -> None:
        for provider in self.providers.values():
            provider.pass_time(self.clocks.elapsed)

    # -- the end

    def recover(self) -> None:
        """Every process is killed and started again, every scope open: nothing is lost then."""
        self.unmarked, self.going, self.answers = [], [], []
        admin = self.world.people[-1]
        self._turn_all_on(admin)
        for anomaly in Anomaly.objects.filter(closed_at=None).order_by("pk"):
            reason = {"person": admin, "reason": "looked at"}
            self._do("close_anomaly", anomalies.close_anomaly, anomaly.pk, **reason)
        for _ in range(60):
            self._pass_of_a_worker()
            if not SendIntent.objects.filter(status__in=[*CLAIMABLE, Status.IN_FLIGHT]).exists():
                break
            self.time_passes(timedelta(hours=1))
        self.judge.nothing_is_lost()
        self._hear_it_all_again()
        self.judge.chain_holds()

    def _pass_of_a_worker(self) -> None:
        for _ in range(2):
            self.time_passes(timedelta(seconds=2))
            self.housekeeping("expire_leases")
        self.housekeeping("sweep")
        self.housekeeping("apply_events")
        self.work([], 1)
        self.all_promises_hold()

    def _hear_it_all_again(self) -> None:
        """The same set of events once more, the other way round, changes nothing."""
        self.housekeeping("apply_events")
        self.all_promises_hold()
        self.judge.deliveries_follow(self._facts())
        before = self.judge.everything()
        for account, letter in reversed(self.delivered):
            self._deliver(account, letter)
        self.housekeeping("apply_events")
        assert self.judge.everything() == before

    def _facts(self) -> set[tuple[str, str, str]]:
        """Which message, to whom and what, of the events that name anything we can know."""
        known = self.judge.provider_ids()
        return {
            paper.what_it_tells(letter, self.providers[account])
            for account, letter in self.delivered
            if paper.named(letter) & {"tag", "message_id"} or paper.id_in(letter) in known
        }

    # -- the lifecycle, called

    def _do(self, doing: str, step: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Let somebody wish something; None where it is refused, and then nothing has changed."""
        before = self.judge.everything()
        try:
            done = step(*args, **options)
        except (Refused, WrongProposal):
            assert self.judge.everything() == before, f"{doing} was refused, and did something"
            return None
        self.judge.moves(doing)
        return done

    def _work(self, doing: str, step: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Let the product do by itself what it does."""
        done = step(*args, **options)
        self.judge.moves(doing)
        return done

    @staticmethod
    def _pick(among: Sequence[Any], number: int) -> Any:
        return among[number % len(among)]
