"""Runs as people watch them: their emails by state, their retries, failures and attempts."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from sends.models import Attempt, AuditEntry, Cause, Run, SendIntent, Switch, Tenant
from sends.rules.budgets import LATEST, Ended, FailureRate, RetryBudget, ended, failure_rate
from sends.rules.statuses import ACCEPTED, CLAIMABLE, UNDECIDED, Status

PAGE = 50
MOST_ATTEMPTS = 2_000
MOST_ENTRIES = 50
# How far back and how many attempts say how the tenant's providers are doing now.
LATELY = timedelta(minutes=10)
MOST_LATELY = 200


@dataclass(frozen=True)
class Emails:
    """How many emails of a run are where. Versions that were replaced do not count."""

    accepted: int = 0
    approved: int = 0  # not sent yet, or to be tried again
    sending: int = 0
    undecided: int = 0
    uncertain: int = 0
    dead: int = 0
    dead_and_open: int = 0
    ended_unsent: int = 0
    may_be_cancelled: int = 0

    @property
    def count(self) -> int:
        return self.unfinished + self.accepted + self.dead + self.ended_unsent

    @property
    def unfinished(self) -> int:
        return self.approved + self.sending + self.undecided + self.uncertain

    @property
    def open_work(self) -> int:
        return self.unfinished + self.dead_and_open


@dataclass(frozen=True)
class Listed:
    """One run in the list."""

    run: Run
    switch: Switch
    emails: Emails
    budget: RetryBudget
    rate: FailureRate


@dataclass(frozen=True)
class Page:
    """Runs, the one that began last first. `newer` and `older` name where the next page begins."""

    runs: list[Listed]
    newer: uuid.UUID | None
    older: uuid.UUID | None


def page(
    tenant: Tenant, *, before: uuid.UUID | None = None, after: uuid.UUID | None = None
) -> Page:
    """One page of the tenant's runs: the newest, or those before or after a run."""
    runs = Run.objects.filter(tenant=tenant).select_related("agent")
    beside = before or after
    place = runs.filter(pk=beside).first() if beside is not None else None
    if place is None:
        found = list(runs.order_by("-started_at", "-pk")[: PAGE + 1])
        is_more_new, is_more_old = False, len(found) > PAGE
    elif before:
        found = list(_beyond(runs, place, "lt").order_by("-started_at", "-pk")[: PAGE + 1])
        is_more_new, is_more_old = True, len(found) > PAGE
    else:
        found = list(_beyond(runs, place, "gt").order_by("started_at", "pk")[: PAGE + 1])
        is_more_new, is_more_old = len(found) > PAGE, True
        found = found[:PAGE][::-1]
    found = found[:PAGE]
    return Page(
        _listed(found),
        newer=found[0].pk if found and is_more_new else None,
        older=found[-1].pk if found and is_more_old else None,
    )


def _beyond(runs: QuerySet[Run], place: Run, way: str) -> QuerySet[Run]:
    """Those on one side of a run; `way` is "lt" or "gt"."""
    beside = Q(started_at=place.started_at, **{f"pk__{way}": place.pk})
    return runs.filter(Q(**{f"started_at__{way}": place.started_at}) | beside)


def _listed(runs: Sequence[Run]) -> list[Listed]:
    switches = Switch.objects.in_bulk([run.pk for run in runs])
    emails = emails_of(runs)
    rates = failure_rates(runs)
    return [
        Listed(
            run,
            switches[run.pk],
            emails.get(run.pk, Emails()),
            RetryBudget(run.retries_used, run.retry_limit, Counter()),
            rates.get(run.pk, FailureRate(0, 0)),
        )
        for run in runs
    ]


def is_halted(switch: Switch) -> bool:
    return bool(switch.causes & Cause.PAUSED)


def emails_of(runs: Sequence[Run]) -> dict[uuid.UUID, Emails]:
    """In one query over the index of runs and statuses."""
    sure = Q(in_doubt=False, accepted_at=None)
    rows = (
        SendIntent.objects.filter(run__in=runs)
        .exclude(status=Status.SUPERSEDED)
        .order_by()
        .values_list("run", "status")
        .annotate(n=Count("pk"), n_open=Count("pk", Q(closed_at=None)), n_sure=Count("pk", sure))
    )
    counts: dict[uuid.UUID, dict[str, tuple[int, int, int]]] = defaultdict(dict)
    for run_id, status, *numbers in rows:
        counts[run_id][status] = tuple(numbers)
    return {run_id: _emails(found) for run_id, found in counts.items()}


