"""The set-up of an installation, applied from a file."""

from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser

from sends.lifecycle.configure import Applied, configure
from sends.management.ledger import require_ledger
from sends.rules.configuration import WrongConfiguration, read


class Command(BaseCommand):
    help = (
        "Apply the set-up in FILE: tenants, accounts, senders, agents, tokens, people, policy. "
        "All of it or nothing, and as often as wanted; what FILE does not name is left alone. "
        "outbox.example.toml shows everything that it may say."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument("--dry-run", action="store_true", help="only say what would change")

    def handle(self, *args: Any, file: Path, dry_run: bool, **options: Any) -> None:
        try:
            source = file.read_text(encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise CommandError(f"{file} cannot be read: it is not UTF-8 text.") from None
        require_ledger()
        try:
            applied = configure(read(source, str(file)), dry_run=dry_run)
        except WrongConfiguration as error:
            raise CommandError(f"{error}\nNothing was changed.") from None
        self.stdout.write(report(applied, dry_run=dry_run))


def report(applied: Applied, *, dry_run: bool) -> str:
    lines = list(applied.changes) or ["Nothing to change."]
    lines += [f"unchanged: {applied.unchanged}"] if applied.unchanged else []
    if applied.without_password:
        lines.append(
            f"These have no password yet: {', '.join(applied.without_password)}."
            " `manage.py changepassword EMAIL` sets one."
        )
    if dry_run:
        lines.append("This was a dry run; nothing was changed.")
    for made in () if dry_run else applied.made_tokens:
        lines += ["", f"Token {made.name} of agent {made.agent}, shown this once:", made.token]
    return "\n".join(lines)
