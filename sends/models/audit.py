"""The append-only record of what people and programs decided, one chain of hashes a tenant."""

from django.db import models

from sends.models.base import Row
from sends.models.tenants import Tenant


class AuditEntry(Row):
    """One entry. `hash` is over `previous` and every other field: `lifecycle.audit`."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="audit_entries")
    sequence = models.BigIntegerField()
    at = models.DateTimeField()
    actor = models.CharField(max_length=254)
    verb = models.CharField(max_length=60)
    target = models.CharField(max_length=255)
    reason = models.TextField(blank=True)
    facts = models.BinaryField(default=b"{}")
    previous = models.CharField(max_length=64)
    hash = models.CharField(max_length=64)

    class Meta:
        constraints = [
            # Two writers that read the same end of the chain cannot both append to it.
            models.UniqueConstraint(fields=["tenant", "sequence"], name="audit_sequence")
        ]
        indexes = [models.Index(fields=["tenant", "target", "-id"], name="audit_target")]
