"""Provider events: each kept once, matched to its intent, and applied in whatever order it comes.

What an intent and its deliveries become is a function of the set of their events. Nothing here
is ever an error to the provider: what matches nothing is parked until an id arrives.
"""

import logging
import re
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from django.db import OperationalError, transaction
from django.db.models import Exists, OuterRef, Q

from sends import logs
from sends.lifecycle.acceptance import accept, finish, reach, record_evidence, unpark
from sends.lifecycle.transitions import lock_intent, lock_switch
from sends.models import (
    Account,
    Attempt,
    Delivery,
    Direction,
    EventState,
    EvidenceKind,
    MatchedBy,
    ProviderEvent,
    SendIntent,
    Suppression,
    SuppressionCause,
    database_now,
)
from sends.providers.adapter import Adapter, BadSignature, CredentialError, Event, text
from sends.providers.credentials import resolve
from sends.providers.registry import adapter_for
from sends.rules.addresses import normal
from sends.rules.deliveries import PROVES_TAKEN, SUPPRESSES, EventKind
from sends.rules.keys import sha256
from sends.rules.statuses import DELIVERY_ENDED, DeliveryState, Status

logger = logging.getLogger("sends.events")

TAG = re.compile(r"[0-9a-f]{32}")
# How long after acceptance, or after its last news, an intent ends without any.
PATIENCE = timedelta(days=7)
# A parked event is tried again for as long as the answer that names its id may still come.
PARKED_FOR = timedelta(days=1)
OPEN_STATES = tuple(state for state in DeliveryState if state not in DELIVERY_ENDED)
SEEN_EVERY = timedelta(minutes=1)


class Unsigned(Exception):
    """No active secret of the account has signed this request just now; nothing was kept."""


def receive(account: Account, headers: Mapping[str, str], raw: bytes) -> int:
    """Keep the events of one request if the provider signed exactly these bytes; how many new.

    Raises Unsigned. What is signed and cannot be read is kept too, as an event that proves
    nothing.
    """
    adapter, now = adapter_for(account.provider), database_now()
    try:
        adapter.verify_webhook(headers, raw, _secrets(account), now)
    except BadSignature as error:
        logger.warning("webhook refused", extra={"account": account.pk, "error": str(error)})
        raise Unsigned from error
    told = _read(adapter, raw)
    new = store(account, told, raw, now)
    logger.info("webhook", extra={"account": account.pk, "count": len(told), "new": new})
    return new


def store(account: Account, events: Sequence[Event], raw: bytes, now: datetime) -> int:
    """Keep these events of one request, and that the webhook works; how many were new.

    All or none of them. An event that was told before, by the provider's own id, is not kept
    again. Applying them is a task of its own: `apply_received`.
    """
    rows = {row.event_id: row for row in (_row(account, event, raw, now) for event in events)}
    with transaction.atomic():
        ProviderEvent.objects.bulk_create(rows.values(), ignore_conflicts=True)
        Account.objects.filter(
            Q(webhook_seen_at=None) | Q(webhook_seen_at__lt=now - SEEN_EVERY), pk=account.pk
        ).update(webhook_seen_at=now)
        return ProviderEvent.objects.filter(pk__in=[row.pk for row in rows.values()]).count()


def apply_received(limit: int = 200, now: datetime | None = None) -> int:
    """Apply what was received, oldest first, each event by itself; how many were looked at.

    Safe to run twice or at once: an event is applied under the lock of its intent, once.
    """
    waiting = list(ProviderEvent.objects.to_apply().values_list("pk", flat=True)[:limit])
    for event_id in waiting:
        try:
            with transaction.atomic():
                _apply(event_id, now or database_now())
        except OperationalError:
            raise  # the database's trouble, not this event's
        except Exception as error:
            logger.exception("event could not be applied", extra={"provider_event": event_id})
            ProviderEvent.objects.filter(pk=event_id, state=EventState.RECEIVED).update(
                state=EventState.FAILED, error=f"{type(error).__name__}: {text(str(error))}"
            )
    return len(waiting)


def catch_up(accepted: Collection[uuid.UUID]) -> None:
    """What may follow once these acceptances are committed: events that had come before them.

    May fail and be left out: `retry_parked` and `close_without_news` find the same later.
    """
    intents = SendIntent.objects.filter(pk__in=accepted)
    if not accepted:
        return
    unpark(intents)
    still_open = Delivery.objects.filter(intent=OuterRef("pk"), state__in=OPEN_STATES)
    ended = intents.filter(~Exists(still_open), status=Status.SUBMITTED)
    for intent_id in ended.values_list("pk", flat=True):
        with transaction.atomic():
            finish(lock_intent(intent_id), now=database_now())


