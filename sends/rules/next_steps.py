"""What an agent should do next, for every status of its intent."""

from dataclasses import dataclass

from django.db.models import TextChoices

from sends.rules.statuses import SENTENCES, Status


class Step(TextChoices):
    """One word that a program can follow."""

    WAIT = "wait", "Nothing to do; look again later."
    FIX = "fix", "Change the request, or answer with a new version."
    DO_NOT_RESEND = "do_not_resend", "Handled; do not send this message again in any way."
    ASK_A_PERSON = "ask_a_person", "Only a person can go on from here."


@dataclass(frozen=True)
class NextStep:
    step: Step
    sentence: str


STEPS: dict[Status, Step] = {
    Status.AWAITING_APPROVAL: Step.WAIT,
    Status.CHANGES_REQUESTED: Step.FIX,
    Status.REJECTED: Step.DO_NOT_RESEND,
    Status.QUEUED: Step.WAIT,
    Status.IN_FLIGHT: Step.WAIT,
    Status.RETRY_SCHEDULED: Step.WAIT,
    # An agent that reads "unknown" must not read "failed": a second message is the worst answer.
    Status.UNCERTAIN: Step.DO_NOT_RESEND,
    Status.SUBMITTED: Step.DO_NOT_RESEND,
    Status.DONE: Step.DO_NOT_RESEND,
    Status.DEAD_LETTER: Step.ASK_A_PERSON,
    Status.SUPERSEDED: Step.DO_NOT_RESEND,
    Status.CANCELLED: Step.DO_NOT_RESEND,
}
ON_PURPOSE = (
    "This is the answer to an earlier request; nothing new was created. To change the message, "
    "POST the new content to its versions while it is current; to send another one on purpose, "
    "use a new action_key."
)


def next_step(status: Status, *, replayed: bool = False) -> NextStep:
    """The next step for an agent whose intent is in `status`, with a sentence that says why."""
    said = f"{SENTENCES[status]} {STEPS[status].label}"
    return NextStep(STEPS[status], f"{said} {ON_PURPOSE}" if replayed else said)
