"""Valid rows with what a test names; everything else is plausible and unique.

Intents are walked to their status along legal transitions, since the database takes no other way.
"""

import itertools
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from sends.lifecycle import attachments
from sends.lifecycle.transitions import move
from sends.models import (
    Account,
    Action,
    Agent,
    Attempt,
    Delivery,
    Membership,
    Payload,
    Person,
    Policy,
    RecipientKind,
    Role,
    Run,
    Sender,
    SendIntent,
    Switch,
    SwitchKind,
    Tenant,
    Token,
    database_now,
    new_id,
)
from sends.rules.addresses import domain_of, normal
from sends.rules.keys import idempotency_key, sha256
from sends.rules.outcomes import Outcome, Phase
from sends.rules.payloads import Attachment, Frozen, Mailbox, Message, content_digest, freeze, seal
from sends.rules.sizes import encoded_bytes
from sends.rules.statuses import APPROVED, Status

counter = itertools.count(1)

# How to get to a status, from AWAITING_APPROVAL.
ROUTES: dict[Status, tuple[Status, ...]] = {
    Status.AWAITING_APPROVAL: (),
    Status.CHANGES_REQUESTED: (Status.CHANGES_REQUESTED,),
    Status.REJECTED: (Status.REJECTED,),
    Status.QUEUED: (Status.QUEUED,),
    Status.IN_FLIGHT: (Status.QUEUED, Status.IN_FLIGHT),
    Status.RETRY_SCHEDULED: (Status.QUEUED, Status.IN_FLIGHT, Status.RETRY_SCHEDULED),
    Status.UNCERTAIN: (Status.QUEUED, Status.IN_FLIGHT, Status.UNCERTAIN),
    Status.SUBMITTED: (Status.QUEUED, Status.IN_FLIGHT, Status.SUBMITTED),
    Status.DONE: (Status.QUEUED, Status.IN_FLIGHT, Status.SUBMITTED, Status.DONE),
    Status.DEAD_LETTER: (Status.QUEUED, Status.IN_FLIGHT, Status.DEAD_LETTER),
    Status.SUPERSEDED: (Status.SUPERSEDED,),
    Status.CANCELLED: (Status.CANCELLED,),
}


def make_tenant(**policy: Any) -> Tenant:
    """A tenant with its policy; the arguments are the policy's."""
    number = next(counter)
    tenant = Tenant.objects.create(slug=f"tenant-{number}", name=f"Tenant {number}")
    Switch.objects.create(pk=tenant.pk, tenant=tenant, kind=SwitchKind.TENANT)
    Policy.objects.create(tenant=tenant, **{"undo_time": timedelta(0), **policy})
    return tenant


def make_person(tenant: Tenant, role: Role = Role.APPROVER, **fields: Any) -> Person:
    """A person with a role in the tenant, and the password "let me in please"."""
    fields.setdefault("email", f"{role.name.lower()}-{next(counter)}@example.com")
    person = Person.objects.create_user(password="let me in please", **fields)
    Membership.objects.create(tenant=tenant, person=person, role=role)
    return person


def make_account(tenant: Tenant, **fields: Any) -> Account:
    fields.setdefault("slug", f"account-{next(counter)}")
    fields.setdefault("provider", "sandbox")
    fields.setdefault("base_url", "http://127.0.0.1:9")
    fields.setdefault("credential", "env:SANDBOX_KEY")
    account = Account.objects.create(tenant=tenant, **fields)
    Switch.objects.create(pk=account.pk, tenant=tenant, kind=SwitchKind.ACCOUNT)
    return account


def make_sender(account: Account, **fields: Any) -> Sender:
    fields.setdefault("address", f"support-{next(counter)}@mail.example.com")
    sender = Sender.objects.create(tenant=account.tenant, account=account, **fields)
    Switch.objects.create(pk=sender.pk, tenant=account.tenant, kind=SwitchKind.SENDER)
    return sender


def make_agent(sender: Sender, **fields: Any) -> Agent:
    fields.setdefault("slug", f"agent-{next(counter)}")
    return Agent.objects.create(tenant=sender.tenant, sender=sender, **fields)


def make_token(agent: Agent, *scopes: str) -> str:
    """A bearer token of this agent, in clear; all scopes unless some are named."""
    token = f"obx_{uuid.uuid4().hex}{uuid.uuid4().hex}"
    Token.objects.create(
        tenant=agent.tenant,
        agent=agent,
        name=f"token-{next(counter)}",
        digest=sha256(token.encode()),
        hint=token[-4:],
        scopes=list(scopes or Token.SCOPES),
    )
    return token


def make_run(agent: Agent, **fields: Any) -> Run:
    fields.setdefault("name", f"run-{next(counter)}")
    fields.setdefault("retry_limit", 40)
    fields.setdefault("started_at", database_now())
    run = Run.objects.create(tenant=agent.tenant, agent=agent, **fields)
    Switch.objects.create(pk=run.pk, tenant=agent.tenant, kind=SwitchKind.RUN)
    return run


def make_agent_at(tenant: Tenant | None = None, **account: Any) -> Agent:
    """An agent with a sender and an account of its own; the arguments are the account's."""
    return make_agent(make_sender(make_account(tenant or make_tenant(), **account)))


