"""What became of one recipient of an intent."""

from django.db import models
from django.db.models import Exists, OuterRef

from sends.models.base import Row
from sends.models.intents import SendIntent
from sends.models.suppressions import Suppression
from sends.models.tenants import Tenant
from sends.rules.statuses import DeliveryState


class RecipientKind(models.TextChoices):
    TO = "to", "To"
    CC = "cc", "Cc"
    BCC = "bcc", "Bcc"


class Deliveries(models.QuerySet["Delivery"]):
    def suppressed(self) -> "Deliveries":
        """Those whose address must not be sent to now, by the one normal form."""
        standing = Suppression.objects.filter(
            tenant=OuterRef("tenant"), normal=OuterRef("normal"), released_at=None
        )
        return self.filter(Exists(standing))


class Delivery(Row):
    """One recipient, from the creation of the intent on. `normal` is the form for matching.

    `failed_at` is when we learnt that it bounced, was refused or dropped. It is never forgotten,
    also where a state that outranks that one is shown: so what follows from it does not depend
    on the order in which events arrive.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="deliveries")
    intent = models.ForeignKey(SendIntent, models.PROTECT, related_name="deliveries")
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=3, choices=RecipientKind.choices)
    address = models.CharField(max_length=320)
    name = models.TextField(blank=True)
    normal = models.CharField(max_length=320)
    domain = models.CharField(max_length=255)
    state = models.CharField(
        max_length=10, choices=DeliveryState.choices, default=DeliveryState.WAITING
    )
    reason = models.TextField(blank=True)
    changed_at = models.DateTimeField(null=True)
    failed_at = models.DateTimeField(null=True)

    objects = models.Manager.from_queryset(Deliveries)()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["intent", "position"], name="delivery_position")
        ]
        indexes = [
            # Search by address, newest first; and what a suppression stops.
            models.Index(fields=["tenant", "normal", "-id"], name="delivery_address"),
            models.Index(fields=["tenant", "domain", "-id"], name="delivery_domain"),
        ]
