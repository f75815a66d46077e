"""Why an intent has not been sent yet: one sentence and a time, the same for people and agents."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sends.models import Cause, SendIntent, Switch, SwitchKind
from sends.rules.statuses import Hold, Status, holds_in


@dataclass(frozen=True)
class Waiting:
    """What an intent waits for, and when that is over by itself; None: not by itself."""

    sentence: str
    until: datetime | None = None


def why_not_yet(intent: SendIntent, now: datetime) -> Waiting | None:
    """For one intent; None when nothing more will happen to it by itself or by plan."""
    return why_not_yet_of([intent], now).get(intent.pk)


def why_not_yet_of(intents: Iterable[SendIntent], now: datetime) -> dict[uuid.UUID, Waiting]:
    """For a page of intents, with one query for all their switches.

    Each needs its `account` and `sender` loaded; an intent awaiting approval its `approvals`.
    """
    intents = list(intents)
    off = {switch.pk: switch for switch in Switch.objects.off(now)}
    found = {intent.pk: _why(intent, off, now) for intent in intents}
    return {pk: waiting for pk, waiting in found.items() if waiting is not None}


def _why(intent: SendIntent, off: dict[uuid.UUID, Switch], now: datetime) -> Waiting | None:
    match Status(intent.status):
        case Status.AWAITING_APPROVAL | Status.CHANGES_REQUESTED if _is_restored(intent):
            return Waiting(Hold.RESTORED.label, intent.decide_by)
        case Status.AWAITING_APPROVAL:
            return _undecided(intent)
        case Status.CHANGES_REQUESTED:
            return Waiting("Waits for the agent to answer with a new version.", intent.decide_by)
        case Status.IN_FLIGHT:
            return Waiting("A worker is talking to the provider right now.")
        case Status.UNCERTAIN:
            return Waiting("Waits for an operator to settle it.")
        case Status.SUBMITTED:
            return Waiting("Waits for news of its delivery.")
        case Status.QUEUED | Status.RETRY_SCHEDULED:
            return _held(intent, off) or _scheduled(intent, now)
    return None


def _is_restored(intent: SendIntent) -> bool:
    return Hold.RESTORED in holds_in(intent.holds)


def _undecided(intent: SendIntent) -> Waiting:
    if intent.approvals_needed < 2:
        return Waiting("Waits for a person to approve it.", intent.decide_by)
    standing = [a for a in intent.approvals.all() if a.verdict == "approve" and not a.undone_at]
    if standing:
        return Waiting("Waits for a second person to approve it.", intent.decide_by)
    return Waiting("Waits for two people to approve it.", intent.decide_by)


def stops_of(intent: SendIntent, now: datetime) -> list[Waiting]:
    """Everything that keeps it from going out now, whether it is approved or not."""
    return list(_stops(intent, {switch.pk: switch for switch in Switch.objects.off(now)}))


def _held(intent: SendIntent, off: dict[uuid.UUID, Switch]) -> Waiting | None:
    return next(_stops(intent, off), None)


def _stops(intent: SendIntent, off: dict[uuid.UUID, Switch]) -> Iterator[Waiting]:
    holds = holds_in(intent.holds)
    if intent.in_doubt:
        holds.sort(key=lambda hold: hold is not Hold.CANCEL_ASKED)
    yield from (Waiting(hold.label) for hold in holds)
    everything = next((s for s in off.values() if s.kind == SwitchKind.INSTALLATION), None)
    for switch in (
        everything,
        off.get(intent.tenant_id),
        off.get(intent.account_id),
        off.get(intent.sender_id),
        off.get(intent.run_id) if intent.run_id else None,
    ):
        if switch is not None:
            yield _stopped(intent, switch)


def _stopped(intent: SendIntent, switch: Switch) -> Waiting:
    if switch.causes & Cause.BLOCKED:
        what = f"account {intent.account.slug}"
        if switch.kind == SwitchKind.SENDER:
            what = f"sender {intent.sender.address}"
        return Waiting(f"The provider blocks {what}: {switch.block_reason}")
    if switch.causes & Cause.PAUSED:
        what = {
            SwitchKind.ACCOUNT: f"Sending through {intent.account.slug} is paused",
            SwitchKind.SENDER: f"Sending from {intent.sender.address} is paused",
            SwitchKind.RUN: "Its run is halted",
        }.get(SwitchKind(switch.kind), "Sending is paused")
        return Waiting(f"{what}: {switch.pause_reason}")
    return Waiting("The provider asked everybody to wait.", switch.resume_at)


def _scheduled(intent: SendIntent, now: datetime) -> Waiting:
    floors = (intent.next_attempt_at, intent.not_sooner_than)
    at = max((floor for floor in floors if floor is not None), default=now)
    if at <= now:
        return Waiting("Goes out as soon as a worker is free.")
    if intent.not_before is not None and at <= intent.not_before:
        return Waiting("Goes out at the time the agent asked for.", at)
    if intent.in_doubt:
        return Waiting("An attempt had no clear answer; asked again with the same key.", at)
    if at == intent.not_sooner_than:
        return Waiting("The provider asked us to wait.", at)
    if intent.status == Status.QUEUED:
        return Waiting("Goes out when the undo time is over.", at)
    return Waiting("Tried again with the same email and the same key.", at)
