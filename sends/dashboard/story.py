"""Everything the ledger knows about one message, read once for a page."""

from collections.abc import Iterable
from datetime import datetime
from functools import cached_property

from django.db.models import Exists, OuterRef

from sends.dashboard.attachments import File, files_of
from sends.dashboard.states import with_causes
from sends.models import (
    Action,
    Anomaly,
    Approval,
    Attempt,
    AuditEntry,
    Delivery,
    Evidence,
    Payload,
    ProviderEvent,
    SendIntent,
    Tenant,
    Verdict,
)
from sends.reports.waiting import Waiting, why_not_yet
from sends.rules.outcomes import Outcome
from sends.rules.payloads import thaw
from sends.rules.statuses import UNFINISHED, Status

ENDED_WITHOUT_NEWS = UNFINISHED | {Status.SUBMITTED}


class Story:
    """A message: all its versions, and one of them in front.

    What rarely is there is asked for only where the first query found that it is.
    """

    def __init__(self, versions: Iterable[SendIntent], shown: SendIntent) -> None:
        self.versions = list(versions)
        self.shown = shown
        self.action: Action = shown.action

    @property
    def current(self) -> SendIntent:
        return self.versions[-1]

    @property
    def newest_first(self) -> list[SendIntent]:
        return self.versions[::-1]

    @property
    def is_current(self) -> bool:
        return self.shown.pk == self.current.pk

    @cached_property
    def payload(self) -> Payload | None:
        """Of the version in front; None once retention has deleted it."""
        return Payload.objects.filter(intent=self.shown).first()

    @cached_property
    def files(self) -> list[File]:
        """What the version in front carries."""
        if self.payload is None:
            return []
        return files_of(self.shown, thaw(bytes(self.payload.body)).message)

    @cached_property
    def approvals(self) -> list[Approval]:
        found = Approval.objects.filter(intent__in=self.versions)
        return list(found.select_related("person", "undone_by").order_by("pk"))

    @cached_property
    def attempts(self) -> list[Attempt]:
        found = Attempt.objects.filter(intent__in=self.versions).select_related("asked_by")
        return list(found.order_by("intent__version", "number"))

    @cached_property
    def deliveries(self) -> list[Delivery]:
        return list(Delivery.objects.filter(intent=self.shown).order_by("position"))

    @cached_property
    def events(self) -> list[ProviderEvent]:
        if not self._has("has_events"):
            return []
        found = ProviderEvent.objects.filter(intent__in=self.versions).defer("raw")
        return list(found.order_by("occurred_at", "pk"))

    @cached_property
    def evidence(self) -> list[Evidence]:
        if not self._has("has_evidence"):
            return []
        found = Evidence.objects.filter(intent__in=self.versions)
        return list(found.select_related("person").order_by("pk"))

    @cached_property
    def anomalies(self) -> list[Anomaly]:
        if not self._has("has_anomaly"):
            return []
        found = Anomaly.objects.filter(intent__in=self.versions).select_related("closed_by")
        return list(found.order_by("pk"))

    @cached_property
    def audit(self) -> list[AuditEntry]:
        number = self.action.number
        targets = [f"message:{number}/v{version.version}" for version in self.versions]
        found = AuditEntry.objects.filter(tenant=self.shown.tenant_id, target__in=targets)
        return list(found.order_by("sequence"))

    @cached_property
    def follow_ups(self) -> list[int]:
        """The numbers of the messages that follow this one."""
        if not self._has("has_follow_ups"):
            return []
        found = Action.objects.filter(tenant=self.action.tenant_id, follows=self.action)
        return list(found.order_by("number").values_list("number", flat=True))

    def waiting(self, now: datetime) -> Waiting | None:
        """Why the version in front is not sent yet, or what it waits for."""
        if self.shown.status not in ENDED_WITHOUT_NEWS:
            return None
        return why_not_yet(self.shown, now)

    def version_of(self, row: Approval | Attempt | ProviderEvent | Evidence) -> SendIntent:
        return next(version for version in self.versions if version.pk == row.intent_id)

    @property
    def standing(self) -> list[Approval]:
        """The approvals of the version in front that nobody took back."""
        return [
            approval
            for approval in self.approvals
            if approval.intent_id == self.shown.pk
            and approval.verdict == Verdict.APPROVE
            and approval.undone_at is None
        ]

    @property
    def own_attempts(self) -> list[Attempt]:
        """The attempts of the version in front that were more than taken in hand."""
        return [
            attempt
            for attempt in self.attempts
            if attempt.intent_id == self.shown.pk and attempt.outcome != Outcome.RELEASED
        ]

    def _has(self, name: str) -> bool:
        return any(getattr(version, name) for version in self.versions)


def story_of(tenant: Tenant, number: int, version: int | None = None) -> Story | None:
    """The message with this number and one version in front, the current one if none is named."""
    versions = list(_versions(tenant, number))
    shown = [v for v in versions if v.version == version] if version else versions[-1:]
    return Story(versions, shown[0]) if shown else None


def _versions(tenant: Tenant, number: int) -> Iterable[SendIntent]:
    versions = SendIntent.objects.filter(tenant=tenant, action__number=number)
    itself = {"intent": OuterRef("pk")}
    return (
        with_causes(versions)
        .annotate(
            has_events=Exists(ProviderEvent.objects.filter(**itself)),
            has_evidence=Exists(Evidence.objects.filter(**itself)),
            has_anomaly=Exists(Anomaly.objects.filter(**itself)),
            has_follow_ups=Exists(Action.objects.filter(follows=OuterRef("action"))),
        )
        .select_related(
            "action__follows", "agent", "author", "run", "account", "sender", "tenant__policy"
        )
        .order_by("version")
    )
