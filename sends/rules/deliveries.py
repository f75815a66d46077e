"""A recipient's events, in any order, and what became of that recipient."""

from collections.abc import Iterable

from django.db.models import TextChoices

from sends.rules.statuses import DeliveryState


class EventKind(TextChoices):
    """A provider's event in our words; each adapter maps its own. UNKNOWN proves nothing."""

    ACCEPTED = "accepted", "Accepted by provider"
    DELIVERED = "delivered", "Delivered"
    DEFERRED = "deferred", "Deferred"
    BOUNCED = "bounced", "Bounced"
    SOFT_BOUNCED = "soft_bounced", "Bounced for now"
    COMPLAINED = "complained", "Complained"
    UNSUBSCRIBED = "unsubscribed", "Unsubscribed"
    REFUSED = "refused", "Refused by the provider"
    DROPPED = "dropped", "Dropped by the provider"
    UNKNOWN = "unknown", "Unknown event"


# The provider had taken the message when any of these happened.
PROVES_TAKEN = frozenset(EventKind) - {EventKind.UNKNOWN}
# Reasons never to send to this address again.
SUPPRESSES = frozenset({EventKind.BOUNCED, EventKind.COMPLAINED})

_STATE_OF = {
    EventKind.ACCEPTED: DeliveryState.ACCEPTED,
    EventKind.DEFERRED: DeliveryState.DEFERRED,
    EventKind.SOFT_BOUNCED: DeliveryState.DEFERRED,
    EventKind.UNSUBSCRIBED: DeliveryState.DELIVERED,  # who unsubscribes has read it
    EventKind.DELIVERED: DeliveryState.DELIVERED,
    EventKind.DROPPED: DeliveryState.DROPPED,
    EventKind.REFUSED: DeliveryState.REFUSED,
    EventKind.BOUNCED: DeliveryState.BOUNCED,
    EventKind.COMPLAINED: DeliveryState.COMPLAINED,
}

# Worst last: a hard bounce or a complaint outranks "delivered" and is never forgotten. A server
# that took the mail and bounced it afterwards has sent both events.
_RANK = {
    state: rank
    for rank, state in enumerate(
        (
            DeliveryState.WAITING,
            DeliveryState.ACCEPTED,
            DeliveryState.NO_NEWS,
            DeliveryState.DEFERRED,
            DeliveryState.DROPPED,
            DeliveryState.REFUSED,
            DeliveryState.DELIVERED,
            DeliveryState.BOUNCED,
            DeliveryState.COMPLAINED,
        )
    )
}


def state_after(state: DeliveryState, kinds: Iterable[EventKind]) -> DeliveryState:
    """The state of a recipient in `state` once these events are known too.

    The greatest by rank: so the order and the number of times in which events arrive never
    matter. UNKNOWN changes nothing.
    """
    reached = [_STATE_OF[kind] for kind in kinds if kind is not EventKind.UNKNOWN]
    return max([state, *reached], key=_RANK.__getitem__)
