"""What the frame around every page shows: who, where, how much waits, whether mail goes out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from django.db import models
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from sends.conf import conf
from sends.dashboard.access import membership_of, tenants_of
from sends.models import (
    Account,
    Anomaly,
    Attempt,
    Cause,
    Membership,
    Role,
    Sender,
    SendIntent,
    Switch,
    SwitchKind,
    Tenant,
)
from sends.rules.statuses import Status

MOST = 100  # nobody needs to know whether 1,000 or 2,000 wait, and counting them takes time
SILENCE = timedelta(seconds=60)
ABOVE_ALL = (SwitchKind.INSTALLATION, SwitchKind.TENANT)


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor. Asks the database only where the frame is really drawn."""
    return {"shell": SimpleLazyObject(lambda: shell_of(request))}


def shell_of(request: HttpRequest) -> "Shell | None":
    membership = membership_of(request) if hasattr(request, "user") else None
    return Shell(membership, request.path_info, tenants_of(request)) if membership else None


class Counts(NamedTuple):
    """How many wait for a person in each room, as it is shown: "12", "99+", or nothing for 0."""

    approvals: str
    uncertain: str
    dead_letters: str
    anomalies: str


@dataclass(frozen=True)
class Closed:
    """A scope through which nothing is sent, in words, and where it is opened again."""

    words: str
    reason: str
    since: datetime | None
    on_url: str = ""


@dataclass
class Shell:
    membership: Membership
    path: str
    tenants: Sequence[Tenant] = ()  # of this person; nothing to choose from where it is one

    @cached_property
    def now(self) -> datetime:
        return timezone.now()

    @property
    def person(self) -> str:
        return self.membership.person.email

    @property
    def theme(self) -> str:
        return self.membership.person.theme

    @property
    def role(self) -> str:
        return Role(self.membership.role).label

    @property
    def is_admin(self) -> bool:
        return self.membership.may(Role.ADMIN)

    @property
    def tenant(self) -> str:
        return self.membership.tenant.name

    @property
    def current(self) -> str:
        """The room, by its address: "dead_letters" for /dead-letters/4/, "people" for
        /settings/people/."""
        path = self.path.strip("/").removeprefix("settings/")
        return path.partition("/")[0].replace("-", "_")

    @property
    def zone(self) -> str:
        return timezone.get_current_timezone_name()

    @property
    def zone_offset(self) -> str:
        """The offset from UTC now: "UTC+2", "UTC-3:30", "UTC"."""
        offset = timezone.localtime(self.now).strftime("%z")
        hours, minutes = offset[1:3].lstrip("0"), offset[3:5]
        if not hours and minutes == "00":
            return "UTC"
        return f"UTC{offset[0]}{hours or '0'}{'' if minutes == '00' else ':' + minutes}"

    @property
    def cursor(self) -> str:
        return self.now.isoformat()

    @cached_property
    def counts(self) -> Counts:
        tenant = self.membership.tenant
        intents = SendIntent.objects.filter(tenant=tenant)
        waiting: tuple[QuerySet[Any], ...] = (
            intents.filter(status=Status.AWAITING_APPROVAL),
            intents.filter(status=Status.UNCERTAIN),
            intents.filter(status=Status.DEAD_LETTER, closed_at=None),
            Anomaly.objects.filter(tenant=tenant, closed_at=None),
        )
        row = Tenant.objects.filter(pk=tenant.pk).values_list(*map(CappedCount, waiting)).get()
        return Counts(*map(shown, row))

    @cached_property
    def _closed(self) -> list[Switch]:
        tenant = self.membership.tenant
        return list(
            Switch.objects.filter(
                ~Q(causes=0),
                Q(tenant=tenant) | Q(kind=SwitchKind.INSTALLATION),
                kind__in=(*ABOVE_ALL, SwitchKind.ACCOUNT, SwitchKind.SENDER),
            )
        )

    @cached_property
    def is_paused(self) -> bool:
        return any(switch.kind in ABOVE_ALL for switch in self._closed)

    @property
    def pause_url(self) -> str:
        if self.is_paused or not self.membership.may(Role.APPROVER):
            return ""
        return reverse("dashboard:switch_off", args=[self.membership.tenant_id])

    @cached_property
    def switches_off(self) -> list[Closed]:
        return [
            Closed(
                f"{through or 'All sending'} is paused",
                switch.pause_reason,
                switch.paused_at,
                self._on_url(switch),
            )
            for switch, through in self._named(Cause.PAUSED, "Sending through")
        ]

    @cached_property
    def blocked(self) -> list[Closed]:
        return [
            Closed(f"{name} is blocked", switch.block_reason, switch.blocked_at)
            for switch, name in self._named(Cause.BLOCKED)
        ]

    def _on_url(self, switch: Switch) -> str:
        """What stands above the tenant is not the tenant's to open."""
        if switch.kind == SwitchKind.INSTALLATION or not self.membership.may(Role.OPERATOR):
            return ""
        return reverse("dashboard:switch_on", args=[switch.pk])

    def _named(self, cause: Cause, before: str = "") -> Iterator[tuple[Switch, str]]:
        """Scopes closed by this cause, each with the name of its account or sender, or ""."""
        for switch in self._closed:
            if switch.causes & cause:
                name = self._names.get(switch.pk, "")
                yield switch, f"{before} {name}".strip() if name else ""

    @cached_property
    def _names(self) -> dict[Any, str]:
        ids = [switch.pk for switch in self._closed if switch.kind not in ABOVE_ALL]
        if not ids:
            return {}
        accounts = Account.objects.filter(pk__in=ids).values_list("pk", "slug")
        senders = Sender.objects.filter(pk__in=ids).values_list("pk", "address")
        return dict([*accounts, *senders])

    @cached_property
    def silent_since(self) -> datetime | None:
        """When a worker last showed itself, if emails are due and none has for a minute.

        The beat is a file of this machine's workers; those of another show in their attempts.
        """
        heard = self._last_beat()
        if heard and self.now - heard < SILENCE:
            return None
        closed = Switch.objects.off(self.now).values_list("pk", flat=True)
        due = SendIntent.objects.filter(tenant=self.membership.tenant).due(self.now - SILENCE)
        oldest = due.through_open_scopes(list(closed)).order_by("next_attempt_at").first()
        if oldest is None or self.is_paused:
            return None
        last = Attempt.objects.order_by("-id").values_list("opened_at", flat=True).first()
        heard = max(moment for moment in (heard, last, oldest.next_attempt_at) if moment)
        return heard if self.now - heard >= SILENCE else None

    def _last_beat(self) -> datetime | None:
        try:
            beat = conf.worker_beat.stat().st_mtime
        except FileNotFoundError:
            return None
        return datetime.fromtimestamp(beat, tz=timezone.get_current_timezone())


class CappedCount(models.Subquery):
    """How many rows a query finds, looking at no more than MOST."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) counted)"
    output_field = models.IntegerField()

    def __init__(self, rows: QuerySet[Any]) -> None:
        super().__init__(rows.order_by().values("pk")[:MOST])


def shown(count: int) -> str:
    """A capped count as people read it; nothing for nothing."""
    if count >= MOST:
        return f"{MOST - 1}+"
    return str(count) if count else ""
