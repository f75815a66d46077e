"""The strip that takes back what a person decided last, while that is still possible."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.urls import reverse

from sends.models import Approval, Membership, SendIntent, Verdict, new_id
from sends.reports.waiting import why_not_yet
from sends.rules.statuses import Status
from sends.templatetags.outbox import in_words

# A decision older than this is looked for among the messages, not in the strip.
RECENT = timedelta(minutes=10)
MOST = 50
STILL: dict[str, tuple[Status, ...]] = {
    Verdict.APPROVE: (Status.QUEUED, Status.AWAITING_APPROVAL),
    Verdict.CHANGES: (Status.CHANGES_REQUESTED,),
    Verdict.REJECT: (Status.REJECTED,),
}
DID = {
    Verdict.APPROVE: "approved",
    Verdict.CHANGES: "sent back",
    Verdict.REJECT: "rejected",
}
UNDO = {
    Verdict.APPROVE: "Undo approval",
    Verdict.CHANGES: "Undo request",
    Verdict.REJECT: "Undo rejection",
}


@dataclass(frozen=True)
class Undo:
    """What `sends/parts/_undo.html` shows."""

    title: str
    text: str
    url: str
    words: str
    verb: str
    done: str
    seconds: int = 0
    of_seconds: int = 1
    waits: str = ""

    @property
    def action_id(self) -> str:
        return str(new_id())


def undo_of(membership: Membership, now: datetime, query: str = "") -> Undo | None:
    """The strip for this person's last decision that can be taken back; None for none."""
    decisions = [
        decision
        for decision in Approval.objects.filter(
            person=membership.person,
            undone_at=None,
            made_at__gt=now - RECENT,
            intent__tenant=membership.tenant,
        )
        .select_related("intent__action", "intent__account", "intent__sender", "intent__tenant")
        .order_by("-pk")[:MOST]
        if _is_open(decision, now)
    ]
    return _strip(decisions[0], len(decisions), now, query) if decisions else None


def _is_open(decision: Approval, now: datetime) -> bool:
    intent = decision.intent
    if intent.status not in STILL[decision.verdict]:
        return False
    if intent.version != intent.action.latest_version:
        return False
    if intent.status == Status.AWAITING_APPROVAL:
        return True
    if intent.status == Status.QUEUED:
        # A worker that is stopped has not taken it yet, however long ago the time was over.
        return intent.attempt_count == 0
    return intent.undo_until is not None and intent.undo_until > now


def _strip(decision: Approval, count: int, now: datetime, query: str) -> Undo:
    intent, verdict = decision.intent, Verdict(decision.verdict)
    number = intent.action.number
    is_half = intent.status == Status.AWAITING_APPROVAL
    title = f"#{number} {DID[verdict]}" if not is_half else f"#{number}: 1 of 2 approvals"
    return Undo(
        title=f"{count} decided, last {title}" if count > 1 else title,
        text=f"to {intent.first_recipient}" if verdict is Verdict.APPROVE else "",
        url=reverse("dashboard:undo", args=[number]) + query,
        words="Undo last" if count > 1 else UNDO[verdict],
        verb="Sends in" if verdict is Verdict.APPROVE else "The agent reads it in",
        done="Sending now" if verdict is Verdict.APPROVE else "The agent can read it now",
        **_time_left(intent, verdict, now),
    )


def _time_left(intent: SendIntent, verdict: Verdict, now: datetime) -> dict[str, Any]:
    """The countdown, or why there is none."""
    if intent.status == Status.AWAITING_APPROVAL:
        return {"waits": "Waits for another person."}
    until, since = intent.undo_until, intent.approved_at or intent.status_at
    if verdict is Verdict.APPROVE:
        waiting = why_not_yet(intent, now)
        if waiting is not None and waiting.until is None:
            return {"waits": waiting.sentence}
        until = intent.next_attempt_at
    assert until is not None
    left = until - now
    if left > timedelta(hours=1):
        return {"waits": f"Sends in {in_words(left.total_seconds())}."}
    seconds = max(0, math.ceil(left.total_seconds()))
    whole = max(seconds, math.ceil((until - since).total_seconds()), 1)
    return {"seconds": seconds, "of_seconds": whole}
