"""Agents, the programs that propose, and the tokens they are known by."""

from typing import ClassVar

from django.db import models

from sends.models.base import Row
from sends.models.tenants import Tenant


class Agent(Row):
    """A program that proposes messages."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="agents")
    slug = models.SlugField(max_length=63)
    name = models.CharField(max_length=120, blank=True)
    sender = models.ForeignKey("Sender", models.PROTECT, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "slug"], name="agent_slug")]

    def __str__(self) -> str:
        return self.slug


class Scope(models.TextChoices):
    """What a token may do. There is none that approves."""

    SUBMIT = "submit", "Propose messages"
    READ = "read", "Read what became of them"
    WITHDRAW = "withdraw", "Take them back"


class Token(Row):
    """A bearer token of one agent. Only its SHA-256 is kept; the token is shown once."""

    SCOPES: ClassVar[tuple[str, ...]] = tuple(Scope.values)

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="tokens")
    agent = models.ForeignKey(Agent, models.PROTECT, related_name="tokens")
    name = models.CharField(max_length=120)
    digest = models.CharField(max_length=64, unique=True)
    hint = models.CharField(max_length=8)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent", "name"], name="token_name")]
