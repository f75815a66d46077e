"""A tenant's audit log as a file, and, once it is safe there, shorter in the database."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.template.defaultfilters import pluralize

from sends.lifecycle import chain
from sends.lifecycle.refusals import NotPossible
from sends.management.commands.verify_audit import exported_end
from sends.management.ledger import require_ledger
from sends.management.tenants import one_tenant


class Command(BaseCommand):
    help = (
        "Write a tenant's audit log as JSON Lines, oldest first. The last line names the log's "
        "end and is signed; `verify_audit --against FILE` compares with it later."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", default="", help="may be left out where there is one")
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="a new file; default: print it"
        )
        parser.add_argument(
            "--truncate",
            action="store_true",
            help="then delete the entries that the tenant's policy no longer keeps; "
            "a signed checkpoint takes their place",
        )

    def handle(
        self, *args: Any, tenant: str, output: Path | None, truncate: bool, **options: Any
    ) -> None:
        require_ledger()
        if truncate and output is None:
            raise CommandError("--truncate needs --output FILE: what is deleted has to be kept.")
        one = one_tenant(tenant)
        if truncate and (broken := chain.check(one).broken):
            raise CommandError(f"Nothing was written or deleted: {broken}.")
        if output is None:
            for line in chain.export(one):
                self.stdout.write(line, ending="")
            return
        entries = write(chain.export(one), output) - 1
        end = exported_end(one, output)
        words = f"{entries} entr{pluralize(entries, 'y,ies')}"
        self.stdout.write(f"{output}: {words} of {one.slug}, up to {end.sequence}.")
        if truncate:
            try:
                cut = chain.cut_off(one, exported=end)
            except NotPossible as refused:
                raise CommandError(f"Nothing was deleted. {refused}") from None
            self.stdout.write(
                f"Deleted: {cut.entries}, up to entry {cut.sequence}; a checkpoint stands for "
                "them. Keep the file."
                if cut.entries
                else "No entry is old enough to be deleted."
            )


def write(lines: Iterator[str], file: Path) -> int:
    """Write a new file down to the disk, whole or not at all; how many lines."""
    count = 0
    try:
        with file.open("x", encoding="utf-8") as out:
            try:
                for line in lines:
                    out.write(line)
                    count += 1
                out.flush()
                os.fsync(out.fileno())
            except BaseException:
                file.unlink()
                raise
    except FileExistsError:
        raise CommandError(f"{file} is there already; give a new file.") from None
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}.") from None
    return count
