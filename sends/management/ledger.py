"""The database that the commands need, looked at before anything is done with it."""

from django.core.management import CommandError
from django.db import connection
from django.db.utils import Error as DatabaseError

from sends.models import Installation, triggers


def require_ledger() -> None:
    """Raise CommandError unless the database answers and has the ledger with its triggers."""
    try:
        is_set_up = Installation._meta.db_table in connection.introspection.table_names()
        absent = triggers.missing(connection)
    except DatabaseError as error:
        raise CommandError(f"The database cannot be used: {error}".strip()) from None
    if not is_set_up:
        raise CommandError("The database is not set up yet. Run: manage.py migrate")
    if absent:
        raise CommandError(
            "The database lacks the triggers that guard it"
            f" ({', '.join(absent)}). Run: manage.py migrate"
        )
