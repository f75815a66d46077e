"""What would become of a proposal: the intake itself, taken back before anybody can see it."""

from dataclasses import dataclass

from django.db import transaction

from sends.lifecycle import intake
from sends.lifecycle.intake import Taken
from sends.lifecycle.refusals import Refused
from sends.lifecycle.versions import SuppressedRecipient, refuse_suppressed
from sends.models import Agent, database_now
from sends.rules.payloads import Mailbox
from sends.rules.proposals import Proposal, Wrong, WrongProposal


@dataclass(frozen=True)
class Simulated:
    """What intake would answer: an intent, or its refusal. `suppressed` names every recipient
    that must not be sent to, whatever else is wrong.

    An intent that is not a replay never was: only its own columns and what was there before it
    may be read.
    """

    taken: Taken | None
    refusal: Exception | None
    suppressed: tuple[Wrong, ...]


def simulate(proposal: Proposal, *, agent: Agent) -> Simulated:
    """Take the proposal in and take that back: no row, no number, no run is left of it.

    It is no second reading of the rules, which could come to differ from the first. While it
    runs, intakes of the same tenant wait for it, as they do for each other.
    """
    taken, refusal = None, None
    with transaction.atomic():
        try:
            taken = intake.propose(proposal, agent=agent, now=database_now())
        except (Refused, WrongProposal) as error:
            refusal = error
        transaction.set_rollback(True)
    return Simulated(taken, refusal, _suppressed(proposal, agent))


def _suppressed(proposal: Proposal, agent: Agent) -> tuple[Wrong, ...]:
    try:
        refuse_suppressed(agent.tenant, proposal.message(Mailbox("")))
    except SuppressedRecipient as found:
        return found.errors
    return ()
