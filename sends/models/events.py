"""What providers told us by webhook, kept as they said it."""

from typing import ClassVar

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


class ProviderEvent(Row):
    """One event about one message and at most one recipient.

    `event_id` is the provider's own and unique in the account; `fingerprint` is made of message,
    recipient, kind and time and absorbs what is sent again under a new id. A batch makes several
    rows with the same `raw` bytes.
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
    raw = models.BinaryField()
    state = models.CharField(max_length=8, choices=EventState.choices, default=EventState.RECEIVED)
    intent = models.ForeignKey(SendIntent, models.PROTECT, null=True, related_name="events")
    matched_by = models.CharField(max_length=20, blank=True)
    applied_at = models.DateTimeField(null=True)

    objects: ClassVar[models.Manager["ProviderEvent"]] = models.Manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["account", "event_id"], name="event_once")]
        indexes = [
            # What is still to be applied, oldest first: the wake's question.
            models.Index(fields=["id"], name="event_new", condition=Q(state="received")),
            # Parked events, looked for when an id arrives.
            models.Index(
                fields=["account", "provider_message_id"],
                name="event_parked",
                condition=Q(state="parked"),
            ),
            models.Index(fields=["account", "fingerprint"], name="event_fingerprint"),
        ]
