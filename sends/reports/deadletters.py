"""Dead letters by their signature: what ended alike is triaged together."""

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import F, OuterRef, QuerySet, Subquery

from sends.models import Attempt, AuditEntry, Delivery, Direction, Evidence, SendIntent, Tenant
from sends.rules.signatures import REPEATABLE, DeadClass, Death, Ending, Signature, signature_of
from sends.rules.statuses import ACCEPTED, Status

# How many of the newest are read and grouped; who shows them says so where there are more.
MOST = 500
MOST_ACCEPTED = 100
RECENT = timedelta(hours=2)


@dataclass(frozen=True)
class Letter:
    """One dead letter: its last attempt, if any was made, and what went wrong in full."""

    intent: SendIntent
    last: Attempt | None
    death: Death
    signature: Signature


@dataclass
class Group:
    """Dead letters with one signature, newest first."""

    signature: Signature
    letters: list[Letter] = field(default_factory=list)

    @property
    def may_be_repeated(self) -> bool:
        return self.signature.kind in REPEATABLE

    @property
    def first_at(self) -> datetime:
        return min(letter.intent.status_at for letter in self.letters)

    @property
    def last_at(self) -> datetime:
        return max(letter.intent.status_at for letter in self.letters)

    @property
    def agents(self) -> list[str]:
        """Their slugs; those of follow-ups, which people write, are none."""
        agents = [letter.intent.agent for letter in self.letters]
        return sorted({agent.slug for agent in agents if agent is not None})

    @property
    def runs(self) -> int:
        return len({letter.intent.run_id for letter in self.letters} - {None})


@dataclass(frozen=True)
class Grouped:
    """All groups, the one with the latest dead letter first. `is_capped`: there are older ones."""

    groups: list[Group]
    is_capped: bool

    @property
    def count(self) -> int:
        return sum(len(group.letters) for group in self.groups)

    def of(self, kinds: Collection[DeadClass]) -> list[Group]:
        return [group for group in self.groups if group.signature.kind in kinds]

    def find(self, signature_id: str) -> Group | None:
        return next((g for g in self.groups if g.signature.id == signature_id), None)


def grouped(tenant: Tenant, *, are_closed: bool = False) -> Grouped:
    """The tenant's newest dead letters: those still asked about, or those that were closed."""
    intents = list(_dead(tenant).filter(closed_at__isnull=not are_closed)[: MOST + 1])
    groups: dict[Signature, Group] = {}
    for letter in letters_of(intents[:MOST]):
        group = groups.setdefault(letter.signature, Group(letter.signature))
        group.letters.append(letter)
    newest_first = sorted(groups.values(), key=lambda group: group.last_at, reverse=True)
    return Grouped(newest_first, is_capped=len(intents) > MOST)


def last_closed_at(tenant: Tenant) -> datetime | None:
    """When a dead letter was closed last, among the newest ones."""
    closed = _dead(tenant).filter(closed_at__isnull=False).values_list("closed_at", flat=True)
    return max(filter(None, closed[:MOST]), default=None)


def accepted_since(group: Group, now: datetime) -> int:
    """Emails that the same accounts took after the group's last one; none looked at is old.

    Whether the cause looks fixed. Counts up to MOST_ACCEPTED.
    """
    accounts = {letter.intent.account_id for letter in group.letters}
    newest = SendIntent.objects.filter(
        tenant=group.letters[0].intent.tenant_id, status__in=sorted(ACCEPTED)
    ).order_by("-id")[:MOST_ACCEPTED]
    since = max(group.last_at, now - RECENT)
    return sum(
        account_id in accounts and accepted_at is not None and accepted_at > since
        for account_id, accepted_at in newest.values_list("account_id", "accepted_at")
    )


def _dead(tenant: Tenant) -> QuerySet[SendIntent]:
    return (
        SendIntent.objects.filter(tenant=tenant, status=Status.DEAD_LETTER)
        .select_related("action", "agent", "run", "account")
        .order_by("-id")
    )


def letters_of(intents: Sequence[SendIntent]) -> list[Letter]:
    """In the order of the intents, which bring their `account` along."""
    last = _last_attempts(intents)
    said = _said_of_recipients(intent.pk for intent in intents if intent.accepted_at)
    found = _found_by_people(intents)
    letters = []
    for intent in intents:
        death = _death(intent, last.get(intent.pk), said, found)
        letters.append(Letter(intent, last.get(intent.pk), death, signature_of(death)))
    return letters


def requeued_by(intents: Collection[SendIntent]) -> dict[uuid.UUID, AuditEntry]:
    """Who requeued each of these last, from the audit log; they bring their `action` along."""
    targets = {f"message:{i.action.number}/v{i.version}": i for i in intents}
    tenants = {intent.tenant_id for intent in intents}
    entries = AuditEntry.objects.filter(tenant__in=tenants, target__in=targets, verb="requeue")
    return {targets[entry.target].pk: entry for entry in entries.order_by("sequence")}


def _death(
    intent: SendIntent,
    last: Attempt | None,
    said: dict[uuid.UUID, str],
    found: set[tuple[uuid.UUID, datetime]],
) -> Death:
    provider = intent.account.provider
    if intent.accepted_at is not None:
        return Death(provider, Ending.DELIVERY, said.get(intent.pk, ""))
    if (intent.pk, intent.status_at) in found:
        return Death(provider, Ending.FINDING)
    if last is not None and last.closed_at is not None and last.closed_at >= intent.status_at:
        return Death(
            provider,
            Ending.ATTEMPT,
            last.reason,
            last.outcome,
            last.http_status,
            last.code or last.error,
        )
    is_over = intent.replay_until is not None and intent.replay_until <= intent.status_at
    return Death(provider, Ending.WINDOW if is_over else Ending.SUPPRESSION, intent.end_reason)


def _last_attempts(intents: Iterable[SendIntent]) -> dict[uuid.UUID, Attempt]:
    newest = Attempt.objects.filter(intent=OuterRef("intent")).order_by("-number")
    attempts = Attempt.objects.filter(
        intent__in=[intent.pk for intent in intents], pk=Subquery(newest.values("pk")[:1])
    )
    return {attempt.intent_id: attempt for attempt in attempts.defer("contract", "seconds")}


def _said_of_recipients(intent_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, str]:
    """What the server of the first recipient that failed said, by intent."""
    failed = Delivery.objects.filter(intent__in=list(intent_ids), failed_at__isnull=False)
    rows = failed.order_by("-position").values_list("intent_id", "reason")
    return {intent_id: reason for intent_id, reason in rows if reason}


def _found_by_people(intents: Iterable[SendIntent]) -> set[tuple[uuid.UUID, datetime]]:
    """Of which intent a person found, and when, that it was not accepted."""
    findings = Evidence.objects.filter(
        intent__in=[intent.pk for intent in intents],
        direction=Direction.NOT_ACCEPTED,
        proves=True,
        person__isnull=False,
        found_at=F("intent__status_at"),
    )
    return set(findings.values_list("intent_id", "found_at"))
