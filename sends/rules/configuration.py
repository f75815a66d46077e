"""What an installation is, read from TOML: typed, or every mistake named with its line."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError

from sends.rules import allowed
from sends.rules.allowed import REFERENCE_RULE, duration, duration_words, one_of, text, whole
from sends.rules.lines import Path, line_at, lines_of

ROLES = ("viewer", "approver", "operator", "admin")
NOBODY = "nobody"
SCOPES = ("submit", "read", "withdraw")
SECOND, MINUTE, HOUR, DAY = (
    timedelta(**{unit: 1}) for unit in ("seconds", "minutes", "hours", "days")
)


class WrongConfiguration(Exception):
    """Nothing was applied. `problems` are sentences, each beginning with file and line."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


Slug = Annotated[str, PlainValidator(allowed.slug)]
Email = Annotated[str, PlainValidator(allowed.email)]
SenderAddress = Annotated[str, PlainValidator(allowed.sender_address)]
Reference = Annotated[str, PlainValidator(allowed.reference)]
Address = Annotated[str, PlainValidator(allowed.provider_address)]
Flag = Annotated[bool, PlainValidator(allowed.flag)]
Options = Annotated[dict[str, Any], PlainValidator(allowed.options)]
People = Annotated[int, PlainValidator(whole(0, 2))]
Kept = Annotated[timedelta | None, PlainValidator(allowed.kept)]
Count = Annotated[int, PlainValidator(whole(1, 10_000))]


