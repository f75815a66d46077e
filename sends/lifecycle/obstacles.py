"""What forbids that a version is approved, edited or sent again, each as a refusal in words."""

from datetime import datetime

from sends.lifecycle.refusals import (
    AlreadyAccepted,
    AlreadyDecided,
    InDoubt,
    InFlight,
    NotPossible,
    OtherVersionActive,
    Refused,
    RunEnded,
    Suppressed,
    VersionChanged,
)
from sends.models import Approval, SendIntent, Suppression, Verdict
from sends.rules.statuses import ACTIVE, HOLD_BITS, Hold, Status

DID = {
    Verdict.APPROVE: "approved it",
    Verdict.CHANGES: "asked for changes",
    Verdict.REJECT: "rejected it",
}


def refuse_older_version(intent: SendIntent) -> None:
    """Refuse unless this is the action's current version."""
    latest = intent.action.latest_version
    if intent.version == latest:
        return
    newer = SendIntent.objects.get(action=intent.action_id, version=latest)
    author = author_of(newer)
    raise VersionChanged(
        f"This email changed: {author} sent version {latest} at {moment(newer.created_at)}, and "
        f"you were looking at version {intent.version}, so nothing was decided.",
        who=author,
        at=newer.created_at,
    )


def refuse_other_digest(intent: SendIntent, seen: str) -> None:
    """Refuse unless the digest that the person saw is this version's."""
    if seen != intent.digest:
        raise VersionChanged(
            "What you saw is not this version of the email, so nothing was decided. "
            "Open it again and look at it."
        )


def refuse_cancel_asked(intent: SendIntent) -> None:
    if intent.holds & HOLD_BITS[Hold.CANCEL_ASKED]:
        raise NotPossible("This email is to be cancelled, so there is nothing left to decide.")


def refuse_ended_run(intent: SendIntent) -> None:
    if intent.run is not None and intent.run.ended_at is not None:
        ended_at = intent.run.ended_at
        raise RunEnded(f"Its run was ended at {moment(ended_at)}.", at=ended_at)


def refuse_other_active_version(intent: SendIntent) -> None:
    """Refuse while another version of the action is approved or may be on its way."""
    others = SendIntent.objects.filter(action=intent.action_id, status__in=ACTIVE)
    other = others.exclude(pk=intent.pk).first()
    if other is not None:
        raise active(other)


def active(other: SendIntent) -> OtherVersionActive:
    """The refusal for as long as this other version may be sent."""
    label = Status(other.status).label.lower()
    return OtherVersionActive(f"Version {other.version} of this email is {label}.")


def refuse_suppressed(intent: SendIntent) -> None:
    """Refuse while any recipient, To, Cc or Bcc, must not be sent to."""
    recipients = intent.deliveries.values("normal")
    suppressions = Suppression.objects.filter(
        tenant=intent.tenant_id, normal__in=recipients, released_at=None
    )
    suppression = suppressions.order_by("pk").first()
    if suppression is not None:
        raise suppressed(suppression)


def suppressed(suppression: Suppression) -> Suppressed:
    """The refusal for as long as this address must not be sent to."""
    return Suppressed(
        f"{suppression.normal} was suppressed at {moment(suppression.since)}: "
        f"{suppression.get_cause_display().lower()}. Edit the email, or leave it.",
        at=suppression.since,
        offer="edit",
    )


def refuse_out(intent: SendIntent) -> None:
    """Refuse where a provider took this version, may have, or is being asked to right now."""
    if intent.accepted_at is not None:
        raise AlreadyAccepted(
            f"The provider accepted version {intent.version} at {moment(intent.accepted_at)}. "
            "Send a follow-up instead.",
            at=intent.accepted_at,
            offer="follow_up",
        )
    if intent.in_doubt:
        raise InDoubt(
            f"We do not know whether version {intent.version} was accepted, and a new one could "
            f"arrive as a second email. Settle version {intent.version} first.",
            offer="settle",
        )
    if intent.status == Status.IN_FLIGHT:
        raise InFlight(
            f"Version {intent.version} is being sent since {moment(intent.status_at)}. "
            "Wait for the answer.",
            at=intent.status_at,
        )


def refuse_purged(intent: SendIntent) -> None:
    """Refuse where what the version said was deleted: there is nothing left to send."""
    if intent.purged_at is not None:
        raise purged(intent.purged_at)


def purged(at: datetime) -> NotPossible:
    """The refusal for all that needs what an email said, since that was deleted."""
    return NotPossible(
        f"What this email said was deleted at {moment(at)}. Only its history is left: nothing can "
        "be sent or written from it.",
        at=at,
    )


def why_decided(intent: SendIntent) -> Refused:
    """Who decided what, and when: the answer to whoever comes second."""
    status = Status(intent.status)
    if status is Status.CANCELLED:
        return AlreadyDecided(
            f"This email was cancelled at {moment(intent.status_at)}: {intent.end_reason}",
            at=intent.status_at,
        )
    decision = Approval.objects.filter(intent=intent, undone_at=None).order_by("-pk").first()
    if decision is None:
        return AlreadyDecided(f"This email is {status.label.lower()}; there is nothing to decide.")
    who = str(decision.person or "policy")
    note = f": {decision.note}" if decision.note else ""
    return AlreadyDecided(
        f"Already decided. {who} {DID[Verdict(decision.verdict)]} at "
        f"{moment(decision.made_at)}{note}",
        who=who,
        at=decision.made_at,
    )


def author_of(intent: SendIntent) -> str:
    """Who wrote this version, as the audit log names an actor."""
    if intent.author is not None:
        return intent.author.email
    return f"agent:{intent.agent.slug}" if intent.agent is not None else "system"


def moment(at: datetime) -> str:
    """A moment in words. The screens, which know the reader's zone, use the refusal's `at`."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
