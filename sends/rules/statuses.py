"""Every status of an intent, every legal transition, and the words people read for them.

This table is the one source: `lifecycle.transitions` moves along it, the database triggers are
made from it, and the chart in `sends/README.md` and the words on the screens are read from it.
"""

from dataclasses import dataclass

from django.db.models import TextChoices


class Status(TextChoices):
    """Two questions: may it be sent, and did the provider take it. Deliveries answer the third."""

    AWAITING_APPROVAL = "awaiting_approval", "Awaiting approval"
    CHANGES_REQUESTED = "changes_requested", "Changes requested"
    REJECTED = "rejected", "Rejected"
    QUEUED = "queued", "Approved"
    IN_FLIGHT = "in_flight", "Sending"
    RETRY_SCHEDULED = "retry_scheduled", "Retry scheduled"
    UNCERTAIN = "uncertain", "Uncertain"
    SUBMITTED = "submitted", "Accepted by provider"
    DONE = "done", "Done"
    DEAD_LETTER = "dead_letter", "Dead letter"
    SUPERSEDED = "superseded", "Superseded"
    CANCELLED = "cancelled", "Cancelled"


S = Status

SENTENCES: dict[Status, str] = {
    S.AWAITING_APPROVAL: "A person has to decide; nothing has been sent.",
    S.CHANGES_REQUESTED: "Sent back; the agent may answer with a new version.",
    S.REJECTED: "A person said no; the agent can read why.",
    S.QUEUED: "Decided; it goes out when the undo time is over.",
    S.IN_FLIGHT: "A worker is talking to the provider right now.",
    S.RETRY_SCHEDULED: "We try again at the time shown, with the same email and the same key.",
    S.UNCERTAIN: (
        "We do not know whether the provider took this email; "
        "nothing more is sent until it is settled."
    ),
    S.SUBMITTED: "The provider took the email; delivery news is still to come.",
    S.DONE: "The provider took the email, and its deliveries have ended or there is no more news.",
    S.DEAD_LETTER: "We stopped trying; the reason is shown and nothing is retried by itself.",
    S.SUPERSEDED: "A newer version replaced this one; this one is never sent again.",
    S.CANCELLED: (
        "Taken back before anything was sent: by a person, by the agent, or because it lapsed: "
        "nobody decided, or it could not go out in time."
    ),
}


@dataclass(frozen=True)
class Transition:
    """One legal edge of the chart, and in words when it is taken."""

    before: Status
    after: Status
    when: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(S.AWAITING_APPROVAL, S.QUEUED, "enough people, or policy, approved this digest"),
    Transition(S.AWAITING_APPROVAL, S.REJECTED, "a person says no"),
    Transition(S.AWAITING_APPROVAL, S.CHANGES_REQUESTED, "a person asks for changes"),
    Transition(S.AWAITING_APPROVAL, S.CANCELLED, "withdrawn, or nobody decided in time"),
    Transition(S.AWAITING_APPROVAL, S.SUPERSEDED, "the next version was created"),
    Transition(S.CHANGES_REQUESTED, S.SUPERSEDED, "the next version was created"),
    Transition(S.CHANGES_REQUESTED, S.CANCELLED, "withdrawn, or nobody answered in time"),
    Transition(S.CHANGES_REQUESTED, S.AWAITING_APPROVAL, "undone within the undo time"),
    Transition(S.REJECTED, S.AWAITING_APPROVAL, "undone within the undo time"),
    Transition(S.QUEUED, S.IN_FLIGHT, "claimed"),
    Transition(S.QUEUED, S.AWAITING_APPROVAL, "approval undone, or too old"),
    Transition(S.QUEUED, S.CANCELLED, "withdrawn, not needed, too late"),
    Transition(S.QUEUED, S.SUPERSEDED, "the next version was created"),
    Transition(S.QUEUED, S.DEAD_LETTER, "suppressed since, or its key's window closed"),
    Transition(S.QUEUED, S.SUBMITTED, "evidence proves acceptance"),
    Transition(S.QUEUED, S.UNCERTAIN, "may have been sent after the backup that was restored"),
    Transition(S.IN_FLIGHT, S.SUBMITTED, "accepted"),
    Transition(S.IN_FLIGHT, S.RETRY_SCHEDULED, "will try again"),
    Transition(S.IN_FLIGHT, S.QUEUED, "released before dispatch, not in doubt"),
    Transition(S.IN_FLIGHT, S.UNCERTAIN, "in doubt, and no replay is allowed or left"),
    Transition(S.IN_FLIGHT, S.DEAD_LETTER, "refused, or retries used up; not in doubt"),
    Transition(S.IN_FLIGHT, S.CANCELLED, "a cancel was asked meanwhile, and nothing was taken"),
    Transition(S.RETRY_SCHEDULED, S.IN_FLIGHT, "due, and claimed"),
    Transition(S.RETRY_SCHEDULED, S.UNCERTAIN, "in doubt, and the key's window is closing"),
    Transition(S.RETRY_SCHEDULED, S.AWAITING_APPROVAL, "approval too old; not in doubt"),
    Transition(S.RETRY_SCHEDULED, S.CANCELLED, "withdrawn, not needed, too late; not in doubt"),
    Transition(S.RETRY_SCHEDULED, S.SUPERSEDED, "the next version was created; not in doubt"),
    Transition(S.RETRY_SCHEDULED, S.DEAD_LETTER, "suppressed, window closed; not in doubt"),
    Transition(S.RETRY_SCHEDULED, S.SUBMITTED, "evidence proves acceptance"),
    Transition(S.UNCERTAIN, S.RETRY_SCHEDULED, "a person replays the same key in its window"),
    Transition(S.UNCERTAIN, S.DEAD_LETTER, "found not accepted, with evidence"),
    Transition(S.UNCERTAIN, S.SUBMITTED, "evidence proves acceptance"),
    Transition(S.DEAD_LETTER, S.QUEUED, "requeued; never accepted"),
    Transition(S.DEAD_LETTER, S.SUPERSEDED, "the next version was created; never accepted"),
    Transition(S.DEAD_LETTER, S.CANCELLED, "withdrawn, not needed; never accepted"),
    Transition(S.DEAD_LETTER, S.SUBMITTED, "evidence proves acceptance; none was recorded"),
    Transition(S.DEAD_LETTER, S.UNCERTAIN, "may have been sent after the backup; never accepted"),
    Transition(S.SUBMITTED, S.DONE, "every delivery ended and not all failed, or no more news"),
    Transition(S.SUBMITTED, S.DEAD_LETTER, "every recipient bounced, was refused or dropped"),
    Transition(S.DONE, S.DEAD_LETTER, "every recipient bounced, was refused or dropped"),
)

