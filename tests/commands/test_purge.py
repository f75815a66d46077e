"""`manage.py purge`: what it prints."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command

from sends.models import SendIntent, database_now
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent

pytestmark = pytest.mark.django_db


def said(*words: str) -> list[str]:
    out = StringIO()
    call_command("purge", *words, stdout=out)
    return out.getvalue().splitlines()


def test_it_says_what_goes_and_deletes_only_when_it_is_meant() -> None:
    agent, then = make_agent_at(), database_now() - timedelta(days=800)
    for status in (Status.DONE, Status.DONE, Status.CANCELLED, Status.UNCERTAIN):
        make_intent(agent, status=status, now=then)
    gone = f"{agent.tenant.slug}: content of 3 emails (1 cancelled, 2 done), 0 raw events"

    assert said("--dry-run") == [gone, "This was a dry run; nothing was deleted."]
    assert not SendIntent.objects.exclude(purged_at=None).exists()
    assert said() == [gone]
    assert SendIntent.objects.exclude(purged_at=None).count() == 3
    assert said() == [f"{agent.tenant.slug}: content of 0 emails, 0 raw events"]
