"""How many people must approve, as a table."""

import pytest

from sends.rules.policy import Need, Rule, approvals_needed

REFUNDS = Rule(2, template="refund")
DESK = Rule(0, agent="desk")
PARTNER = Rule(2, recipient_domain="partner.example")
INTERNAL = Rule(0, recipient_domain="example.com")
DESK_INTERNAL = Rule(0, agent="desk", recipient_domain="example.com")
EVERYTHING = Rule(1)


@pytest.mark.parametrize(
    ("rules", "agent", "template", "domains", "expected"),
    [
        ([], "desk", "", {"example.org"}, Need(1, "default")),
        ([REFUNDS], "desk", "refund", {"example.org"}, Need(2, REFUNDS.words)),
        ([REFUNDS], "desk", "reminder", {"example.org"}, Need(1, "default")),
        ([REFUNDS], "desk", "", {"example.org"}, Need(1, "default")),
        ([DESK], "desk", "", {"example.org"}, Need(0, DESK.words)),
        ([DESK], "other", "", {"example.org"}, Need(1, "default")),
        # The strictest rule that matches wins, whatever the order.
        ([DESK, REFUNDS], "desk", "refund", {"example.org"}, Need(2, REFUNDS.words)),
        ([REFUNDS, DESK], "desk", "refund", {"example.org"}, Need(2, REFUNDS.words)),
        ([EVERYTHING, DESK], "desk", "", {"example.org"}, Need(1, EVERYTHING.words)),
        # One strict domain among many is enough, and one lenient one is not.
        ([PARTNER], "a", "", {"example.org", "partner.example"}, Need(2, PARTNER.words)),
        ([INTERNAL, PARTNER], "a", "", {"example.com", "partner.example"}, Need(2, PARTNER.words)),
        # Adding a recipient of a lenient domain takes nobody else out of the default.
        ([INTERNAL], "a", "", {"example.com"}, Need(0, INTERNAL.words)),
        ([INTERNAL], "a", "", {"example.com", "example.org"}, Need(1, "default")),
        ([INTERNAL, EVERYTHING], "a", "", {"example.com"}, Need(1, EVERYTHING.words)),
        # All fields of a rule have to match.
        ([DESK_INTERNAL], "desk", "", {"example.com"}, Need(0, DESK_INTERNAL.words)),
        ([DESK_INTERNAL], "desk", "", {"example.org"}, Need(1, "default")),
        ([DESK_INTERNAL], "other", "", {"example.com"}, Need(1, "default")),
    ],
)
def test_for_each_domain_the_strictest_rule_that_matches_decides_and_else_the_default(
    rules: list[Rule], agent: str, template: str, domains: set[str], expected: Need
) -> None:
    found = approvals_needed(rules, default=1, agent=agent, template=template, domains=domains)
    assert found == expected


@pytest.mark.parametrize(("asked", "expected"), [(0, 1), (1, 1), (2, 2)])
def test_a_person_sees_what_may_be_out_in_an_earlier_version(asked: int, expected: int) -> None:
    need = approvals_needed(
        [Rule(asked)],
        default=0,
        agent="desk",
        template="",
        domains={"example.org"},
        predecessor_may_be_out=True,
    )
    assert need.approvals == expected


@pytest.mark.parametrize("default", [0, 1, 2])
def test_without_a_rule_the_default_decides(default: int) -> None:
    need = approvals_needed([], default=default, agent="", template="", domains=[])
    assert need == Need(default, "default")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (EVERYTHING, "everything: one approval"),
        (REFUNDS, "template refund: two approvals"),
        (
            Rule(0, agent="desk", template="refund", recipient_domain="example.com"),
            "agent desk, template refund, recipients at example.com: no approval",
        ),
    ],
)
def test_a_rule_reads_as_words(rule: Rule, words: str) -> None:
    assert rule.words == words
