"""Whether the audit log is the one that was written."""

from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.template.defaultfilters import pluralize

from sends.lifecycle import chain
from sends.lifecycle.chain import Checked, End, WrongExport
from sends.management.ledger import require_ledger
from sends.management.tenants import one_tenant, tenants_named
from sends.models import Tenant


class Command(BaseCommand):
    help = (
        "Follow the chain of hashes of each tenant's audit log and name the first entry that was "
        "changed, removed or put in. Ends with 1 if there is one. Entries removed from the very "
        "end leave a chain that holds: --against an earlier export they are missed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--tenant", default="", help="only this one")
        parser.add_argument(
            "--against",
            type=Path,
            metavar="FILE",
            help="an export of this tenant's log, which the log has to go on from",
        )

    def handle(self, *args: Any, tenant: str, against: Path | None, **options: Any) -> None:
        require_ledger()
        if against is None:
            checked = [(one, chain.check(one)) for one in tenants_named(tenant)]
        else:
            one = one_tenant(tenant)
            checked = [(one, chain.check(one, against=exported_end(one, against)))]
        for one, found in checked:
            self.stdout.write(report(one, found))
        if any(found.broken for _, found in checked):
            raise CommandError("The audit log is not the one that was written.")


def exported_end(tenant: Tenant, file: Path) -> End:
    try:
        with file.open(encoding="utf-8") as lines:
            last = ""
            for line in lines:
                last = line
        return chain.end_of(tenant, last)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file} cannot be read: it is not UTF-8 text.") from None
    except WrongExport as error:
        raise CommandError(f"{file} is no export of this log: {error}.") from None


def report(tenant: Tenant, found: Checked) -> str:
    if found.broken:
        return f"{tenant.slug}: BROKEN: {found.broken}."
    words = f"{tenant.slug}: unbroken, {found.entries} entr{pluralize(found.entries, 'y,ies')}"
    if found.checkpoint is not None:
        words += f" since the checkpoint at entry {found.checkpoint.sequence}"
    return f"{words}. Entry {found.end.sequence} has the hash {found.end.hash}."
