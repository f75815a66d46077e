"""Whether anything may be sent through a scope now: the row that a claim reads under lock."""

import uuid
from collections.abc import Collection
from datetime import datetime

from django.db import connection, models
from django.db.models import Q

from sends.models.base import Row
from sends.models.tenants import Tenant


class SwitchKind(models.TextChoices):
    INSTALLATION = "installation", "All sending"
    TENANT = "tenant", "Tenant"
    ACCOUNT = "account", "Account"
    SENDER = "sender", "Sender"
    RUN = "run", "Run"


class Cause(models.IntegerChoices):
    """Bits of `Switch.causes`. Each is set and cleared by its own cause only."""

    PAUSED = 1, "Paused by a person"
    BLOCKED = 2, "Blocked by the provider"


class SwitchRows(models.QuerySet["Switch"]):
    def off(self, now: datetime) -> "SwitchRows":
        """Scopes through which nothing may be sent at `now`."""
        return self.filter(~Q(causes=0) | Q(resume_at__gt=now))

    def closed_among(self, ids: Collection[uuid.UUID], now: datetime) -> set[uuid.UUID]:
        """Which of these scopes are closed, read under a lock that keeps them so.

        Whoever turns a switch off waits for the transactions that read it as on, and everyone
        after that reads it as off. SQLite's immediate transactions do that by themselves. The
        lock is a shared one, so that workers do not wait for each other.
        """
        rows = self.filter(pk__in=ids).order_by("pk")
        if connection.vendor == "postgresql":
            sql, params = rows.values("id", "causes", "resume_at").query.sql_with_params()
            with connection.cursor() as cursor:
                cursor.execute(f"{sql} FOR SHARE", params)
                found = cursor.fetchall()
        else:
            found = list(rows.values_list("id", "causes", "resume_at"))
        return {pk for pk, causes, resume_at in found if causes or (resume_at and resume_at > now)}


class Switch(Row):
    """One scope's switch. Its id is the id of the installation, tenant, account, sender or run."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, null=True, related_name="switches")
    kind = models.CharField(max_length=12, choices=SwitchKind.choices)
    causes = models.PositiveSmallIntegerField(default=0)
    resume_at = models.DateTimeField(null=True, blank=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_by = models.CharField(max_length=254, blank=True)
    pause_reason = models.TextField(blank=True)
    blocked_at = models.DateTimeField(null=True, blank=True)
    block_reason = models.TextField(blank=True)

    objects = models.Manager.from_queryset(SwitchRows)()

    class Meta:
        # The few closed scopes, asked for by every claim and every page.
        indexes = [models.Index(fields=["kind"], name="switch_off", condition=~Q(causes=0))]
