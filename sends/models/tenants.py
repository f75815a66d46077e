"""Tenants, and each tenant's policy."""

from datetime import timedelta

from django.db import models
from django.db.models import F, Q

from sends.models.base import Row
from sends.rules.decisions import RetryPolicy
from sends.rules.policy import Rule
from sends.rules.statuses import Status


class Tenant(Row):
    """One organisation's walled garden. Nothing matches or shows across it."""

    slug = models.SlugField(max_length=63, unique=True)
    name = models.CharField(max_length=120)
    is_demo = models.BooleanField(default=False)
    last_number = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name

    def take_number(self) -> int:
        """The next short number of an action ("#48213"). Call inside the creating transaction.

        The UPDATE locks the row until that transaction ends, so numbers have no gaps but those
        of a rollback, and no two actions share one.
        """
        Tenant.objects.filter(pk=self.pk).update(last_number=F("last_number") + 1)
        self.refresh_from_db(fields=["last_number"])
        return self.last_number


class Policy(Row):
    """How a tenant's intents are approved and retried, and what is kept. One row a tenant."""

    tenant = models.OneToOneField(Tenant, models.PROTECT, related_name="policy")
    approvals = models.PositiveSmallIntegerField(default=1)
    undo_time = models.DurationField(default=timedelta(seconds=30))
    decide_by = models.DurationField(default=timedelta(days=7))
    approval_valid_for = models.DurationField(default=timedelta(days=7))
    max_attempts = models.PositiveIntegerField(default=40)
    max_age = models.DurationField(default=timedelta(hours=24))
    backoff_base = models.DurationField(default=timedelta(seconds=1))
    backoff_cap = models.DurationField(default=timedelta(minutes=15))
    retry_limit = models.PositiveIntegerField(default=40)
    lease = models.DurationField(default=timedelta(seconds=120))
    second_operator = models.BooleanField(default=True)
    # Who has this role or a higher one signs in with a second factor; None: nobody has to.
    second_factor_from_role = models.PositiveSmallIntegerField(null=True)
    # How long what an email said is kept once it ended like this; null is for ever.
    keep_done = models.DurationField(null=True, default=timedelta(days=365))
    keep_cancelled = models.DurationField(null=True, default=timedelta(days=90))
    keep_superseded = models.DurationField(null=True, default=timedelta(days=90))
    keep_rejected = models.DurationField(null=True, default=timedelta(days=90))
    keep_dead_letter = models.DurationField(null=True, default=timedelta(days=365))
    # The raw bytes of provider events; entries of the audit log, before an export may cut them.
    keep_events = models.DurationField(null=True, default=timedelta(days=90))
    keep_audit = models.DurationField(null=True, default=None)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(approvals__lte=2), name="policy_at_most_two_people"),
            models.CheckConstraint(condition=Q(max_attempts__gte=1), name="policy_one_attempt"),
        ]

    def keeps(self, status: Status) -> timedelta | None:
        """How long what an email said is kept once it ended like this; None for ever."""
        kept: timedelta | None = getattr(self, f"keep_{status}")
        return kept

    @property
    def retries(self) -> RetryPolicy:
        return RetryPolicy(
            max_attempts=self.max_attempts,
            max_age=self.max_age,
            base=self.backoff_base,
            cap=self.backoff_cap,
        )


class PolicyRule(Row):
    """One line of a tenant's approval policy; empty fields match anything."""

    policy = models.ForeignKey(Policy, models.CASCADE, related_name="rules")
    position = models.PositiveSmallIntegerField()
    agent = models.CharField(max_length=63, blank=True)
    template = models.CharField(max_length=255, blank=True)
    recipient_domain = models.CharField(max_length=255, blank=True)
    approvals = models.PositiveSmallIntegerField()

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["policy", "position"], name="policy_rule_position"),
            models.CheckConstraint(condition=Q(approvals__lte=2), name="rule_at_most_two_people"),
        ]

    @property
    def rule(self) -> Rule:
        return Rule(
            approvals=self.approvals,
            agent=self.agent,
            template=self.template,
            recipient_domain=self.recipient_domain,
        )
