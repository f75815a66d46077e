"""Send intents: one version of an action, one approved message, immutable once created."""

import uuid
from collections.abc import Collection
from datetime import datetime

from django.db import models
from django.db.models import Case, Count, F, Q, Value, When

from sends.models.accounts import Account, Sender
from sends.models.actions import Action
from sends.models.agents import Agent
from sends.models.base import Row
from sends.models.people import Person
from sends.models.runs import Run
from sends.models.tenants import Tenant
from sends.rules.statuses import (
    ACCEPTED,
    ACTIVE,
    APPROVED,
    CLAIMABLE,
    ENDED,
    HOLD_BITS,
    MAY_BE_IN_DOUBT,
    SENT_BACK,
    UNDECIDED,
    Hold,
    Status,
)


class Intents(models.QuerySet["SendIntent"]):
    def due(self, now: datetime) -> "Intents":
        """What a claim may take at `now`, scopes aside: the claim's and the wake's own question.

        What is too late, lapsed or past its window is not due: the sweep ends it.
        """
        return self.filter(
            Q(in_doubt=False, replay_until=None) | Q(replay_until__gt=now) | Q(token_stored=True),
            Q(deadline=None) | Q(deadline__gt=now),
            Q(approval_expires_at=None) | Q(approval_expires_at__gt=now) | Q(in_doubt=True),
            Q(not_sooner_than=None) | Q(not_sooner_than__lte=now),
            status__in=CLAIMABLE,
            next_attempt_at__lte=now,
            holds=0,
        )

    def through_open_scopes(self, closed: Collection[uuid.UUID]) -> "Intents":
        """Without those whose tenant, account, sender or run is switched off."""
        if not closed:
            return self
        return self.exclude(
            Q(tenant_id__in=closed)
            | Q(account_id__in=closed)
            | Q(sender_id__in=closed)
            | Q(run_id__in=closed)
        )

    def lease_expired(self, now: datetime) -> "Intents":
        return self.filter(status=Status.IN_FLIGHT, lease_expires_at__lt=now)

    def window_closed(self, now: datetime) -> "Intents":
        """Scheduled attempts that may no longer be made: their key may have been forgotten."""
        return self.filter(status__in=CLAIMABLE, replay_until__lte=now, token_stored=False)

    def held(self, hold: Hold) -> "Intents":
        bit = HOLD_BITS[hold]  # and above 0, as an index can find
        return self.alias(held=F("holds").bitand(bit)).filter(holds__gt=0, held=bit)

    def too_late(self, now: datetime) -> "Intents":
        """Waiting to be sent past their deadline."""
        return self.filter(status__in=CLAIMABLE, deadline__lte=now)

    def lapsed(self, now: datetime) -> "Intents":
        """Nobody decided, or answered a request for changes, in time."""
        return self.filter(status__in=UNDECIDED, decide_by__lt=now)

    def approval_expired(self, now: datetime) -> "Intents":
        return self.filter(status__in=CLAIMABLE, in_doubt=False, approval_expires_at__lte=now)

    def not_over(self, now: datetime) -> "Intents":
        """Something can still be decided about them, or sent; the triggers ask the same."""
        may_be_undone = Q(status=Status.REJECTED, undo_until__gte=now)
        is_asked_about = Q(status=Status.DEAD_LETTER, closed_at=None)
        return self.filter(~Q(status__in=ENDED) | may_be_undone | is_asked_about)

    def with_content(self, status: Status, *, ended_before: datetime) -> "Intents":
        """Those that ended in this status by then and still say something, in that order."""
        found = self.filter(status=status, status_at__lte=ended_before, purged_at=None)
        if status == Status.DEAD_LETTER:
            found = found.filter(closed_at__lte=ended_before)
        return found.order_by("status_at", "pk")

    def seen_as(self, statuses: Collection[Status], now: datetime) -> "Intents":
        """Those that agents see in one of these statuses: see `SendIntent.seen_status`."""
        seen = Q(status__in=statuses) & ~_undoable(now)
        return self.filter(seen | _undoable(now) if Status.AWAITING_APPROVAL in statuses else seen)

    def changed_after(self, mark: int, pk: uuid.UUID, *, before: int) -> "Intents":
        """Created or moved after this one, by their marks: see `models.changes`."""
        later = Q(change_mark__gt=mark) | Q(change_mark=mark, pk__gt=pk)
        range_ = Q(change_mark__gte=mark, change_mark__lt=before)  # what an index can find
        return self.filter(range_, later).order_by("change_mark", "pk")

    def final_after(self, moment: datetime, pk: uuid.UUID, *, now: datetime) -> "Intents":
        """Decided against, and past undoing since then: only now do agents see it."""
        later = Q(undo_until__gt=moment) | Q(undo_until=moment, pk__gt=pk)
        range_ = Q(undo_until__gte=moment, undo_until__lt=now)
        return self.filter(range_, later, status__in=SENT_BACK).order_by("undo_until", "pk")

    def counts_as_seen(self, now: datetime) -> dict[str, int]:
        """How many of these agents see in each status that there is."""
        awaiting = Value(Status.AWAITING_APPROVAL.value)
        seen = Case(When(_undoable(now), then=awaiting), default=F("status"))
        counts = self.annotate(seen=seen).values_list("seen").annotate(Count("pk"))
        return dict(counts.order_by("seen"))

    def current(self) -> "Intents":
        """The latest version of each action."""
        return self.filter(version=F("action__latest_version"))


