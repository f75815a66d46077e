"""What every table shares: keys that sort by time, and the database's clock."""

import uuid
from datetime import datetime

import uuid_utils.compat
from django.db import connection, models
from django.utils import timezone


def new_id() -> uuid.UUID:
    """A UUID version 7 (RFC 9562): keys sort by the time at which they were made."""
    return uuid_utils.compat.uuid7()


class Row(models.Model):
    """A table with a primary key that sorts by time."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)

    class Meta:
        abstract = True


def first_id(moment: datetime) -> uuid.UUID:
    """The lowest key of that millisecond: keys begin with 48 bits of Unix time."""
    return uuid.UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)


def database_now() -> datetime:
    """The clock that every decision uses: the database's, so that machines need not agree.

    Read it once at the top of a transaction and hand it down. SQLite has no clock of its own:
    its file is on this machine, and so is the clock.
    """
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now: datetime = cursor.fetchone()[0]
        return now
