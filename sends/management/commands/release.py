"""Let go on what a restore holds, once somebody has looked."""

from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.template.defaultfilters import pluralize

from sends.lifecycle import restores
from sends.lifecycle.refusals import Refused
from sends.management.ledger import require_ledger
from sends.management.operators import at_the_command_line
from sends.management.tenants import tenants_named


class Command(BaseCommand):
    help = (
        "Let every email go on that `doctor --after-restore` holds and nobody has released on its "
        "page. Look at the provider first: whatever it has sent since the backup is cancelled on "
        "its page before this."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("reason", metavar="REASON", help="where you looked; kept in the log")
        parser.add_argument("--tenant", default="", help="only what is held of this one")

    def handle(self, *args: Any, reason: str, tenant: str, **options: Any) -> None:
        require_ledger()
        try:
            count = restores.release_all(
                by=at_the_command_line(), reason=reason, tenants=tenants_named(tenant)
            )
        except Refused as refused:
            raise CommandError(refused.words) from None
        self.stdout.write(f"{count} email{pluralize(count, ' is,s are')} released.")
