"""Erasing one person: what emails to an address said, and the address itself, on request."""

import re
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

from django.db import transaction
from django.db.models import Model, Q, QuerySet
from django.utils.crypto import salted_hmac

from sends.lifecycle import audit
from sends.lifecycle.refusals import Invalid
from sends.lifecycle.retention import delete_content, needed, overwrite_freed_pages
from sends.lifecycle.transitions import lock_action
from sends.models import (
    Anomaly,
    Approval,
    Attempt,
    AuditEntry,
    Delivery,
    EventState,
    Evidence,
    ProviderEvent,
    SendIntent,
    Suppression,
    Tenant,
    database_now,
)
from sends.rules.addresses import normal
from sends.rules.statuses import Status

ERASED = "(erased)"
# Reserved for names that never exist (RFC 2606).
NOWHERE = "erased.invalid"
ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
# What a person can do about an email that is not over yet.
WAYS_OUT: dict[str, str] = {
    Status.AWAITING_APPROVAL: "cancel it",
    Status.CHANGES_REQUESTED: "cancel it",
    Status.QUEUED: "cancel it",
    Status.RETRY_SCHEDULED: "cancel it",
    Status.IN_FLIGHT: "wait until the provider has answered",
    Status.UNCERTAIN: "settle it",
    Status.SUBMITTED: "wait for news of its delivery; without any it ends within 7 days",
    Status.DEAD_LETTER: "close the dead letter",
    Status.REJECTED: "wait until the rejection can no longer be undone",
}


@dataclass(frozen=True)
class Blocking:
    """What is not erased yet, and what to do about it first."""

    what: str
    way_out: str


@dataclass
class Erased:
    """What was erased, and what is left to do.

    `pseudonym` takes the address's place. `mentions` are entries of the audit log in whose words
    it stands: they cannot change. `suppressions` are those that lost their words or their address.
    """

    pseudonym: str
    emails: int = 0
    events: int = 0
    suppressions: int = 0
    blocking: list[Blocking] = field(default_factory=list)
    is_suppressed: bool = False
    mentions: list[int] = field(default_factory=list)


def erase(
    tenant: Tenant,
    address: str,
    *,
    reason: str = "",
    dry_run: bool = False,
    now: datetime | None = None,
) -> Erased:
    """Erase the person behind this address from whatever is over; safe to repeat.

    Of an email to them what it said goes, to all its recipients, and so do the raw events about
    it; their address becomes a pseudonym, the same in all that one key of the installation has
    erased. What is not over is left whole and is `blocking`. A suppression stays with its address:
    to forget it would be to send again. `dry_run` only counts.
    """
    person = normal(address)
    if not person.strip("@"):
        raise Invalid("Give the address of the person.")
    spellings = {person, address.strip().casefold()}
    if _mentions(reason, spellings):
        raise Invalid("The reason is kept for ever: it must not contain the address.")
    now = now or database_now()
    erased = Erased(pseudonym_of(tenant, person))
    erasing = _Erasing(tenant, person, spellings, erased, dry_run, now)
    erasing.emails()
    erasing.unmatched_events()
    erasing.suppressions()
    erased.mentions = list(_entries_with(tenant, spellings))
    if not dry_run and (erased.emails or erased.events or erased.suppressions):
        _record(tenant, erased, reason, now)
        overwrite_freed_pages()
    return erased


def pseudonym_of(tenant: Tenant, person: str) -> str:
    """Stands for an address that was erased. Who has the key can tell whose it was, by trying."""
    code = salted_hmac("sends.erased", f"{tenant.pk}:{person}", algorithm="sha256").hexdigest()
    return f"erased-{code[:16]}@{NOWHERE}"


