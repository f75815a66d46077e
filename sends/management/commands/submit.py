"""Emails from files, proposed one by one."""

import logging
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.template.defaultfilters import pluralize
from tqdm import tqdm

from sends.conf import conf
from sends.lifecycle import intake
from sends.lifecycle.intake import Taken
from sends.lifecycle.refusals import Refused
from sends.lifecycle.simulation import simulate
from sends.lifecycle.versions import SuppressedRecipient
from sends.management.ledger import require_ledger
from sends.management.sources import Item, NoSource, Sources
from sends.models import Agent, Sender
from sends.rules.eml import read_email
from sends.rules.letters import letters_of
from sends.rules.proposals import Proposal, Wrong, WrongProposal, parse
from sends.rules.strict_json import NotJson, read_json

logger = logging.getLogger(__name__)

REFUSED, USAGE, INTERRUPTED = 1, 2, 130
LINE_EVERY = 1000


class Command(BaseCommand):
    help = (
        "Propose the emails in files, as an agent does by the API. A .jsonl file has one intent a "
        "line, as POST /api/v1/intents takes it; an .eml file is one email, an .mbox file many; of "
        "a folder all such files are read, and those in its folders. Each email is taken whole or "
        "refused with the reason. Running it again changes nothing: what was taken is known by its "
        "action_key, an email by its Message-ID. Ends with 0 if all were taken, 1 if some were "
        "refused, 2 if nothing was begun."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "files",
            metavar="FILE",
            nargs="+",
            help="a .jsonl, .eml or .mbox file, or a folder; - is standard input, in JSON lines",
        )
        parser.add_argument(
            "--agent",
            metavar="TENANT/AGENT",
            help="who proposes; may be left out where there is one agent, its tenant where there"
            " is one of that name",
        )
        parser.add_argument(
            "--sender",
            metavar="ADDRESS",
            help="the sender of all of them, in place of their From; default: the sender whose"
            " address is in From",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="only say what would be taken, each by itself"
        )

    def handle(
        self,
        *args: Any,
        files: list[str],
        agent: str | None,
        sender: str | None,
        dry_run: bool,
        **options: Any,
    ) -> None:
        require_ledger()
        try:
            sources = Sources(files, sys.stdin.buffer)
        except NoSource as error:
            raise CommandError(str(error), returncode=USAGE) from None
        proposer = find_agent(agent or "")
        propose = intake.propose if not dry_run else simulated
        submission = Submission(proposer, sender and find_sender(proposer, sender), propose)
        try:
            self.run(sources, submission)
        except KeyboardInterrupt:
            self.say_stopped(submission, "Stopped")
            sys.exit(INTERRUPTED)
        except NoSource as error:  # a folder that was there when it was counted
            self.say_stopped(submission, str(error).removesuffix("."))
            sys.exit(REFUSED)
        except DatabaseError as error:
            self.say_stopped(submission, f"The database failed ({error})".replace("\n", " "))
            sys.exit(REFUSED)
        self.stdout.write(report(submission, sources.passed_over))
        if dry_run:
            self.stdout.write("This was a dry run; nothing was taken.")
        sys.exit(REFUSED if submission.counts["refused"] else None)

    def run(self, sources: Sources, submission: "Submission") -> None:
        """Take every email, with a bar on a terminal and a line now and then elsewhere."""
        with tqdm(total=sources.size, unit="B", unit_scale=True, disable=None) as bar:
            for read, item in enumerate(sources, 1):
                lines = [shown(item.place, wrong) for wrong in submission.take(item)]
                if bar.disable and not read % LINE_EVERY:
                    lines.append(f"{read:,} emails read: {submission.counted}")
                if lines:
                    with bar.external_write_mode():
                        self.stderr.write("\n".join(lines))
                bar.set_postfix_str(submission.counted, refresh=False)
                bar.update(item.size)

    def say_stopped(self, submission: "Submission", why: str) -> None:
        where = f"after {visible(submission.last)}" if submission.last else "before the first email"
        self.stderr.write(
            f"{why} {where}: {submission.counted}. Each email was taken whole or not at all; run"
            " the same command again for the rest."
        )