def retry_parked(now: datetime) -> int:
    """Look again at what matched nothing lately; how many events now name an intent.

    `acceptance.unpark` does that as soon as an id arrives. What is left for the sweep is an event
    that was parked in the very moment in which the id was being committed.
    """
    same_id = {
        "account": OuterRef("account"),
        "provider_message_id": OuterRef("provider_message_id"),
    }
    parked = ProviderEvent.objects.filter(
        Exists(SendIntent.objects.filter(**same_id)) | Exists(Attempt.objects.filter(**same_id)),
        ~Q(provider_message_id=""),
        state=EventState.PARKED,
        received_at__gt=now - PARKED_FOR,
    )
    return parked.update(state=EventState.RECEIVED) if parked.exists() else 0


def close_without_news(now: datetime, limit: int = 100) -> int:
    """End what was accepted and then never heard of again; how many intents."""
    silent_since = now - PATIENCE
    news = Delivery.objects.filter(intent=OuterRef("pk"), changed_at__gte=silent_since)
    silent = SendIntent.objects.filter(
        ~Exists(news), status=Status.SUBMITTED, accepted_at__lt=silent_since
    ).order_by("accepted_at")
    ids = list(silent.values_list("pk", flat=True)[:limit])
    for intent_id in ids:
        with transaction.atomic():
            _end_without_news(lock_intent(intent_id), now)
    return len(ids)


def _secrets(account: Account) -> list[str]:
    """Every secret that can be read; one that cannot must not shut out what another signed."""
    secrets = []
    for reference in account.webhook_secrets:
        try:
            secrets.append(resolve(reference))
        except CredentialError as error:
            logger.error(
                "webhook secret cannot be read", extra={"account": account.pk, "error": str(error)}
            )
    return secrets


def _read(adapter: Adapter, raw: bytes) -> list[Event]:
    """The events of a body; an adapter that fails must not make the provider repeat it."""
    try:
        return adapter.events(raw)
    except Exception:
        logger.exception("webhook could not be read", extra={"adapter": adapter.name})
        digest = sha256(raw)
        return [Event(digest, EventKind.UNKNOWN, "", "", "", "", "", None, fingerprint=digest)]


def _row(account: Account, event: Event, raw: bytes, now: datetime) -> ProviderEvent:
    return ProviderEvent(
        account=account,
        event_id=event.event_id or event.fingerprint,
        fingerprint=event.fingerprint,
        kind=event.kind,
        recipient=text(event.recipient, 320),
        provider_message_id=text(event.provider_message_id, 255),
        tag=text(event.tag, 255),
        message_id=text(_bracketed(event.message_id), 255),
        reason=event.reason,
        occurred_at=event.occurred_at or now,
        received_at=now,
        request_id=logs.request_id(),
        raw=raw,
    )


def _bracketed(message_id: str) -> str:
    """A Message-ID as we write it: some providers leave its angle brackets out."""
    bare = message_id.strip().removeprefix("<").removesuffix(">")
    return f"<{bare}>" if bare else ""


def _apply(event_id: uuid.UUID, now: datetime) -> None:
    event = ProviderEvent.objects.select_related("account").get(pk=event_id)
    found = _match(event)
    if found is None:
        ProviderEvent.objects.filter(pk=event.pk, state=EventState.RECEIVED).update(
            state=EventState.PARKED
        )
        _tell(event, "parked")
        return
    intent_id, matched_by = found
    if event.kind in SUPPRESSES:
        # A claim or dispatch that has not seen the suppression is committed before it.
        lock_switch(event.account.tenant_id)
    intent = lock_intent(intent_id)
    first = ProviderEvent.objects.filter(pk=event.pk, state=EventState.RECEIVED).update(
        state=EventState.APPLIED, intent=intent, matched_by=matched_by, applied_at=now
    )
    if not first:
        return
    _tell(event, "applied", intent_id)
    if event.kind not in PROVES_TAKEN or _was_told_before(event, intent):
        return
    kind = EventKind(event.kind)
    _prove(event, kind, intent, now)
    recipients = _recipients(event, intent)
    reach(intent.deliveries.filter(normal__in=recipients), kind, reason=event.reason, now=now)
    if kind in SUPPRESSES:
        for recipient in recipients:
            _suppress(recipient, event, kind, now)
    finish(intent, now=now)


