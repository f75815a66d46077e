"""Attempts: one effort each to submit an intent, its row written before the network is touched."""

from datetime import datetime

from django.db import models
from django.db.models import Q

from sends.models.accounts import Account
from sends.models.base import Row
from sends.models.intents import SendIntent
from sends.models.people import Person
from sends.rules.outcomes import Outcome, Phase
from sends.rules.statuses import Status


class Attempts(models.QuerySet["Attempt"]):
    def orphaned(self, before: datetime) -> "Attempts":
        """Open since before that moment, though their intent is not in flight any more."""
        return self.filter(closed_at=None, opened_at__lt=before).exclude(
            intent__status=Status.IN_FLIGHT
        )


class Attempt(Row):
    """One physical try. Closed once, and never rewritten: what is learnt later is evidence.

    `may_have_arrived` stays true until the provider itself answers otherwise: it binds the intent
    to its key's window. `request_digest` is of what went on the wire; the first dispatch of an
    intent fixes it for all.
    """

    intent = models.ForeignKey(SendIntent, models.PROTECT, related_name="attempts")
    number = models.PositiveIntegerField()
    account = models.ForeignKey(Account, models.PROTECT, related_name="attempts")
    scope = models.UUIDField()
    lease_token = models.UUIDField()
    worker = models.CharField(max_length=120)
    asked_by = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    idempotency_key = models.CharField(max_length=255)
    digest = models.CharField(max_length=64)
    contract = models.JSONField(default=dict)
    opened_at = models.DateTimeField()

    dispatched_at = models.DateTimeField(null=True)
    request_digest = models.CharField(max_length=64, blank=True)
    one_shot_token = models.CharField(max_length=255, blank=True)

    closed_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=16, choices=Outcome.choices, blank=True)
    reason = models.TextField(blank=True)
    phase = models.PositiveSmallIntegerField(choices=Phase.choices, default=Phase.PREPARED)
    may_have_arrived = models.BooleanField(default=False)
    error = models.CharField(max_length=40, blank=True)
    http_status = models.PositiveSmallIntegerField(null=True)
    code = models.CharField(max_length=120, blank=True)
    provider_message_id = models.CharField(max_length=255, blank=True)
    provider_thread_id = models.CharField(max_length=255, blank=True)
    replayed = models.BooleanField(default=False)
    bytes_sent = models.PositiveIntegerField(default=0)
    bytes_total = models.PositiveIntegerField(default=0)
    seconds = models.JSONField(default=dict)
    body = models.TextField(blank=True)
    retry_after = models.DurationField(null=True)
    next_attempt_at = models.DateTimeField(null=True)

    objects = models.Manager.from_queryset(Attempts)()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["intent", "number"], name="attempt_number"),
            models.UniqueConstraint(
                fields=["intent"], name="one_open_attempt", condition=Q(closed_at=None)
            ),
            models.CheckConstraint(
                name="closed_with_an_outcome",
                condition=Q(closed_at=None, outcome="")
                | (Q(closed_at__isnull=False) & ~Q(outcome="")),
            ),
        ]
        indexes = [
            # A late event or answer that names the provider's id.
            models.Index(
                fields=["account", "provider_message_id"],
                name="attempt_provider_id",
                condition=~Q(provider_message_id=""),
            )
        ]
