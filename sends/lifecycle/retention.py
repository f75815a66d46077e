"""What nobody keeps any more, deleted in small batches: content of what is over, old sessions."""

import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from sends.lifecycle import audit
from sends.models import (
    Action,
    ActionResult,
    Anomaly,
    AttachmentContent,
    AttachmentUse,
    EventState,
    Payload,
    Policy,
    ProviderEvent,
    SendIntent,
    Tenant,
    database_now,
    first_id,
    triggers,
)
from sends.rules.statuses import ENDED, Status

logger = logging.getLogger("sends.retention")

BATCH = 200
# Long enough for every repeat of a form by whoever sent it.
RESULTS_KEPT = timedelta(days=7)
# What is still to be applied, or could not be, keeps the bytes that say why.
PURGEABLE_EVENTS = (EventState.APPLIED, EventState.PARKED, EventState.FOREIGN)


@dataclass
class Purged:
    """What was deleted of one tenant: emails by the status they ended in, and raw events.

    `is_done` is false where there was more than the time allowed.
    """

    tenant: Tenant
    emails: Counter[str] = field(default_factory=Counter)
    events: int = 0
    is_done: bool = True

    @property
    def facts(self) -> dict[str, object]:
        return {"emails": dict(self.emails), "events": self.events}


def due(tenant: Tenant, now: datetime | None = None) -> Purged:
    """What a purge would delete now."""
    now = now or database_now()
    found = Purged(tenant)
    policy = Policy.objects.get(tenant=tenant)
    for status, emails in _emails_due(policy, now):
        if count := emails.count():
            found.emails[status] = count
    found.events = _events_due(policy, now).count()
    return found


def purge(*, stop_after: timedelta | None = None, now: datetime | None = None) -> list[Purged]:
    """Delete what no policy keeps any more, tenant by tenant; what was deleted of each.

    Every batch is a transaction of its own, so it may be killed, repeated, or run twice at once.
    A message that somebody decides about at this moment is left for the next time. What was
    deleted is one entry in the tenant's log.
    """
    if absent := triggers.missing(connection):
        logger.error("nothing is purged while triggers lack", extra={"triggers": absent})
        return []
    now = now or database_now()
    ends = None if stop_after is None else time.monotonic() + stop_after.total_seconds()

    def may_go_on() -> bool:
        return ends is None or time.monotonic() < ends

    done = [_purge_tenant(tenant, now, may_go_on) for tenant in Tenant.objects.order_by("pk")]
    _forget_results(now)
    _forget_sessions(now)
    if any(purged.emails or purged.events for purged in done):
        overwrite_freed_pages()
    return done


def needed(action: str, now: datetime) -> Q:
    """Whether somebody may still need what was said, for rows with this path to their action.

    As the triggers say it: a version of the message is not over, or an anomaly is open.
    """
    of_action = {"action": OuterRef(action)}
    is_open = Exists(SendIntent.objects.not_over(now).filter(**of_action))
    return Q(is_open) | Q(Exists(Anomaly.objects.filter(**of_action, closed_at=None)))


def delete_content(intents: Collection[uuid.UUID], now: datetime) -> int:
    """Delete what these intents say, and write down when; how many still had it.

    The caller has locked them and their actions, and none is `needed`.
    """
    left = SendIntent.objects.filter(pk__in=intents, purged_at=None)
    count = left.update(purged_at=now)
    Payload.objects.filter(intent__in=intents).delete()
    uses = AttachmentUse.objects.filter(intent__in=intents)
    files = set(uses.values_list("content_id", flat=True))
    uses.delete()
    unused = AttachmentContent.objects.select_for_update().filter(pk__in=files).order_by("pk")
    list(unused.values_list("pk"))
    # Without `only`, Django would read the bytes of each before it deletes them.
    AttachmentContent.objects.unused().filter(pk__in=files).only("pk").delete()
    return count


