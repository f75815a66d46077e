"""One execution of an agent, with a retry budget."""

from django.db import models

from sends.models.agents import Agent
from sends.models.base import Row
from sends.models.tenants import Tenant


class Run(Row):
    """The agent's own name for one execution. Whether it is halted says its switch."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="runs")
    agent = models.ForeignKey(Agent, models.PROTECT, related_name="runs")
    name = models.CharField(max_length=255)
    retry_limit = models.PositiveIntegerField()
    retries_used = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    end_reason = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "agent", "name"], name="run_name")]
        # The list of runs, newest first.
        indexes = [models.Index(fields=["tenant", "-started_at", "-id"], name="run_newest")]

    def __str__(self) -> str:
        return self.name
