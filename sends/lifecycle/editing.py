"""What a person writes: the next version of a message, or a new one in its thread."""

import uuid
from dataclasses import replace
from datetime import datetime

from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.obstacles import (
    refuse_older_version,
    refuse_other_digest,
    refuse_out,
    why_decided,
)
from sends.lifecycle.refusals import NotPossible
from sends.lifecycle.roles import require_reason, require_role
from sends.lifecycle.transitions import lock_intent
from sends.lifecycle.versions import Terms, create_action, create_version
from sends.models import Payload, Person, Role, SendIntent, database_now, new_id
from sends.rules.payloads import Message, thaw
from sends.rules.statuses import Status


def edit(
    intent_id: uuid.UUID,
    *,
    person: Person,
    message: Message,
    digest: str,
    reason: str,
    now: datetime | None = None,
) -> SendIntent:
    """Write the next version, which supersedes this one and needs somebody else's approval.

    `digest` is that of the version which the person edited. The agent reads the reason.
    """
    reason = require_reason(reason, what="for the new version")
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        require_role(person, intent.tenant, Role.APPROVER)
        refuse_older_version(intent)
        refuse_other_digest(intent, digest)
        refuse_out(intent)
        if intent.status in (Status.REJECTED, Status.CANCELLED):
            raise why_decided(intent)
        newer = create_version(
            intent.action, message, author=person, reason=reason, needs_person=True, now=now
        )
        facts = {"digest": newer.digest, "replaced": intent.digest, "version": newer.version}
        audit.record_about(intent, actor=person, verb="edit", reason=reason, facts=facts, now=now)
    return newer


def follow_up(
    intent_id: uuid.UUID,
    *,
    person: Person,
    message: Message,
    reason: str,
    now: datetime | None = None,
) -> SendIntent:
    """Write a new message in the thread of one that is out, or may be: an action of its own."""
    reason = require_reason(reason, what="for the follow-up")
    with transaction.atomic():
        intent = lock_intent(intent_id)
        now = now or database_now()
        require_role(person, intent.tenant, Role.APPROVER)
        if not (intent.accepted_at or intent.in_doubt or intent.status == Status.IN_FLIGHT):
            raise NotPossible("This email was never sent: edit it instead.", offer="edit")
        created = create_action(
            _in_thread_of(intent, message),
            tenant=intent.tenant,
            action_key=f"follow-up:{new_id().hex}",
            terms=Terms(note=reason),
            author=person,
            follows=intent.action,
            now=now,
        )
        facts = {"digest": created.digest, "number": created.action.number}
        audit.record_about(
            intent, actor=person, verb="follow_up", reason=reason, facts=facts, now=now
        )
    return created


def _in_thread_of(intent: SendIntent, message: Message) -> Message:
    payload = Payload.objects.filter(intent=intent).first()
    before = thaw(bytes(payload.body)).message.references if payload is not None else ()
    references = (*(before or ()), intent.message_id)
    return replace(message, in_reply_to=intent.message_id, references=references)