class Submission:
    """Emails proposed by one agent, and what became of them."""

    def __init__(self, agent: Agent, sender: str | None, propose: Callable[..., Taken]) -> None:
        self.agent = agent
        self.sender = sender
        self.propose = propose
        self.counts: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.left_out: set[str] = set()
        self.last = ""

    @property
    def counted(self) -> str:
        return ", ".join(
            f"{self.counts[name]:,} {name}" for name in ("taken", "replayed", "refused")
        )

    def take(self, item: Item) -> tuple[Wrong, ...]:
        """Propose one email; what is wrong with it, if it was refused."""
        wrong: tuple[Wrong, ...] = ()
        try:
            document, left_out = self._document(item)
            taken = self.propose(parse(document, limits=conf.limits), agent=self.agent)
            self.counts["replayed" if taken.replayed else "taken"] += 1
            self.left_out |= left_out
        except (WrongProposal, SuppressedRecipient) as error:
            wrong = error.errors
        except NotJson as error:
            wrong = (Wrong("", "not_json", str(error)),)
        except Refused as error:
            wrong = (Wrong("", error.code, error.words),)
        except DatabaseError:
            raise
        except Exception:
            logger.exception("an email could not be proposed")
            wrong = (Wrong("", "internal", "something failed here; the log says what"),)
        self.counts["refused"] += bool(wrong)
        self.codes.update({found.code for found in wrong})
        self.last = item.place
        return wrong

    def _document(self, item: Item) -> tuple[Any, frozenset[str]]:
        """What the item proposes, and the names of what it says beside that."""
        if item.wrong is not None:
            raise WrongProposal(item.wrong)
        if not item.is_json:
            email = read_email(item.raw, sender=self.sender)
            return email.document, email.left_out
        document = read_json(item.raw)
        if self.sender is not None and isinstance(document, dict):
            document["sender"] = self.sender
        return document, frozenset()


def simulated(proposal: Proposal, *, agent: Agent) -> Taken:
    """What `intake.propose` would answer or raise, with nothing taken in."""
    answer = simulate(proposal, agent=agent)
    if answer.taken is None:
        raise answer.refusal or AssertionError("neither taken nor refused")
    return answer.taken


def find_agent(name: str) -> Agent:
    """The agent of this name, "agent" or "tenant/agent"; the only one there is for ""."""
    tenant, _, slug = name.rpartition("/")
    agents = Agent.objects.select_related("tenant", "sender").order_by("tenant__slug", "slug")
    meant = agents.filter(slug=slug) if name else agents
    meant = meant.filter(tenant__slug=tenant) if tenant else meant
    if len(found := list(meant[:2])) == 1:
        return found[0]
    known = ", ".join(f"{agent.tenant.slug}/{agent.slug}" for agent in agents[:20])
    said = f"There is no agent {name}." if name and not found else "Say who proposes: --agent."
    raise CommandError(f"{said} There are: {known or 'none'}.", returncode=USAGE)


def find_sender(agent: Agent, address: str) -> str:
    senders = Sender.objects.filter(tenant=agent.tenant_id).order_by("address")
    if found := senders.filter(address__iexact=address).first():
        return found.address
    known = ", ".join(senders.values_list("address", flat=True)[:20])
    raise CommandError(
        f"{address} is no sender of {agent.tenant.slug}. There are: {known or 'none'}.",
        returncode=USAGE,
    )


def report(submission: Submission, passed_over: int) -> str:
    count = submission.counts.total()
    lines = [f"{count:,} email{pluralize(count)}: {submission.counted}."]
    if submission.codes:
        by_code = (f"{count:,} {code}" for code, count in submission.codes.most_common())
        lines.append(f"Refused for: {', '.join(by_code)}.")
    if submission.codes["unknown_sender"]:
        lines.append("With --sender ADDRESS they are sent from a sender of yours.")
    if submission.left_out:
        names = visible(", ".join(sorted(submission.left_out)))
        lines.append(f"Left out, since each email that is sent gets its own, or none: {names}.")
    if passed_over:
        files = f"{passed_over:,} file{pluralize(passed_over)}"
        lines.append(f"Passed over: {files} by their name, which is no .jsonl, .eml or .mbox.")
    return "\n".join(lines)


def shown(place: str, wrong: Wrong) -> str:
    """One line, `file:line: code pointer: words`; what came from files is made harmless in it."""
    what = f"{wrong.code} {wrong.pointer}" if wrong.pointer else wrong.code
    return visible(f"{place}: {what}: {wrong.detail}")


def visible(text: str) -> str:
    """Nothing in it controls a terminal, or is a byte of a file's name that is no text."""
    line = " ".join(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").split())
    return "".join(letters.text for letters in letters_of(line))
