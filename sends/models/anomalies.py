"""Facts that contradict a promise; an admin must look."""

from django.db import models
from django.db.models import Q

from sends.models.actions import Action
from sends.models.base import Row
from sends.models.intents import SendIntent
from sends.models.people import Person
from sends.models.tenants import Tenant


class AnomalyKind(models.TextChoices):
    ACCEPTED_UNSENT = "accepted_unsent", "A version that was not to be sent was accepted"
    KEY_CONFLICT = "key_conflict", "The provider knows our key with another request"
    DIGEST_DIFFERS = "digest_differs", "The stored bytes are not what was approved"
    TWICE = "twice", "The provider accepted it more than once"


class Anomaly(Row):
    """Stops every unsent version of its action until it is closed."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="anomalies")
    action = models.ForeignKey(Action, models.PROTECT, related_name="anomalies")
    intent = models.ForeignKey(SendIntent, models.PROTECT, related_name="anomalies")
    kind = models.CharField(max_length=16, choices=AnomalyKind.choices)
    detail = models.TextField()
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    closed_by = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    close_reason = models.TextField(blank=True)

    class Meta:
        constraints = [
            # The same contradiction, told again, is one anomaly.
            models.UniqueConstraint(
                fields=["intent", "kind"], name="one_open_anomaly", condition=Q(closed_at=None)
            )
        ]
        indexes = [
            models.Index(fields=["tenant", "-id"], name="anomaly_open", condition=Q(closed_at=None))
        ]
