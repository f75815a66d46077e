"""Provider accounts, by reference to their credentials, and the senders that use them."""

from datetime import timedelta

from django.db import models

from sends.models.base import Row, new_id
from sends.models.tenants import Tenant


class Account(Row):
    """Credentials at one provider.

    `credential` and `webhook_secrets` are references ("env:NAME", "file:PATH"), never the
    secrets. `scope` stands for the organisation at the provider in which a key is known: it
    changes when the credential or the address may mean another one, and a replay needs the
    scope of its attempt. `options` are the adapter's own, checked by it.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="accounts")
    slug = models.SlugField(max_length=63)
    provider = models.CharField(max_length=63)
    base_url = models.CharField(max_length=255, blank=True)
    credential = models.CharField(max_length=255)
    webhook_secrets = models.JSONField(default=list)
    scope = models.UUIDField(default=new_id)
    concurrency = models.PositiveIntegerField(default=16)
    request_deadline = models.DurationField(default=timedelta(seconds=20))
    connect_timeout = models.DurationField(default=timedelta(seconds=5))
    replay_window = models.DurationField(null=True, blank=True)
    no_replay = models.BooleanField(default=False)
    options = models.JSONField(default=dict)
    webhook_seen_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "slug"], name="account_slug")]

    def __str__(self) -> str:
        return self.slug


class Sender(Row):
    """An address that messages come from. `options` are provider-specific ids."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="senders")
    account = models.ForeignKey(Account, models.PROTECT, related_name="senders")
    address = models.CharField(max_length=254)
    name = models.CharField(max_length=200, blank=True)
    options = models.JSONField(default=dict)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant", "address"], name="sender_address")]

    def __str__(self) -> str:
        return self.address
