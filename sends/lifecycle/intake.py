"""A proposal is taken in exactly once: as an action, as its next version, or as a replay."""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from sends.lifecycle.anomalies import has_open_anomaly
from sends.lifecycle.approval import approve_by_policy
from sends.lifecycle.refusals import (
    AlreadyAccepted,
    InDoubt,
    InFlight,
    NotPossible,
    Refused,
    RunEnded,
    Suppressed,
    VersionChanged,
)
from sends.lifecycle.transitions import lock_action, move
from sends.models import (
    Action,
    Agent,
    Attempt,
    Delivery,
    Payload,
    Person,
    Policy,
    RecipientKind,
    Run,
    Sender,
    SendIntent,
    Suppression,
    Switch,
    SwitchKind,
    Tenant,
    database_now,
    new_id,
)
from sends.rules.addresses import domain_of, normal
from sends.rules.keys import canonical, idempotency_key
from sends.rules.payloads import Frozen, Mailbox, Message, content_digest, freeze, seal
from sends.rules.policy import Need, approvals_needed
from sends.rules.proposals import Proposal, Wrong, WrongProposal
from sends.rules.statuses import HOLD_BITS, LEGAL, Hold, Status

# How often a proposal that lost a race is looked at anew. The second look finds what won; a third
# is for a run and an action that two other requests made.
LOOKS = 4


class ActionKeyReuse(Refused):
    """This action key stands for another message."""

    code = "action_key_reuse"


class TriggerReuse(Refused):
    """The event that triggered this was answered with another message already."""

    code = "trigger_reuse"


class RejectedBefore(Refused):
    """A person said no to this message."""

    code = "rejected"


class SuppressedRecipient(Suppressed):
    """Nothing was created; `errors` name each recipient that must not be sent to."""

    code = "suppressed_recipient"

    def __init__(self, *errors: Wrong) -> None:
        super().__init__(
            "A recipient must not be sent to, so nothing was taken in. "
            "Do not send this message another way."
        )
        self.errors = errors


@dataclass(frozen=True)
class Taken:
    """The intent that a request stands for: made now, or, `replayed`, by an earlier request."""

    intent: SendIntent
    replayed: bool
    key_derived: bool


@dataclass(frozen=True)
class Terms:
    """What an intent carries beside its message."""

    workflow: str = ""
    template: str = ""
    context_hash: str = ""
    note: str = ""
    not_before: datetime | None = None
    deadline: datetime | None = None
    metadata: bytes = b"{}"


# The agents' two ways in


def propose(proposal: Proposal, *, agent: Agent, now: datetime | None = None) -> Taken:
    """Take a proposal in, or find what an earlier one with its key or trigger made.

    Safe to repeat, also at the same instant: one creates, the others replay. Raises
    ActionKeyReuse, TriggerReuse, RunEnded, SuppressedRecipient or WrongProposal; then nothing was
    created.
    """
    for _ in range(LOOKS):
        try:
            with transaction.atomic():
                return _replayed(proposal, agent) or _taken(proposal, agent, now)
        except IntegrityError as error:
            lost = error  # somebody else was first: what they made is there to be found now
    raise lost


def propose_version(
    intent_id: uuid.UUID, proposal: Proposal, *, agent: Agent, now: datetime | None = None
) -> Taken:
    """The agent's next version of its own message; `intent_id` must be the current one.

    Safe to repeat: the version that an earlier request made is answered. What the proposal
    leaves out of sender, workflow, template, context, times and metadata stays as it was.
    Raises SendIntent.DoesNotExist where this agent has no such intent.
    """
    with transaction.atomic():
        mine = SendIntent.objects.filter(tenant=agent.tenant_id, agent=agent)
        action = lock_action(mine.values_list("action_id", flat=True).get(pk=intent_id))
        now = now or database_now()
        intent = mine.select_related("sender", "run").get(pk=intent_id)
        _refuse_other_action(proposal, action)
        if known := _repeated_version(intent, proposal):
            return Taken(known, replayed=True, key_derived=action.key_derived)
        if intent.version != action.latest_version:
            raise _not_current(action)
        terms = _terms_after(intent, proposal)
        _refuse_too_late(terms, now)
        sender = _sender(proposal, agent.tenant_id, intent.sender)
        message = proposal.message(Mailbox(sender.address, sender.name))
        created = create_version(action, message, agent=agent, terms=terms, now=now)
        return Taken(created, replayed=False, key_derived=action.key_derived)


