"""The list of emails that await a person: what is in it, how it is filtered, what comes next."""

import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Exists, F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import QueryDict

from sends.dashboard.requests import storable
from sends.models import Approval, Delivery, Membership, SendIntent, Verdict
from sends.rules.statuses import Status

PAGE = 50
MOST_CHOICES = 200
VIEWS = {"": "All", "second": "Second approval", "mine": "Approved by me", "runs": "By run"}


@dataclass(frozen=True)
class Filters:
    """What the address says about the list. Empty fields let everything through."""

    view: str = ""
    agent: str = ""
    run: str = ""
    sender: str = ""
    domain: str = ""
    template: str = ""
    after: str = ""

    @classmethod
    def read(cls, given: QueryDict) -> "Filters":
        found = {
            name: storable(given.get(name, ""))[:320] for name in (f.name for f in fields(cls))
        }
        found["view"] = found["view"] if found["view"] in VIEWS else ""
        found["after"] = str(_id_in(found["after"]) or "")
        return cls(**found)

    def query(self, **changes: str) -> str:
        """The address's query for this list with some fields changed: "?view=runs", or ""."""
        said = {name: value for name, value in (asdict(self) | changes).items() if value}
        return f"?{urlencode(said)}" if said else ""

    @property
    def narrows(self) -> bool:
        return bool(self.agent or self.run or self.sender or self.domain or self.template)

    def rows(self, rows: QuerySet[SendIntent]) -> QuerySet[SendIntent]:
        if self.agent:
            rows = rows.filter(agent__slug=self.agent)
        if self.run:
            rows = rows.filter(run__name=self.run)
        if self.sender:
            rows = rows.filter(sender__address__iexact=self.sender)
        if self.template:
            rows = rows.filter(template=self.template)
        if self.domain:
            there = Delivery.objects.filter(intent=OuterRef("pk"), domain=self.domain.lower())
            rows = rows.filter(Exists(there))
        return rows