def _emails(found: dict[str, tuple[int, int, int]]) -> Emails:
    def sum_of(statuses: frozenset[Status] | set[Status], place: int = 0) -> int:
        return sum(found[status][place] for status in statuses if status in found)

    dead = {Status.DEAD_LETTER}
    return Emails(
        accepted=sum_of(ACCEPTED),
        approved=sum_of(CLAIMABLE),
        sending=sum_of({Status.IN_FLIGHT}),
        undecided=sum_of(UNDECIDED),
        uncertain=sum_of({Status.UNCERTAIN}),
        dead=sum_of(dead),
        dead_and_open=sum_of(dead, 1),
        ended_unsent=sum_of({Status.REJECTED, Status.CANCELLED}),
        may_be_cancelled=sum_of({*CLAIMABLE, *UNDECIDED, *dead}, 2),
    )


def failure_rates(runs: Sequence[Run]) -> dict[uuid.UUID, FailureRate]:
    """Of each run that has attempts; in one query, which looks at all of theirs."""
    numbered = (
        Attempt.objects.filter(intent__run__in=runs, closed_at__isnull=False)
        .annotate(place=Window(RowNumber(), partition_by=F("intent__run"), order_by=F("id").desc()))
        .filter(place__lte=2 * LATEST)  # some of them were given back, and do not count
        .order_by("-id")
    )
    outcomes: dict[uuid.UUID, list[str]] = defaultdict(list)
    for run_id, outcome in numbered.values_list("intent__run", "outcome"):
        outcomes[run_id].append(outcome)
    return {run_id: failure_rate(found) for run_id, found in outcomes.items()}


def retry_budget(run: Run) -> RetryBudget:
    """With what the retries were needed for."""
    retried = Attempt.objects.filter(intent__run=run, next_attempt_at__isnull=False)
    causes: Counter[Ended] = Counter()
    for outcome, count in retried.order_by().values_list("outcome").annotate(Count("pk")):
        how = ended(outcome)
        if how is not None:
            causes[how] += count
    return RetryBudget(run.retries_used, run.retry_limit, causes)


@dataclass(frozen=True)
class Attempts:
    """A run's latest attempts that ended, the latest first. `is_capped`: there were more."""

    when_and_how: list[tuple[datetime, Ended]]
    rate: FailureRate
    is_capped: bool


def attempts_of(run: Run) -> Attempts:
    rows = Attempt.objects.filter(intent__run=run, closed_at__isnull=False).order_by("-id")
    found = list(rows.values_list("opened_at", "outcome")[: MOST_ATTEMPTS + 1])
    known = [(at, how) for at, outcome in found[:MOST_ATTEMPTS] if (how := ended(outcome))]
    return Attempts(
        known,
        failure_rate(outcome for _, outcome in found),
        is_capped=len(found) > MOST_ATTEMPTS,
    )


def lately(tenant: Tenant, now: datetime) -> FailureRate:
    """How the tenant's attempts of the last ten minutes went, whatever run they were for."""
    rows = Attempt.objects.filter(account__tenant=tenant, closed_at__isnull=False).order_by("-id")
    latest = rows.values_list("opened_at", "outcome")[:MOST_LATELY]
    known = [ended(outcome) for at, outcome in latest if at > now - LATELY]
    failed = [how for how in known if how not in (None, Ended.ACCEPTED)]
    return FailureRate(len(failed), len([how for how in known if how is not None]))


def waiting(run: Run, limit: int) -> list[SendIntent]:
    """Approved emails that were not sent yet, those approved first."""
    intents = SendIntent.objects.filter(run=run, status__in=sorted(CLAIMABLE))
    return list(intents.select_related("action").order_by("approved_at", "pk")[:limit])


def history(run: Run) -> list[AuditEntry]:
    """What people and programs decided about a run, the latest first."""
    entries = AuditEntry.objects.filter(tenant=run.tenant_id, target=f"run:{run.pk}")
    return list(entries.order_by("-id")[:MOST_ENTRIES])
