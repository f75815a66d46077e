"""The files that emails carry: their bytes once a tenant, and which intents carry them."""

from django.db import models
from django.db.models import Exists, OuterRef

from sends.models.base import Row
from sends.models.intents import SendIntent
from sends.models.tenants import Tenant


class Contents(models.QuerySet["AttachmentContent"]):
    def unused(self) -> "Contents":
        """Those that no intent carries any more. Lock them before they are deleted.

        Their bytes are left where they are: to delete rows Django reads them.
        """
        carried = AttachmentUse.objects.filter(content=OuterRef("pk"))
        return self.filter(~Exists(carried)).defer("body")


class AttachmentContent(Row):
    """The bytes of a file, however many emails of the tenant carry it and under what names.

    Names and types are the email's own, in its payload.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="+")
    sha256 = models.CharField(max_length=64)
    size = models.PositiveBigIntegerField()
    body = models.BinaryField()
    created_at = models.DateTimeField()

    objects = models.Manager.from_queryset(Contents)()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "sha256"], name="attachment_once_a_tenant")
        ]

    def __str__(self) -> str:
        return self.sha256


class AttachmentUse(models.Model):
    """An intent carries a file. Deleted with its payload, so that what nobody carries can go."""

    intent = models.ForeignKey(SendIntent, models.PROTECT, related_name="attachment_uses")
    content = models.ForeignKey(AttachmentContent, models.PROTECT, related_name="uses")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["intent", "content"], name="attachment_use_once")
        ]
