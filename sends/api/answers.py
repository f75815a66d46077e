"""What the agents' door says about intents and runs."""

import json
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from ninja import Schema

from sends.api.problems import ProblemAnswer, Said
from sends.conf import conf
from sends.lifecycle.intake import Taken
from sends.lifecycle.simulation import Simulated
from sends.models import Attempt, Delivery, Evidence, Run, SendIntent, Switch, Verdict
from sends.reports.waiting import Waiting
from sends.rules.next_steps import Step, next_step
from sends.rules.payloads import thaw
from sends.rules.proposals import Proposal
from sends.rules.statuses import Status

API = f"{conf.url}/api/v1"


class Links(Schema):
    """Where to look: for programs, for people, and the version that replaced this one."""

    self: str
    dashboard: str
    current: str | None


class RunName(Schema):
    id: uuid.UUID
    name: str


class Short(Schema):
    """One intent in a list."""

    id: uuid.UUID
    number: int
    status: Status
    action_key: str
    key_derived: bool
    version: int
    idempotency_key: str
    digest: str
    next_step: Step
    sentence: str
    run: RunName | None
    subject: str
    created_at: datetime
    status_at: datetime
    links: Links


class Answer(Short):
    """The intent that a request stands for; `replayed` if an earlier request made it."""

    replayed: bool


class Page(Schema):
    items: list[Short]
    more: bool
    next_cursor: str | None
    next_since: str


class WhyNotYet(Schema):
    sentence: str
    until: datetime | None


class Decision(Schema):
    """What was decided about this version, by a person or by policy, and the note to read."""

    verdict: str
    by: str
    reason_code: str
    note: str
    at: datetime


class AttemptAnswer(Schema):
    number: int
    outcome: str | None
    idempotency_key: str
    opened_at: datetime
    dispatched_at: datetime | None
    closed_at: datetime | None
    next_attempt_at: datetime | None
    reason: str
    http_status: int | None
    provider_message_id: str


class DeliveryAnswer(Schema):
    kind: str
    address: str
    name: str
    state: str
    reason: str
    changed_at: datetime | None


class EvidenceAnswer(Schema):
    kind: str
    direction: str
    proves: bool
    summary: str
    found_at: datetime


class AttachmentAnswer(Schema):
    """A file as the email names it; `sha256` tells whether its bytes arrived as they were."""

    filename: str
    content_type: str
    size: int
    sha256: str
    content_id: str
    inline: bool


class Whole(Short):
    """Everything an agent may know about one intent."""

    why_not_yet: WhyNotYet | None
    in_doubt: bool
    workflow: str
    template: str
    context_hash: str
    reason: str
    sender: str
    message_id: str
    triggered_by: str
    purpose: str
    not_before: datetime | None
    deadline: datetime | None
    decide_by: datetime | None
    accepted_at: datetime | None
    end_reason: str
    provider_message_id: str
    provider_thread_id: str
    decision: Decision | None
    attempts: list[AttemptAnswer]
    deliveries: list[DeliveryAnswer]
    evidence: list[EvidenceAnswer]
    attachments: list[AttachmentAnswer]
    metadata: dict[str, Any]
    purged_at: datetime | None


class Item(Schema):
    """What became of one member of a batch: what `/intents` would have answered to it."""

    index: int
    status: int
    action_key: str | None
    intent: Answer | None
    problem: ProblemAnswer | None


class Batch(Schema):
    """What became of a batch, member by member, in its order."""

    created: int
    replayed: int
    refused: int
    items: list[Item]


class Approvals(Schema):
    needed: int
    rule: str


class Recipient(Schema):
    """One recipient, and why it must not be sent to, if it must not."""

    pointer: str
    address: str
    suppressed: str | None


class RunSeen(Schema):
    """The run that is named: whether it is there already, may send, and has retries left."""

    name: str
    exists: bool
    halted: bool
    ended: bool
    retries_left: int | None


