"""What people, and policy, decided about a version; and the answers to repeated clicks."""

from django.db import models
from django.db.models import Q

from sends.models.base import Row
from sends.models.intents import SendIntent
from sends.models.people import Person


class Verdict(models.TextChoices):
    APPROVE = "approve", "Approved"
    CHANGES = "changes", "Asked for changes"
    REJECT = "reject", "Rejected"


class ReasonCode(models.TextChoices):
    WRONG_FACTS = "wrong_facts", "Wrong facts"
    WRONG_RECIPIENT = "wrong_recipient", "Wrong recipient"
    TONE = "tone", "Tone"
    NOT_NEEDED = "not_needed", "Not needed"
    AGAINST_POLICY = "against_policy", "Against policy"
    DUPLICATE = "duplicate", "Duplicate"
    OTHER = "other", "Other"


class Approval(Row):
    """One decision about one digest. `person` is null where policy approved (`rule` says which).

    Written once; only `undone_at`, `undone_by` and `undo_reason` are set later, once.
    """

    intent = models.ForeignKey(SendIntent, models.PROTECT, related_name="approvals")
    digest = models.CharField(max_length=64)
    verdict = models.CharField(max_length=8, choices=Verdict.choices)
    person = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    rule = models.CharField(max_length=600, blank=True)
    reason_code = models.CharField(max_length=15, choices=ReasonCode.choices, blank=True)
    note = models.TextField(blank=True)
    made_at = models.DateTimeField()
    undone_at = models.DateTimeField(null=True)
    undone_by = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    undo_reason = models.CharField(max_length=255, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["intent", "person"],
                name="one_standing_decision",
                condition=Q(undone_at=None, person__isnull=False),
            )
        ]


class ActionResult(Row):
    """The answer to one deciding form, kept so that a double click does nothing twice."""

    person = models.ForeignKey(Person, models.PROTECT, related_name="+")
    action_id = models.UUIDField()
    verb = models.CharField(max_length=40)
    result = models.JSONField(default=dict)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["person", "action_id"], name="one_result_an_action")
        ]
