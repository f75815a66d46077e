"""The chain of a tenant's audit log: checked, exported, and cut off before a signed checkpoint."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.signing import BadSignature, Signer
from django.db import transaction

from sends.lifecycle import audit
from sends.lifecycle.refusals import NotPossible
from sends.models import AuditCheckpoint, AuditEntry, Policy, Tenant, database_now

BATCH = 1000
# What a signature is about: the end that an export names never passes for a checkpoint.
EXPORT, CHECKPOINT = "export", "checkpoint"


class WrongExport(Exception):
    """A file that is no export of this tenant's log, or was changed; says what is wrong."""


@dataclass(frozen=True)
class End:
    """The end of a chain at one moment. `sequence` is 0 where there is no entry yet."""

    sequence: int
    hash: str


@dataclass(frozen=True)
class Checked:
    """What a check found: `broken` names the first entry that is wrong, or is empty."""

    end: End
    entries: int
    checkpoint: AuditCheckpoint | None
    broken: str = ""


@dataclass(frozen=True)
class Cut:
    """What was cut off: all entries up to this one."""

    sequence: int
    entries: int


def check(tenant: Tenant, *, against: End | None = None) -> Checked:
    """Follow the chain from its last checkpoint, or its beginning, to its end.

    Entries cut off at the very end leave a shorter chain that holds: an earlier end, which an
    export names, is how that is noticed.
    """
    checkpoints = AuditCheckpoint.objects.filter(tenant=tenant).order_by("sequence")
    last = checkpoints.last()
    for checkpoint in checkpoints:
        if not _is_signed(checkpoint):
            words = (
                f"the checkpoint at entry {checkpoint.sequence} of {tenant} was not signed by this "
                "installation: it is forged, or OUTBOX_SECRET_KEY_FALLBACKS lacks an earlier key"
            )
            return Checked(End(0, audit.BEGINNING), 0, last, words)

    end = End(last.sequence, last.hash) if last else End(0, audit.BEGINNING)
    entries = AuditEntry.objects.filter(tenant=tenant, sequence__gt=end.sequence)
    count, met = 0, against is None or _is_cut_off(against, last)
    for entry in entries.order_by("sequence").iterator(chunk_size=BATCH):
        if broken := _broken(tenant, entry, after=end):
            return Checked(end, count, last, broken)
        end, count = End(entry.sequence, entry.hash), count + 1
        met = met or end == against
    if against and not met and end != against:
        return Checked(end, count, last, _differs(tenant, against, end))
    return Checked(end, count, last)


def export(tenant: Tenant) -> Iterator[str]:
    """The log as lines of JSON, the last of which names its end and is signed."""
    end, count = End(0, audit.BEGINNING), 0
    entries = AuditEntry.objects.filter(tenant=tenant).order_by("sequence")
    for entry in entries.iterator(chunk_size=BATCH):
        yield _line(as_json(entry))
        end, count = End(entry.sequence, entry.hash), count + 1
    yield _line(
        {
            "tenant": tenant.slug,
            "entries": count,
            "sequence": end.sequence,
            "hash": end.hash,
            "signature": _sign(EXPORT, tenant, end),
        }
    )


def as_json(entry: AuditEntry) -> dict[str, Any]:
    facts = bytes(entry.facts)
    try:
        known = json.loads(facts)
    except ValueError:
        known = {"unreadable": facts.hex()}
    return {
        "sequence": entry.sequence,
        "id": str(entry.pk),
        "at": audit.moment_of(entry),
        "actor": entry.actor,
        "verb": entry.verb,
        "target": entry.target,
        "reason": entry.reason,
        "facts": known,
        "previous": entry.previous,
        "hash": entry.hash,
    }


def end_of(tenant: Tenant, last_line: str) -> End:
    """The end that an export names, if this installation signed it; else WrongExport."""
    try:
        said = json.loads(last_line)
        slug, end = said["tenant"], End(int(said["sequence"]), str(said["hash"]))
        signature = str(said["signature"])
    except (ValueError, TypeError, KeyError):
        raise WrongExport("its last line does not name the end of a log: it is cut off") from None
    if slug != tenant.slug:
        raise WrongExport(f"it is the log of {slug}, not of {tenant.slug}")
    if not _holds(EXPORT, tenant, end, signature):
        raise WrongExport("its last line was not signed by this installation")
    return end


