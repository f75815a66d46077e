"""What happened to one attempt, and the outcome that follows from it and the contract."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from django.db.models import IntegerChoices, TextChoices

from sends.rules.contracts import Contract


class Outcome(TextChoices):
    """What one attempt told us. The word beside each is what people read."""

    ACCEPTED = "accepted", "accepted by provider"
    ACCEPTED_IN_PART = "accepted_in_part", "accepted for some recipients"
    NOT_SENT = "not_sent", "not sent, nothing can have arrived"
    RELEASED = "released", "stopped before dispatch"
    THROTTLED = "throttled", "told to slow down, nothing taken"
    TRANSIENT = "transient", "refused for now, nothing taken"
    AMBIGUOUS = "ambiguous", "no clear answer"
    REFUSED = "refused", "refused"
    SUPPRESSED = "suppressed", "no deliverable recipients"
    BLOCKED = "blocked", "blocked by the provider"
    KEY_CONFLICT = "key_conflict", "the provider knows this key with another request"
    KEY_IN_PROGRESS = "key_in_progress", "the provider is still working on this key"
    INTERNAL = "internal", "our own fault, before sending"


O = Outcome  # noqa: E741 - the table below is read as a table

TOOK_IT = frozenset({O.ACCEPTED, O.ACCEPTED_IN_PART})
# The provider may have taken it, and this attempt alone cannot tell.
DOUBTFUL = frozenset({O.AMBIGUOUS, O.KEY_CONFLICT, O.KEY_IN_PROGRESS})
# Only these use up the retries of an intent.
COUNTED = frozenset({O.NOT_SENT, O.TRANSIENT, O.AMBIGUOUS})


class Phase(IntegerChoices):
    """How far one request got. Everything from DISPATCHED on may have been taken."""

    PREPARED = 0, "not begun"
    CONNECTING = 1, "connecting"
    CONNECTED = 2, "connected, nothing written"
    DISPATCHED = 3, "request partly written"
    SENT = 4, "request written"
    ANSWERING = 5, "answer begun"
    ANSWERED = 6, "answered"


class BlockScope(StrEnum):
    """What a refusal for the credential, plan or quota is about."""

    MESSAGE = "message"
    SENDER = "sender"
    ACCOUNT = "account"


@dataclass(frozen=True)
class Happened:
    """The facts of one attempt, as the HTTP room and the adapter saw them.

    `error` names what broke ("connect_timeout", "reset", "deadline", ...), "" when an answer was
    read; "too_late" is our own stop just before the first byte. `status` is the HTTP status, None
    without one. `code` is the provider's own error code. `proof` is the provider's id for the
    message, "" when the answer carried none: without it a success is not believed. `retry_after`
    is the wait the provider asked for, None when it gave none or an absurd one. An adapter that
    knows better than the general table sets `says`, and says with each 3xx, 401, 402 and 403
    what it `block`s.
    """

    phase: Phase
    error: str = ""
    status: int | None = None
    code: str = ""
    message: str = ""
    proof: str = ""
    thread: str = ""
    replayed: bool = False
    refused: tuple[str, ...] = ()
    retry_after: timedelta | None = None
    says: Outcome | None = None
    block: BlockScope | None = None
    bytes_sent: int = 0
    bytes_total: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    body: str = ""


BLOCKED_STATUSES = frozenset({401, 402, 403})
MAYBE_TAKEN_STATUSES = frozenset({408})


def classify(happened: Happened, contract: Contract) -> Outcome:
    """The outcome of one attempt. What is not known to be harmless is ambiguous."""
    if happened.says is not None:
        return happened.says
    if happened.error == "too_late":
        return O.RELEASED
    if happened.status is None:
        return O.NOT_SENT if happened.phase < Phase.DISPATCHED else O.AMBIGUOUS
    return _of_status(happened, happened.status, contract)


def _of_status(happened: Happened, status: int, contract: Contract) -> Outcome:
    if 200 <= status < 300:
        if not happened.proof:
            return O.AMBIGUOUS
        return O.ACCEPTED_IN_PART if happened.refused else O.ACCEPTED
    if status == 429:
        return O.THROTTLED
    if status in contract.took_nothing:
        return O.TRANSIENT
    if status in MAYBE_TAKEN_STATUSES or status >= 500 or status < 200:
        return O.AMBIGUOUS
    if status in BLOCKED_STATUSES or 300 <= status < 400:
        return O.BLOCKED
    return O.REFUSED
