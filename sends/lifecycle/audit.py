"""The log of what people and programs decided: one chain of hashes a tenant."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from sends.models import AuditEntry, Person, Run, SendIntent, Switch, SwitchKind, Tenant
from sends.rules.keys import canonical, sha256

BEGINNING = "0" * 64
NO_FACTS: Mapping[str, Any] = MappingProxyType({})


def record(
    *,
    tenant: Tenant,
    actor: str,
    verb: str,
    target: str,
    reason: str = "",
    facts: Mapping[str, Any] = NO_FACTS,
    now: datetime,
) -> AuditEntry:
    """Append to the tenant's chain, inside the caller's transaction and as the last of its locks.

    The tenant's row is locked until that transaction ends: of two that decide at once the second
    reads the entry of the first, so the chain never forks. `facts` hold what JSON can say, and no
    address of a recipient: an entry is never changed, so nobody could be erased from it.
    """
    lock(tenant)
    last = AuditEntry.objects.filter(tenant=tenant).order_by("-sequence").first()
    entry = AuditEntry(
        tenant=tenant,
        sequence=last.sequence + 1 if last else 1,
        at=now,
        actor=actor,
        verb=verb,
        target=target,
        reason=reason,
        facts=canonical(dict(facts)),
        previous=last.hash if last else BEGINNING,
    )
    entry.hash = hash_of(entry)
    entry.save(force_insert=True)
    return entry


def lock(tenant: Tenant) -> None:
    """Keep the chain's end as it is until the transaction ends."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)


def record_about(
    intent: SendIntent,
    *,
    actor: Person | str,
    verb: str,
    reason: str = "",
    facts: Mapping[str, Any] = NO_FACTS,
    now: datetime,
) -> AuditEntry:
    """An entry about one version of a message, by a person, "agent:<slug>" or "system"."""
    return record(
        tenant=intent.tenant,
        actor=str(actor),
        verb=verb,
        target=message_target(intent),
        reason=reason,
        facts=facts,
        now=now,
    )


def hash_of(entry: AuditEntry) -> str:
    """SHA-256 over the canonical JSON of every field of the entry but the hash itself."""
    fields = {
        "id": str(entry.pk),
        "tenant": str(entry.tenant_id),
        "sequence": entry.sequence,
        "at": moment_of(entry),
        "actor": entry.actor,
        "verb": entry.verb,
        "target": entry.target,
        "reason": entry.reason,
        # As hexadecimal digits: bytes that somebody made unreadable must be found, not raise.
        "facts": bytes(entry.facts).hex(),
        "previous": entry.previous,
    }
    return sha256(canonical(fields))


def moment_of(entry: AuditEntry) -> str:
    """When it was, as the hash is over it."""
    return entry.at.astimezone(UTC).isoformat(timespec="microseconds")


def message_target(intent: SendIntent) -> str:
    """How the log names one version of a message."""
    return f"message:{intent.action.number}/v{intent.version}"


def run_target(run: Run) -> str:
    return f"run:{run.pk}"


def switch_target(switch: Switch) -> str:
    """How the log names a scope; a run is named the same in all its entries."""
    if switch.kind == SwitchKind.RUN:
        return f"run:{switch.pk}"
    return f"switch:{switch.kind}:{switch.pk}"
