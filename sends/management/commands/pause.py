"""Stop all sending of this installation."""

from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser

from sends.lifecycle import restores
from sends.lifecycle.refusals import Refused
from sends.management.ledger import require_ledger
from sends.management.operators import at_the_command_line


class Command(BaseCommand):
    help = "Stop all sending, for every tenant. What is on the wire ends. `resume` is the way back."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("reason", metavar="REASON", help="kept in the audit log, shown to all")

    def handle(self, *args: Any, reason: str, **options: Any) -> None:
        require_ledger()
        try:
            switch = restores.pause(by=at_the_command_line(), reason=reason)
        except Refused as refused:
            raise CommandError(refused.words) from None
        self.stdout.write(f"All sending is paused: {switch.pause_reason}")