def cut_off(tenant: Tenant, *, exported: End, now: datetime | None = None) -> Cut:
    """Delete the entries that policy no longer keeps, up to `exported`; what they were.

    A signed checkpoint takes their place, and an entry says so. Entries are deleted in small
    batches after that: a run that is killed is completed by the next one.
    """
    now = now or database_now()
    keep = Policy.objects.get(tenant=tenant).keep_audit
    if keep is None:
        raise NotPossible(
            f"The audit log of {tenant.slug} is kept for ever. "
            'Say otherwise under [tenants.retention], as in audit = "3650d".'
        )
    with transaction.atomic():
        audit.lock(tenant)
        old = AuditEntry.objects.filter(
            tenant=tenant, at__lte=now - keep, sequence__lte=exported.sequence
        )
        last = old.order_by("-sequence").first()
        if last is not None and not _has_checkpoint(tenant, last.sequence):
            AuditCheckpoint.objects.create(
                tenant=tenant,
                sequence=last.sequence,
                hash=last.hash,
                made_at=now,
                signature=_sign(CHECKPOINT, tenant, End(last.sequence, last.hash)),
            )
            audit.record(
                tenant=tenant,
                actor="system",
                verb="cut_off_audit",
                target=f"tenant:{tenant.slug}",
                facts={"up_to": last.sequence, "hash": last.hash},
                now=now,
            )
    return _delete_old(tenant)


def _delete_old(tenant: Tenant) -> Cut:
    checkpoint = AuditCheckpoint.objects.filter(tenant=tenant).order_by("sequence").last()
    if checkpoint is None:
        return Cut(0, 0)
    old = AuditEntry.objects.filter(tenant=tenant, sequence__lte=checkpoint.sequence)
    deleted = 0
    while ids := list(old.order_by("sequence").values_list("pk", flat=True)[:BATCH]):
        deleted += AuditEntry.objects.filter(pk__in=ids).delete()[0]
    return Cut(checkpoint.sequence, deleted)


def _has_checkpoint(tenant: Tenant, sequence: int) -> bool:
    return AuditCheckpoint.objects.filter(tenant=tenant, sequence__gte=sequence).exists()


def _broken(tenant: Tenant, entry: AuditEntry, *, after: End) -> str:
    expected = after.sequence + 1
    if entry.sequence != expected:
        if after.sequence == 0:
            return (
                f"entries {expected} to {entry.sequence - 1} of {tenant} are missing, "
                "and no checkpoint stands for them"
            )
        return f"entry {expected} of {tenant} is missing; the next one is {entry.sequence}"
    if entry.previous != after.hash:
        return f"entry {entry.sequence} of {tenant} does not follow from the one before it"
    if entry.hash != audit.hash_of(entry):
        return f"entry {entry.sequence} of {tenant} was changed: its hash does not match"
    return ""


def _is_cut_off(end: End, checkpoint: AuditCheckpoint | None) -> bool:
    """Whether only the checkpoint can still vouch for it: the same end, or an earlier one."""
    if checkpoint is None or end.sequence > checkpoint.sequence:
        return end.sequence == 0
    return end.sequence < checkpoint.sequence or end.hash == checkpoint.hash


def _differs(tenant: Tenant, against: End, end: End) -> str:
    if end.sequence < against.sequence:
        return (
            f"entries {end.sequence + 1} to {against.sequence} of {tenant}, which were exported, "
            "are gone from the end of the log"
        )
    return (
        f"entry {against.sequence} of {tenant} is not the one that was exported: "
        "the log was written anew"
    )


def _is_signed(checkpoint: AuditCheckpoint) -> bool:
    end = End(checkpoint.sequence, checkpoint.hash)
    return _holds(CHECKPOINT, checkpoint.tenant, end, checkpoint.signature)


def _sign(purpose: str, tenant: Tenant, end: End) -> str:
    """With a key made from SECRET_KEY."""
    return _signer(purpose).signature(_signed(tenant, end))


def _holds(purpose: str, tenant: Tenant, end: End, signature: str) -> bool:
    """Also where it was signed with one of SECRET_KEY_FALLBACKS, before the key was changed."""
    try:
        _signer(purpose).unsign(f"{_signed(tenant, end)}:{signature}")
    except BadSignature:
        return False
    return True


def _signer(purpose: str) -> Signer:
    return Signer(salt=f"sends.audit.{purpose}")


def _signed(tenant: Tenant, end: End) -> str:
    return f"{tenant.pk}:{end.sequence}:{end.hash}"


def _line(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False) + "\n"
