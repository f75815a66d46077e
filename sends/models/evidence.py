"""Facts for or against acceptance of an intent, from whatever source."""

from django.db import models

from sends.models.attempts import Attempt
from sends.models.base import Row
from sends.models.intents import SendIntent
from sends.models.people import Person


class EvidenceKind(models.TextChoices):
    EVENT = "event", "Provider event"
    LOOK_UP = "look_up", "Provider look-up"
    LATE_ANSWER = "late_answer", "Late answer"
    REPLAY = "replay", "Answer to a replay"
    PERSON = "person", "A person's finding"


class Direction(models.TextChoices):
    ACCEPTED = "accepted", "Points to accepted"
    NOT_ACCEPTED = "not_accepted", "Points to not accepted"
    NEITHER = "neither", "Proves nothing"


class Evidence(Row):
    """One fact, never changed. `proves` settles the question; anything else is for a person."""

    intent = models.ForeignKey(SendIntent, models.PROTECT, related_name="evidence")
    attempt = models.ForeignKey(Attempt, models.PROTECT, null=True, related_name="evidence")
    kind = models.CharField(max_length=12, choices=EvidenceKind.choices)
    direction = models.CharField(max_length=12, choices=Direction.choices)
    proves = models.BooleanField(default=False)
    summary = models.TextField()
    value = models.TextField(blank=True)
    person = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    confirms = models.ForeignKey("self", models.PROTECT, null=True, related_name="confirmations")
    found_at = models.DateTimeField()