@dataclass
class _Erasing:
    tenant: Tenant
    person: str  # in normal form
    spellings: set[str]
    erased: Erased
    dry_run: bool
    now: datetime

    def emails(self) -> None:
        found = Delivery.objects.filter(tenant=self.tenant, normal=self.person)
        actions = found.order_by("intent__action_id").values_list("intent__action_id", flat=True)
        for action_id in actions.distinct():
            with transaction.atomic():
                self._message(action_id)

    def _message(self, action_id: uuid.UUID) -> None:
        """All versions of one message, or none of them."""
        action = lock_action(action_id)
        every = SendIntent.objects.select_for_update(no_key=True).filter(action=action)
        versions = list(every.order_by("pk"))
        to_person = [
            version
            for version in versions
            if version.deliveries.filter(normal=self.person).exists()
        ]
        events = self._with_siblings(ProviderEvent.objects.filter(intent__in=to_person))
        blocking = list(self._blocking(action.number, versions, events))
        if blocking:
            self.erased.blocking += blocking
            return
        self.erased.emails += len(to_person)
        self.erased.events += events.count()
        if not self.dry_run:
            delete_content([version.pk for version in to_person], self.now)
            for version in to_person:
                self._version(version)
            self._events(events)

    def _with_siblings(self, own: QuerySet[ProviderEvent]) -> QuerySet[ProviderEvent]:
        """These, and what was told in the same requests: the bytes are shared."""
        together = Q(pk__in=own.values("pk"))
        requests = own.exclude(raw=b"").values_list("account_id", "received_at", "raw")
        for account_id, received_at, raw in requests:
            together |= Q(account_id=account_id, received_at=received_at, raw=bytes(raw))
        return ProviderEvent.objects.filter(together)

    def _blocking(
        self, number: int, versions: list[SendIntent], events: QuerySet[ProviderEvent]
    ) -> Iterator[Blocking]:
        ids = [version.pk for version in versions]
        for version in SendIntent.objects.not_over(self.now).filter(pk__in=ids):
            label = Status(version.status).label.lower()
            yield Blocking(f"#{number} is not over: {label}", WAYS_OUT[version.status])
        if Anomaly.objects.filter(intent__in=ids, closed_at=None).exists():
            yield Blocking(f"#{number} has an open anomaly", "let an admin look and close it")
        yield from self._unsettled(f"#{number}", events, ids)

    def _unsettled(
        self, what: str, events: QuerySet[ProviderEvent], own: Collection[uuid.UUID] = ()
    ) -> Iterator[Blocking]:
        """Why these events, told of it, have to stay for now; `own` are the versions it has."""
        if events.filter(state=EventState.RECEIVED).exists():
            yield Blocking(f"{what} has news that is not applied yet", "try again in a minute")
        others = events.exclude(intent__in=own).exclude(intent=None)
        unsettled = others.filter(needed("intent__action", self.now))
        numbers = unsettled.order_by().values_list("intent__action__number", flat=True).distinct()
        for other in numbers:
            yield Blocking(
                f"{what} was told of in one request with #{other}, which is not over",
                f"settle #{other}",
            )

    def _version(self, version: SendIntent) -> None:
        theirs = normal(version.first_recipient) == self.person
        SendIntent.objects.filter(pk=version.pk).update(
            erased_at=self.now,
            subject=ERASED,
            note="",
            first_recipient=self.erased.pseudonym if theirs else version.first_recipient,
            end_reason=self._without(version.end_reason),
        )
        for delivery in version.deliveries.filter(normal=self.person):
            Delivery.objects.filter(pk=delivery.pk).update(
                address=self.erased.pseudonym,
                normal=self.erased.pseudonym,
                domain=NOWHERE,
                name="",
                reason=self._without(delivery.reason),
            )
        version.attempts.exclude(body="").update(body="")
        for model, columns in MENTIONING.items():
            self._reword(model._default_manager.filter(intent=version), columns)

    def _events(self, events: QuerySet[ProviderEvent]) -> None:
        for event in list(events.defer("raw")):
            theirs = normal(event.recipient) == self.person
            ProviderEvent.objects.filter(pk=event.pk).update(
                raw=b"",
                purged_at=event.purged_at or self.now,
                recipient=self.erased.pseudonym if theirs else event.recipient,
                reason=self._without(event.reason),
                error=self._without(event.error),
            )

    def _reword(self, rows: QuerySet[Model], columns: tuple[str, ...]) -> None:
        for row in rows:
            before = {name: getattr(row, name) for name in columns}
            after = {name: self._without(text) for name, text in before.items()}
            if after != before:
                rows.filter(pk=row.pk).update(**after)

    def _without(self, text: str) -> str:
        for spelling in self.spellings:
            text = re.sub(re.escape(spelling), self.erased.pseudonym, text, flags=re.IGNORECASE)
        return text

    def unmatched_events(self) -> None:
        """What a provider told about the address, and of no email of ours, request by request."""
        to_person = Q(pk__in=list(self._unread()))
        for spelling in self.spellings:
            to_person |= Q(recipient__iexact=spelling)
        told = ProviderEvent.objects.filter(to_person, account__tenant=self.tenant, intent=None)
        done: set[uuid.UUID] = set()
        for pk in list(told.order_by("pk").values_list("pk", flat=True)):
            if pk not in done:
                with transaction.atomic():
                    done |= self._request(pk)

    def _unread(self) -> Iterator[uuid.UUID]:
        """Events in whose bytes the address stands, whoever they are about."""
        unmatched = ProviderEvent.objects.filter(account__tenant=self.tenant, intent=None)
        raws = unmatched.exclude(raw=b"").values_list("pk", "raw")
        for pk, raw in raws.iterator(chunk_size=100):
            if _mentions(_readings(bytes(raw)), self.spellings):
                yield pk

    def _request(self, pk: uuid.UUID) -> set[uuid.UUID]:
        """All that was told together with this event, or none of it."""
        events = self._with_siblings(ProviderEvent.objects.filter(pk=pk))
        together = set(events.values_list("pk", flat=True))
        blocking = list(self._unsettled("The address", events))
        if blocking:
            known = self.erased.blocking
            known += [one for one in blocking if one not in known]
            return together
        self.erased.events += len(together)
        if not self.dry_run:
            self._events(events)
        return together

    def suppressions(self) -> None:
        found = Suppression.objects.filter(tenant=self.tenant, normal=self.person)
        standing, released = found.filter(released_at=None), found.exclude(released_at=None)
        worded = standing.exclude(reason="")
        self.erased.is_suppressed = standing.exists()
        self.erased.suppressions = worded.count() + released.count()
        if not self.dry_run:
            worded.update(reason="")
            released.update(normal=self.erased.pseudonym, reason="", release_reason="")


