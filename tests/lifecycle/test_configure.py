"""A configuration applied: what is created, changed, left alone and refused."""

from pathlib import Path

import pytest
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth import authenticate

from sends.lifecycle import chain
from sends.lifecycle.configure import Applied, configure
from sends.models import (
    Account,
    Agent,
    AuditEntry,
    ClaimedRole,
    IdentityProvider,
    Membership,
    Person,
    Policy,
    PolicyRule,
    Role,
    Sender,
    Switch,
    SwitchKind,
    Tenant,
    Token,
    database_now,
)
from sends.rules.configuration import WrongConfiguration, read
from sends.rules.keys import sha256
from tests.factories import make_person

pytestmark = pytest.mark.django_db

EXAMPLE = Path(settings.BASE_DIR) / "outbox.example.toml"
ACME = """\
[[tenants]]
slug = "acme"
name = "Acme"

[tenants.policy]
undo_seconds = 30
rules = [{ template = "refund", approvals = 2 }]

[[tenants.accounts]]
slug = "main"
provider = "sandbox"
base_url = "https://sandbox.example.com"
credential = "env:KEY"

[[tenants.senders]]
address = "support@mail.example.com"
account = "main"

[[tenants.agents]]
slug = "bot"
sender = "support@mail.example.com"

[[tenants.agents.tokens]]
name = "first"

[[tenants.people]]
email = "admin@example.com"
role = "admin"
"""


def apply(text: str = ACME, *, dry_run: bool = False) -> Applied:
    return configure(read(text, "my.toml"), dry_run=dry_run)


def problems(text: str) -> list[str]:
    with pytest.raises(WrongConfiguration) as caught:
        apply(text)
    return list(caught.value.problems)


@pytest.fixture(autouse=True)
def secrets_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:8026")


def test_an_installation_is_made_of_its_file() -> None:
    applied = apply()
    assert applied.changes == [
        "create tenant acme",
        "create policy acme",
        "change rules of policy acme: + template refund: two approvals",
        "create account acme/main",
        "create sender acme/support@mail.example.com",
        "create agent acme/bot",
        "create token bot/first",
        "create person admin@example.com",
        "create role of admin@example.com in acme",
    ]
    account = Account.objects.get()
    assert (account.slug, account.concurrency, account.credential) == ("main", 16, "env:KEY")
    assert Agent.objects.get().sender == Sender.objects.get()
    assert Membership.objects.get().role == Role.ADMIN


def test_every_scope_gets_its_switch_under_its_own_key() -> None:
    apply()
    made = {
        (SwitchKind.TENANT, Tenant.objects.get().pk),
        (SwitchKind.ACCOUNT, Account.objects.get().pk),
        (SwitchKind.SENDER, Sender.objects.get().pk),
    }
    assert made <= set(Switch.objects.values_list("kind", "pk"))
    apply()
    assert Switch.objects.count() == 4  # with that of the installation


def test_the_second_time_there_is_nothing_to_change() -> None:
    text = EXAMPLE.read_text("utf-8")
    first, second = apply(text), apply(text)
    assert second.changes == []
    assert second.made_tokens == []
    assert second.unchanged >= len([line for line in first.changes if "person" not in line])


def test_a_change_is_told_with_what_was_and_what_is() -> None:
    apply()
    applied = apply(
        ACME.replace(
            "undo_seconds = 30", 'undo_seconds = 5\nlease = "90s"\nsecond_operator = false'
        )
        .replace('credential = "env:KEY"', 'credential = "env:KEY"\nconcurrency = 8')
        .replace('role = "admin"', 'role = "viewer"')
        .replace('slug = "bot"', 'slug = "bot"\nname = "The bot"')
    )
    assert applied.changes == [
        "change policy acme: undo_seconds 30s → 5s, lease 2m → 90s, second_operator true → false",
        "change account acme/main: concurrency 16 → 8",
        "change agent acme/bot: name nothing → The bot",
        "change role of admin@example.com in acme: role admin → viewer",
    ]
    assert Membership.objects.get().role == Role.VIEWER


def test_a_dry_run_says_the_same_and_does_nothing() -> None:
    said = apply(dry_run=True)
    assert not Tenant.objects.exists()
    assert not Person.objects.exists()
    assert apply().changes == said.changes


