"""Public bug reports about what agents hand in, as they would meet our own intake."""

from pathlib import Path
from typing import Any

import pytest

from sends.lifecycle.intake import propose
from sends.lifecycle.versions import SuppressedRecipient
from sends.models import Agent, SendIntent, Suppression, SuppressionCause, database_now
from sends.rules.addresses import normal
from sends.rules.proposals import parse
from tests.factories import make_agent_at
from tests.test_architecture import ROOT, SENDS, imports


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


def took(agent: Agent, **fields: Any) -> SendIntent:
    document = {"action_key": "refund:7731", "to": ["jo@example.org"], "text": "Hello", **fields}
    return propose(parse(document), agent=agent).intent


def suppress(agent: Agent, address: str) -> None:
    Suppression.objects.create(
        tenant=agent.tenant,
        normal=normal(address),
        cause=SuppressionCause.COMPLAINED,
        since=database_now(),
    )


@pytest.mark.django_db
@pytest.mark.parametrize("place", ["to", "cc", "bcc"])
@pytest.mark.parametrize(
    ("suppressed", "written"),
    [
        ("reader@example.org", "Reader@Example.ORG"),
        ("Reader@Example.ORG", "reader@example.org"),
        ("reader@bücher.example", "reader@XN--BCHER-KVA.example"),
        ("reader@xn--bcher-kva.example", "reader@BÜCHER.example"),
        ("reader@example.org", '"reader"@example.org'),
        ("jos\u00e9@example.org", "jose\u0301@example.org"),
        ("straße@example.org", "STRASSE@example.org"),
        ("reader+news@example.org", "Reader+News@example.org"),
    ],
)
def test_who_is_suppressed_in_one_spelling_is_mailed_in_none(
    agent: Agent, place: str, suppressed: str, written: str
) -> None:
    """Case D14: one form to compare, wherever the recipient stands."""
    suppress(agent, suppressed)
    others = {"to": ["al@example.org"]}
    with pytest.raises(SuppressedRecipient) as refused:
        took(agent, **others | {place: [written]})
    assert [wrong.pointer for wrong in refused.value.errors] == [f"/{place}/0"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("suppressed", "written"),
    [
        ("jo@example.org", "jo+orders@example.org"),
        ("jo+orders@example.org", "jo@example.org"),
        ("jo@faß.example", "jo@fass.example"),
        ("j.o@example.org", "jo@example.org"),
    ],
)
def test_another_mailbox_is_mailed_under_the_name_it_was_given(
    agent: Agent, suppressed: str, written: str
) -> None:
    """Case D15: nobody but its own server knows what a tag or a dot in a local part means."""
    suppress(agent, suppressed)
    assert took(agent, to=[written]).deliveries.get().address == written


@pytest.mark.django_db
def test_a_name_with_a_comma_is_one_recipient_and_counted_as_one(agent: Agent) -> None:
    """Case D1."""
    boxes = ['"Doe, Jo" <jo@example.org>', {"name": "Doe, Al", "address": "al@example.org"}]
    intent = took(agent, to=boxes)
    assert intent.recipient_count == 2
    people = [(one.name, one.address) for one in intent.deliveries.order_by("position")]
    assert people == [("Doe, Jo", "jo@example.org"), ("Doe, Al", "al@example.org")]


@pytest.mark.django_db
def test_a_step_that_begins_again_proposes_the_same_message(agent: Agent) -> None:
    """Cases B1, B9: without a key too, since it is made of what stays the same in a repetition."""
    step: dict[str, Any] = {
        "action_key": None,
        "run": "nightly-7",
        "template": "refund",
        "context": {"order": 7731, "amount": "12.50"},
    }
    first = took(agent, **step)
    again = step | {"context": {"amount": "12.50", "order": 7731}, "reason": "resumed"}
    assert took(agent, **again).pk == first.pk
    assert SendIntent.objects.count() == 1


def test_no_call_of_an_agent_leads_to_a_provider() -> None:
    """Case B11: what agents call cannot reach the steps that claim and send, by any import."""
    reached = reached_from(SENDS / "api")
    assert SENDS / "lifecycle" / "intake.py" in reached
    sending = {SENDS / "lifecycle" / f"{step}.py" for step in ("claim", "submit", "worker")}
    assert not reached & sending


def reached_from(room: Path) -> set[Path]:
    """Every module of ours that is imported there, or by what is imported there."""
    reached: set[Path] = set()
    waiting = sorted(room.glob("*.py"))
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            found = imports(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
            waiting += [module for one in found for module in modules_of(one.name)]
    return reached


def modules_of(name: str) -> list[Path]:
    """The file that a dotted name is in, and the packages above it, as far as they are ours."""
    if not name.startswith("sends."):
        return []
    parts = name.split(".")
    paths = [ROOT.joinpath(*parts[:length]) for length in range(2, len(parts) + 1)]
    files = [file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")]
    return [file for file in files if file.exists()]