def make_intent(
    agent: Agent | None = None,
    *,
    status: Status = Status.AWAITING_APPROVAL,
    action: Action | None = None,
    run: Run | None = None,
    to: str | tuple[str, ...] = "customer@example.org",
    cc: tuple[str, ...] = (),
    bcc: tuple[str, ...] = (),
    subject: str = "Your order 7731",
    text: str | None = "Hello",
    html: str | None = None,
    files: Mapping[str, bytes] = MappingProxyType({}),
    now: datetime | None = None,
    **fields: Any,
) -> SendIntent:
    """An intent in `status`. `fields` are columns, written with the last transition's UPDATE.

    `files` are attachments by their names.
    """
    now = now or database_now()
    agent = agent or make_agent_at()
    sender = agent.sender
    assert sender is not None
    tenant = agent.tenant
    if action is None:
        action = Action.objects.create(
            tenant=tenant,
            number=tenant.take_number(),
            action_key=f"key-{next(counter)}",
            agent=agent,
            run=run,
            created_at=now,
        )
    else:
        action.latest_version += 1
        action.save(update_fields=["latest_version"])
    addresses = (to,) if isinstance(to, str) else to
    message = Message(
        sender=Mailbox(sender.address, sender.name),
        to=tuple(Mailbox(address) for address in addresses),
        cc=tuple(Mailbox(address) for address in cc),
        bcc=tuple(Mailbox(address) for address in bcc),
        subject=subject,
        text=text,
        html=html,
        attachments=tuple(
            Attachment(name, "application/octet-stream", len(data), sha256(data))
            for name, data in files.items()
        ),
    )
    intent_id = new_id()
    key = idempotency_key(
        tenant=str(tenant.pk),
        action_key=action.action_key,
        version=action.latest_version,
        run=run.name if run else "",
        recipients=[mailbox.address for mailbox in message.recipients],
        template="",
        context_hash="",
    )
    message_id = f"<{intent_id.hex}@{domain_of(sender.address)}>"
    body = freeze(Frozen(message, message_id, key))
    intent = SendIntent.objects.create(
        id=intent_id,
        tenant=tenant,
        action=action,
        version=action.latest_version,
        agent=agent,
        run=run,
        account=sender.account,
        sender=sender,
        content_digest=content_digest(message),
        digest=seal(body),
        idempotency_key=key,
        message_id=message_id,
        subject=subject,
        first_recipient=addresses[0],
        recipient_count=len(message.recipients),
        encoded_bytes=encoded_bytes(message),
        approvals_needed=fields.pop("approvals_needed", 1),
        decide_by=now + timedelta(days=7),
        created_at=now,
        status_at=now,
        **{name: fields.pop(name) for name in list(fields) if name in BORN_WITH},
    )
    Payload.objects.create(intent=intent, body=body)
    attachments.keep(tenant, message, {sha256(data): data for data in files.values()}, now=now)
    attachments.carry(intent, message)
    kinds = [
        *((RecipientKind.TO, box) for box in message.to),
        *((RecipientKind.CC, box) for box in message.cc),
        *((RecipientKind.BCC, box) for box in message.bcc),
    ]
    Delivery.objects.bulk_create(
        Delivery(
            tenant=tenant,
            intent=intent,
            position=position,
            kind=kind,
            address=box.address,
            name=box.name,
            normal=normal(box.address),
            domain=domain_of(box.address),
        )
        for position, (kind, box) in enumerate(kinds)
    )
    route = ROUTES[status]
    for step in route:
        last = fields if step is route[-1] else {}
        move(intent, step, now=now, **{**_columns(intent, step, now), **last})
    if not route and fields:
        SendIntent.objects.filter(pk=intent.pk).update(**fields)
        intent.refresh_from_db()
    return intent


def purge(intent: SendIntent, *, at: datetime | None = None) -> SendIntent:
    """Delete what it said, as the retention does; the database asks that it is over."""
    SendIntent.objects.filter(pk=intent.pk).update(purged_at=at or database_now())
    Payload.objects.filter(intent=intent).delete()
    intent.refresh_from_db()
    return intent


# What must be given to make_intent at creation, because it is frozen then.
BORN_WITH = ("not_before", "deadline", "template", "author", "resend_of", "note", "context_hash")


def _columns(intent: SendIntent, step: Status, now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if step in APPROVED:
        columns |= {"approved_digest": intent.digest, "approved_at": now, "retrying_since": now}
    if step in (Status.QUEUED, Status.RETRY_SCHEDULED):
        columns["next_attempt_at"] = now
    if step is Status.IN_FLIGHT:
        columns |= {"lease_token": new_id(), "lease_expires_at": now + timedelta(seconds=120)}
        columns["attempt_count"] = intent.attempt_count + 1
    if step is Status.UNCERTAIN:
        columns |= {"in_doubt": True, "window_opened_at": now}
    if step is Status.SUBMITTED:
        columns |= {"accepted_at": now, "provider_message_id": f"sbx_{intent.pk.hex}"}
    return columns


def make_attempt(intent: SendIntent, *, outcome: Outcome | None = None, **fields: Any) -> Attempt:
    """An attempt of this intent: open, or closed with `outcome`."""
    now = fields.pop("opened_at", None) or database_now()
    number = fields.pop("number", intent.attempts.count() + 1)
    attempt = Attempt.objects.create(
        intent=intent,
        number=number,
        account=intent.account,
        scope=intent.account.scope,
        lease_token=intent.lease_token or new_id(),
        worker="test",
        idempotency_key=intent.idempotency_key,
        digest=intent.digest,
        opened_at=now,
    )
    if outcome is not None:
        fields = {"closed_at": now, "outcome": outcome, "phase": Phase.ANSWERED} | fields
    if fields:
        Attempt.objects.filter(pk=attempt.pk).update(**fields)
        attempt.refresh_from_db()
    return attempt
