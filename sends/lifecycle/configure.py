"""The one transaction that makes an installation what its configuration says."""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import models, transaction

from sends.lifecycle import audit
from sends.lifecycle.tokens import new_secret
from sends.models import (
    Account,
    Agent,
    ClaimedRole,
    IdentityProvider,
    Installation,
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
    new_id,
)
from sends.providers.adapter import BadOptions, UnknownProvider
from sends.providers.credentials import CredentialError, resolve
from sends.providers.registry import adapter_for
from sends.rules.allowed import duration_words, is_reference, kept_words, web_address
from sends.rules.configuration import (
    NOBODY,
    AccountTable,
    AgentTable,
    Configuration,
    IdentityProviderTable,
    PersonTable,
    PolicyTable,
    RetentionTable,
    SenderTable,
    TenantTable,
    TokenTable,
    WrongConfiguration,
)
from sends.rules.keys import sha256

# A token shorter than this may be guessed.
TOKEN_LENGTH = 32
# Names of the file that are others in the database.
COLUMNS = {
    "undo_seconds": "undo_time",
    "expires": "expires_at",
    "second_factor_from": "second_factor_from_role",
}
FILE_NAMES = {column: name for name, column in COLUMNS.items()}
# With one of these, a key that a provider knows may be unknown: another scope.
ORGANISATION = ("provider", "base_url", "credential")

M = TypeVar("M", bound=models.Model)
Where = tuple[str | int, ...]


@dataclass(frozen=True)
class MadeToken:
    """A token that was made, in clear: only its digest is kept."""

    agent: str
    name: str
    token: str = field(repr=False)


@dataclass
class Applied:
    """What became different, line by line, and how much was as it should be."""

    changes: list[str] = field(default_factory=list)
    unchanged: int = 0
    made_tokens: list[MadeToken] = field(default_factory=list)
    without_password: list[str] = field(default_factory=list)


def configure(
    configuration: Configuration, *, dry_run: bool = False, now: datetime | None = None
) -> Applied:
    """Apply all of it, or nothing and raise WrongConfiguration.

    Rows that the file does not name are left alone, as are values that a table does not name;
    only the rules of a policy are replaced as one list. `dry_run` does the same and takes it
    back: what it says would change is what would.
    """
    with transaction.atomic():
        # One at a time: two that create the same tenant would meet halfway.
        Installation.objects.select_for_update().get()
        step = _Step(configuration, now or database_now())
        for number, provider in enumerate(configuration.document.identity_providers):
            step.identity_provider(provider, ("identity_providers", number))
        for number, table in enumerate(configuration.document.tenants):
            step.tenant(table, ("tenants", number))
        if step.problems:
            raise WrongConfiguration(step.problems)
        if dry_run:
            transaction.set_rollback(True)
    return step.applied


