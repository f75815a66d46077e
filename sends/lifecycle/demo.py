"""Demonstration data: an installation in the middle of a working day, made by its own steps."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from sends.lifecycle import demo_emails, halts, intake, review
from sends.lifecycle.claim import open_attempt
from sends.lifecycle.configure import configure
from sends.lifecycle.settle import Aftermath, settle_attempt
from sends.lifecycle.transitions import move_all
from sends.models import (
    Account,
    Agent,
    Membership,
    Person,
    Role,
    SendIntent,
    Tenant,
    database_now,
)
from sends.providers.http import clock
from sends.rules.configuration import Configuration
from sends.rules.outcomes import Happened, Phase
from sends.rules.proposals import parse
from sends.rules.statuses import CLAIMABLE

WORKER = "demonstration"
BEGAN = timedelta(hours=6)
QUICK = timedelta(seconds=0.2)
# What each of the attempts met, as the HTTP room would have written it down.
NOT_REACHED = Happened(
    Phase.CONNECTING, error="refused", message="connection refused", bytes_total=1840
)
REFUSED = Happened(
    Phase.ANSWERED,
    status=400,
    code="bad_request",
    message="The request is not understood.",
    bytes_sent=2210,
    bytes_total=2210,
    body='{"error": {"code": "bad_request", "message": "The request is not understood."}}',
)
NO_ANSWER = Happened(
    Phase.SENT, error="deadline", message="no answer in time", bytes_sent=2604, bytes_total=2604
)


@dataclass(frozen=True)
class SignIn:
    email: str
    password: str = field(repr=False)
    role: str


@dataclass(frozen=True)
class Access:
    """How people and agents get in."""

    agent_token: str = field(repr=False)
    people: tuple[SignIn, ...]


def load(
    configuration: Configuration, *, keep: Callable[[Access], None], now: datetime | None = None
) -> bool:
    """Fill an empty database; false, and nothing done, where there is a tenant already.

    `keep` is given the only copy of passwords and token; if it fails, nothing was loaded.
    """
    with transaction.atomic():
        if Tenant.objects.exists():
            return False
        now = now or database_now()
        applied = configure(configuration, now=now - BEGAN)
        tenant = Tenant.objects.get()
        tenant.is_demo = True
        tenant.save(update_fields=["is_demo"])
        people = tuple(_let_in(tenant))
        _Day(tenant, now).lived()
        keep(Access(applied.made_tokens[0].token, people))
    return True


def follow_sandbox(base_url: str) -> bool:
    """Send to the sandbox where it is now; whether it had moved.

    It is the same one with the same journal, whatever its port: the scope stays.
    """
    accounts = Account.objects.filter(tenant__is_demo=True, provider="sandbox")
    return bool(accounts.exclude(base_url=base_url).update(base_url=base_url))


def _let_in(tenant: Tenant) -> Iterator[SignIn]:
    for membership in Membership.objects.filter(tenant=tenant).select_related("person"):
        password = "-".join(secrets.token_hex(2) for _ in range(4))
        membership.person.set_password(password)
        membership.person.save(update_fields=["password"])
        yield SignIn(membership.person.email, password, Role(membership.role).label.lower())


class _Day:
    """What happened until now, each step at its time."""

    def __init__(self, tenant: Tenant, now: datetime) -> None:
        self.tenant = tenant
        self.now = now

    def lived(self) -> None:
        """In the order of time, because keys sort by it."""
        for minutes, document in zip((312, 311, 309, 308), demo_emails.NOT_REACHED, strict=True):
            self.attempts(self.proposed("onboarding-nudge", document, minutes), NOT_REACHED)
        for minutes, document in zip((190, 186), demo_emails.REFUSED, strict=True):
            intent = self.approved(self.proposed("refund-desk", document, minutes), minutes - 2)
            self.attempts(intent, REFUSED)
        uncertain = self.proposed("support-followup", demo_emails.UNCERTAIN, 75)
        self.attempts(self.approved(uncertain, 71), NO_ANSWER)
        self.halted()
        self.awaiting()

    def halted(self) -> None:
        """A run that a person stopped, and what was approved in it nevertheless."""
        held = [
            self.proposed("support-followup", document, minutes)
            for minutes, document in zip((58, 57), demo_emails.ON_HOLD, strict=True)
        ]
        run = held[0].run
        assert run is not None
        halts.turn_off(
            run.pk,
            by=self.person(Role.APPROVER),
            reason="Two customers say that their appointment was never moved. Asking the planner.",
            now=self.ago(52),
        )
        for intent in held:
            self.approved(intent, 49)

    def awaiting(self) -> None:
        for minutes, (agent, document) in zip(
            (44, 31, 28, 14, 11, 7, 6, 6), demo_emails.AWAITING, strict=True
        ):
            intent = self.proposed(agent, document, minutes)
            if intent.approvals_needed == 2:
                self.approved(intent, minutes - 3, by=Role.OPERATOR)

    def proposed(self, agent: str, document: dict[str, Any], minutes: float) -> SendIntent:
        return intake.propose(
            parse(document),
            agent=Agent.objects.get(tenant=self.tenant, slug=agent),
            now=self.ago(minutes),
        ).intent

    def approved(
        self, intent: SendIntent, minutes: float, *, by: Role = Role.APPROVER
    ) -> SendIntent:
        return review.approve(
            intent.pk, person=self.person(by), digest=intent.digest, now=self.ago(minutes)
        )

    def attempts(self, intent: SendIntent, happened: Happened) -> None:
        """Worked on until it is decided: as a worker does, but for the network."""
        while (row := self.due(intent)) is not None and row.next_attempt_at is not None:
            opened_at = row.next_attempt_at + timedelta(milliseconds=140)
            opened = open_attempt(row, WORKER, opened_at, clock())
            assert opened is not None
            move_all([opened.move], now=opened_at)
            opened.attempt.save(force_insert=True)
            took = row.account.request_deadline if happened is NO_ANSWER else QUICK
            ended_at, after = opened_at + took, Aftermath()
            contract = opened.claimed.contract
            settle_attempt(row, opened.attempt, happened, contract, ended_at, after)
            after.write(ended_at)

    def due(self, intent: SendIntent) -> SendIntent | None:
        return (
            SendIntent.objects.filter(pk=intent.pk, status__in=CLAIMABLE)
            .select_related("account", "sender", "payload", "tenant__policy")
            .first()
        )

    def person(self, role: Role) -> Person:
        return Person.objects.get(memberships__tenant=self.tenant, memberships__role=role)

    def ago(self, minutes: float) -> datetime:
        return self.now - timedelta(minutes=minutes)