# Free text beside an intent in which an address may stand.
MENTIONING: dict[type[Model], tuple[str, ...]] = {
    Attempt: ("reason",),
    Evidence: ("summary", "value"),
    Approval: ("note", "undo_reason"),
    Anomaly: ("detail", "close_reason"),
}


def _readings(raw: bytes) -> str:
    """The text of a request, read plainly, as a form, and as JSON that escapes letters."""
    text = raw.decode(errors="replace")
    units = ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
    as_json = units.encode("utf-16", "surrogatepass").decode("utf-16", errors="replace")
    return f"{text} {unquote(text)} {as_json}"


def _mentions(text: str, spellings: set[str]) -> bool:
    return any(spelling in text.casefold() for spelling in spellings)


def _entries_with(tenant: Tenant, spellings: set[str]) -> Iterator[int]:
    for entry in AuditEntry.objects.filter(tenant=tenant).order_by("sequence").iterator():
        facts = bytes(entry.facts).decode(errors="replace")
        if _mentions(f"{entry.actor} {entry.target} {entry.reason} {facts}", spellings):
            yield entry.sequence


def _record(tenant: Tenant, erased: Erased, reason: str, now: datetime) -> None:
    with transaction.atomic():
        audit.record(
            tenant=tenant,
            actor="system",
            verb="erase",
            target=f"person:{erased.pseudonym}",
            reason=reason,
            facts={
                "emails": erased.emails,
                "events": erased.events,
                "suppressions": erased.suppressions,
                "blocking": len(erased.blocking),
            },
            now=now,
        )