class _Step:
    def __init__(self, configuration: Configuration, now: datetime) -> None:
        self.configuration = configuration
        self.now = now
        self.applied = Applied()
        self.problems: list[str] = []
        self.for_all_tenants: list[str] = []  # changes that each of them is told of

    def identity_provider(self, table: IdentityProviderTable, here: Where) -> None:
        columns = table.named
        columns.pop("slug")
        self.secret(table.client_secret, (*here, "client_secret"))
        provider = self.write(
            f"identity provider {table.slug}", IdentityProvider, {"slug": table.slug}, columns
        )
        if provider.matches_address and not provider.email_domains:
            self.wrong(
                (*here, "matches_address"),
                "matches_address needs email_domains: without them the provider could enter every"
                " account of every tenant",
            )
        self.for_all_tenants = list(self.applied.changes)

    def tenant(self, table: TenantTable, here: Where) -> None:
        before = len(self.applied.changes)
        tenant = self.write(
            f"tenant {table.slug}",
            Tenant,
            {"slug": table.slug},
            {"name": table.name} if table.name else {},
            new={"name": table.slug},
        )
        self.switch(tenant, SwitchKind.TENANT, tenant)
        self.policy(tenant, table.policy)
        self.retention(tenant, table.retention)
        for index, account in enumerate(table.accounts):
            self.account(tenant, account, (*here, "accounts", index))
        for index, sender in enumerate(table.senders):
            self.sender(tenant, sender, (*here, "senders", index))
        for index, agent in enumerate(table.agents):
            self.agent(tenant, agent, (*here, "agents", index))
        for index, person in enumerate(table.people):
            self.person(tenant, person, (*here, "people", index))
        if "claimed_roles" in table.named:
            self.claimed_roles(tenant, table, (*here, "claimed_roles"))
        if changes := self.for_all_tenants + self.applied.changes[before:]:
            audit.record(
                tenant=tenant,
                actor="system",
                verb="configure",
                target=f"tenant:{tenant.slug}",
                facts={"file": self.configuration.name, "changes": changes},
                now=self.now,
            )

    def policy(self, tenant: Tenant, table: PolicyTable) -> None:
        columns = {COLUMNS.get(name, name): value for name, value in table.named.items()}
        columns.pop("rules", None)
        if (asked_from := columns.get("second_factor_from_role")) is not None:
            columns["second_factor_from_role"] = _role_or_nobody(asked_from)
        policy = self.write(f"policy {tenant.slug}", Policy, {"tenant": tenant}, columns)
        if "rules" in table.named:
            self.rules(tenant, policy, table)

    def retention(self, tenant: Tenant, table: RetentionTable) -> None:
        columns = {f"keep_{name}": value for name, value in table.named.items()}
        if columns:
            self.write(f"retention {tenant.slug}", Policy, {"tenant": tenant}, columns)

    def rules(self, tenant: Tenant, policy: Policy, table: PolicyTable) -> None:
        rows = [
            PolicyRule(policy=policy, position=position, **rule.model_dump())
            for position, rule in enumerate(table.rules, start=1)
        ]
        before = [row.rule for row in policy.rules.all()]
        after = [row.rule for row in rows]
        if before == after:
            self.applied.unchanged += 1
            return
        policy.rules.all().delete()
        PolicyRule.objects.bulk_create(rows)
        words = [f"- {rule.words}" for rule in before if rule not in after]
        words += [f"+ {rule.words}" for rule in after if rule not in before]
        self.changed(f"rules of policy {tenant.slug}", words or ["another order"])

    def account(self, tenant: Tenant, table: AccountTable, here: Where) -> None:
        self.check_adapter(table, here)
        columns = table.named
        columns.pop("slug")
        if is_reference(table.base_url):
            columns["base_url"] = self.address(table.base_url, (*here, "base_url"))
        account = self.write(
            f"account {tenant.slug}/{table.slug}",
            Account,
            {"tenant": tenant, "slug": table.slug},
            columns,
            and_then=_new_scope,
        )
        self.switch(account, SwitchKind.ACCOUNT, tenant)

    def check_adapter(self, table: AccountTable, here: Where) -> None:
        try:
            adapter_for(table.provider).check_options(table.options)
        except UnknownProvider as error:
            self.wrong((*here, "provider"), str(error))
        except BadOptions as error:
            self.wrong((*here, "options"), str(error).rstrip("."))

    def address(self, reference: str, here: Where) -> str:
        found = self.secret(reference, here)
        try:
            return web_address(found) if found else ""
        except ValueError as error:
            self.wrong(here, f"{reference} is no address of a provider; {error}")
            return ""

    def sender(self, tenant: Tenant, table: SenderTable, here: Where) -> None:
        columns = table.named
        columns.pop("address")
        account = Account.objects.filter(tenant=tenant, slug=table.account).first()
        if account is None:
            self.unknown(here, "account", table.account, Account, tenant, "slug")
            return
        sender = self.write(
            f"sender {tenant.slug}/{table.address}",
            Sender,
            {"tenant": tenant, "address": table.address},
            columns | {"account": account},
        )
        self.switch(sender, SwitchKind.SENDER, tenant)

    def agent(self, tenant: Tenant, table: AgentTable, here: Where) -> None:
        columns = {name: value for name, value in table.named.items() if name == "name"}
        if table.sender is not None:
            columns["sender"] = Sender.objects.filter(tenant=tenant, address=table.sender).first()
            if columns["sender"] is None:
                self.unknown(here, "sender", table.sender, Sender, tenant, "address")
                return
        agent = self.write(
            f"agent {tenant.slug}/{table.slug}",
            Agent,
            {"tenant": tenant, "slug": table.slug},
            columns,
        )
        for index, token in enumerate(table.tokens):
            self.token(agent, token, (*here, "tokens", index))

    def token(self, agent: Agent, table: TokenTable, here: Where) -> None:
        keys = {"agent": agent, "name": table.name}
        columns: dict[str, Any] = {}
        if "scopes" in table.named:
            columns["scopes"] = sorted(set(table.scopes))
        if "expires" in table.named:
            columns[COLUMNS["expires"]] = table.expires
        made = ""
        if table.token is not None:
            columns |= self.given_token(table.token, keys, (*here, "token"))
        elif not Token.objects.filter(**keys).exists():
            made = new_secret()
            columns |= _token_columns(made)
        self.write(
            f"token {agent.slug}/{table.name}",
            Token,
            keys,
            columns,
            new={"tenant": agent.tenant, "scopes": sorted(Token.SCOPES)},
        )
        if made:
            self.applied.made_tokens.append(MadeToken(agent.slug, table.name, made))

    def given_token(self, reference: str, keys: Mapping[str, Any], here: Where) -> dict[str, str]:
        token = self.secret(reference, here)
        if len(token) < TOKEN_LENGTH or not token.isascii() or " " in token:
            if token:
                self.wrong(
                    here,
                    f"{reference} holds no good token; make one of at least {TOKEN_LENGTH}"
                    " characters without blanks",
                )
            return _token_columns(secrets.token_hex())  # nothing of this step will be kept
        columns = _token_columns(token)
        others = Token.objects.filter(digest=columns["digest"]).exclude(**keys)
        if (other := others.select_related("agent").first()) is not None:
            self.wrong(
                here,
                f"{reference} is the token {other.name} of agent {other.agent.slug};"
                " give each its own",
            )
            return _token_columns(secrets.token_hex())
        return columns

    def person(self, tenant: Tenant, table: PersonTable, here: Where) -> None:
        person = Person.objects.at(table.email)
        if person is None:
            person = Person.objects.create_user(table.email)
            self.applied.changes.append(f"create person {person.email}")
        if "break_glass" in table.named and person.break_glass != table.break_glass:
            person.break_glass = table.break_glass
            person.save(update_fields=["break_glass"])
            word = "may" if table.break_glass else "may not"
            self.changed(f"person {person.email}", [f"{word} use a password where others may not"])
        if not person.has_usable_password():
            self.password(person, table, (*here, "password"))
        self.write(
            f"role of {person.email} in {tenant.slug}",
            Membership,
            {"tenant": tenant, "person": person},
            {"role": Role[table.role.upper()]},
        )

    def claimed_roles(self, tenant: Tenant, table: TenantTable, here: Where) -> None:
        """Replaced as one list: a role that the file no longer gives is given no more.

        It is taken at the next sign-in of who has it, except through a provider that the list no
        longer names: those people stay, and are named.
        """
        wanted = {}
        for index, claimed in enumerate(table.claimed_roles):
            provider = IdentityProvider.objects.filter(slug=claimed.provider).first()
            if provider is None:
                known = IdentityProvider.objects.order_by("slug").values_list("slug", flat=True)
                there_are = ", ".join(known) or "none"
                self.wrong(
                    (*here, index, "provider"),
                    f'provider is "{claimed.provider}"; there are these: {there_are}',
                )
            else:
                wanted[provider, claimed.value] = Role[claimed.role.upper()]
        rows = ClaimedRole.objects.filter(tenant=tenant).select_related("provider")
        before = {(row.provider, row.value): Role(row.role) for row in rows}
        if before == wanted:
            self.applied.unchanged += 1
            return
        rows.delete()
        ClaimedRole.objects.bulk_create(
            ClaimedRole(provider=provider, tenant=tenant, value=value, role=role)
            for (provider, value), role in wanted.items()
        )
        words = [f"- {_claim_words(*one)}" for one in before.items() - wanted.items()]
        words += [f"+ {_claim_words(*one)}" for one in wanted.items() - before.items()]
        self.changed(f"claimed roles of {tenant.slug}", sorted(words))
        dropped = {provider for provider, _ in before} - {provider for provider, _ in wanted}
        for provider in sorted(dropped, key=str):
            self.name_who_stays(tenant, provider)

    def name_who_stays(self, tenant: Tenant, provider: IdentityProvider) -> None:
        people = SocialAccount.objects.filter(provider=provider.slug).values("user")
        members = Membership.objects.filter(tenant=tenant, person__in=people)
        stay = [
            f"{member.person} ({Role(member.role).label.lower()})"
            for member in members.select_related("person").order_by("person__email")
        ]
        if stay:
            self.applied.changes.append(
                f"people of {provider.slug} keep their roles in {tenant.slug} until an admin"
                f" removes them: {', '.join(stay)}"
            )

    def password(self, person: Person, table: PersonTable, here: Where) -> None:
        """Set the first one. Later ones are the person's own."""
        if table.password is None:
            self.applied.without_password.append(person.email)
            return
        password = self.secret(table.password, here)
        if not password:
            return
        try:
            validate_password(password, person)
        except ValidationError as error:
            self.wrong(here, f"{table.password} is no good password: {' '.join(error.messages)}")
            return
        person.set_password(password)
        person.save(update_fields=["password"])
        self.changed(f"person {person.email}", ["password set"])

    def switch(self, row: models.Model, kind: SwitchKind, tenant: Tenant) -> None:
        Switch.objects.get_or_create(pk=row.pk, defaults={"kind": kind, "tenant": tenant})

    def write(
        self,
        what: str,
        model: type[M],
        keys: Mapping[str, Any],
        columns: Mapping[str, Any],
        *,
        new: Mapping[str, Any] = {},
        and_then: Callable[[Any, list[str]], list[str]] = lambda row, changed: [],
    ) -> M:
        """The row of these keys with these columns: created, changed or as it was.

        `new` are columns for a row that is created and that `columns` does not name. `and_then`
        gets a changed row and the names of its columns; it changes and returns further ones.
        """
        row = model._default_manager.filter(**keys).first()
        if row is None:
            row = model._default_manager.create(**{**keys, **new, **columns})
            self.applied.changes.append(f"create {what}")
            return row
        differ = {name: value for name, value in columns.items() if getattr(row, name) != value}
        if not differ:
            self.applied.unchanged += 1
            return row
        words = [_difference(name, getattr(row, name), value) for name, value in differ.items()]
        for name, value in differ.items():
            setattr(row, name, value)
        further = and_then(row, list(differ))
        row.save(update_fields=[*differ, *further])
        self.changed(what, [word for word in words if word] + [f"new {name}" for name in further])
        return row

    def changed(self, what: str, words: list[str]) -> None:
        self.applied.changes.append(f"change {what}: {', '.join(words)}")

    def secret(self, reference: str, here: Where) -> str:
        """What the reference stands for; empty, and a problem, where it cannot be read."""
        try:
            return resolve(reference).strip()
        except CredentialError as error:
            self.wrong(here, str(error))
            return ""

    def unknown(
        self, here: Where, field: str, value: str, model: type[M], tenant: Tenant, column: str
    ) -> None:
        rows = model._default_manager.filter(tenant=tenant).order_by(column)
        known = ", ".join(rows.values_list(column, flat=True)) or "none"
        self.wrong((*here, field), f'{field} is "{value}"; {tenant.slug} has these: {known}')

    def wrong(self, here: Where, words: str) -> None:
        self.problems.append(f"{self.configuration.at(*here)}: {words}.")


