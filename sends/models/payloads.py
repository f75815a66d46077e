"""What an intent says, as the bytes that its digest is of."""

from django.db import models

from sends.models.intents import SendIntent


class Payload(models.Model):
    """The canonical JSON of one intent's message (`rules.payloads`), and what the agent sent along.

    Bytes, never a JSON column: a database that rewrites JSON would break the seal. The metadata
    is the agent's own and goes to no provider. Retention deletes the row: `SendIntent.purged_at`.
    """

    intent = models.OneToOneField(
        SendIntent, models.PROTECT, primary_key=True, related_name="payload"
    )
    body = models.BinaryField()
    metadata = models.BinaryField(default=b"{}")
