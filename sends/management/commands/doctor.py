"""What is wrong or unsafe in this installation, in plain words, each with its cure."""

import json
import sys
from argparse import ArgumentTypeError
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser

from sends.lifecycle import restores
from sends.lifecycle.obstacles import moment
from sends.lifecycle.refusals import Refused
from sends.management.ledger import require_ledger
from sends.management.operators import at_the_command_line
from sends.reports.health import Finding, Level, examine
from sends.schedule import TIMETABLE

LABELS = {Level.UNSAFE: "UNSAFE", Level.WARNING: "Warning"}


class Command(BaseCommand):
    help = (
        "Say what is wrong or unsafe, and what to do about it; nothing is changed. The exit code "
        "is 1 where something is unsafe or could not be looked at, and 0 otherwise."
    )
    requires_system_checks = ()  # they are among the findings

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--json", action="store_true", dest="for_programs", help="the findings as JSON"
        )
        parser.add_argument(
            "--after-restore",
            action="store_true",
            help="mark as uncertain what may have been sent after the backup that was restored",
        )
        parser.add_argument(
            "--backup-made-at",
            metavar="TIME",
            type=_time,
            help="when the backup was made, where it does not say so itself: 2026-11-30T22:00Z",
        )

    def handle(
        self,
        *args: Any,
        for_programs: bool,
        after_restore: bool,
        backup_made_at: datetime | None,
        **options: Any,
    ) -> None:
        if after_restore:
            self.look_after(backup_made_at)
            return
        if backup_made_at is not None:
            raise CommandError("--backup-made-at goes with --after-restore.")
        findings = sorted(examine(TIMETABLE), key=lambda finding: -finding.level)
        self.stdout.write(as_json(findings) if for_programs else as_text(findings))
        if any(finding.level is Level.UNSAFE for finding in findings):
            self.stdout.flush()
            sys.exit(1)

    def look_after(self, made_at: datetime | None) -> None:
        require_ledger()
        try:
            settled = restores.after_restore(by=at_the_command_line(), made_at=made_at)
        except Refused as refused:
            raise CommandError(refused.words) from None
        self.stdout.write(
            f"The backup is taken to be of {moment(settled.made_at)}.\n"
            f"{_emails(settled.uncertain)} may have been sent since: now uncertain, for an operator"
            " to settle.\n"
            f"{_emails(settled.held)} to be decided, or queued for later, may have been decided"
            " since: held until an operator has looked and releases them, on their pages or with"
            " manage.py release.\n"
            'Then: manage.py resume "why sending may go on"'
        )


def as_text(findings: list[Finding]) -> str:
    if not findings:
        return "Nothing is wrong."
    return "\n\n".join(
        f"{LABELS[finding.level]:<9}{finding.what}\n{'':<9}{finding.cure}" for finding in findings
    )


def as_json(findings: list[Finding]) -> str:
    named = [asdict(finding) | {"level": finding.level.name.lower()} for finding in findings]
    return json.dumps({"findings": named}, indent=2)


def _emails(count: int) -> str:
    return "1 email" if count == 1 else f"{count} emails"


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f'"{text}" is no time; give one as 2026-11-30T22:00Z') from None
    if time.tzinfo is None:
        raise ArgumentTypeError(f'"{text}" has no time zone; give it too, as in {text}Z')
    return time