def _new_scope(account: Account, changed: list[str]) -> list[str]:
    """Behind another address or credential a key may be unknown; replays keep to the old scope."""
    if not set(changed) & set(ORGANISATION):
        return []
    account.scope = new_id()
    return ["scope"]


def _token_columns(token: str) -> dict[str, str]:
    return {"digest": sha256(token.encode()), "hint": token[-4:]}


def _difference(name: str, before: Any, after: Any) -> str:
    if name == "hint":
        return ""  # it changes with the digest
    if name == "digest":
        return "another token"
    if name.startswith("keep_"):
        return f"{name.removeprefix('keep_')} {kept_words(before)} → {kept_words(after)}"
    if name in ("role", "second_factor_from_role"):
        before, after = _role_words(before), _role_words(after)
    return f"{FILE_NAMES.get(name, name)} {_words(before)} → {_words(after)}"


def _role_or_nobody(word: str) -> Role | None:
    return None if word == NOBODY else Role[word.upper()]


def _role_words(role: int | None) -> str:
    return NOBODY if role is None else Role(role).label.lower()


def _claim_words(claim: tuple[IdentityProvider, str], role: Role) -> str:
    return f"{claim[0].slug} {claim[1]} → {role.label.lower()}"


def _words(value: Any) -> str:
    if isinstance(value, timedelta):
        return duration_words(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return "nothing" if value in (None, "") else str(value)