class Simulation(Schema):
    """What `/intents` would answer now. `intent` is the one that a replay would find."""

    would: Literal["create", "replay", "refuse"]
    status: int
    problem: ProblemAnswer | None
    action_key: str | None
    key_derived: bool
    becomes: Status | None
    approvals: Approvals | None
    recipients: list[Recipient]
    run: RunSeen | None
    why_not_yet: WhyNotYet | None
    stops: list[WhyNotYet]
    intent: Answer | None


class RunLinks(Schema):
    self: str
    dashboard: str


class RunShort(Schema):
    """One run in a list: whether it may send, and what is left of its budget."""

    id: uuid.UUID
    name: str
    started_at: datetime
    ended_at: datetime | None
    end_reason: str
    halted: bool
    halt_reason: str
    retry_limit: int
    retries_used: int
    links: RunLinks


class RunAnswer(RunShort):
    """One run, and how many of its intents stand in each status that there is."""

    intents: dict[str, int]


class RunPage(Schema):
    items: list[RunShort]
    next_cursor: str | None


def seen(intent: SendIntent, now: datetime) -> SendIntent:
    """The intent as its agent sees it, which is not to be saved.

    Until a decision against it cannot be undone any more it is as if nobody had decided: an
    agent that acts on a decision makes it final.
    """
    if (status := intent.seen_status(now)) != intent.status:
        intent.status, intent.status_at, intent.end_reason = status, intent.created_at, ""
    return intent


def answer(taken: Taken, now: datetime) -> dict[str, Any]:
    """The answer to a proposal."""
    intent = seen(taken.intent, now)
    said = short(intent, current=current_of([intent]), replayed=taken.replayed)
    return said | {"replayed": taken.replayed, "key_derived": taken.key_derived}


def simulation(
    proposal: Proposal,
    found: Simulated,
    now: datetime,
    *,
    problem: Said | None,
    run: dict[str, Any] | None,
    waiting: Waiting | None,
    stops: Sequence[Waiting],
) -> dict[str, Any]:
    """The answer to what was not proposed."""
    taken = found.taken
    intent = taken.intent if taken is not None else None
    suppressed = {wrong.pointer: wrong.detail for wrong in found.suppressed}
    key, derived = proposal.key()
    return {
        "would": "refuse" if taken is None else "replay" if taken.replayed else "create",
        "status": problem.status if problem else 200 if taken and taken.replayed else 201,
        "problem": problem.document() if problem else None,
        "action_key": key if intent is None else intent.action.action_key,
        "key_derived": derived if taken is None else taken.key_derived,
        "becomes": intent and intent.seen_status(now),
        "approvals": intent and {"needed": intent.approvals_needed, "rule": intent.approval_rule},
        "recipients": [
            {"pointer": pointer, "address": box.address, "suppressed": suppressed.get(pointer)}
            for field in ("to", "cc", "bcc")
            for index, box in enumerate(getattr(proposal, field))
            for pointer in [f"/{field}/{index}"]
        ],
        "run": run,
        "why_not_yet": waiting,
        "stops": list(stops),
        "intent": answer(taken, now) if taken is not None and taken.replayed else None,
    }


def current_of(intents: Sequence[SendIntent]) -> dict[uuid.UUID, uuid.UUID]:
    """The current version by action, for those of these intents that were replaced."""
    replaced = {i.action_id for i in intents if i.version != i.action.latest_version}
    if not replaced:
        return {}
    current = SendIntent.objects.current().filter(action__in=replaced)
    return dict(current.values_list("action_id", "pk"))