def overwrite_freed_pages() -> None:
    """On SQLite, take the deleted bytes out of the write-ahead log too, as far as nobody reads it.

    The pages of the database itself were overwritten with zeros: `secure_delete` in the settings.
    """
    if connection.vendor == "sqlite" and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _purge_tenant(tenant: Tenant, now: datetime, may_go_on: Callable[[], bool]) -> Purged:
    purged = Purged(tenant)
    policy = Policy.objects.get(tenant=tenant)
    try:
        for status, emails in _emails_due(policy, now):
            for count in _in_batches(emails, "action_id", delete_content, now, may_go_on):
                purged.emails[status] += count
        for count in _in_batches(
            _events_due(policy, now), "intent__action_id", _empty_events, now, may_go_on
        ):
            purged.events += count
        purged.is_done = may_go_on()
    finally:
        # Also of a run that is cut short: what it deleted is on record.
        if purged.emails or purged.events:
            with transaction.atomic():
                audit.record(
                    tenant=tenant,
                    actor="system",
                    verb="purge",
                    target=f"tenant:{tenant.slug}",
                    facts=purged.facts,
                    now=now,
                )
    return purged


def _emails_due(policy: Policy, now: datetime) -> Iterator[tuple[Status, QuerySet[SendIntent]]]:
    for status in sorted(ENDED):
        keep = policy.keeps(status)
        if keep is None:
            continue
        ended = SendIntent.objects.with_content(status, ended_before=now - keep)
        yield status, ended.filter(~needed("action", now), tenant=policy.tenant_id)


def _events_due(policy: Policy, now: datetime) -> QuerySet[ProviderEvent]:
    if policy.keep_events is None:
        return ProviderEvent.objects.none()
    return ProviderEvent.objects.filter(
        ~needed("intent__action", now),
        account__tenant=policy.tenant_id,
        received_at__lte=now - policy.keep_events,
        state__in=PURGEABLE_EVENTS,
        purged_at=None,
    ).order_by("received_at", "pk")


def _in_batches(
    rows: QuerySet[SendIntent] | QuerySet[ProviderEvent],
    action: str,
    delete: Callable[[Collection[uuid.UUID], datetime], int],
    now: datetime,
    may_go_on: Callable[[], bool],
) -> Iterator[int]:
    """Delete these, and yield how many of each batch; `action` is the path to their action."""
    while may_go_on():
        found = list(rows.values_list("pk", action)[:BATCH])
        with transaction.atomic():
            free = _lock_free_actions({action_id for _, action_id in found if action_id})
            ids = [pk for pk, action_id in found if action_id is None or action_id in free]
            # Asked again under the locks: nobody reopens or contradicts one of these now.
            still = list(rows.filter(pk__in=ids).values_list("pk", flat=True))
            count = delete(still, now)
        if not count:
            return
        yield count


def _lock_free_actions(action_ids: Iterable[uuid.UUID]) -> set[uuid.UUID]:
    """Lock those of these actions that nobody else holds, and their versions after them."""
    free = Action.objects.select_for_update(no_key=True, skip_locked=True)
    locked = list(free.filter(pk__in=action_ids).order_by("pk").values_list("pk", flat=True))
    versions = SendIntent.objects.select_for_update(no_key=True).filter(action__in=locked)
    list(versions.order_by("pk").values_list("pk"))
    return set(locked)


def _empty_events(events: Collection[uuid.UUID], now: datetime) -> int:
    return ProviderEvent.objects.filter(pk__in=events, purged_at=None).update(
        raw=b"", purged_at=now
    )


def _forget_results(now: datetime) -> None:
    """Answers kept for forms that are sent twice; they belong to people, not to a tenant."""
    _delete_in_batches(ActionResult.objects.filter(pk__lt=first_id(now - RESULTS_KEPT)))


def _forget_sessions(now: datetime) -> None:
    """Sessions that ran out, also of who never signed in, and what allauth knew of them."""
    _delete_in_batches(Session.objects.filter(expire_date__lt=now))
    standing = Session.objects.filter(session_key=OuterRef("session_key"))
    _delete_in_batches(UserSession.objects.filter(~Exists(standing)))


def _delete_in_batches(rows: QuerySet[Any]) -> None:
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        rows.filter(pk__in=ids).delete()
