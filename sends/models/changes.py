"""The order in which intents were created and moved, such that nothing is ever added before it.

Every intent has a `change_mark`, given by a trigger. On PostgreSQL it is the number of the
transaction. A transaction that began earlier may commit later, so whoever reads takes only what
is below the oldest one that is still open: below that, nothing can come any more.
"""

import uuid

from django.db import connection, transaction
from django.db.models import F, Max

from sends.models.agents import Agent
from sends.models.intents import SendIntent

SETTLED = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
NEXT = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


def settled_below(agent_id: uuid.UUID) -> int:
    """Every change of this agent's intents with a lower mark has been committed and can be read."""
    if connection.vendor == "postgresql":
        return _asked(SETTLED)
    return (_highest(agent_id) or 0) + 1


def renumber() -> int:
    """Make the marks smaller than those that come, where they are not; by how much they were not.

    A dump that was restored on another server has marks of a server that had made more
    transactions. They keep their order.
    """
    if connection.vendor != "postgresql":
        return 0
    with transaction.atomic():
        agents = Agent.objects.values_list("pk", flat=True)
        highest = max((_highest(agent_id) or 0 for agent_id in agents), default=0)
        ahead = highest - _asked(NEXT) + 1
        if ahead > 0:
            SendIntent.objects.update(change_mark=F("change_mark") - ahead)
    return max(0, ahead)


def _highest(agent_id: uuid.UUID) -> int | None:
    found: int | None = SendIntent.objects.filter(agent=agent_id).aggregate(
        highest=Max("change_mark")
    )["highest"]
    return found


def _asked(sql: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        number: int = cursor.fetchone()[0]
        return number
