"""What dead letters have in common: the signature by which they are grouped and triaged."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db.models import TextChoices

from sends.rules.keys import canonical, sha256
from sends.rules.outcomes import Outcome

# Part of every signature: the address of a group means the same until the rule itself changes.
RULE_VERSION = 1
LONGEST_MESSAGE = 300
BLANK = "…"


class DeadClass(TextChoices):
    """Why emails ended here, as far as it decides what can be done about them."""

    BOUNCED = "bounced", "Bounced, recipient"
    CONTENT = "content", "Refused, content"
    POLICY = "policy", "Refused by policy"
    SPENT = "spent", "Retries used up, nothing taken"
    FOUND = "found", "Found not accepted, by a person"
    OURS = "ours", "Our own fault, before sending"


C = DeadClass

SENTENCES: dict[DeadClass, str] = {
    C.BOUNCED: (
        "The provider took these emails, and no recipient got one. Repeating cannot help: "
        "the addresses are suppressed. Send a follow-up to another address."
    ),
    C.CONTENT: (
        "The provider refused what these emails say, and would again. "
        "Correct them: each becomes a new version."
    ),
    C.POLICY: (
        "These emails were stopped for whom they go to or who sends them, not for what they say. "
        "Repeating helps only once that has changed."
    ),
    C.SPENT: (
        "Every attempt failed, and the provider took none of these emails. "
        "Repeating can help once the cause is gone."
    ),
    C.FOUND: (
        "Nobody knew whether the provider took these emails, until a person found that it did not."
    ),
    C.OURS: (
        "We failed before anything was sent. Repeating can help once the fault is mended here."
    ),
}

# Classes in which trying the very same email again can help.
REPEATABLE = frozenset({C.SPENT, C.FOUND, C.OURS})

# What the provider's HTTP status says a refusal was about.
ABOUT_POLICY = frozenset({403, 422})


class Ending(StrEnum):
    """What made an intent a dead letter."""

    ATTEMPT = "attempt"  # its last one: refused, or one too many
    DELIVERY = "delivery"  # the provider took it, and every recipient failed
    FINDING = "finding"  # a person found that it was not accepted
    SUPPRESSION = "suppression"  # a recipient was suppressed after it was approved
    WINDOW = "window"  # the time in which the provider knows its key was over


@dataclass(frozen=True)
class Death:
    """What is known of how one intent ended.

    `said` is what went wrong in the words of whoever knew: the recipient's server, the provider,
    or we. `outcome`, `http_status` and `code` are of its last attempt, where that ended it.
    """

    provider: str
    ending: Ending
    said: str = ""
    outcome: str = ""
    http_status: int | None = None
    code: str = ""


@dataclass(frozen=True)
class Signature:
    """`code` is the provider's own, or the recipient's server's ("550 5.1.1")."""

    provider: str
    kind: DeadClass
    http_status: int | None
    code: str
    message: str

    @property
    def id(self) -> str:
        """A short name for addresses: the same signature, the same name."""
        facts: list[Any] = [RULE_VERSION, self.provider, self.kind.value]
        facts += [self.http_status, self.code, self.message]
        return sha256(canonical(facts))[:16]

    @property
    def title(self) -> str:
        """For people: "429 Too many requests", "550 5.1.1 User unknown", "Connection refused"."""
        number = self.code if self.kind is C.BOUNCED else str(self.http_status or "")
        words = self.message or ("" if self.kind is C.BOUNCED else self.code) or self.kind.label
        return f"{number} {words[:1].upper()}{words[1:]}".strip()


def signature_of(death: Death) -> Signature:
    """The same facts, the same group, whoever asks and whenever."""
    kind = class_of(death)
    if kind is C.FOUND:
        # What the person wrote differs from email to email, and says nothing of the cause.
        return Signature(death.provider, kind, None, "", "")
    if kind is C.BOUNCED:
        code, message = _smtp_code_in(death.said)
        return Signature(death.provider, kind, None, code, blanked(message))
    return Signature(
        death.provider, kind, death.http_status, death.code, blanked(_without_head(death))
    )


def class_of(death: Death) -> DeadClass:
    match death.ending:
        case Ending.DELIVERY:
            return C.BOUNCED
        case Ending.FINDING:
            return C.FOUND
        case Ending.SUPPRESSION:
            return C.POLICY
        case Ending.WINDOW:
            return C.SPENT
    match death.outcome:
        case Outcome.INTERNAL:
            return C.OURS
        case Outcome.SUPPRESSED | Outcome.BLOCKED:
            return C.POLICY
        case Outcome.REFUSED:
            return C.POLICY if death.http_status in ABOUT_POLICY else C.CONTENT
    return C.SPENT


ADDRESS = re.compile(r"<?[^\s<>@\"']+@[^\s<>@\"',;:]+>?")
# Whatever has a digit in it: numbers, ids, dates, hosts, versions.
NUMBERED = re.compile(r"[\w.:/+=#-]*\d[\w.:/+=#-]*")
BLANKS = re.compile(rf"{BLANK}(?:[\s,.;:]*{BLANK})+")
SMTP_CODE = re.compile(r"\W*([245]\d\d)[\s-]+(?:([245]\.\d{1,3}\.\d{1,3})\b)?")


def blanked(message: str) -> str:
    """The message without what differs from email to email: addresses, ids and numbers."""
    message = " ".join(message[:LONGEST_MESSAGE].split())
    message = NUMBERED.sub(BLANK, ADDRESS.sub(BLANK, message))
    return BLANKS.sub(BLANK, message).strip(" .:-")


def _smtp_code_in(said: str) -> tuple[str, str]:
    """The reply code and enhanced code with which the words begin, and the rest of them."""
    found = SMTP_CODE.match(said)
    if found is None:
        return "", said
    return " ".join(part for part in found.groups() if part), said[found.end() :]


def _without_head(death: Death) -> str:
    """What was said, without the status and code that the signature names beside it."""
    said = death.said
    if death.http_status is not None:
        said = said.removeprefix(f"HTTP {death.http_status}").lstrip()
    if death.code:
        said = said.removeprefix(death.code)
    return said.lstrip(" :")