class Table(BaseModel):
    """A table of the file. What it does not name is left as it is, else has its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @property
    def named(self) -> dict[str, Any]:
        """What the file says of it, and nothing that is only a default."""
        names = [name for name in type(self).model_fields if name in self.model_fields_set]
        return {name: getattr(self, name) for name in names}


class RuleTable(Table):
    agent: Slug = ""
    template: Annotated[str, PlainValidator(text(255))] = ""
    recipient_domain: Annotated[str, PlainValidator(allowed.domain)] = ""
    approvals: People


class PolicyTable(Table):
    approvals: People = 1
    undo_seconds: Annotated[timedelta, PlainValidator(duration(0 * SECOND, HOUR))] = 30 * SECOND
    decide_by: Annotated[timedelta, PlainValidator(duration(MINUTE))] = 7 * DAY
    approval_valid_for: Annotated[timedelta, PlainValidator(duration(MINUTE))] = 7 * DAY
    max_attempts: Annotated[int, PlainValidator(whole(1, 1000))] = 40
    max_age: Annotated[timedelta, PlainValidator(duration(SECOND, 30 * DAY))] = 24 * HOUR
    backoff_base: Annotated[timedelta, PlainValidator(duration(SECOND / 10, HOUR))] = SECOND
    backoff_cap: Annotated[timedelta, PlainValidator(duration(SECOND / 10, DAY))] = 15 * MINUTE
    retry_limit: Annotated[int, PlainValidator(whole(0, 1_000_000))] = 40
    # Longer than the longest request with what is done before and after it.
    lease: Annotated[timedelta, PlainValidator(duration(60 * SECOND, HOUR))] = 120 * SECOND
    second_operator: Flag = True
    second_factor_from: Annotated[str, PlainValidator(one_of(*ROLES, NOBODY))] = NOBODY
    rules: list[RuleTable] = []


class RetentionTable(Table):
    done: Kept = 365 * DAY
    cancelled: Kept = 90 * DAY
    superseded: Kept = 90 * DAY
    rejected: Kept = 90 * DAY
    dead_letter: Kept = 365 * DAY
    events: Kept = 90 * DAY
    audit: Kept = None


class AccountTable(Table):
    slug: Slug
    provider: Annotated[str, PlainValidator(text(63))]
    base_url: Address
    credential: Reference
    webhook_secrets: list[Reference] = []
    concurrency: Annotated[int, PlainValidator(whole(1, 256))] = 16
    connect_timeout: Annotated[timedelta, PlainValidator(duration(SECOND / 10, 20 * SECOND))] = (
        5 * SECOND
    )
    request_deadline: Annotated[timedelta, PlainValidator(duration(SECOND, 40 * SECOND))] = (
        20 * SECOND
    )
    replay_window: Annotated[timedelta, PlainValidator(duration(SECOND))] | None = None
    no_replay: Flag = False
    options: Options = {}


class SenderTable(Table):
    address: SenderAddress
    name: Annotated[str, PlainValidator(text(200))] = ""
    account: Slug
    options: Options = {}


class TokenTable(Table):
    name: Annotated[str, PlainValidator(text(120))]
    token: Reference | None = None
    scopes: list[Annotated[str, PlainValidator(one_of(*SCOPES))]] = list(SCOPES)
    expires: Annotated[datetime, PlainValidator(allowed.moment)] | None = None


class AgentTable(Table):
    slug: Slug
    name: Annotated[str, PlainValidator(text(120))] = ""
    sender: SenderAddress | None = None
    tokens: list[TokenTable] = []


class PersonTable(Table):
    email: Email
    role: Annotated[str, PlainValidator(one_of(*ROLES))]
    password: Reference | None = None
    break_glass: Flag = False


class ClaimedRoleTable(Table):
    provider: Slug
    value: Annotated[str, PlainValidator(text(255))]
    role: Annotated[str, PlainValidator(one_of(*ROLES))]


class IdentityProviderTable(Table):
    slug: Slug
    name: Annotated[str, PlainValidator(text(120))]
    issuer: Annotated[str, PlainValidator(allowed.web_address)]
    client_id: Annotated[str, PlainValidator(text(255))]
    client_secret: Reference
    email_domains: list[Annotated[str, PlainValidator(allowed.domain)]] = []
    claim: Annotated[str, PlainValidator(text(120))] = "groups"
    matches_address: Flag = False
    is_only_way: Flag = False


class TenantTable(Table):
    slug: Slug
    name: Annotated[str, PlainValidator(text(120))] = ""
    policy: PolicyTable = PolicyTable()
    retention: RetentionTable = RetentionTable()
    accounts: list[AccountTable] = []
    senders: list[SenderTable] = []
    agents: list[AgentTable] = []
    people: list[PersonTable] = []
    claimed_roles: list[ClaimedRoleTable] = []


class Document(Table):
    identity_providers: list[IdentityProviderTable] = []
    tenants: Annotated[list[TenantTable], Field(min_length=1)]


@dataclass(frozen=True)
class Configuration:
    """A document that is right in itself, and where in the file each part of it stands."""

    document: Document
    name: str
    lines: Mapping[Path, int] = field(repr=False)

    def at(self, *path: str | int) -> str:
        """ "outbox.toml:12", for a complaint about this part."""
        return f"{self.name}:{line_at(self.lines, path)}"


def read(source: str, name: str) -> Configuration:
    """The configuration in this TOML text, or WrongConfiguration with all that is wrong.

    `name` is the file's, for the complaints.
    """
    try:
        content = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise WrongConfiguration([_not_toml(name, source, str(error))]) from None
    lines = lines_of(source.replace("\r\n", "\n"))

    try:
        found = Configuration(Document.model_validate(content), name, lines)
    except ValidationError as error:
        wrong = [(line_at(lines, fault["loc"]), _complaint(fault)) for fault in error.errors()]
        raise WrongConfiguration(
            [f"{name}:{line}: {words}." for line, words in sorted(wrong)]
        ) from None

    problems = [f"{found.at(*path)}: {words}." for path, words in _contradictions(found.document)]
    if problems:
        raise WrongConfiguration(problems)
    return found


def _not_toml(name: str, source: str, error: str) -> str:
    found = re.search(r" \(at line (\d+), column \d+\)$", error)
    line = found[1] if found else str(source.rstrip().count("\n") + 1)
    words = re.sub(r" \(at .*\)$", "", error)
    return f"{name}:{line}: this is not TOML: {words[:1].lower()}{words[1:]}."


def _complaint(fault: Any) -> str:
    """One mistake in words. A value that may be a secret in the wrong place is not repeated."""
    path, kind, value = fault["loc"], fault["type"], fault["input"]
    name = next(str(part) for part in reversed(path) if isinstance(part, str))
    if kind == "extra_forbidden":
        return f"{name} is not known here; known are {', '.join(_known_beside(path))}"
    if kind == "missing":
        return f"{_called(path[:-1])} needs {name}" if path[:-1] else f"there is no [[{name}]]"
    if kind == "too_short":
        return f"there is no [[{name}]]"
    if kind == "value_error":
        rule = str(fault["ctx"]["error"])
        return f"{name} {rule}" if rule == REFERENCE_RULE else f"{name} is {_shown(value)}; {rule}"
    wanted = "a list" if kind == "list_type" else "a table"
    return f"{name} is {_shown(value)}; give {wanted}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value if len(value) <= 80 else value[:79] + "…"}"'
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return str(value)


def _called(path: Path) -> str:
    names = ".".join(part for part in path if isinstance(part, str))
    return f"[[{names}]]" if isinstance(path[-1], int) else f"[{names}]"


def _known_beside(path: Path) -> list[str]:
    """The names that the table around `path` may hold."""
    table: Any = Document
    for part in path[:-1]:
        if isinstance(part, str):
            kind = table.model_fields[part].annotation
            table = get_args(kind)[0] if get_origin(kind) is list else kind
    return list(table.model_fields)


T = TypeVar("T")


def _contradictions(document: Document) -> Iterator[tuple[Path, str]]:
    """What each table may say alone, but not together."""
    yield from _repeats(("tenants",), document.tenants, lambda tenant: tenant.slug, "tenant")
    providers = document.identity_providers
    yield from _repeats(("identity_providers",), providers, lambda one: one.slug, "provider")
    for number, tenant in enumerate(document.tenants):
        here: Path = ("tenants", number)
        yield from _repeats((*here, "accounts"), tenant.accounts, lambda one: one.slug, "account")
        yield from _repeats((*here, "senders"), tenant.senders, lambda one: one.address, "sender")
        yield from _repeats((*here, "agents"), tenant.agents, lambda one: one.slug, "agent")
        yield from _repeats((*here, "people"), tenant.people, lambda one: one.email, "person")
        for index, agent in enumerate(tenant.agents):
            there = (*here, "agents", index, "tokens")
            yield from _repeats(there, agent.tokens, lambda one: one.name, "token")
        yield from _of_policy((*here, "policy"), tenant.policy)


def _of_policy(here: Path, policy: PolicyTable) -> Iterator[tuple[Path, str]]:
    if policy.backoff_base > policy.backoff_cap:
        at = "backoff_base" if "backoff_base" in policy.model_fields_set else "backoff_cap"
        words = (
            f"backoff_base is {duration_words(policy.backoff_base)}, longer than backoff_cap,"
            f" {duration_words(policy.backoff_cap)}; give both, the base at most the cap"
        )
        yield (*here, at), words
    for index, rule in enumerate(policy.rules):
        if not (rule.agent or rule.template or rule.recipient_domain):
            words = (
                "this rule is about every email; name agent, template or recipient_domain,"
                " or use approvals of the policy"
            )
            yield (*here, "rules", index), words


def _repeats(
    path: Path, tables: Sequence[T], name_of: Callable[[T], str], what: str
) -> Iterator[tuple[Path, str]]:
    seen: set[str] = set()
    for index, table in enumerate(tables):
        name = name_of(table)
        if name.casefold() in seen:
            yield (*path, index), f"{what} {name} is here for the second time"
        seen.add(name.casefold())
