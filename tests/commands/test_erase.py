"""`manage.py erase`: what it prints and how it ends."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from sends.models import SendIntent
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent

pytestmark = pytest.mark.django_db

JANE = "jane@example.org"


def test_it_says_what_is_erased_and_what_replaces_the_address() -> None:
    make_intent(status=Status.DONE, to=JANE)
    out = StringIO()
    call_command("erase", JANE, "--reason", "asked by letter", stdout=out)
    first, second = out.getvalue().splitlines()
    assert first == "Erased: 1 email, 0 provider events."
    assert second.startswith("The address is replaced by erased-")
    assert JANE not in out.getvalue()


def test_what_is_not_over_ends_it_with_what_to_do_first() -> None:
    intent = make_intent(status=Status.UNCERTAIN, to=JANE)
    out = StringIO()
    with pytest.raises(CommandError, match="run this again"):
        call_command("erase", JANE, stdout=out)
    number = intent.action.number
    assert f"Not yet: #{number} is not over: uncertain. First settle it." in out.getvalue()


def test_a_dry_run_changes_nothing() -> None:
    make_intent(status=Status.DONE, to=JANE)
    out = StringIO()
    call_command("erase", JANE, "--dry-run", stdout=out)
    assert out.getvalue().endswith("This was a dry run; nothing was changed.\n")
    assert not SendIntent.objects.exclude(erased_at=None).exists()


def test_the_tenant_has_to_be_named_where_there_are_several() -> None:
    make_agent_at()
    make_agent_at()
    with pytest.raises(CommandError, match="--tenant"):
        call_command("erase", JANE)


def test_the_address_in_the_reason_is_refused() -> None:
    make_agent_at()
    with pytest.raises(CommandError, match="must not contain the address"):
        call_command("erase", JANE, "--reason", f"{JANE} asked")
