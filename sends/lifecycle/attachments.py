"""The bytes of attachments: kept once a tenant, and read again when their email goes out."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime

from django.db import IntegrityError

from sends.models import AttachmentContent, AttachmentUse, SendIntent, Tenant
from sends.rules.keys import sha256
from sends.rules.payloads import Attachment, Message


class AlteredAttachment(Exception):
    """The bytes that an email is to carry are not there, or not those that were approved."""


def keep(tenant: Tenant, message: Message, files: Mapping[str, bytes], *, now: datetime) -> None:
    """Make sure that the bytes of every attachment are kept; `files` are the new ones.

    Of two intakes that bring one file at once, one writes it. Call it before the tenant's
    number is taken: whoever waits here for another's file must not stand in anybody's way.
    """
    wanted = {one.sha256 for one in message.attachments}
    if not wanted:
        return
    kept = AttachmentContent.objects.filter(tenant=tenant, sha256__in=wanted)
    missing = sorted(wanted - set(kept.values_list("sha256", flat=True)))
    # One after another, in one order: two that bring the same files never wait for each other.
    for digest in missing:
        content = AttachmentContent(
            tenant=tenant,
            sha256=digest,
            size=len(files[digest]),
            body=files[digest],
            created_at=now,
        )
        AttachmentContent.objects.bulk_create([content], ignore_conflicts=True)


def carry(intent: SendIntent, message: Message) -> None:
    """Note which files the intent carries: they stay as long as its payload does.

    Raises IntegrityError where one was kept, and has been purged since because nobody carried it.
    One that is purged later than this raises it when the transaction ends.
    """
    digests = {one.sha256 for one in message.attachments}
    if not digests:
        return
    kept = AttachmentContent.objects.filter(tenant=intent.tenant_id, sha256__in=digests)
    contents = list(kept.values_list("pk", flat=True))
    if len(contents) < len(digests):
        raise IntegrityError("a file was purged while another intent came to carry it")
    AttachmentUse.objects.bulk_create(
        AttachmentUse(intent=intent, content_id=content) for content in contents
    )


def contents_of(intent_id: uuid.UUID, files: Sequence[Attachment]) -> dict[str, bytes]:
    """The bytes of these by their SHA-256, and of no others; or AlteredAttachment."""
    if not files:
        return {}
    wanted = {one.sha256 for one in files}
    carried = AttachmentContent.objects.filter(uses__intent=intent_id, sha256__in=wanted)
    contents = {digest: bytes(body) for digest, body in carried.values_list("sha256", "body")}
    for one in files:
        if one.sha256 not in contents or sha256(contents[one.sha256]) != one.sha256:
            raise AlteredAttachment(f"{one.filename}: its bytes are not those that were approved")
    return contents