def short(
    intent: SendIntent, *, current: dict[uuid.UUID, uuid.UUID], replayed: bool = False
) -> dict[str, Any]:
    """Needs an intent that was `seen`, with action and run loaded; `current` is `current_of`."""
    action = intent.action
    newer = current.get(action.pk)
    step = next_step(Status(intent.status), replayed=replayed)
    return {
        "id": intent.pk,
        "number": action.number,
        "status": intent.status,
        "action_key": action.action_key,
        "key_derived": action.key_derived,
        "version": intent.version,
        "idempotency_key": intent.idempotency_key,
        "digest": intent.digest,
        "next_step": step.step,
        "sentence": step.sentence,
        "run": intent.run,
        "subject": intent.subject,
        "created_at": intent.created_at,
        "status_at": intent.status_at,
        "links": {
            "self": f"{API}/intents/{intent.pk}",
            "dashboard": f"{conf.url}/messages/{action.number}/",
            "current": f"{API}/intents/{newer}" if newer not in (None, intent.pk) else None,
        },
    }


def whole(intent: SendIntent, *, waiting: Waiting | None) -> dict[str, Any]:
    """Needs an intent that was `seen`, with everything that `Whole` names: `intents.WHOLE`."""
    payload = getattr(intent, "payload", None)
    return short(intent, current=current_of([intent])) | {
        "why_not_yet": waiting,
        "in_doubt": intent.in_doubt,
        "workflow": intent.workflow,
        "template": intent.template,
        "context_hash": intent.context_hash,
        "reason": intent.note,
        "sender": intent.sender.address,
        "message_id": intent.message_id,
        "triggered_by": intent.action.triggered_by,
        "purpose": intent.action.purpose,
        "not_before": intent.not_before,
        "deadline": intent.deadline,
        "decide_by": intent.decide_by,
        "accepted_at": intent.accepted_at,
        "end_reason": intent.end_reason,
        "provider_message_id": intent.provider_message_id,
        "provider_thread_id": intent.provider_thread_id,
        "decision": _decision(intent),
        "attempts": [_attempt(one) for one in intent.attempts.all()],
        "deliveries": [_delivery(one) for one in intent.deliveries.all()],
        "evidence": [_evidence(one) for one in intent.evidence.all()],
        "attachments": thaw(bytes(payload.body)).message.attachments if payload is not None else (),
        "metadata": json.loads(bytes(payload.metadata)) if payload is not None else {},
        "purged_at": intent.purged_at,
    }


def _decision(intent: SendIntent) -> dict[str, Any] | None:
    standing = [approval for approval in intent.approvals.all() if approval.undone_at is None]
    if intent.status == Status.AWAITING_APPROVAL:
        standing = [approval for approval in standing if approval.verdict == Verdict.APPROVE]
    if not standing:
        return None
    approval = max(standing, key=lambda approval: approval.pk)
    # Who it was is the people's own business; that it was a person is the agent's.
    return {
        "verdict": approval.verdict,
        "by": "policy" if approval.person_id is None else "person",
        "reason_code": approval.reason_code,
        "note": approval.note,
        "at": approval.made_at,
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "outcome": attempt.outcome or None,
        "idempotency_key": attempt.idempotency_key,
        "opened_at": attempt.opened_at,
        "dispatched_at": attempt.dispatched_at,
        "closed_at": attempt.closed_at,
        "next_attempt_at": attempt.next_attempt_at,
        "reason": attempt.reason,
        "http_status": attempt.http_status,
        "provider_message_id": attempt.provider_message_id,
    }


def _delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "kind": delivery.kind,
        "address": delivery.address,
        "name": delivery.name,
        "state": delivery.state,
        "reason": delivery.reason,
        "changed_at": delivery.changed_at,
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "kind": evidence.kind,
        "direction": evidence.direction,
        "proves": evidence.proves,
        "summary": evidence.summary,
        "found_at": evidence.found_at,
    }


def run_short(run: Run, *, switch: Switch, halted: bool) -> dict[str, Any]:
    return {
        "id": run.pk,
        "name": run.name,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "end_reason": run.end_reason,
        "halted": halted,
        "halt_reason": switch.pause_reason or switch.block_reason,
        "retry_limit": run.retry_limit,
        "retries_used": run.retries_used,
        "links": {"self": f"{API}/runs/{run.pk}", "dashboard": f"{conf.url}/runs/{run.pk}/"},
    }