LEGAL: dict[Status, frozenset[Status]] = {
    before: frozenset(edge.after for edge in TRANSITIONS if edge.before is before)
    for before in Status
}

# Only these may be true together with `in_doubt`; with UNCERTAIN it always is.
MAY_BE_IN_DOUBT = frozenset({S.IN_FLIGHT, S.RETRY_SCHEDULED, S.UNCERTAIN})
# The version that a provider may be asked to take now: at most one of an action.
ACTIVE = frozenset({S.QUEUED, S.IN_FLIGHT, S.RETRY_SCHEDULED, S.UNCERTAIN})
# A provider took it; `accepted_at` is set in the first two and may be in the third.
ACCEPTED = frozenset({S.SUBMITTED, S.DONE})
# Approved: `approved_digest` equals `digest`, says the database.
APPROVED = frozenset({S.QUEUED, S.IN_FLIGHT, S.RETRY_SCHEDULED})
CLAIMABLE = frozenset({S.QUEUED, S.RETRY_SCHEDULED})
# A person said no, and may take that back for the undo time.
SENT_BACK = frozenset({S.REJECTED, S.CHANGES_REQUESTED})
UNDECIDED = frozenset({S.AWAITING_APPROVAL, S.CHANGES_REQUESTED})
# A decision or a timer is still to come; the rest only waits for news of deliveries, or nothing.
UNFINISHED = UNDECIDED | ACTIVE
# Where an intent may end. One that was rejected is over when that can no longer be undone, a dead
# letter when a person closed it.
ENDED = frozenset({S.DONE, S.CANCELLED, S.SUPERSEDED, S.REJECTED, S.DEAD_LETTER})
# Evidence that a provider took one of these contradicts a promise: an anomaly.
NEVER_SENT = UNDECIDED | frozenset({S.REJECTED, S.CANCELLED, S.SUPERSEDED})


class Hold(TextChoices):
    """Words for each cause in the bit mask `SendIntent.holds`; bits are in `HOLD_BITS`."""

    ANOMALY = "anomaly", "An anomaly of this message has to be looked at first."
    CANCEL_ASKED = "cancel_asked", "It is to be cancelled as soon as it is certain."
    RESTORED = "restored", "The database was restored from a backup; a person has to look."


HOLD_BITS: dict[Hold, int] = {Hold.ANOMALY: 1, Hold.CANCEL_ASKED: 2, Hold.RESTORED: 4}


def holds_in(mask: int) -> list[Hold]:
    """The causes set in a mask, in a fixed order."""
    return [hold for hold, bit in HOLD_BITS.items() if mask & bit]


class DeliveryState(TextChoices):
    """What became of one recipient; `rules.deliveries` derives it from the set of its events."""

    WAITING = "waiting", "Waiting"
    ACCEPTED = "accepted", "Accepted by provider"
    DEFERRED = "deferred", "Deferred"
    DELIVERED = "delivered", "Delivered"
    NO_NEWS = "no_news", "No news"
    DROPPED = "dropped", "Dropped"
    REFUSED = "refused", "Refused"
    BOUNCED = "bounced", "Bounced"
    COMPLAINED = "complained", "Complained"


DELIVERY_SENTENCES: dict[DeliveryState, str] = {
    DeliveryState.WAITING: "Nothing has been sent to this address yet.",
    DeliveryState.ACCEPTED: "The provider took the email; news is still to come.",
    DeliveryState.DEFERRED: (
        "The recipient's server asked to try later; the provider keeps trying by itself."
    ),
    DeliveryState.DELIVERED: (
        "The recipient's mail server took the email; it does not mean anybody read it."
    ),
    DeliveryState.NO_NEWS: "The provider took the email; we never heard what became of it.",
    DeliveryState.DROPPED: "The provider took the email but did not pass it on.",
    DeliveryState.REFUSED: "The provider refused this recipient.",
    DeliveryState.BOUNCED: (
        "The recipient's server refused the email for good; the address is suppressed."
    ),
    DeliveryState.COMPLAINED: (
        "The recipient reported the email as spam; the address is suppressed."
    ),
}

DELIVERY_ENDED = frozenset(
    {
        DeliveryState.DELIVERED,
        DeliveryState.NO_NEWS,
        DeliveryState.DROPPED,
        DeliveryState.REFUSED,
        DeliveryState.BOUNCED,
        DeliveryState.COMPLAINED,
    }
)
DELIVERY_FAILED = frozenset({DeliveryState.DROPPED, DeliveryState.REFUSED, DeliveryState.BOUNCED})