# Creating, for every step that does


def create_action(
    message: Message,
    *,
    tenant: Tenant,
    action_key: str,
    terms: Terms,
    now: datetime,
    key_derived: bool = False,
    agent: Agent | None = None,
    author: Person | None = None,
    run: Run | None = None,
    triggered_by: str = "",
    purpose: str = "",
    follows: Action | None = None,
) -> SendIntent:
    """A new action and its first version, in the caller's transaction.

    Raises IntegrityError where the key or the trigger is taken, and SuppressedRecipient.
    """
    refuse_suppressed(tenant, message)
    action = Action.objects.create(
        tenant=tenant,
        number=tenant.take_number(),
        action_key=action_key,
        key_derived=key_derived,
        agent=agent,
        run=run,
        triggered_by=triggered_by,
        purpose=purpose,
        follows=follows,
        created_at=now,
    )
    return _freeze(action, message, terms=terms, agent=agent, author=author, now=now)


def create_version(
    action: Action,
    message: Message,
    *,
    author: Person | None = None,
    agent: Agent | None = None,
    resend_of: SendIntent | None = None,
    reason: str = "",
    needs_person: bool = False,
    terms: Terms | None = None,
    now: datetime,
) -> SendIntent:
    """The next version of an action that the caller has locked; the current one is superseded.

    Refused with InFlight, InDoubt, AlreadyAccepted, RejectedBefore, RunEnded, NotPossible or
    SuppressedRecipient. Without `terms` it keeps those of the current version, with `reason` as
    its note.
    """
    current = SendIntent.objects.select_for_update(no_key=True).get(
        action=action, version=action.latest_version
    )
    refuse_superseding(current)
    refuse_suppressed(action.tenant, message)
    terms = terms or replace(terms_of(current), note=reason)
    move(
        current,
        Status.SUPERSEDED,
        now=now,
        next_attempt_at=None,
        end_reason=f"Version {current.version + 1} replaced it.",
    )
    action.latest_version += 1
    action.save(update_fields=["latest_version"])
    return _freeze(
        action,
        message,
        terms=terms,
        agent=agent or action.agent,
        author=author,
        resend_of=resend_of,
        needs_person=needs_person or _may_be_out(action),
        now=now,
    )


def terms_of(intent: SendIntent) -> Terms:
    """What the next version keeps of this one."""
    payload = Payload.objects.filter(intent=intent).first()
    return Terms(
        workflow=intent.workflow,
        template=intent.template,
        context_hash=intent.context_hash,
        note=intent.note,
        not_before=intent.not_before,
        deadline=intent.deadline,
        metadata=bytes(payload.metadata) if payload is not None else b"{}",
    )


def refuse_superseding(current: SendIntent) -> None:
    """Refuse where no next version may follow the current one. Ask with the action locked."""
    if current.status == Status.IN_FLIGHT:
        raise InFlight("A worker is talking to the provider about this message right now.")
    if current.in_doubt:
        raise InDoubt(
            "The provider may have taken this message, and nothing has settled that yet.",
            offer="settle",
        )
    if current.accepted_at is not None:
        raise AlreadyAccepted(
            "The provider took this message. What follows is a new message of its own.",
            at=current.accepted_at,
            offer="follow_up",
        )
    if current.status == Status.REJECTED:
        raise RejectedBefore(
            "A person rejected this message; read why, and do not send it again.",
            at=current.status_at,
        )
    if current.run is not None:
        _refuse_ended(current.run)
    if current.holds & HOLD_BITS[Hold.CANCEL_ASKED]:
        raise NotPossible("This message is to be cancelled, so no version follows it.")
    if Status.SUPERSEDED not in LEGAL[Status(current.status)]:
        label = Status(current.status).label.lower()
        raise NotPossible(f"This message is {label}; no version follows it.")


