"""Programs show that they live, each by its own clock and by the database's."""

import logging
import socket
import time
from datetime import timedelta

from django.db import DatabaseError, connection, transaction
from django.db.models import F
from django.utils import timezone

from sends.conf import conf
from sends.lifecycle.folder import Memory, remember
from sends.lifecycle.restores import notice
from sends.models import Beat, Installation, Program, database_now
from sends.models.installations import key_fingerprint

logger = logging.getLogger(__name__)

EVERY = timedelta(seconds=15)
FORGOTTEN_AFTER = timedelta(days=1)


def beat(program: Program) -> None:
    """Show that this program lives; its data folder remembers how far the database has come."""
    with transaction.atomic():
        # First, so that programs that beat at once wait here and nowhere else.
        Installation.objects.update(beats=F("beats") + 1)
        own_clock, now = timezone.now(), database_now()
        Installation.objects.update(beat_at=now)
        Beat.objects.update_or_create(
            program=program,
            host=socket.gethostname(),
            folder=str(conf.data_dir),
            defaults={
                "url": conf.url,
                "key_fingerprint": key_fingerprint(),
                "own_clock": own_clock,
                "at": now,
            },
        )
        Beat.objects.filter(at__lt=now - FORGOTTEN_AFTER).delete()
        installation = Installation.objects.get()
    remember(Memory(installation.pk, installation.beats))


def keep_beating(program: Program) -> None:
    """For a thread of its own: look at the database, and beat, for as long as the process lives."""
    while True:
        try:
            notice()
            beat(program)
        except (DatabaseError, OSError, Installation.DoesNotExist):
            logger.exception("a beat failed; the next one may not")
        finally:
            connection.close()  # nobody else ends what this thread has opened
        time.sleep(EVERY.total_seconds())
