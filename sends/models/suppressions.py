"""Addresses that must not be sent to, and why."""

from django.db import models
from django.db.models import Q

from sends.models.base import Row
from sends.models.events import ProviderEvent
from sends.models.people import Person
from sends.models.tenants import Tenant


class SuppressionCause(models.TextChoices):
    BOUNCED = "bounced", "It bounced"
    COMPLAINED = "complained", "The recipient complained"
    PERSON = "person", "A person suppressed it"


class Suppression(Row):
    """One address, in its normal form, from `since` until `released_at`."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="suppressions")
    normal = models.CharField(max_length=320)
    cause = models.CharField(max_length=10, choices=SuppressionCause.choices)
    reason = models.TextField(blank=True)
    event = models.ForeignKey(ProviderEvent, models.PROTECT, null=True, related_name="+")
    person = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    since = models.DateTimeField()
    released_at = models.DateTimeField(null=True)
    released_by = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    release_reason = models.TextField(blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "normal"],
                name="suppressed_once",
                condition=Q(released_at=None),
            )
        ]
