"""What was created or changed since an agent last asked, such that it misses nothing."""

import uuid
from dataclasses import dataclass, replace
from datetime import datetime

from sends.models import Agent, Restore, SendIntent, database_now
from sends.models.changes import settled_below
from sends.models.intents import Intents

LOWEST = -(2**63)
FIRST, LAST = uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)


@dataclass(frozen=True)
class Place:
    """How far an agent has read.

    There are two streams: changes, by their mark, and decisions against a message, by the moment
    from which they cannot be undone, since only then are they told. `restore` is the last restore
    of the database before this place: after another one the marks mean something else.
    """

    restore: uuid.UUID
    mark: int
    intent: uuid.UUID
    final_at: datetime
    final: uuid.UUID


@dataclass(frozen=True)
class Changed:
    """Intents as they are now, oldest change first; `more` if there are others already."""

    intents: list[SendIntent]
    place: Place
    more: bool


class OtherDatabase(Exception):
    """The place is one of before the database was restored."""


def beginning() -> Place:
    """The place before everything."""
    return Place(_restore(), LOWEST, FIRST, database_now(), FIRST)


def here(agent: Agent) -> Place:
    """The place after everything that can be read now. Ask before reading it."""
    return Place(_restore(), settled_below(agent.pk) - 1, LAST, database_now(), FIRST)


def changed_since(
    place: Place, intents: Intents, *, agent: Agent, most: int, now: datetime
) -> Changed:
    """Those of `intents`, the agent's, that were created or changed after this place.

    Each comes at least once after it changed, and once for several changes at a time. Whatever
    commits after `now` was read comes after the new place. Raises OtherDatabase.
    """
    if place.restore != _restore():
        raise OtherDatabase
    below = settled_below(agent.pk)
    found = list(intents.changed_after(place.mark, place.intent, before=below)[: most + 1])
    if len(found) > most:
        last = found[most - 1]
        place = replace(place, mark=last.change_mark, intent=last.pk)
        return Changed(found[:most], place, more=True)
    if below - 1 >= place.mark:
        place = replace(place, mark=below - 1, intent=LAST)

    room = most - len(found)
    final = list(intents.final_after(place.final_at, place.final, now=now)[: room + 1])
    more = len(final) > room
    final = final[:room]
    if final and more and (at := final[-1].undo_until):
        place = replace(place, final_at=at, final=final[-1].pk)
    elif not more and now > place.final_at:
        place = replace(place, final_at=now, final=FIRST)
    told = {intent.pk for intent in found}
    return Changed([*found, *(one for one in final if one.pk not in told)], place, more)


def _restore() -> uuid.UUID:
    last: uuid.UUID | None = Restore.objects.order_by("-pk").values_list("pk", flat=True).first()
    return last or FIRST
