"""Demonstration data for an empty installation, and the file that says how to get in."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, CommandParser

from sends.conf import conf
from sends.lifecycle import demo
from sends.management.commands.up import sandbox_variables
from sends.rules.configuration import WrongConfiguration, read

EXAMPLE = "outbox.example.toml"


class Command(BaseCommand):
    help = (
        f"Apply {EXAMPLE} to an empty database, with emails in every state to look at, and write "
        "demo.json with passwords and token into the data folder. A second time changes nothing "
        "but addresses."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--url", default=conf.url, help="where people and agents come in (%(default)s)"
        )
        parser.add_argument("--sandbox-url", default="", help="default: that of `manage.py up`")

    def handle(
        self, *args: Any, url: str, sandbox_url: str, verbosity: int, **options: Any
    ) -> None:
        variables = sandbox_variables()
        if sandbox_url:
            variables["SANDBOX_URL"] = sandbox_url
        os.environ |= variables
        addresses = {"url": url, "sandbox_url": variables["SANDBOX_URL"]}

        said = self.load(addresses) or self.follow(addresses)
        if verbosity:
            self.stdout.write(said)

    def load(self, addresses: dict[str, str]) -> str:
        """What was done, or nothing."""

        def keep(access: demo.Access) -> None:
            people = [asdict(person) for person in access.people]
            write({**addresses, "agent_token": access.agent_token, "people": people})

        try:
            example = (settings.BASE_DIR / EXAMPLE).read_text(encoding="utf-8")
            if not demo.load(read(example, EXAMPLE), keep=keep):
                return ""
        except WrongConfiguration as error:
            raise CommandError(str(error)) from None
        except OSError as error:
            raise CommandError(f"{error.filename} cannot be used: {error.strerror}.") from None
        return f"The demonstration is loaded; {path()} says how to get in."

    def follow(self, addresses: dict[str, str]) -> str:
        """Bring the addresses of an earlier demonstration up to date; what was done."""
        demo.follow_sandbox(addresses["sandbox_url"])
        if path().exists():
            write(json.loads(path().read_text(encoding="utf-8")) | addresses)
        return "The database is not empty; no demonstration was loaded."


def path() -> Path:
    return conf.data_dir / "demo.json"


def write(access: dict[str, Any]) -> None:
    """Whole or not at all, and for its owner's eyes only."""
    ordered = {name: access[name] for name in ("url", "agent_token", "sandbox_url", "people")}
    draft = path().with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(ordered, indent=2) + "\n", encoding="utf-8")
    draft.replace(path())
