"""`manage.py worker` that calls a cluster wedged sooner: `-m tests.promises.impatient`."""

import django

if __name__ == "__main__":
    django.setup()

    from django.core.management import call_command

    from sends.broker import BEAT_EVERY
    from sends.management.commands import worker

    worker.STALE_AFTER = 2 * BEAT_EVERY
    call_command("worker")