def refuse_suppressed(tenant: Tenant, message: Message) -> None:
    """Raise SuppressedRecipient if any of To, Cc or Bcc must not be sent to."""
    places = {normal(box.address): place for place, box in _places(message)}
    found = Suppression.objects.filter(tenant=tenant, normal__in=places, released_at=None)
    errors = [
        Wrong(
            places[suppression.normal],
            SuppressedRecipient.code,
            f"{suppression.normal} is suppressed since {suppression.since:%Y-%m-%d}: "
            f"{suppression.get_cause_display()}",
        )
        for suppression in found
    ]
    if errors:
        raise SuppressedRecipient(*sorted(errors, key=lambda wrong: wrong.pointer))


def _places(message: Message) -> list[tuple[str, Mailbox]]:
    fields = (("to", message.to), ("cc", message.cc), ("bcc", message.bcc))
    return [(f"/{name}/{index}", box) for name, boxes in fields for index, box in enumerate(boxes)]


# Replays


def _replayed(proposal: Proposal, agent: Agent) -> Taken | None:
    """What an earlier proposal with the same key, or else the same trigger, made of it."""
    key, derived = proposal.key()
    action = Action.objects.filter(tenant=agent.tenant_id, action_key=key).first()
    if action is not None:
        intent = _version_saying(action, proposal)
        if intent is None:
            raise _key_reuse(action)
        return Taken(intent, replayed=True, key_derived=derived)

    if proposal.triggered_by is None:
        return None
    action = Action.objects.filter(
        tenant=agent.tenant_id,
        triggered_by=proposal.triggered_by,
        purpose=proposal.purpose or "",
    ).first()
    if action is None:
        return None
    intent = _version_saying(action, proposal)
    if intent is None:
        raise TriggerReuse(
            f"{proposal.triggered_by} was answered for this purpose with message "
            f"#{action.number}, which says something else. Name another purpose if this message "
            "is needed besides it.",
        )
    return Taken(intent, replayed=True, key_derived=action.key_derived)


def _key_reuse(action: Action) -> ActionKeyReuse:
    current = SendIntent.objects.get(action=action, version=action.latest_version)
    said = f"The action key {action.action_key} stands for message #{action.number}"
    if current.status == Status.REJECTED:
        return ActionKeyReuse(f"{said}, which a person rejected; do not send it in other words.")
    return ActionKeyReuse(
        f"{said}, which says something else. To change that one on purpose, POST the new content "
        f"to /intents/{current.pk}/versions while it is current; for another message, use a new "
        "action_key.",
        offer="edit",
    )


def _version_saying(action: Action, proposal: Proposal) -> SendIntent | None:
    """The first version with exactly this content."""
    versions = SendIntent.objects.filter(action=action).select_related("sender")
    return next((v for v in versions.order_by("version") if _says(v, proposal)), None)


def _says(intent: SendIntent, proposal: Proposal) -> bool:
    """Whether the intent's content is the proposal's; a sender left out is the intent's own."""
    address = intent.sender.address
    if proposal.sender is not None and normal(proposal.sender.address) != normal(address):
        return False
    return content_digest(proposal.message(Mailbox(address))) == intent.content_digest


def _repeated_version(intent: SendIntent, proposal: Proposal) -> SendIntent | None:
    """What this agent's earlier request made: the intent itself or the version after it."""
    versions = SendIntent.objects.filter(
        action=intent.action_id, author=None, version__in=(intent.version, intent.version + 1)
    )
    versions = versions.select_related("sender").order_by("-version")
    return next((version for version in versions if _says(version, proposal)), None)


def _refuse_other_action(proposal: Proposal, action: Action) -> None:
    """A version stays in its action: what belongs to the action may be repeated, not changed."""
    kept = {
        "action_key": action.action_key,
        "run": action.run.name if action.run else "",
        "triggered_by": action.triggered_by,
        "purpose": action.purpose,
    }
    wrong = [
        Wrong(f"/{name}", "fixed", f"stays as it is in all versions of a message: {value!r}")
        for name, value in kept.items()
        if getattr(proposal, name) not in (None, value)
    ]
    if wrong:
        raise WrongProposal(*wrong)