def _tell(event: ProviderEvent, outcome: str, intent_id: uuid.UUID | None = None) -> None:
    """A line of the log, once this transaction is committed."""
    line = {
        "request_id": event.request_id or None,
        "account": event.account_id,
        "intent": intent_id,
        "provider_event": event.pk,
        "kind": event.kind,
        "outcome": outcome,
    }
    transaction.on_commit(lambda: logger.info("event", extra=line))


def _match(event: ProviderEvent) -> tuple[uuid.UUID, MatchedBy] | None:
    """The one intent that the event is about, among those that went through its account."""
    attempts = Attempt.objects.filter(account=event.account, scope=event.account.scope)
    intents = SendIntent.objects.filter(
        Exists(attempts.filter(intent=OuterRef("pk"))), tenant_id=event.account.tenant_id
    )
    if event.provider_message_id:
        named = {"account": event.account, "provider_message_id": event.provider_message_id}
        found = {
            *intents.filter(**named).values_list("pk", flat=True)[:2],
            *attempts.filter(
                intent__tenant_id=event.account.tenant_id,
                provider_message_id=event.provider_message_id,
            ).values_list("intent_id", flat=True)[:2],
        }
        if len(found) == 1:
            return found.pop(), MatchedBy.PROVIDER_ID
    if TAG.fullmatch(event.tag) and (intent := intents.filter(pk=event.tag).first()):
        return intent.pk, MatchedBy.TAG
    if event.message_id and (intent := intents.filter(message_id=event.message_id).first()):
        return intent.pk, MatchedBy.MESSAGE_ID
    return None


def _was_told_before(event: ProviderEvent, intent: SendIntent) -> bool:
    """Whether the same thing was applied under another id: it is kept, and adds nothing."""
    same = ProviderEvent.objects.filter(
        account=event.account,
        fingerprint=event.fingerprint,
        state=EventState.APPLIED,
        intent=intent,
    )
    return same.exclude(pk=event.pk).exists()


def _prove(event: ProviderEvent, kind: EventKind, intent: SendIntent, now: datetime) -> None:
    """That anything happened to it proves that the provider took it.

    Once that is known events are only news, and their own rows are their record.
    """
    if intent.accepted_at is None:
        record_evidence(
            intent,
            kind=EvidenceKind.EVENT,
            direction=Direction.ACCEPTED,
            proves=True,
            summary=f"Event from {event.account}: {kind.label.lower()}"
            + (f", {event.recipient}." if event.recipient else "."),
            value=event.provider_message_id or event.event_id,
            now=now,
        )
    accept(intent, now=now, provider_message_id=event.provider_message_id)


def _recipients(event: ProviderEvent, intent: SendIntent) -> set[str]:
    """The normal form of the recipient that the event is about, if it is one of the intent's.

    Where the event names nobody it can only be meant for an only recipient.
    """
    known = set(intent.deliveries.values_list("normal", flat=True))
    if event.recipient:
        return known & {normal(event.recipient)}
    return known if len(known) == 1 else set()


def _suppress(recipient: str, event: ProviderEvent, kind: EventKind, now: datetime) -> None:
    """Never send to this address again, unless a person has allowed it since this happened."""
    complained = kind is EventKind.COMPLAINED
    cause = SuppressionCause.COMPLAINED if complained else SuppressionCause.BOUNCED
    of_address = Suppression.objects.filter(tenant_id=event.account.tenant_id, normal=recipient)
    if of_address.filter(released_at__gte=event.occurred_at).exists():
        return
    suppression = Suppression(
        tenant_id=event.account.tenant_id,
        normal=recipient,
        cause=cause,
        reason=event.reason,
        event=event,
        since=now,
    )
    # Another worker may suppress the same address now; the database takes one of the two.
    Suppression.objects.bulk_create([suppression], ignore_conflicts=True)
    if complained:  # the graver cause stands, whichever came first
        of_address.filter(released_at=None, cause=SuppressionCause.BOUNCED).update(
            cause=cause, reason=event.reason, event=event
        )


def _end_without_news(intent: SendIntent, now: datetime) -> None:
    if intent.status == Status.SUBMITTED:
        intent.deliveries.filter(state__in=OPEN_STATES).update(
            state=DeliveryState.NO_NEWS, changed_at=now
        )
        finish(intent, now=now)