def test_what_the_file_does_not_name_is_left_alone() -> None:
    apply()
    Policy.objects.update(retry_limit=7)
    Token.objects.create(
        tenant=Tenant.objects.get(),
        agent=Agent.objects.get(),
        name="by hand",
        digest="d",
        hint="h",
        scopes=["read"],
    )
    short = ACME[: ACME.index("[[tenants.agents]]")]
    assert apply(short).changes == []
    assert Token.objects.count() == 2
    assert Agent.objects.count() == 1
    assert Policy.objects.get().retry_limit == 7


def test_rules_are_replaced_as_one_list() -> None:
    apply()
    applied = apply(
        ACME.replace(
            'rules = [{ template = "refund", approvals = 2 }]',
            'rules = [{ agent = "bot", approvals = 0 }, { recipient_domain = "EXAMPLE.org",'
            " approvals = 1 }]",
        )
    )
    assert applied.changes == [
        (
            "change rules of policy acme: - template refund: two approvals,"
            " + agent bot: no approval, + recipients at example.org: one approval"
        )
    ]
    assert list(PolicyRule.objects.values_list("position", "agent", "recipient_domain")) == [
        (1, "bot", ""),
        (2, "", "example.org"),
    ]
    assert apply(ACME.replace('rules = [{ template = "refund", approvals = 2 }]', "")).changes == []
    emptied = ACME.replace('[{ template = "refund", approvals = 2 }]', "[]")
    assert len(apply(emptied).changes) == 1
    assert not PolicyRule.objects.exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("https://sandbox.example.com", "https://other.example.com"),
        ('"env:KEY"', '"env:OTHER_KEY"'),
    ],
    ids=["another address", "another credential"],
)
def test_what_may_be_another_organisation_starts_a_new_scope(before: str, after: str) -> None:
    apply()
    scope = Account.objects.get().scope
    (change,) = apply(ACME.replace(before, after)).changes
    assert change.endswith(", new scope")
    assert Account.objects.get().scope != scope


def test_what_is_of_the_same_organisation_keeps_its_scope() -> None:
    apply()
    scope = Account.objects.get().scope
    apply(ACME.replace('"env:KEY"', '"env:KEY"\nconcurrency = 2\nwebhook_secrets = ["env:W"]'))
    assert Account.objects.get().scope == scope


def test_an_address_by_reference_is_read_when_the_file_is_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = ACME.replace("https://sandbox.example.com", "env:SANDBOX_URL")
    apply(text)
    assert Account.objects.get().base_url == "http://127.0.0.1:8026"
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9001/")
    assert apply(text).changes == [
        (
            "change account acme/main: base_url http://127.0.0.1:8026 → http://127.0.0.1:9001,"
            " new scope"
        )
    ]
    monkeypatch.setenv("SANDBOX_URL", "http://api.example.com")
    (problem,) = problems(text)
    assert problem.startswith("my.toml:12: env:SANDBOX_URL is no address of a provider; give an")


def test_a_token_without_a_reference_is_made_once() -> None:
    (made,) = apply().made_tokens
    token = Token.objects.get()
    assert token.digest == sha256(made.token.encode())
    assert token.hint == made.token[-4:]
    assert token.scopes == ["read", "submit", "withdraw"]
    assert (made.agent, made.name) == ("bot", "first")
    assert made.token not in repr(made)
    assert apply().made_tokens == []
    assert Token.objects.get().digest == token.digest


def test_a_token_by_reference_is_taken_and_replaced_with_what_it_refers_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-that-nobody-can-guess-0001\n")
    text = ACME.replace('name = "first"', f'name = "first"\ntoken = "file:{file}"')
    assert apply(text).made_tokens == []
    assert Token.objects.get().digest == sha256(b"a-token-that-nobody-can-guess-0001")
    file.write_text("a-token-that-nobody-can-guess-0002\n")
    assert apply(text).changes == ["change token bot/first: another token"]
    assert Token.objects.get().hint == "0002"