def _not_current(action: Action) -> VersionChanged:
    current = SendIntent.objects.select_related("author").get(
        action=action, version=action.latest_version
    )
    who = current.author.email if current.author else "the agent"
    return VersionChanged(
        f"Version {current.version} ({current.pk}), by {who}, replaced this one.",
        who=who,
        at=current.created_at,
        # What a person wrote instead is handled; its own newer version the agent may change.
        offer="" if current.author else "edit",
    )


# A new action


def _taken(proposal: Proposal, agent: Agent, now: datetime | None) -> Taken:
    now = now or database_now()
    terms = _terms(proposal)
    _refuse_too_late(terms, now)
    sender = _sender(proposal, agent.tenant_id, agent.sender)
    run = _open_run(proposal.run, agent, now) if proposal.run is not None else None
    key, derived = proposal.key()
    intent = create_action(
        proposal.message(Mailbox(sender.address, sender.name)),
        tenant=agent.tenant,
        action_key=key,
        key_derived=derived,
        agent=agent,
        run=run,
        triggered_by=proposal.triggered_by or "",
        purpose=proposal.purpose or "",
        terms=terms,
        now=now,
    )
    return Taken(intent, replayed=False, key_derived=derived)


def _terms(proposal: Proposal) -> Terms:
    return Terms(
        workflow=proposal.workflow or "",
        template=proposal.template or "",
        context_hash=proposal.context_digest,
        note=proposal.reason,
        not_before=proposal.not_before,
        deadline=proposal.deadline,
        metadata=canonical(proposal.metadata),
    )


def _terms_after(intent: SendIntent, proposal: Proposal) -> Terms:
    said = _terms(proposal)
    before = terms_of(intent)
    return Terms(
        workflow=said.workflow or before.workflow,
        template=said.template or before.template,
        context_hash=said.context_hash or before.context_hash,
        note=said.note,
        not_before=said.not_before or before.not_before,
        deadline=said.deadline or before.deadline,
        metadata=said.metadata if proposal.metadata else before.metadata,
    )


def _refuse_too_late(terms: Terms, now: datetime) -> None:
    if terms.deadline is not None and terms.deadline <= max(now, terms.not_before or now):
        raise WrongProposal(Wrong("/deadline", "deadline", "must be later than now and not_before"))


def _sender(proposal: Proposal, tenant_id: uuid.UUID, otherwise: Sender | None) -> Sender:
    """The tenant's sender that the proposal names, or the one it may leave out."""
    named = proposal.sender
    if named is None:
        if otherwise is None:
            raise WrongProposal(
                Wrong("/sender", "required", "name a sender; this agent has none of its own")
            )
        return otherwise
    senders = Sender.objects.filter(tenant=tenant_id)
    sender = senders.filter(address__iexact=named.address).order_by("pk").first()
    if sender is None:
        known = ", ".join(senders.order_by("address").values_list("address", flat=True)[:20])
        raise WrongProposal(
            Wrong("/sender", "unknown_sender", f"is no sender here; there are: {known or 'none'}")
        )
    if named.name not in ("", sender.name):
        raise WrongProposal(
            Wrong("/sender", "sender_name", "give the address alone; an admin sets the name")
        )
    return sender


def _open_run(name: str, agent: Agent, now: datetime) -> Run:
    """The agent's run of this name, opened where it is first mentioned; RunEnded if it is over."""
    run = Run.objects.filter(tenant=agent.tenant_id, agent=agent, name=name).first()
    if run is None:
        policy = Policy.objects.get(tenant=agent.tenant_id)
        run = Run.objects.create(
            tenant=agent.tenant,
            agent=agent,
            name=name,
            retry_limit=policy.retry_limit,
            started_at=now,
        )
        Switch.objects.create(pk=run.pk, tenant=agent.tenant, kind=SwitchKind.RUN)
    # Whoever ends the run locks its switch: they find the intent that comes now, or we their end.
    Switch.objects.closed_among([run.pk], now)
    run.refresh_from_db(fields=["ended_at", "end_reason"])
    _refuse_ended(run)
    return run


