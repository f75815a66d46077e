"""What an approval does to an intent: when there are enough of them it is queued."""

from datetime import datetime, timedelta

from sends.lifecycle.transitions import move
from sends.models import Approval, Policy, SendIntent, Verdict
from sends.rules.backoff import NOTHING
from sends.rules.statuses import Status


def approve_by_policy(intent: SendIntent, *, rule: str, now: datetime) -> None:
    """Approve what policy asks nobody about, in the transaction that created the intent.

    The caller has the action locked and has checked everything that a person's approval checks.
    There is no undo time, since nobody is there to undo it.
    """
    if intent.approvals_needed or intent.author_id is not None:
        raise ValueError(f"{intent} needs a person's approval")
    Approval.objects.create(
        intent=intent, digest=intent.digest, verdict=Verdict.APPROVE, rule=rule, made_at=now
    )
    queue(intent, undo_time=NOTHING, now=now)


def standing_approvals(intent: SendIntent) -> list[Approval]:
    """The approvals of exactly this version and digest that nobody took back, oldest first."""
    return list(
        Approval.objects.filter(
            intent=intent, digest=intent.digest, verdict=Verdict.APPROVE, undone_at=None
        )
        .select_related("person")
        .order_by("pk")
    )


def people_missing(intent: SendIntent) -> int:
    """How many more people have to approve.

    At least one must have, even where policy asked for none: then an approval of policy has
    lapsed or been taken back. Whoever wrote the version is never its only approver.
    """
    people = {approval.person_id for approval in standing_approvals(intent)} - {None}
    missing = max(intent.approvals_needed, 1) - len(people)
    return max(missing, 0 if people - {intent.author_id} else 1)


def earliest_attempt(intent: SendIntent, *, undo_time: timedelta, now: datetime) -> datetime:
    """When the first attempt may begin if the intent is approved now."""
    floors = (now + undo_time, intent.not_before, intent.not_sooner_than)
    return max(moment for moment in floors if moment is not None)


def queue(intent: SendIntent, *, undo_time: timedelta, now: datetime) -> None:
    """Move an approved intent to QUEUED: a new period of retries begins."""
    policy = Policy.objects.get(tenant=intent.tenant_id)
    earliest = earliest_attempt(intent, undo_time=undo_time, now=now)
    move(
        intent,
        Status.QUEUED,
        now=now,
        approved_digest=intent.digest,
        approved_at=now,
        approval_expires_at=now + policy.approval_valid_for,
        undo_until=earliest,
        next_attempt_at=earliest,
        retrying_since=now,
        retries_counted=0,
        tries=0,
    )


def return_to_approval(intent: SendIntent, *, now: datetime, drop: str = "") -> None:
    """Back to AWAITING_APPROVAL, with time to decide even where that had passed.

    `drop` says why the approvals collected so far no longer count; without it they stay.
    """
    if drop:
        standing = Approval.objects.filter(intent=intent, verdict=Verdict.APPROVE, undone_at=None)
        standing.update(undone_at=now, undo_reason=drop)
    decide_by = intent.decide_by
    if decide_by is not None and decide_by <= now:
        decide_by = now + Policy.objects.get(tenant=intent.tenant_id).decide_by
    move(
        intent,
        Status.AWAITING_APPROVAL,
        now=now,
        decide_by=decide_by,
        approved_digest="",
        approved_at=None,
        approval_expires_at=None,
        undo_until=None,
        next_attempt_at=None,
        end_reason="",
    )