def test_a_token_that_is_short_or_of_another_agent_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("T1", "short")
    text = ACME.replace('name = "first"', 'name = "first"\ntoken = "env:T1"')
    assert problems(text) == [
        "my.toml:25: env:T1 holds no good token; make one of at least 32 characters without blanks."
    ]
    monkeypatch.setenv("T1", "x" * 40)
    second = text + (
        '[[tenants.agents]]\nslug = "other"\n[[tenants.agents.tokens]]\nname = "second"\n'
        'token = "env:T1"\n'
    )
    assert problems(second) == [
        "my.toml:34: env:T1 is the token first of agent bot; give each its own."
    ]
    assert not Token.objects.exists()


def test_scopes_and_end_of_a_token_are_those_of_the_file() -> None:
    apply(ACME.replace('name = "first"', 'name = "first"\nscopes = ["read"]\nexpires = 2031-02-01'))
    token = Token.objects.get()
    assert token.scopes == ["read"]
    assert token.expires_at is not None
    assert token.expires_at.isoformat() == "2031-02-01T00:00:00+00:00"
    (change,) = apply(ACME.replace('name = "first"', 'name = "first"\nscopes = ["submit"]')).changes
    assert change == 'change token bot/first: scopes ["read"] → ["submit"]'


def test_a_person_without_a_password_cannot_sign_in_until_it_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert apply().without_password == ["admin@example.com"]
    assert not Person.objects.get().has_usable_password()
    monkeypatch.setenv("P", "correct horse battery")
    text = ACME.replace('role = "admin"', 'role = "admin"\npassword = "env:P"')
    assert apply(text).changes == ["change person admin@example.com: password set"]
    assert authenticate(username="admin@example.com", password="correct horse battery")


def test_a_later_password_is_the_persons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P", "correct horse battery")
    text = ACME.replace('role = "admin"', 'role = "admin"\npassword = "env:P"')
    apply(text)
    monkeypatch.delenv("P")
    assert apply(text).changes == []
    assert authenticate(username="admin@example.com", password="correct horse battery")


def test_a_poor_password_is_refused_by_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("P", "secret")
    (problem,) = problems(ACME.replace('role = "admin"', 'role = "admin"\npassword = "env:P"'))
    assert problem.startswith("my.toml:29: env:P is no good password: ")
    assert not Person.objects.exists()


def test_one_person_may_have_roles_in_two_tenants() -> None:
    applied = apply(
        ACME + '[[tenants]]\nslug = "second"\n[[tenants.people]]\nemail = "Admin@example.com"\n'
        'role = "viewer"\n'
    )
    assert Person.objects.count() == 1
    assert "create role of admin@example.com in second" in applied.changes
    assert set(Membership.objects.values_list("tenant__slug", "role")) == {
        ("acme", Role.ADMIN),
        ("second", Role.VIEWER),
    }


def test_what_is_named_but_nowhere_is_told_what_there_is() -> None:
    text = ACME.replace('account = "main"', 'account = "mian"').replace(
        'sender = "support@mail.example.com"', 'sender = "sales@mail.example.com"'
    )
    assert problems(text) == [
        'my.toml:17: account is "mian"; acme has these: main.',
        'my.toml:21: sender is "sales@mail.example.com"; acme has these: none.',
    ]
    assert not Tenant.objects.exists()


def test_a_sender_may_use_an_account_of_an_earlier_file() -> None:
    apply()
    applied = apply(
        '[[tenants]]\nslug = "acme"\n[[tenants.senders]]\naddress = "b@mail.example.com"\n'
        'account = "main"\n'
    )
    assert applied.changes == ["create sender acme/b@mail.example.com"]


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            'provider = "sandbox"',
            'provider = "sendbox"',
            "my.toml:11: there is no provider 'sendbox'; these are known: ",
        ),
        (
            'credential = "env:KEY"',
            'credential = "env:KEY"\noptions = { contract = "best" }',
            "my.toml:14: contract is 'best'; give replay or none.",
        ),
    ],
)
def test_the_adapter_has_its_say(before: str, after: str, problem: str) -> None:
    (said,) = problems(ACME.replace(before, after))
    assert said.startswith(problem)


def test_all_or_nothing_and_every_problem_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDBOX_URL")
    text = ACME.replace("https://sandbox.example.com", "env:SANDBOX_URL").replace(
        'role = "admin"', 'role = "admin"\npassword = "file:/nowhere/password"'
    )
    said = problems(text)
    assert [problem.split(":")[1] for problem in said] == ["12", "29"]
    assert "SANDBOX_URL" in said[0]
    assert "/nowhere/password cannot be read: No such file or directory" in said[1]
    assert not Tenant.objects.exists()


