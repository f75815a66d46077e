"""The timetable: safety nets that django-q2's scheduler runs, whatever the broker."""

from django_q.models import Schedule

from sends.tasks import DRAIN, PURGE, SWEEP

# name -> (function, minutes). All may be late, or run twice.
TIMETABLE = {
    "outbox: drain": (DRAIN, 1),
    "outbox: sweep": (SWEEP, 1),
    "outbox: purge": (PURGE, 24 * 60),
}


def sync() -> None:
    """Make django-q2's rows those of the timetable, and no others of ours."""
    Schedule.objects.filter(name__startswith="outbox: ").exclude(name__in=TIMETABLE).delete()
    for name, (func, minutes) in TIMETABLE.items():
        Schedule.objects.update_or_create(
            name=name,
            defaults={"func": func, "schedule_type": Schedule.MINUTES, "minutes": minutes},
        )
