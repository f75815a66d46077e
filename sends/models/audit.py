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
        indexes = [
            models.Index(fields=["tenant", "target", "-id"], name="audit_target"),
            # The list, narrowed to one person or one kind of decision.
            models.Index(fields=["tenant", "actor", "-sequence"], name="audit_actor"),
            models.Index(fields=["tenant", "verb", "-sequence"], name="audit_verb"),
        ]


class AuditCheckpoint(Row):
    """Where a chain goes on after its older entries were exported and cut off.

    `sequence` and `hash` are those of the last entry that may be gone. Rows are never changed and
    never deleted. The signature is `lifecycle.audit`'s.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="audit_checkpoints")
    sequence = models.BigIntegerField()
    hash = models.CharField(max_length=64)
    made_at = models.DateTimeField()
    signature = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "sequence"], name="checkpoint_sequence")
        ]
