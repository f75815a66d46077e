"""What somebody with the database's own rights could do, whom no trigger stops."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.db.models import Model

from sends.models import triggers


@contextmanager
def no_triggers(model: type[Model]) -> Iterator[None]:
    """Change or delete rows of this table as if the triggers were not there."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            triggers.drop(connection)
            yield
            triggers.install(connection)
        else:
            # PostgreSQL alters no table with checks of foreign keys still to come.
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            cursor.execute(f'ALTER TABLE "{table}" DISABLE TRIGGER USER')
            yield
            cursor.execute(f'ALTER TABLE "{table}" ENABLE TRIGGER USER')
