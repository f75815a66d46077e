"""What providers told us by webhook, kept as they said it."""

from collections.abc import Iterable

from django.db import models
from django.db.models import Q

from sends.models.accounts import Account
from sends.models.base import Row
from sends.models.intents import SendIntent
from sends.rules.deliveries import EventKind


class EventState(models.TextChoices):
    RECEIVED = "received", "Received"
    APPLIED = "applied", "Applied"
    PARKED = "parked", "Matches nothing yet"
    FOREIGN = "foreign", "Not ours"
    FAILED = "failed", "Could not be applied"


class MatchedBy(models.TextChoices):
    PROVIDER_ID = "provider_id", "The provider's message id"
    TAG = "tag", "Our tag"
    MESSAGE_ID = "message_id", "The Message-ID"


class Events(models.QuerySet["ProviderEvent"]):
    def to_apply(self) -> "Events":
        """What nobody has looked at yet, oldest first: the wake's own question."""
        return self.filter(state=EventState.RECEIVED).order_by("id")

    def parked_for(self, intents: Iterable[SendIntent]) -> "Events":
        """What matched nothing when it came, and names one of these now that ids are known."""
        intents = list(intents)
        ids = [intent.provider_message_id for intent in intents if intent.provider_message_id]
        return self.filter(
            Q(provider_message_id__in=ids)
            | Q(tag__in=[intent.pk.hex for intent in intents])
            | Q(message_id__in=[intent.message_id for intent in intents]),
            state=EventState.PARKED,
            account__in={intent.account_id for intent in intents},
        )


class ProviderEvent(Row):
    """One event about one message and at most one recipient.

    `event_id` is the provider's own and unique in the account; `fingerprint` is made of message,
    recipient, kind and time and absorbs what is sent again under a new id. A batch makes several
    rows with the same `raw` bytes; `request_id` names the request that brought it, in the log.
    `error` says why it is FAILED, `purged_at` when `raw` was emptied.
    """

    account = models.ForeignKey(Account, models.PROTECT, related_name="events")
    event_id = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64)
    kind = models.CharField(max_length=12, choices=EventKind.choices)
    recipient = models.CharField(max_length=320, blank=True)
    provider_message_id = models.CharField(max_length=255, blank=True)
    tag = models.CharField(max_length=255, blank=True)
    message_id = models.CharField(max_length=255, blank=True)
    reason = models.TextField(blank=True)
    occurred_at = models.DateTimeField()
    received_at = models.DateTimeField()
    request_id = models.CharField(max_length=64, blank=True)
    raw = models.BinaryField()
    state = models.CharField(max_length=8, choices=EventState.choices, default=EventState.RECEIVED)
    intent = models.ForeignKey(SendIntent, models.PROTECT, null=True, related_name="events")
    matched_by = models.CharField(max_length=20, choices=MatchedBy.choices, blank=True)
    applied_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True)
    purged_at = models.DateTimeField(null=True)

    objects = models.Manager.from_queryset(Events)()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "event_id"], name="event_once")]
        indexes = [
            # What is still to be applied, oldest first: the wake's question.
            models.Index(fields=["id"], name="event_new", condition=Q(state="received")),
            # Parked events, looked for when an id arrives: one index for each thing they may name.
            models.Index(
                fields=["account", "provider_message_id"],
                name="event_parked",
                condition=Q(state="parked"),
            ),
            models.Index(
                fields=["account", "tag"], name="event_parked_tag", condition=Q(state="parked")
            ),
            models.Index(
                fields=["account", "message_id"],
                name="event_parked_message_id",
                condition=Q(state="parked"),
            ),
            models.Index(fields=["account", "fingerprint"], name="event_fingerprint"),
            # Retention: those that still have their raw bytes, the oldest first.
            models.Index(
                fields=["account", "received_at"],
                name="event_to_purge",
                condition=Q(purged_at=None),
            ),
        ]