def _refuse_ended(run: Run) -> None:
    if run.ended_at is not None:
        raise RunEnded(
            f"The run {run.name} was ended, so nothing more is taken in for it. "
            "Do not send this message under another run unless a person asks you to.",
            at=run.ended_at,
        )


# A frozen version


def _freeze(
    action: Action,
    message: Message,
    *,
    terms: Terms,
    agent: Agent | None,
    author: Person | None,
    resend_of: SendIntent | None = None,
    needs_person: bool = False,
    now: datetime,
) -> SendIntent:
    """Write one version down with the identity it keeps for ever, approved where policy says."""
    sender = Sender.objects.get(tenant=action.tenant_id, address=message.sender.address)
    intent_id = new_id()
    key = idempotency_key(
        tenant=str(action.tenant_id),
        action_key=action.action_key,
        version=action.latest_version,
        run=action.run.name if action.run else "",
        recipients=[box.address for box in message.recipients],
        template=terms.template,
        context_hash=terms.context_hash,
    )
    message_id = f"<{intent_id.hex}@{domain_of(sender.address)}>"
    body = freeze(Frozen(message, message_id, key))
    policy = Policy.objects.get(tenant=action.tenant_id)
    need = _need(policy, message, terms, agent, author, needs_person)
    intent = SendIntent.objects.create(
        id=intent_id,
        tenant_id=action.tenant_id,
        action=action,
        version=action.latest_version,
        agent=agent,
        run=action.run,
        account_id=sender.account_id,
        sender=sender,
        author=author,
        resend_of=resend_of,
        workflow=terms.workflow,
        template=terms.template,
        context_hash=terms.context_hash,
        note=terms.note,
        content_digest=content_digest(message),
        digest=seal(body),
        idempotency_key=key,
        message_id=message_id,
        subject=message.subject,
        first_recipient=message.recipients[0].address,
        recipient_count=len(message.recipients),
        approvals_needed=need.approvals,
        approval_rule=need.rule,
        not_before=terms.not_before,
        deadline=terms.deadline,
        decide_by=now + policy.decide_by,
        holds=HOLD_BITS[Hold.ANOMALY] if has_open_anomaly(action) else 0,
        created_at=now,
        status_at=now,
    )
    Payload.objects.create(intent=intent, body=body, metadata=terms.metadata)
    Delivery.objects.bulk_create(_deliveries(intent, message))
    if not need.approvals:
        approve_by_policy(intent, rule=need.rule, now=now)
    return intent


def _need(
    policy: Policy,
    message: Message,
    terms: Terms,
    agent: Agent | None,
    author: Person | None,
    needs_person: bool,
) -> Need:
    need = approvals_needed(
        [line.rule for line in policy.rules.all()],
        default=policy.approvals,
        agent=agent.slug if agent is not None else "",
        template=terms.template,
        domains={domain_of(box.address) for box in message.recipients},
        predecessor_may_be_out=needs_person,
    )
    if author is not None and need.approvals == 0:
        return Need(1, "a person wrote this version")
    return need


def _deliveries(intent: SendIntent, message: Message) -> list[Delivery]:
    kinds: dict[RecipientKind, tuple[Mailbox, ...]] = {
        RecipientKind.TO: message.to,
        RecipientKind.CC: message.cc,
        RecipientKind.BCC: message.bcc,
    }
    recipients = [(kind, box) for kind, boxes in kinds.items() for box in boxes]
    return [
        Delivery(
            tenant_id=intent.tenant_id,
            intent=intent,
            position=position,
            kind=kind,
            address=box.address,
            name=box.name,
            normal=normal(box.address),
            domain=domain_of(box.address),
        )
        for position, (kind, box) in enumerate(recipients)
    ]


def _may_be_out(action: Action) -> bool:
    """Whether any version of the action may have reached a provider."""
    attempts: Any = Attempt.objects.filter(intent__action=action)
    return bool(
        attempts.filter(may_have_arrived=True).exists()
        or attempts.filter(dispatched_at__isnull=False).exists()
    )
