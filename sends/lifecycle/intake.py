"""A proposal is taken in exactly once: as an action, as its next version, or as a replay."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction

from sends.lifecycle.refusals import (
    Refused,
    VersionChanged,
)
from sends.lifecycle.runs import open_run
from sends.lifecycle.transitions import lock_action
from sends.lifecycle.versions import (
    Terms,
    create_action,
    create_version,
    terms_of,
)
from sends.models import (
    Action,
    Agent,
    Payload,
    Sender,
    SendIntent,
    database_now,
)
from sends.rules.addresses import normal
from sends.rules.keys import canonical
from sends.rules.payloads import Attachment, Mailbox, content_digest, thaw
from sends.rules.proposals import Proposal, Wrong, WrongProposal
from sends.rules.statuses import Status

# How often a proposal that lost a race is looked at anew. The second look finds what won; a third
# is for a run and an action that two other requests made.
LOOKS = 4


class ActionKeyReuse(Refused):
    """This action key stands for another message."""

    code = "action_key_reuse"


class TriggerReuse(Refused):
    """The event that triggered this was answered with another message already."""

    code = "trigger_reuse"


@dataclass(frozen=True)
class Taken:
    """The intent that a request stands for: made now, or, `replayed`, by an earlier request."""

    intent: SendIntent
    replayed: bool
    key_derived: bool


# The agents' two ways in


def propose(proposal: Proposal, *, agent: Agent, now: datetime | None = None) -> Taken:
    """Take a proposal in, or find what an earlier one with its key or trigger made.

    Safe to repeat, also at the same instant: one creates, the others replay. Raises
    ActionKeyReuse, TriggerReuse, RunEnded, SuppressedRecipient or WrongProposal; then nothing was
    created.
    """

    def look() -> Taken:
        at = now or database_now()
        return _replayed(proposal, agent, at) or _taken(proposal, agent, at)

    return _after_races(look)


def propose_version(
    intent_id: uuid.UUID, proposal: Proposal, *, agent: Agent, now: datetime | None = None
) -> Taken:
    """The agent's next version of its own message; `intent_id` must be the current one.

    Safe to repeat: the version that an earlier request made is answered. What the proposal
    leaves out of sender, workflow, template, context, attachments, times and metadata stays as it
    was.
    Raises SendIntent.DoesNotExist where this agent has no such intent.
    """
    return _after_races(lambda: _next_version(intent_id, proposal, agent, now))


def _after_races(look: Callable[[], Taken]) -> Taken:
    for _ in range(LOOKS):
        try:
            with transaction.atomic():
                return look()
        except IntegrityError as error:
            lost = error  # somebody else was first: what they made is there to be found now
    raise lost


# Replays


def _replayed(proposal: Proposal, agent: Agent, now: datetime) -> Taken | None:
    """What an earlier proposal with the same key, or else the same trigger, made of it."""
    key, derived = proposal.key()
    action = Action.objects.filter(tenant=agent.tenant_id, action_key=key).first()
    if action is not None:
        intent = _version_saying(action, proposal)
        if intent is None:
            raise _key_reuse(action, agent, now)
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


def _key_reuse(action: Action, agent: Agent, now: datetime) -> ActionKeyReuse:
    current = SendIntent.objects.get(action=action, version=action.latest_version)
    said = f"The action key {action.action_key} stands for message #{action.number}"
    if current.seen_status(now) == Status.REJECTED:
        return ActionKeyReuse(f"{said}, which a person rejected; do not send it in other words.")
    if action.agent_id != agent.pk:
        return ActionKeyReuse(
            f"{said}, which says something else and is not this agent's. For another message, use "
            "a new action_key.",
            offer="edit",
        )
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


def _says(intent: SendIntent, proposal: Proposal, kept: tuple[Attachment, ...] = ()) -> bool:
    """Whether the intent's content is the proposal's; a sender left out is the intent's own."""
    address = intent.sender.address
    if proposal.sender is not None and normal(proposal.sender.address) != normal(address):
        return False
    return content_digest(proposal.message(Mailbox(address), kept=kept)) == intent.content_digest


def _kept(intent: SendIntent, proposal: Proposal) -> tuple[Attachment, ...]:
    """The attachments that a new version keeps of this one, since it says nothing of them."""
    payload = (
        Payload.objects.filter(intent=intent).first() if proposal.attachments is None else None
    )
    kept = thaw(bytes(payload.body)).message.attachments if payload is not None else ()
    if not proposal.html and any(one.inline for one in kept):
        raise WrongProposal(
            Wrong("/attachments", "without_html", "some are shown by html; give html, or a list")
        )
    return kept


def _repeated_version(
    intent: SendIntent, proposal: Proposal, kept: tuple[Attachment, ...]
) -> SendIntent | None:
    """What this agent's earlier request made: the intent itself or the version after it."""
    versions = SendIntent.objects.filter(
        action=intent.action_id, author=None, version__in=(intent.version, intent.version + 1)
    )
    versions = versions.select_related("sender").order_by("-version")
    return next((version for version in versions if _says(version, proposal, kept)), None)


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


# A new version, a new action


def _next_version(
    intent_id: uuid.UUID, proposal: Proposal, agent: Agent, now: datetime | None
) -> Taken:
    mine = SendIntent.objects.filter(tenant=agent.tenant_id, agent=agent)
    action = lock_action(mine.values_list("action_id", flat=True).get(pk=intent_id))
    now = now or database_now()
    intent = mine.select_related("sender", "run").get(pk=intent_id)
    _refuse_other_action(proposal, action)
    kept = _kept(intent, proposal)
    if known := _repeated_version(intent, proposal, kept):
        return Taken(known, replayed=True, key_derived=action.key_derived)
    if intent.version != action.latest_version:
        raise _not_current(action)
    terms = _terms_after(intent, proposal)
    _refuse_too_late(terms, now)
    sender = _sender(proposal, agent.tenant_id, intent.sender)
    message = proposal.message(Mailbox(sender.address, sender.name), kept=kept)
    created = create_version(
        action, message, files=proposal.files, agent=agent, terms=terms, now=now
    )
    return Taken(created, replayed=False, key_derived=action.key_derived)


def _taken(proposal: Proposal, agent: Agent, now: datetime) -> Taken:
    terms = _terms(proposal)
    _refuse_too_late(terms, now)
    sender = _sender(proposal, agent.tenant_id, agent.sender)
    run = open_run(proposal.run, agent=agent, now=now).run if proposal.run is not None else None
    key, derived = proposal.key()
    intent = create_action(
        proposal.message(Mailbox(sender.address, sender.name)),
        files=proposal.files,
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
