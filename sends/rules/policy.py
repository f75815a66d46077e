"""Which intents a person must see, as one readable list of checks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One line of a tenant's approval policy. An empty field matches anything.

    `recipient_domain` is about the recipients in it; `approvals` is 0, 1 or 2 people.
    """

    approvals: int
    agent: str = ""
    template: str = ""
    recipient_domain: str = ""

    def matches(self, *, agent: str, template: str, domain: str) -> bool:
        return (
            self.agent in ("", agent)
            and self.template in ("", template)
            and self.recipient_domain in ("", domain)
        )

    @property
    def words(self) -> str:
        """The rule as a person reads it: "agent refund-desk, template refund: 2 approvals"."""
        parts = [
            f"agent {self.agent}" if self.agent else "",
            f"template {self.template}" if self.template else "",
            f"recipients at {self.recipient_domain}" if self.recipient_domain else "",
        ]
        who = ", ".join(part for part in parts if part) or "everything"
        people = {0: "no approval", 1: "one approval", 2: "two approvals"}[self.approvals]
        return f"{who}: {people}"


@dataclass(frozen=True)
class Need:
    """How many people must approve an intent, and which rule says so."""

    approvals: int
    rule: str


def approvals_needed(
    rules: Sequence[Rule],
    *,
    default: int,
    agent: str,
    template: str,
    domains: Iterable[str],
    predecessor_may_be_out: bool = False,
) -> Need:
    """How many people must approve: for each domain the strictest rule that matches, else the
    default; and of these the most.

    So a rule that asks nobody about one's own domain says nothing about the other recipients. A
    version whose predecessor may have reached a provider is always seen by a person.
    """
    needs = [
        _strictest([r for r in rules if r.matches(agent=agent, template=template, domain=domain)])
        or Need(default, "default")
        for domain in sorted(set(domains))
    ]
    need = max(needs, key=lambda need: need.approvals, default=Need(default, "default"))
    if predecessor_may_be_out and need.approvals == 0:
        return Need(1, "an earlier version may have reached the provider")
    return need


def _strictest(rules: Sequence[Rule]) -> Need | None:
    strictest = max(rules, key=lambda rule: rule.approvals, default=None)
    return None if strictest is None else Need(strictest.approvals, strictest.words)
