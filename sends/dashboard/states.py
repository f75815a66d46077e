"""An email's state as chips: what is shown of it in lists, and at the head of its page."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from django.db.models import Exists, OuterRef, Q, QuerySet

from sends.models import Approval, Delivery, SendIntent, Switch, SwitchKind, Verdict
from sends.rules.statuses import CLAIMABLE, DeliveryState, Status

# Of several recipients the first of these is shown: what most needs a look.
WORST_FIRST = (
    DeliveryState.COMPLAINED,
    DeliveryState.BOUNCED,
    DeliveryState.REFUSED,
    DeliveryState.DROPPED,
    DeliveryState.DEFERRED,
    DeliveryState.WAITING,
    DeliveryState.ACCEPTED,
    DeliveryState.NO_NEWS,
    DeliveryState.DELIVERED,
)


@dataclass(frozen=True)
class Chip:
    """What the template tag `chip` needs; `words` only where they say more than the state's."""

    state: str
    words: str = ""


def with_causes(intents: QuerySet[SendIntent]) -> QuerySet[SendIntent]:
    """The same rows, with what `chips_of` asks beside the status, in the same query."""
    closed = Switch.objects.exclude(causes=0)
    above = Q(pk=OuterRef("tenant")) | Q(pk=OuterRef("account")) | Q(pk=OuterRef("sender"))
    approved = Approval.objects.filter(
        intent=OuterRef("pk"), digest=OuterRef("digest"), verdict=Verdict.APPROVE, undone_at=None
    )
    return intents.annotate(
        is_halted=Exists(closed.filter(pk=OuterRef("run"))),
        is_stopped=Exists(closed.filter(above | Q(kind=SwitchKind.INSTALLATION))),
        is_approved_by_one=Exists(approved.exclude(person=None)),
    )


def chips_of(intent: SendIntent, deliveries: Sequence[Delivery]) -> list[Chip]:
    """The state of an intent that came through `with_causes`, and beside it what stops it."""
    if intent.accepted_at is not None:
        return delivery_chips(delivery.state for delivery in deliveries)
    if intent.status == Status.AWAITING_APPROVAL and _flag(intent, "is_approved_by_one"):
        return [Chip("more_approvals")]
    chips = [Chip(intent.status)]
    if intent.status == Status.DEAD_LETTER and intent.closed_at is not None:
        chips = [Chip(intent.status, "Dead letter, closed")]
    if intent.status in CLAIMABLE:
        chips += _hold(intent)
    return chips


def delivery_chips(states: Iterable[str]) -> list[Chip]:
    """The worst open state of the recipients, and how many of several were delivered."""
    found = Counter(DeliveryState(state) for state in states)
    if not found:
        return [Chip(Status.SUBMITTED)]
    worst = next(state for state in WORST_FIRST if found[state])
    # Of each recipient the provider said no more than that it took the email.
    chips = [Chip(Status.SUBMITTED if worst is DeliveryState.ACCEPTED else worst)]
    delivered = found[DeliveryState.DELIVERED]
    if delivered and worst is not DeliveryState.DELIVERED:
        chips.append(Chip(DeliveryState.DELIVERED, f"{delivered} of {found.total()} delivered"))
    return chips


def _hold(intent: SendIntent) -> list[Chip]:
    if _flag(intent, "is_halted"):
        return [Chip("halted")]
    return [Chip("on_hold")] if intent.holds or _flag(intent, "is_stopped") else []


def _flag(intent: SendIntent, name: str) -> bool:
    return cast(bool, getattr(intent, name))
