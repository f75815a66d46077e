"""The one installation, its programs as they last showed themselves, and its restores."""

from django.db import models
from django.db.models import Q
from django.utils.crypto import salted_hmac

from sends.models.base import Row


class Installation(Row):
    """This installation: one row. Its id is the scope of the switch above all others.

    `home` is where this database was when it was last used. `beats` counts up for as long as any
    program lives, and each data folder keeps a copy of it: a database that is behind a folder is
    an older copy. `backup_at` is set in backups alone, and says when they were made.
    """

    only = models.BooleanField(default=True, unique=True, editable=False)
    name = models.CharField(max_length=120, default="Outbox")
    created_at = models.DateTimeField(auto_now_add=True)
    home = models.CharField(max_length=1000, blank=True)
    beats = models.BigIntegerField(default=0)
    beat_at = models.DateTimeField(null=True)
    backup_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(only=True), name="one_installation")]


class Program(models.TextChoices):
    WEB = "web", "Web server"
    WORKER = "worker", "Worker"


class Beat(Row):
    """One program as it last showed itself: by its own clock, and by the database's.

    `key_fingerprint` and `url` are alike in all programs of one installation.
    """

    program = models.CharField(max_length=6, choices=Program.choices)
    host = models.CharField(max_length=255)
    folder = models.CharField(max_length=1000)
    url = models.CharField(max_length=255)
    key_fingerprint = models.CharField(max_length=16)
    own_clock = models.DateTimeField()
    at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["program", "host", "folder"], name="one_beat_a_program")
        ]

    def __str__(self) -> str:
        return f"{self.get_program_display().lower()} on {self.host}"


class RestoreKind(models.TextChoices):
    BACKUP = "backup", "it is a backup that was put in place"
    OLDER = "older", "it knows less than its data folder remembers"
    ELSEWHERE = "elsewhere", "it is not where it was when it was last used"
    DECLARED = "declared", "an operator says so"


class Restore(Row):
    """That this database may be a copy of one that went on without it.

    Whatever it knows as unsent may have been sent since `made_at`. `settled_at` is when that was
    looked after; until then nothing is sent.
    """

    kind = models.CharField(max_length=9, choices=RestoreKind.choices)
    made_at = models.DateTimeField()
    noticed_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)


def key_fingerprint() -> str:
    """What tells one secret key from another, and says nothing of it."""
    return salted_hmac("sends.beat", "installation").hexdigest()[:16]
