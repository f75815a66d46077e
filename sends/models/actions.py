"""One business action: message #48213 on the dashboard, and its versions in order."""

from django.db import models
from django.db.models import Q

from sends.models.agents import Agent
from sends.models.base import Row
from sends.models.runs import Run
from sends.models.tenants import Tenant


class Action(Row):
    """The row that is locked first by whoever decides anything about one of its versions.

    `latest_version` counts the versions; the intent with that version is the current one.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="actions")
    number = models.BigIntegerField()
    action_key = models.CharField(max_length=255)
    key_derived = models.BooleanField(default=False)
    agent = models.ForeignKey(Agent, models.PROTECT, null=True, related_name="actions")
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="actions")
    triggered_by = models.CharField(max_length=255, blank=True)
    purpose = models.CharField(max_length=255, blank=True)
    follows = models.ForeignKey("self", models.PROTECT, null=True, related_name="follow_ups")
    latest_version = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "number"], name="action_number"),
            models.UniqueConstraint(fields=["tenant", "action_key"], name="action_key"),
            models.UniqueConstraint(
                fields=["tenant", "triggered_by", "purpose"],
                name="action_trigger",
                condition=~Q(triggered_by=""),
            ),
        ]
