"""Versions of a message: each frozen under its own key and digest, the next replacing the last."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sends import logs
from sends.conf import conf
from sends.lifecycle import attachments
from sends.lifecycle.accounts import contract_of
from sends.lifecycle.anomalies import has_open_anomaly
from sends.lifecycle.approval import approve_by_policy
from sends.lifecycle.obstacles import refuse_purged
from sends.lifecycle.refusals import (
    AlreadyAccepted,
    InDoubt,
    InFlight,
    NotPossible,
    Refused,
    RunEnded,
    Suppressed,
)
from sends.lifecycle.transitions import move
from sends.models import (
    Account,
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
    Tenant,
    new_id,
)
from sends.rules.addresses import domain_of, normal
from sends.rules.keys import idempotency_key
from sends.rules.payloads import Frozen, Mailbox, Message, content_digest, freeze, seal
from sends.rules.policy import Need, approvals_needed
from sends.rules.proposals import Wrong
from sends.rules.sizes import encoded_bytes
from sends.rules.statuses import HOLD_BITS, LEGAL, Hold, Status

NO_FILES: Mapping[str, bytes] = {}


class RejectedBefore(Refused):
    """A person said no to this message."""

    code = "rejected"


class BeingDecided(Refused):
    """A person's rejection can still be undone; until then nobody acts on it."""

    code = "being_decided"


class SuppressedRecipient(Suppressed):
    """Nothing was created; `errors` name each recipient that must not be sent to."""

    code = "suppressed_recipient"

    def __init__(self, *errors: Wrong) -> None:
        super().__init__(
            "A recipient must not be sent to, so nothing was taken in. "
            "Do not send this message another way."
        )
        self.errors = errors


class BeyondAccount(Refused):
    """The account that would send it cannot carry it; nothing was created. `errors` say why."""

    code = "beyond_account"

    def __init__(self, account: Account, *errors: Wrong) -> None:
        said = "; ".join(wrong.detail for wrong in errors)
        super().__init__(f"The account {account.slug} cannot send this message: {said}.")
        self.errors = errors


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


def create_action(
    message: Message,
    *,
    files: Mapping[str, bytes] = NO_FILES,
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

    `files` are the bytes of attachments that the tenant may not have yet, by their SHA-256.
    Raises IntegrityError where the key or the trigger is taken, SuppressedRecipient and
    BeyondAccount.
    """
    sender = _sender(tenant, message)
    refuse_suppressed(tenant, message)
    refuse_beyond(sender.account, message)
    attachments.keep(tenant, message, files, now=now)
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
    return _freeze(action, message, sender, terms=terms, agent=agent, author=author, now=now)


def create_version(
    action: Action,
    message: Message,
    *,
    files: Mapping[str, bytes] = NO_FILES,
    author: Person | None = None,
    agent: Agent | None = None,
    resend_of: SendIntent | None = None,
    reason: str = "",
    needs_person: bool = False,
    terms: Terms | None = None,
    now: datetime,
) -> SendIntent:
    """The next version of an action that the caller has locked; the current one is superseded.

    Refused with InFlight, InDoubt, AlreadyAccepted, BeingDecided, RejectedBefore, RunEnded,
    NotPossible, SuppressedRecipient or BeyondAccount. Without `terms` it keeps those of the
    current version, with `reason` as its note.
    """
    current = SendIntent.objects.select_for_update(no_key=True).get(
        action=action, version=action.latest_version
    )
    refuse_superseding(current, now)
    refuse_suppressed(action.tenant, message)
    sender = _sender(action.tenant, message)
    refuse_beyond(sender.account, message)
    attachments.keep(action.tenant, message, files, now=now)
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
        sender,
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


def refuse_superseding(current: SendIntent, now: datetime) -> None:
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
        if current.seen_status(now) != current.status:
            raise BeingDecided(
                "A person is deciding about this message right now. Look again in a moment.",
                at=current.undo_until,
            )
        raise RejectedBefore(
            "A person rejected this message; read why, and do not send it again.",
            at=current.status_at,
        )
    refuse_purged(current)
    if current.run is not None:
        refuse_ended(current.run)
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


def refuse_beyond(account: Account, message: Message) -> None:
    """Raise BeyondAccount if the account's provider, or this installation, takes no such message.

    What is refused here would otherwise be approved first and then never go out.
    """
    contract = contract_of(account)
    most = min(contract.max_bytes or conf.limits.message, conf.limits.message)
    size = encoded_bytes(message)
    errors = []
    if contract.needs_to and not message.to:
        errors.append(Wrong("/to", "required", "its provider wants at least one recipient here"))
    if contract.max_recipients is not None and len(message.recipients) > contract.max_recipients:
        said = f"its provider takes at most {contract.max_recipients} recipients in all"
        errors.append(Wrong("/to", "too_many", said))
    if message.attachments and not contract.takes_attachments:
        errors.append(Wrong("/attachments", "not_supported", "its provider takes no attachments"))
    elif any(one.inline for one in message.attachments) and not contract.takes_inline:
        said = "its provider takes no attachments that the HTML shows"
        errors.append(Wrong("/attachments", "not_supported", said))
    if size > most:
        pointer = "/attachments" if message.attachments else ""
        said = f"it takes at most {most:,} bytes, and this has {size:,} when it is encoded"
        errors.append(Wrong(pointer, "too_large", said))
    if errors:
        raise BeyondAccount(account, *errors)


def refuse_ended(run: Run) -> None:
    if run.ended_at is not None:
        raise RunEnded(
            f"The run {run.name} was ended, so nothing more is taken in for it. "
            "Do not send this message under another run unless a person asks you to.",
            at=run.ended_at,
        )


def _places(message: Message) -> list[tuple[str, Mailbox]]:
    fields = (("to", message.to), ("cc", message.cc), ("bcc", message.bcc))
    return [(f"/{name}/{index}", box) for name, boxes in fields for index, box in enumerate(boxes)]


def _sender(tenant: Tenant, message: Message) -> Sender:
    senders = Sender.objects.select_related("account")
    return senders.get(tenant=tenant, address=message.sender.address)


# A frozen version


def _freeze(
    action: Action,
    message: Message,
    sender: Sender,
    *,
    terms: Terms,
    agent: Agent | None,
    author: Person | None,
    resend_of: SendIntent | None = None,
    needs_person: bool = False,
    now: datetime,
) -> SendIntent:
    """Write one version down with the identity it keeps for ever, approved where policy says."""
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
        encoded_bytes=encoded_bytes(message),
        approvals_needed=need.approvals,
        approval_rule=need.rule,
        not_before=terms.not_before,
        deadline=terms.deadline,
        request_id=logs.request_id(),
        decide_by=now + policy.decide_by,
        holds=_inherited_holds(action),
        created_at=now,
        status_at=now,
    )
    Payload.objects.create(intent=intent, body=body, metadata=terms.metadata)
    attachments.carry(intent, message)
    Delivery.objects.bulk_create(_deliveries(intent, message))
    if not need.approvals:
        approve_by_policy(intent, rule=need.rule, now=now)
    return intent


def _inherited_holds(action: Action) -> int:
    """What holds a message holds its next version too: an anomaly, or a restore."""
    if action.latest_version == 1:
        return 0
    is_restored = SendIntent.objects.filter(action=action).held(Hold.RESTORED).exists()
    return (HOLD_BITS[Hold.ANOMALY] if has_open_anomaly(action) else 0) | (
        HOLD_BITS[Hold.RESTORED] if is_restored else 0
    )


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
