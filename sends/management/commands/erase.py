"""One person erased on request."""

from collections.abc import Iterator
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.template.defaultfilters import pluralize

from sends.lifecycle import erasure
from sends.lifecycle.erasure import Erased
from sends.lifecycle.refusals import Invalid
from sends.management.ledger import require_ledger
from sends.management.tenants import one_tenant


class Command(BaseCommand):
    help = (
        "Erase one person from the emails of a tenant that are over: what they said, to whomever "
        "else too, and the address, which becomes a pseudonym. Names what is not over and has to "
        "be settled first, and then ends with 1; run it again after that."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("address", metavar="ADDRESS")
        parser.add_argument("--tenant", default="", help="may be left out where there is one")
        parser.add_argument("--reason", default="", help="for the record, without the address")
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")

    def handle(
        self, *args: Any, address: str, tenant: str, reason: str, dry_run: bool, **options: Any
    ) -> None:
        require_ledger()
        try:
            erased = erasure.erase(
                one_tenant(tenant), address, reason=reason.strip(), dry_run=dry_run
            )
        except Invalid as error:
            raise CommandError(str(error)) from None
        for line in report(erased):
            self.stdout.write(line)
        if dry_run:
            self.stdout.write("This was a dry run; nothing was changed.")
        if erased.blocking:
            raise CommandError("Not all of it could be erased. Do the above, then run this again.")


def report(erased: Erased) -> Iterator[str]:
    emails = f"{erased.emails} email{pluralize(erased.emails)}"
    yield f"Erased: {emails}, {erased.events} provider event{pluralize(erased.events)}."
    yield f"The address is replaced by {erased.pseudonym}."
    if erased.is_suppressed:
        yield "It is suppressed and stays on that list, so that nobody sends to it again."
    if erased.mentions:
        numbers = ", ".join(map(str, erased.mentions))
        yield f"It stands in these entries of the audit log, which cannot change: {numbers}."
    for blocking in erased.blocking:
        yield f"Not yet: {blocking.what}. First {blocking.way_out}."
