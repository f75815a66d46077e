"""What retention deletes every day, now or only counted."""

from typing import Any

from django.core.management import BaseCommand, CommandParser
from django.template.defaultfilters import pluralize

from sends.lifecycle import retention
from sends.lifecycle.retention import Purged
from sends.management.ledger import require_ledger
from sends.models import Tenant
from sends.rules.statuses import Status


class Command(BaseCommand):
    help = (
        "Delete what no tenant's retention policy keeps any more: the content of emails that are "
        "over, and raw provider events. Digests, decisions and history stay. The worker does the "
        "same once a day; it may be repeated and interrupted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")

    def handle(self, *args: Any, dry_run: bool, **options: Any) -> None:
        require_ledger()
        if dry_run:
            done = [retention.due(tenant) for tenant in Tenant.objects.order_by("slug")]
        else:
            done = retention.purge()
        for purged in done:
            self.stdout.write(report(purged))
        if dry_run:
            self.stdout.write("This was a dry run; nothing was deleted.")


def report(purged: Purged) -> str:
    """ "example: content of 12 emails (3 cancelled, 9 done), 40 raw events"."""
    classes = ", ".join(
        f"{count} {Status(status).label.lower()}" for status, count in sorted(purged.emails.items())
    )
    count = purged.emails.total()
    emails = f"content of {count} email{pluralize(count)}"
    emails += f" ({classes})" if classes else ""
    events = f"{purged.events} raw event{pluralize(purged.events)}"
    return f"{purged.tenant.slug}: {emails}, {events}"
