"""A backup of the database, made while everything runs."""

from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser

from sends.lifecycle.backup import BackupFailed, back_up
from sends.lifecycle.obstacles import moment
from sends.management.ledger import require_ledger


class Command(BaseCommand):
    help = (
        "Write the database as it is now to the new file FILE, readable by its owner alone. "
        "Wherever it is put in place, the installation starts paused."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path)

    def handle(self, *args: Any, file: Path, **options: Any) -> None:
        require_ledger()
        try:
            made_at = back_up(file)
        except BackupFailed as failed:
            raise CommandError(str(failed)) from None
        size = file.stat().st_size
        self.stdout.write(f"{file} holds the database as of {moment(made_at)}, {size:,} bytes.")
