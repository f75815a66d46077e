"""The programs of this installation: whether they live, belong together, and agree on the time."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from django.db.models import QuerySet
from django.utils import timezone
from django_q.models import Schedule

from sends.models import Attempt, Beat, Installation, Program, database_now
from sends.reports.health.findings import Finding, unsafe, warning

# A program shows itself four times a minute.
SILENCE = timedelta(minutes=1)
# The timetable is in minutes, and django-q2's scheduler looks twice a minute.
SCHEDULE_LATE = timedelta(minutes=5)
CLOCKS_DIFFER = timedelta(seconds=5)
CLOCK_WRONG = timedelta(minutes=1)


def silent_worker() -> Iterator[Finding]:
    if _living().filter(program=Program.WORKER).exists():
        return
    last = Beat.objects.filter(program=Program.WORKER).order_by("at").last()
    since = f"since {last.at:%Y-%m-%d %H:%M:%S} UTC" if last else "for a day or more"
    yield warning(
        "worker",
        f"No worker has shown itself {since}: nothing is sent, and news is not applied.",
        "Run: manage.py worker. If one runs, its log says what it waits for.",
    )


def silent_scheduler() -> Iterator[Finding]:
    """It lives inside a worker; the worker's own sweeps go on without it."""
    now = database_now()
    late = _schedules().filter(next_run__lt=now - SCHEDULE_LATE).order_by("next_run").first()
    if late is not None and _living().filter(program=Program.WORKER).exists():
        yield warning(
            "scheduler",
            f"The scheduler is silent: {late.name} should have run at"
            f" {late.next_run:%Y-%m-%d %H:%M:%S} UTC.",
            "Start the worker again. If that does not help, one row of django-q2's Schedule cannot"
            " be read and stops all others: its log names it.",
        )


def missing_schedules(timetable: Collection[str]) -> Iterator[Finding]:
    absent = sorted(set(timetable) - set(_schedules().values_list("name", flat=True)))
    if absent:
        yield warning(
            "schedule",
            f"The timetable in the database lacks {', '.join(absent)}.",
            "Run: manage.py migrate",
        )


def several_installations() -> Iterator[Finding]:
    """All programs on one database have one secret key and one address."""
    told: dict[tuple[str, str], list[Beat]] = defaultdict(list)
    for beat in _living().order_by("host", "program"):
        told[beat.url, beat.key_fingerprint].append(beat)
    if len(told) < 2:
        return
    groups = "; ".join(
        f"{', '.join(str(beat) for beat in beats)} at {url} with key {key[:6]}"
        for (url, key), beats in told.items()
    )
    yield unsafe(
        "installations",
        f"Programs that do not belong together use this database: {groups}.",
        "Give all programs of one installation the same OUTBOX_SECRET_KEY and OUTBOX_URL, and"
        " every other installation a database of its own.",
    )


def differing_clocks() -> Iterator[Finding]:
    now, here = database_now(), timezone.now()
    off = {str(beat): beat.own_clock - beat.at for beat in _living()}
    off["this machine"] = here - now
    for name, difference in off.items():
        if abs(difference) < CLOCKS_DIFFER:
            continue
        make = unsafe if abs(difference) >= CLOCK_WRONG else warning
        yield make(
            "clocks",
            f"The clock of {name} is {_words(difference)} the database's. Signatures of providers"
            " and links in mails are judged by it.",
            "Keep all machines on time with NTP.",
        )


def time_in_the_future() -> Iterator[Finding]:
    """What is certainly past, by the clock that every decision uses."""
    now = database_now()
    last_attempt = Attempt.objects.order_by("-id").values_list("opened_at", flat=True).first()
    last_beat = Installation.objects.values_list("beat_at", flat=True).get()
    last: datetime | None = max(filter(None, (last_attempt, last_beat)), default=None)
    if last is not None and last - now > CLOCK_WRONG:
        yield unsafe(
            "time",
            f"The database's clock says {now:%Y-%m-%d %H:%M:%S} UTC, but it has seen"
            f" {last:%Y-%m-%d %H:%M:%S} already. How long a provider still knows a key is judged"
            " by this clock.",
            "Pause sending (`manage.py pause`), put the clock right, then resume.",
        )


def _living() -> QuerySet[Beat]:
    return Beat.objects.filter(at__gt=database_now() - SILENCE)


def _schedules() -> QuerySet[Schedule]:
    schedules: QuerySet[Schedule] = Schedule.objects.filter(name__startswith="outbox: ")
    return schedules


def _words(difference: timedelta) -> str:
    seconds = abs(difference.total_seconds())
    return f"{seconds:.0f} s {'ahead of' if difference > timedelta(0) else 'behind'}"
