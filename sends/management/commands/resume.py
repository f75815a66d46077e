"""Let this installation send again."""

from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser

from sends.lifecycle import restores
from sends.lifecycle.refusals import Refused
from sends.management.ledger import require_ledger
from sends.management.operators import at_the_command_line


class Command(BaseCommand):
    help = (
        "Let the installation send again, after `pause` or after a restore. What a tenant, an "
        "account, a sender or a run has paused stays so."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("reason", metavar="REASON", help="kept in the audit log")
        parser.add_argument(
            "--moved",
            action="store_true",
            help="the database is in another place, and nothing went on without it",
        )

    def handle(self, *args: Any, reason: str, moved: bool, **options: Any) -> None:
        require_ledger()
        try:
            restores.resume(by=at_the_command_line(), reason=reason, was_moved=moved)
        except Refused as refused:
            raise CommandError(refused.words) from None
        self.stdout.write("Sending is on.")