def test_what_was_changed_is_on_the_record() -> None:
    apply()
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.verb, entry.target) == ("system", "configure", "tenant:acme")
    assert b"create account acme/main" in bytes(entry.facts)
    apply()
    assert AuditEntry.objects.count() == 1
    assert chain.check(Tenant.objects.get()).broken == ""


def test_rows_are_made_with_the_time_of_the_database() -> None:
    before = database_now()
    apply()
    assert before <= AuditEntry.objects.get().at <= database_now()


# Signing in


COMPANY = """
[[identity_providers]]
slug = "company"
name = "Example Company"
issuer = "https://login.example.com/"
client_id = "outbox"
client_secret = "env:OIDC_SECRET"

"""
CLAIMED = '[[tenants.claimed_roles]]\nprovider = "company"\nvalue = "{}"\nrole = "{}"\n'


def test_a_second_factor_is_asked_for_from_a_role_on_or_of_nobody() -> None:
    apply()
    assert Policy.objects.get().second_factor_from_role is None
    asked = ACME.replace("undo_seconds = 30", 'second_factor_from = "operator"')
    assert apply(asked).changes == ["change policy acme: second_factor_from nobody → operator"]
    assert Policy.objects.get().second_factor_from_role == Role.OPERATOR
    apply(asked.replace('"operator"', '"nobody"'))
    assert Policy.objects.get().second_factor_from_role is None


def test_an_identity_provider_and_the_roles_it_gives_are_made(monkeypatch) -> None:
    monkeypatch.setenv("OIDC_SECRET", "a secret")
    apply(COMPANY + ACME + CLAIMED.format("outbox", "viewer"))
    provider = IdentityProvider.objects.get()
    assert (provider.issuer, provider.claim) == ("https://login.example.com", "groups")
    assert ClaimedRole.objects.get().role == Role.VIEWER

    applied = apply(COMPANY + ACME + CLAIMED.format("outbox-2", "admin"))
    assert applied.changes == [
        "change claimed roles of acme: + company outbox-2 → admin, - company outbox → viewer"
    ]
    assert apply(COMPANY + ACME).changes == []
    assert ClaimedRole.objects.get().value == "outbox-2"


def test_no_provider_may_enter_the_accounts_of_every_address(monkeypatch) -> None:
    monkeypatch.setenv("OIDC_SECRET", "a secret")
    matching = COMPANY.rstrip() + "\nmatches_address = true\n\n"
    with pytest.raises(WrongConfiguration, match="matches_address needs email_domains"):
        apply(matching + ACME)
    apply(matching.replace("matches", 'email_domains = ["example.com"]\nmatches') + ACME)
    emptied = COMPANY.rstrip() + "\nemail_domains = []\n\n"
    with pytest.raises(WrongConfiguration, match="matches_address needs email_domains"):
        apply(emptied + ACME)
    assert IdentityProvider.objects.get().email_domains == ["example.com"]


def test_who_stays_by_a_provider_that_gives_no_role_any_more_is_named(monkeypatch) -> None:
    monkeypatch.setenv("OIDC_SECRET", "a secret")
    apply(COMPANY + ACME + CLAIMED.format("outbox", "viewer"))
    person = make_person(Tenant.objects.get(), Role.OPERATOR, email="jo@example.com")
    make_person(Tenant.objects.get(), Role.VIEWER)
    SocialAccount.objects.create(user=person, provider="company", uid="248289761001")
    emptied = ACME.replace('slug = "acme"', 'slug = "acme"\nclaimed_roles = []', 1)
    changed, who_stays = apply(COMPANY + emptied).changes
    assert changed == "change claimed roles of acme: - company outbox → viewer"
    assert who_stays == (
        "people of company keep their roles in acme until an admin removes them:"
        " jo@example.com (operator)"
    )


def test_a_role_of_a_provider_that_is_not_there_is_refused() -> None:
    (problem,) = problems(ACME + CLAIMED.format("outbox", "viewer"))
    assert 'provider is "company"; there are these: none.' in problem


def test_a_secret_of_a_provider_that_cannot_be_read_is_refused() -> None:
    assert any("OIDC_SECRET" in problem for problem in problems(COMPANY + ACME))
