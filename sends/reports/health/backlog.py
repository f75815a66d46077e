"""What waits: for a worker that should have come, or for a person."""

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Q
from django.template.defaultfilters import pluralize

from sends.models import (
    Anomaly,
    EventState,
    ProviderEvent,
    Restore,
    SendIntent,
    Switch,
    SwitchKind,
    database_now,
)
from sends.reports.health.findings import Finding, unsafe, warning
from sends.rules.statuses import Hold, Status

LATE = timedelta(minutes=5)
ABOVE = (SwitchKind.INSTALLATION, SwitchKind.TENANT, SwitchKind.ACCOUNT, SwitchKind.SENDER)


def paused() -> Iterator[Finding]:
    is_restored = Restore.objects.filter(settled_at=None).exists()  # a finding of its own
    for switch in Switch.objects.filter(~Q(causes=0), kind__in=ABOVE).select_related("tenant"):
        if switch.kind == SwitchKind.INSTALLATION and is_restored:
            continue
        of = f" of {switch.tenant}" if switch.tenant else ""
        reason = switch.pause_reason or switch.block_reason
        what = "All sending" if switch.kind == SwitchKind.INSTALLATION else f"A {switch.kind}{of}"
        yield warning(
            "paused",
            f"{what} is paused or blocked: {reason}",
            "Resume it when its cause is gone: on the dashboard, or all sending with `manage.py"
            " resume`.",
        )


def overdue() -> Iterator[Finding]:
    now = database_now()
    closed = list(Switch.objects.off(now).values_list("pk", flat=True))
    if Switch.objects.filter(pk__in=closed, kind=SwitchKind.INSTALLATION).exists():
        return
    due = SendIntent.objects.due(now - LATE).through_open_scopes(closed)
    oldest = due.order_by("next_attempt_at").first()
    if oldest is not None:
        yield unsafe(
            "backlog",
            f"Emails are due since {oldest.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC and nobody sends"
            " them.",
            "See that a worker runs; if one does, give it more threads or add another.",
        )


def uncertain() -> Iterator[Finding]:
    count = SendIntent.objects.filter(status=Status.UNCERTAIN).count()
    if count:
        yield warning(
            "uncertain",
            f"Nobody knows whether the provider took {count} email{pluralize(count)}.",
            "An operator settles what is uncertain on the dashboard, under Uncertain.",
        )


def held_since_a_restore() -> Iterator[Finding]:
    count = SendIntent.objects.held(Hold.RESTORED).not_over(database_now()).count()
    if count:
        yield warning(
            "held",
            f"{count} email{pluralize(count, ' is,s are')} held since the database was restored.",
            "Look at the provider, then release what it has not sent: on the page of each, or all"
            " of it with `manage.py release`.",
        )


def open_anomalies() -> Iterator[Finding]:
    count = Anomaly.objects.filter(closed_at=None).count()
    if count:
        yield unsafe(
            "anomalies",
            f"{count} anomal{pluralize(count, 'y is,ies are')} open: something happened that"
            " contradicts a promise.",
            "An admin looks at them on the dashboard, under Anomalies.",
        )


def failed_events() -> Iterator[Finding]:
    count = ProviderEvent.objects.filter(state=EventState.FAILED).count()
    if count:
        yield warning(
            "events",
            f"{count} provider event{pluralize(count)} could not be applied: what became of the"
            " email is not shown.",
            "The log says why. Report it with the events' ids.",
        )
