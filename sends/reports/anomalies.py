"""Anomalies with both their sides: what was to happen, and what is known to have happened."""

from collections import defaultdict
from dataclasses import dataclass

from sends.models import Anomaly, SendIntent, Tenant

MOST = 50


@dataclass(frozen=True)
class Told:
    """One anomaly, and every version of its message in order."""

    anomaly: Anomaly
    versions: list[SendIntent]


def told(tenant: Tenant, *, are_open: bool) -> list[Told]:
    """The tenant's newest: those that are open, or those that an admin closed."""
    anomalies = list(
        Anomaly.objects.filter(tenant=tenant, closed_at__isnull=are_open)
        .select_related("intent__action", "intent__account", "closed_by")
        .order_by("-id")[:MOST]
    )
    versions = defaultdict(list)
    for intent in SendIntent.objects.filter(
        action__in={anomaly.action_id for anomaly in anomalies}
    ).order_by("version"):
        versions[intent.action_id].append(intent)
    return [Told(anomaly, versions[anomaly.action_id]) for anomaly in anomalies]
