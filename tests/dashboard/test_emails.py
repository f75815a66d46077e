"""An email as its approver reads it: who gets it, and what is worth a look before it goes."""

import pytest

from sends.dashboard.emails import Check, Email
from sends.lifecycle.intake import propose
from sends.rules.proposals import parse
from tests.factories import make_agent_at, make_intent, make_person

pytestmark = pytest.mark.django_db
IN_CYRILLIC = "p\u0430ypal.example"
AS_SENT = "xn--pypal-4ve.example"


def about_domains(**email) -> list[Check]:
    checks = Email(make_intent(make_agent_at(), **email)).checks()
    return [check for check in checks if check.title == "A domain may be mistaken for another"]


@pytest.mark.parametrize(
    "email",
    [
        {"to": f"jo@{AS_SENT}"},
        {"cc": (f"jo@{AS_SENT}",)},
        {"bcc": (f"jo@mail.{AS_SENT}",)},
        {"html": f'<a href="https://{AS_SENT}/login">Sign in</a>'},
        {"html": f'<a href="https://{IN_CYRILLIC}/">Sign in</a>'},
    ],
)
def test_a_domain_that_poses_as_another_is_shown_in_ascii(email):
    (check,) = about_domains(**email)
    assert (check.tone, "xn--pypal-4ve" in check.text) == ("wait", True)
    assert f"{IN_CYRILLIC} mixes Cyrillic and Latin letters." in check.text


def test_one_domain_is_named_once_and_one_with_an_accent_not_at_all():
    assert len(about_domains(to=(f"jo@{AS_SENT}", f"al@{AS_SENT}"))) == 1
    assert about_domains(to="jo@xn--bcher-kva.example") == []


def test_a_domain_is_shown_in_both_forms_in_the_head_and_to_each_recipient(client):
    intent = make_intent(make_agent_at(), to="jo@xn--bcher-kva.example")
    client.force_login(make_person(intent.tenant))
    number = intent.action.number
    for page in (f"/approvals/?m={number}", f"/messages/{number}/"):
        assert "jo@xn--bcher-kva.example (bücher.example)" in client.get(page).text


def test_a_name_that_shows_another_address_is_told():
    agent = make_agent_at()
    boxes = [
        {"name": "ceo@example.com", "address": "jo@example.org"},
        {"name": "Al@Example.org", "address": "al@example.org"},
        {"name": "Doe, Ed", "address": "ed@example.org"},
    ]
    document = {"action_key": "a", "to": boxes, "text": "Hello"}
    checks = Email(propose(parse(document), agent=agent).intent).checks()
    assert [check.text for check in checks if check.title == "A name shows another address"] == [
        "It says ceo@example.com and belongs to jo@example.org."
    ]