def _undoable(now: datetime) -> Q:
    return Q(status__in=SENT_BACK, undo_until__gte=now)


class SendIntent(Row):
    """One version of an action. What it says is in its `Payload` and never changes.

    `fence` grows with every transition: whoever writes a status names it, so that of two that
    race one loses. `window_opened_at` is when the earliest attempt that may have reached the
    provider was opened, `replay_until` the last moment at which the same key may be used again;
    both are null while nothing can have arrived. `request_digest` and `dispatch_scope` are those
    of the first dispatch, and bind every later one. `retrying_since`, `retries_counted` and
    `tries` belong to the period since the last approval, requeue or replay by a person, who is
    then `asked_by`. `not_sooner_than` is a wait that nobody may cut short. `change_mark` is set by
    a trigger whenever the status is: see `models.changes`.

    `purged_at` is when what it said was deleted. `erased_at` is when a recipient was erased: then
    its subject and note went too, and the recipient's addresses became a pseudonym.
    """

    # Frozen when it is created
    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="intents")
    action = models.ForeignKey(Action, models.PROTECT, related_name="intents")
    version = models.PositiveIntegerField()
    agent = models.ForeignKey(Agent, models.PROTECT, null=True, related_name="intents")
    run = models.ForeignKey(Run, models.PROTECT, null=True, related_name="intents")
    account = models.ForeignKey(Account, models.PROTECT, related_name="intents")
    sender = models.ForeignKey(Sender, models.PROTECT, related_name="intents")
    author = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    resend_of = models.ForeignKey("self", models.PROTECT, null=True, related_name="+")
    workflow = models.CharField(max_length=255, blank=True)
    template = models.CharField(max_length=255, blank=True)
    context_hash = models.CharField(max_length=64, blank=True)
    note = models.TextField(blank=True)
    content_digest = models.CharField(max_length=64)
    digest = models.CharField(max_length=64)
    idempotency_key = models.CharField(max_length=40, unique=True)
    message_id = models.CharField(max_length=255, unique=True)
    subject = models.TextField(blank=True)
    first_recipient = models.CharField(max_length=320)
    recipient_count = models.PositiveIntegerField()
    encoded_bytes = models.PositiveBigIntegerField()
    approvals_needed = models.PositiveSmallIntegerField()
    approval_rule = models.CharField(max_length=600, blank=True)
    not_before = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    request_id = models.CharField(max_length=64, blank=True)
    created_at = models.DateTimeField()

    # Where it is
    status = models.CharField(
        max_length=20, choices=Status.choices, default=Status.AWAITING_APPROVAL
    )
    fence = models.BigIntegerField(default=0)
    holds = models.PositiveIntegerField(default=0)
    in_doubt = models.BooleanField(default=False)
    status_at = models.DateTimeField()
    end_reason = models.TextField(blank=True)
    closed_at = models.DateTimeField(null=True)
    change_mark = models.BigIntegerField(default=0)
    purged_at = models.DateTimeField(null=True)
    erased_at = models.DateTimeField(null=True)

    # May it be sent?
    decide_by = models.DateTimeField(null=True)
    approved_digest = models.CharField(max_length=64, blank=True)
    approved_at = models.DateTimeField(null=True)
    approval_expires_at = models.DateTimeField(null=True)
    undo_until = models.DateTimeField(null=True)

    # Did the provider take it?
    next_attempt_at = models.DateTimeField(null=True)
    attempt_count = models.PositiveIntegerField(default=0)
    retrying_since = models.DateTimeField(null=True)
    retries_counted = models.PositiveIntegerField(default=0)
    tries = models.PositiveIntegerField(default=0)
    in_progress_since = models.DateTimeField(null=True)
    not_sooner_than = models.DateTimeField(null=True)
    window_opened_at = models.DateTimeField(null=True)
    replay_until = models.DateTimeField(null=True)
    token_stored = models.BooleanField(default=False)
    request_digest = models.CharField(max_length=64, blank=True)
    dispatch_scope = models.UUIDField(null=True)
    asked_by = models.ForeignKey(Person, models.PROTECT, null=True, related_name="+")
    lease_token = models.UUIDField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    lease_seen_expired_at = models.DateTimeField(null=True)
    accepted_at = models.DateTimeField(null=True)
    provider_message_id = models.CharField(max_length=255, blank=True)
    provider_thread_id = models.CharField(max_length=255, blank=True)

    objects = models.Manager.from_queryset(Intents)()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["action", "version"], name="intent_version"),
            models.UniqueConstraint(
                fields=["action"], name="one_active_version", condition=Q(status__in=sorted(ACTIVE))
            ),
            models.CheckConstraint(
                name="intent_status", condition=Q(status__in=sorted(Status.values))
            ),
            models.CheckConstraint(
                name="approved_is_what_is_sent",
                condition=~Q(status__in=sorted(APPROVED)) | Q(approved_digest=F("digest")),
            ),
            models.CheckConstraint(
                name="doubt_only_where_it_may_be",
                condition=Q(in_doubt=False) | Q(status__in=sorted(MAY_BE_IN_DOUBT)),
            ),
            models.CheckConstraint(
                name="uncertain_is_in_doubt",
                condition=~Q(status=Status.UNCERTAIN) | Q(in_doubt=True),
            ),
            models.CheckConstraint(
                name="leased_while_in_flight",
                condition=Q(
                    status=Status.IN_FLIGHT,
                    lease_token__isnull=False,
                    lease_expires_at__isnull=False,
                )
                | (~Q(status=Status.IN_FLIGHT) & Q(lease_token=None, lease_expires_at=None)),
            ),
            models.CheckConstraint(
                name="due_while_claimable",
                condition=~Q(status__in=sorted(CLAIMABLE)) | Q(next_attempt_at__isnull=False),
            ),
            models.CheckConstraint(
                name="accepted_is_remembered",
                condition=(Q(status__in=sorted(ACCEPTED)) & Q(accepted_at__isnull=False))
                | Q(status=Status.DEAD_LETTER)
                | (~Q(status__in=sorted({*ACCEPTED, Status.DEAD_LETTER})) & Q(accepted_at=None)),
            ),
        ]
        indexes = [
            # The claim: what is due, account by account.
            models.Index(
                fields=["account", "next_attempt_at"],
                name="intent_due",
                condition=Q(status__in=sorted(CLAIMABLE), holds=0),
            ),
            # The watchdog.
            models.Index(
                fields=["lease_expires_at"],
                name="intent_lease",
                condition=Q(status=Status.IN_FLIGHT),
            ),
            # The sweep: windows that close, and decisions that nobody made.
            models.Index(
                fields=["replay_until"],
                name="intent_window",
                condition=Q(status__in=sorted(CLAIMABLE), replay_until__isnull=False),
            ),
            models.Index(
                fields=["decide_by"],
                name="intent_lapse",
                condition=Q(status__in=sorted(UNDECIDED)),
            ),
            # SQLite proves no IN with parameters, so of the partial indexes with one it uses none:
            # there this one finds what is due, late, lapsed or expired.
            models.Index(fields=["status", "next_attempt_at"], name="intent_status"),
            models.Index(
                fields=["deadline"],
                name="intent_deadline",
                condition=Q(status__in=sorted(CLAIMABLE), deadline__isnull=False),
            ),
            models.Index(
                fields=["approval_expires_at"],
                name="intent_expiry",
                condition=Q(status__in=sorted(CLAIMABLE)),
            ),
            # The few that are held: the sweep looks among them for cancels that were asked.
            models.Index(fields=["status"], name="intent_held", condition=Q(holds__gt=0)),
            models.Index(
                fields=["accepted_at"],
                name="intent_no_news",
                condition=Q(status=Status.SUBMITTED),
            ),
            # The lists: by status, newest first, and a run's.
            models.Index(fields=["tenant", "status", "-id"], name="intent_by_status"),
            models.Index(fields=["tenant", "-id"], name="intent_newest"),
            models.Index(fields=["run", "status"], name="intent_of_run"),
            # Retention: what ended and still has its content, the longest ended first.
            models.Index(
                fields=["tenant", "status", "status_at", "id"],
                name="intent_to_purge",
                condition=Q(status__in=sorted(ENDED), purged_at=None),
            ),
            # What agents are told of: changes, and decisions once they cannot be undone.
            models.Index(fields=["agent", "change_mark", "id"], name="intent_changes"),
            models.Index(
                fields=["agent", "undo_until", "id"],
                name="intent_final",
                condition=Q(undo_until__isnull=False),
            ),
            # The bytes that a person looks at, by their digest.
            models.Index(fields=["digest"], name="intent_digest"),
            # Events that name the provider's id.
            models.Index(
                fields=["account", "provider_message_id"],
                name="intent_provider_id",
                condition=~Q(provider_message_id=""),
            ),
        ]

    def __str__(self) -> str:
        return f"intent {self.pk}"

    def seen_status(self, now: datetime) -> Status:
        """The status as agents see it: a decision against them only once it cannot be undone."""
        if self.status in SENT_BACK and self.undo_until is not None and self.undo_until >= now:
            return Status.AWAITING_APPROVAL
        return Status(self.status)
