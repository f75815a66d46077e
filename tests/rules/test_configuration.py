"""A configuration read from its text: what it may say, and how a mistake is named."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from sends.rules import allowed
from sends.rules.allowed import duration_words
from sends.rules.configuration import (
    Configuration,
    PolicyTable,
    TenantTable,
    WrongConfiguration,
    read,
)

EXAMPLE = Path(settings.BASE_DIR) / "outbox.example.toml"


def wrong(text: str) -> list[str]:
    with pytest.raises(WrongConfiguration) as caught:
        read(text, "my.toml")
    return list(caught.value.problems)


def tenant(text: str = "") -> TenantTable:
    return read(f'[[tenants]]\nslug = "acme"\n{text}', "my.toml").document.tenants[0]


def wrong_in_tenant(text: str) -> list[str]:
    """The complaints about lines that begin at 3."""
    return wrong(f'[[tenants]]\nslug = "acme"\n{text}')


ACCOUNT = (
    '[[tenants.accounts]]\nslug = "a"\nprovider = "sandbox"\nbase_url = "env:URL"\n'
    'credential = "env:KEY"\n'
)


def test_the_example_is_right_and_names_every_table() -> None:
    (demo,) = read(EXAMPLE.read_text("utf-8"), EXAMPLE.name).document.tenants
    assert demo.policy.undo_seconds == timedelta(seconds=5)
    assert demo.accounts
    assert demo.senders
    assert demo.policy.rules
    assert any(agent.tokens for agent in demo.agents)
    assert {person.role for person in demo.people} == {"viewer", "approver", "operator", "admin"}


def test_the_example_shows_every_value_that_a_table_may_have() -> None:
    text = EXAMPLE.read_text("utf-8")
    tables: list[Any] = [TenantTable]
    while tables:
        table = tables.pop()
        for name, field in table.model_fields.items():
            assert name in text, f"{table.__name__} may have {name}"
            tables += [
                inner
                for inner in (field.annotation, *getattr(field.annotation, "__args__", ()))
                if hasattr(inner, "model_fields")
            ]


def test_what_is_not_named_has_the_defaults_of_the_design() -> None:
    policy = tenant().policy
    assert policy == PolicyTable()
    assert policy.named == {}
    assert (policy.approvals, policy.max_attempts, policy.retry_limit) == (1, 40, 40)
    assert policy.undo_seconds == timedelta(seconds=30)
    assert policy.decide_by == timedelta(days=7)
    assert policy.backoff_cap == timedelta(minutes=15)
    assert policy.second_operator


@pytest.mark.parametrize(
    ("written", "means"),
    [
        ("5", timedelta(seconds=5)),
        ("0", timedelta(0)),
        ("2.5", timedelta(seconds=2.5)),
        ('"250ms"', timedelta(milliseconds=250)),
        ('"30s"', timedelta(seconds=30)),
        ('"15m"', timedelta(minutes=15)),
        ('"1h"', timedelta(hours=1)),
        ('"1.5 m"', timedelta(seconds=90)),
    ],
)
def test_a_time_is_seconds_or_has_its_unit(written: str, means: timedelta) -> None:
    assert tenant(f"[tenants.policy]\nundo_seconds = {written}").policy.undo_seconds == means


@pytest.mark.parametrize(
    "written", ['"soon"', '""', '"5"', '"-5s"', "-1", "true", "[]", "nan", "inf", '"2h"', "1e300"]
)
def test_a_time_that_is_none_or_out_of_bounds_is_told_the_rule(written: str) -> None:
    (problem,) = wrong_in_tenant(f"[tenants.policy]\nundo_seconds = {written}")
    assert problem.startswith("my.toml:4: undo_seconds is ")
    assert 'or a text such as "30s", "15m", "24h" or "7d", from 0s to 1h.' in problem


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=250), "250ms"),
        (timedelta(seconds=30), "30s"),
        (timedelta(seconds=90), "90s"),
        (timedelta(minutes=15), "15m"),
        (timedelta(hours=24), "24h"),
        (timedelta(hours=36), "36h"),
        (timedelta(days=7), "7d"),
    ],
)
def test_a_time_is_shown_in_its_shortest_exact_spelling(span: timedelta, words: str) -> None:
    assert duration_words(span) == words


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'nam = "x"',
            (
                "my.toml:3: nam is not known here; known are slug, name, policy, retention,"
                " accounts, senders, agents, people, claimed_roles."
            ),
        ),
        (
            "[tenants.policy]\napprovals = 3",
            "my.toml:4: approvals is 3; give a whole number from 0 to 2.",
        ),
        (
            "[tenants.policy]\napprovals = true",
            "my.toml:4: approvals is true; give a whole number from 0 to 2.",
        ),
        (
            (
                "[tenants.policy]\nrules = [\n  { template = 'a', approvals = 1 },\n"
                "  { template = 'b' },\n]"
            ),
            "my.toml:6: [[tenants.policy.rules]] needs approvals.",
        ),
        (
            "[[tenants.policy.rules]]\napprovals = 2",
            (
                "my.toml:3: this rule is about every email; name agent, template or"
                " recipient_domain, or use approvals of the policy."
            ),
        ),
        (
            '[[tenants.policy.rules]]\napprovals = 2\nrecipient_domain = "a@example.com"',
            (
                'my.toml:5: recipient_domain is "a@example.com"; give a domain such as example.com,'
                " without an @."
            ),
        ),
        (
            '[tenants.policy]\nsecond_operator = "no"',
            'my.toml:4: second_operator is "no"; give true or false.',
        ),
        (
            '[tenants.policy]\nbackoff_base = "1h"',
            (
                "my.toml:4: backoff_base is 1h, longer than backoff_cap, 15m; give both, the base"
                " at most the cap."
            ),
        ),
        (
            '[[tenants.people]]\nemail = "x@example.com"\nrole = "boss"',
            'my.toml:5: role is "boss"; give one of viewer, approver, operator, admin.',
        ),
        ('[[tenants.people]]\nrole = "admin"', "my.toml:3: [[tenants.people]] needs email."),
        ("policy = 3", "my.toml:3: policy is 3; give a table."),
        ("people = 3", "my.toml:3: people is 3; give a list."),
        (
            ACCOUNT + "concurrency = 0",
            "my.toml:8: concurrency is 0; give a whole number from 1 to 256.",
        ),
        (
            ACCOUNT + 'request_deadline = "41s"',
            (
                'my.toml:8: request_deadline is "41s"; give seconds, or a text such as "30s",'
                ' "15m", "24h" or "7d", from 1s to 40s.'
            ),
        ),
        (
            ACCOUNT + "options = { deep = {} }",
            "my.toml:8: options is a table; give texts, numbers, true or false.",
        ),
        (
            ACCOUNT + ACCOUNT,
            "my.toml:8: account a is here for the second time.",
        ),
        (
            (
                '[[tenants.agents]]\nslug = "bot"\n[[tenants.agents.tokens]]\nname = "t"\n'
                'scopes = ["submit", "approve"]'
            ),
            'my.toml:7: scopes is "approve"; give one of submit, read, withdraw.',
        ),
        (
            (
                '[[tenants.agents]]\nslug = "bot"\n[[tenants.agents.tokens]]\nname = "t"\n'
                'expires = "tomorrow"'
            ),
            (
                'my.toml:7: expires is "tomorrow"; give a date such as 2027-01-31, without'
                " quotation marks."
            ),
        ),
        (
            '[[tenants.agents]]\nslug = "Bot 1"',
            (
                'my.toml:4: slug is "Bot 1"; give 1 to 63 of a-z, 0-9, - and _, beginning with a'
                " letter or digit."
            ),
        ),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_is_allowed(text: str, problem: str) -> None:
    assert wrong_in_tenant(text) == [problem]


def test_all_mistakes_are_named_at_once_in_the_order_of_the_file() -> None:
    problems = wrong_in_tenant("color = 1\n[tenants.policy]\nlease = 1\nretries = 2\n[[people]]\n")
    assert [problem.split(":")[1] for problem in problems] == ["3", "5", "6", "7"]


@pytest.mark.parametrize("name", ["Shop\r\nBcc: al@example.org", "Shop\u2028", "Sh\x00op", "S\x7f"])
def test_no_name_in_the_file_forges_a_header(name: str) -> None:
    with pytest.raises(ValueError, match="on one line, without control characters"):
        allowed.text(200)(f"{name}.")
    assert allowed.text(200)("Käse, Brot & 👩‍👧") == "Käse, Brot & 👩‍👧"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("Support@Example.COM", "Support@example.com"),
        ("support@bücher.example", "support@xn--bcher-kva.example"),
        ("jose\u0301@example.com", "jose\u0301@example.com"),
    ],
)
def test_a_sender_is_kept_as_it_will_stand_in_from(written: str, sent: str) -> None:
    assert allowed.sender_address(written) == sent


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("nobody", 'email is "nobody"; give an email address'),
        ("a@b@example.com", "give an email address"),
        ("x@example", "give an email address"),
    ],
)
def test_an_address_of_a_person_must_be_one(address: str, words: str) -> None:
    (problem,) = wrong_in_tenant(f'[[tenants.people]]\nemail = "{address}"\nrole = "admin"')
    assert problem.startswith("my.toml:4: ")
    assert words in problem


@pytest.mark.parametrize(
    "text",
    [
        ACCOUNT.replace("env:KEY", "sk_live_1"),
        f'{ACCOUNT}webhook_secrets = ["env:A", "sk_live_1"]',
        f'{ACCOUNT}webhook_secrets = ["file:sk_live_1"]',
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(text: str) -> None:
    (problem,) = wrong_in_tenant(text)
    assert '"env:NAME" or "file:/path", and never the secret itself' in problem
    assert "sk_live" not in problem


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com",
        "https://api.example.com/v0/",
        "http://localhost:8026",
        "http://127.0.0.1:8026",
        "http://[::1]:8026",
        "env:SANDBOX_URL",
    ],
)
def test_a_provider_is_reached_by_https_or_on_this_machine(url: str) -> None:
    (account,) = tenant(ACCOUNT.replace("env:URL", url)).accounts
    assert account.base_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com",
        "http://localhost.example.com",
        "https://",
        "api.example.com",
        "ftp://localhost",
        "https://user:password@api.example.com",
        "https://api.example.com/?a=1",
        "https://api.example.com:port",
        "env:",
        "",
    ],
)
def test_any_other_address_of_a_provider_is_refused(url: str) -> None:
    (problem,) = wrong_in_tenant(ACCOUNT.replace("env:URL", url))
    assert "give an address that begins with https://, or http:// on this machine" in problem


def test_a_token_expires_at_a_moment_that_means_the_same_everywhere() -> None:
    text = '[[tenants.agents]]\nslug = "b"\n[[tenants.agents.tokens]]\nname = "t"\nexpires = '
    assert tenant(f"{text}2027-01-31").agents[0].tokens[0].expires == datetime(
        2027, 1, 31, tzinfo=UTC
    )
    later = tenant(f"{text}2027-01-31T12:00:00+02:00").agents[0].tokens[0].expires
    assert later == datetime(2027, 1, 31, 10, tzinfo=UTC)
    (problem,) = wrong_in_tenant(f"{text}2027-01-31T12:00:00")
    assert "give its time zone too" in problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "my.toml:1: there is no [[tenants]]."),
        ("tenants = []", "my.toml:1: there is no [[tenants]]."),
        ("a = 1\nb =\n", "my.toml:2: this is not TOML: invalid value."),
        ("a = 1\na = 2", "my.toml:2: this is not TOML: cannot overwrite a value."),
    ],
)
def test_a_file_without_tenants_or_not_of_toml_says_so(text: str, problem: str) -> None:
    assert wrong(text)[-1] == problem


def test_a_line_is_counted_alike_whatever_ends_it() -> None:
    assert wrong('[[tenants]]\r\nslug = "a"\r\nx = 1\r\n') == [
        (
            "my.toml:3: x is not known here; known are slug, name, policy, retention,"
            " accounts, senders, agents, people, claimed_roles."
        )
    ]


def test_a_part_knows_where_it_stands() -> None:
    found: Configuration = read(f'[[tenants]]\nslug = "acme"\n{ACCOUNT}', "my.toml")
    assert found.at("tenants", 0, "accounts", 0, "credential") == "my.toml:7"