def _id_in(word: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(word)
    except ValueError:
        return None


@dataclass
class Item:
    """One row of the list; `gone` says why it no longer waits, where it does not."""

    intent: SendIntent
    standing: int = 0
    is_open: bool = False
    gone: str = ""

    @property
    def number(self) -> int:
        return self.intent.action.number

    @property
    def more(self) -> int:
        return self.intent.recipient_count - 1

    @property
    def approvals(self) -> str:
        """ "1 of 2", where more than one person has to approve."""
        needed = self.intent.approvals_needed
        return f"{self.standing} of {needed}" if needed > 1 and self.standing else ""


def approvals_standing() -> QuerySet[Approval]:
    """For each row of a query of intents: the approvals of exactly its digest."""
    return Approval.objects.filter(
        intent=OuterRef("pk"), digest=OuterRef("digest"), verdict=Verdict.APPROVE, undone_at=None
    )


def items_of(rows: QuerySet[SendIntent]) -> list[Item]:
    """The rows with what the list shows of them: action, agent, run, how many approved."""
    count = approvals_standing().order_by().values("intent").annotate(n=Count("pk")).values("n")
    counted = rows.select_related("action", "agent", "run").annotate(
        standing=Coalesce(Subquery(count), 0)
    )
    return [Item(intent, standing=intent.standing) for intent in counted]


class Inbox:
    """One page of the list, oldest first, for one person."""

    def __init__(self, membership: Membership, filters: Filters) -> None:
        self.membership = membership
        self.filters = filters

    def _all(self) -> QuerySet[SendIntent]:
        rows: QuerySet[SendIntent] = SendIntent.objects.filter(
            tenant=self.membership.tenant, status=Status.AWAITING_APPROVAL
        )
        rows = self.filters.rows(rows)
        mine = Exists(approvals_standing().filter(person=self.membership.person))
        match self.filters.view:
            case "mine":
                return rows.filter(mine)
            case "second":
                return rows.filter(~mine, Exists(approvals_standing()))
        return rows.filter(~mine)

    @cached_property
    def _found(self) -> list[Item]:
        rows = self._all()
        if self.filters.view == "runs":
            return items_of(rows.order_by(F("run").asc(nulls_last=True), "id")[: PAGE + 1])
        if self.filters.after:
            rows = rows.filter(pk__gt=self.filters.after)
        return items_of(rows.order_by("id")[: PAGE + 1])

    @cached_property
    def items(self) -> list[Item]:
        return self._found[:PAGE]

    @property
    def groups(self) -> list[tuple[Any, list[Item]]]:
        """The items by run, for the view that is by run; else all in one group without a run."""
        if self.filters.view != "runs":
            return [(None, self.items)] if self.items else []
        found: dict[Any, list[Item]] = {}
        for item in self.items:
            found.setdefault(item.intent.run, []).append(item)
        return list(found.items())

    @property
    def is_cut(self) -> bool:
        return len(self._found) > PAGE

    @property
    def count(self) -> str:
        """How many are in this list, as far as one page shows: "12", "50+"."""
        return f"{len(self.items)}{'+' if self.is_cut or self.filters.after else ''}"

    @property
    def newer_query(self) -> str:
        if not self.is_cut or self.filters.view == "runs":
            return ""
        return self.filters.query(after=str(self.items[-1].intent.pk))

    @property
    def older_query(self) -> str | None:
        """Back to the oldest; None where they are shown."""
        return self.filters.query(after="") if self.filters.after else None

    def open(self, intent: SendIntent | None) -> None:
        for item in self.items:
            item.is_open = intent is not None and item.intent.pk == intent.pk

    def beside(self, intent: SendIntent) -> tuple[Item | None, Item | None, int]:
        """The items before and after it, and its place from 1; 0 where it is not in the list."""
        places = [item.intent.pk for item in self.items]
        if intent.pk not in places:
            later = [item for item in self.items if item.intent.pk > intent.pk]
            return None, next(iter(later), next(iter(self.items), None)), 0
        at = places.index(intent.pk)
        before = self.items[at - 1] if at else None
        after = self.items[at + 1] if at + 1 < len(self.items) else None
        return before, after, at + 1

    def choose(self, number: int | None) -> SendIntent | None:
        """The email with this number if it is in the list, else the first one, else None."""
        numbered = {item.number: item.intent for item in self.items}
        if number in numbered:
            return numbered[number]
        return self.items[0].intent if self.items else None

    def newer_than(self, ids: Sequence[uuid.UUID]) -> int:
        """How many came in after those that a page shows."""
        rows = self._all()
        if ids:
            rows = rows.filter(pk__gt=max(ids))
        return len(rows.values_list("pk", flat=True)[: PAGE + 1])

    @cached_property
    def choices(self) -> dict[str, list[str]]:
        """What can be filtered by: the values that occur among what waits."""
        rows = SendIntent.objects.filter(
            tenant=self.membership.tenant, status=Status.AWAITING_APPROVAL
        )
        found = rows.order_by().values_list("agent__slug", "sender__address", "template").distinct()
        columns = list(zip(*found[:MOST_CHOICES], strict=True)) or [(), (), ()]
        names = ("agent", "sender", "template")
        return {
            name: sorted({value for value in column if value})
            for name, column in zip(names, columns, strict=True)
        }


def gone_among(membership: Membership, ids: Sequence[uuid.UUID]) -> list[Item]:
    """Of the rows that a page shows, those which no longer wait, each saying why."""
    rows = SendIntent.objects.filter(tenant=membership.tenant, pk__in=ids)
    gone = items_of(rows.exclude(status=Status.AWAITING_APPROVAL).order_by("pk"))
    decisions = Approval.objects.filter(
        intent__in=[item.intent for item in gone], undone_at=None
    ).select_related("person")
    by = {decision.intent_id: decision for decision in decisions.order_by("pk")}
    for item in gone:
        item.gone = _why_gone(item.intent, by.get(item.intent.pk))
    return gone


def _why_gone(intent: SendIntent, decision: Approval | None) -> str:
    label = str(Status(intent.status).label)
    if decision is not None and decision.person is not None and intent.status in DECIDED:
        return f"{label} by {decision.person}"
    return label


DECIDED = {Status.QUEUED, Status.REJECTED, Status.CHANGES_REQUESTED}
