"""What people type to find an email, and the question to the database that it stands for."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from sends.models import Action, Delivery, SendIntent, Switch, SwitchKind, Tenant, first_id
from sends.rules.addresses import domain_of, normal
from sends.rules.statuses import CLAIMABLE, DeliveryState, Status

# How far back a search looks that nothing else bounds.
USUAL_SPAN = timedelta(days=90)
CLOCKS_DIFFER_BY = timedelta(minutes=1)
MOST_VERSIONS = 100  # of those that one key or id may stand for


class Kind(StrEnum):
    """What a word that was typed without a filter's name is."""

    NUMBER = "number"
    ADDRESS = "address"
    DOMAIN = "domain"
    KEY = "key"
    MESSAGE_ID = "message_id"
    IDENTIFIER = "identifier"  # an action key, or a provider's id
    WORD = "word"  # of the subject


SHAPES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.NUMBER, re.compile(r"#?\d{1,15}")),
    (Kind.MESSAGE_ID, re.compile(r"<[^<>\s]+@[^<>\s]+>")),
    (Kind.ADDRESS, re.compile(r"[^@\s]+@[^@\s]+")),
    (Kind.DOMAIN, re.compile(r"@?([\w-]+\.)+[^\W\d_]{2,}")),
    (Kind.KEY, re.compile(r"[0-9a-f]{40}")),
    (Kind.IDENTIFIER, re.compile(r"(?=.*\d)(?=.*[_:.~-])[\w:.~-]{6,255}")),
)
# Each of these stands for one version, which need not be the current one.
OF_ONE_VERSION = frozenset({Kind.KEY, Kind.MESSAGE_ID, Kind.IDENTIFIER})

TERM = re.compile(
    r'(?P<name>[a-z]+):(?:"(?P<quoted>[^"]*)"|(?P<plain>\S*))|"(?P<phrase>[^"]*)"|(?P<word>\S+)',
    re.IGNORECASE,
)

ON_HOLD, HALTED = "on_hold", "halted"
# The other states of a delivery are what the status of its email says already.
DELIVERY_STATES = frozenset(DeliveryState) - {DeliveryState.WAITING, DeliveryState.ACCEPTED}
STATES: dict[str, str] = {
    **{str(state): state.label for state in Status},
    **{str(state): state.label for state in DeliveryState if state in DELIVERY_STATES},
    ON_HOLD: "On hold",
    HALTED: "Halted",
}


@dataclass(frozen=True)
class Term:
    kind: Kind
    value: str


@dataclass(frozen=True)
class Search:
    """What is looked for: all of it at once. `wrong` says what could not be understood."""

    terms: tuple[Term, ...] = ()
    subject: str = ""
    state: str = ""
    agent: str = ""
    run: str = ""
    template: str = ""
    since: date | None = None
    follow_ups: bool = False
    wrong: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The search as it is typed; `search_in` reads it back."""
        named = {
            "subject": self.subject and f'"{self.subject}"',
            "state": self.state,
            "agent": self.agent,
            "run": self.run,
            "template": self.template,
            "from": self.since.isoformat() if self.since else "",
            "is": "followup" if self.follow_ups else "",
        }
        typed = [_quoted(term.value) for term in self.terms]
        return " ".join([*typed, *(f"{name}:{_quoted(v)}" for name, v in named.items() if v)])

    @property
    def covers_usual_span(self) -> bool:
        """Whether only the last 90 days are looked at: nothing leads to the rows but their age."""
        leads = any(term.kind is not Kind.WORD for term in self.terms)
        return not (leads or self.run or self.since or self.state in Status.values)

    @property
    def may_be_counted(self) -> bool:
        """Whether the rows are found by an index, so that counting them reads no others."""
        return not (self.subject or any(term.kind is Kind.WORD for term in self.terms))


def search_in(text: str) -> Search:
    """The search that somebody typed. What it cannot read it names; it never guesses silently."""
    terms: list[Term] = []
    filters: dict[str, Any] = {}
    wrong: list[str] = []
    for found in TERM.finditer(text):
        name = (found["name"] or "").lower()
        if name in FILTERS:
            try:
                filters |= FILTERS[name](_value(found).strip())
            except ValueError as error:
                wrong.append(str(error))
        elif found["phrase"] is not None:
            terms.append(Term(Kind.WORD, found["phrase"]))
        elif _kind(found[0]) is Kind.WORD and name:
            known = ", ".join(f"{filter_name}:" for filter_name in FILTERS)
            wrong.append(f"{name}: is not a filter. These are: {known}.")
        else:
            terms.append(Term(_kind(found[0]), found[0]))
    return Search(tuple(terms), **filters, wrong=tuple(wrong))


def find(search: Search, tenant: Tenant, now: datetime) -> QuerySet[SendIntent]:
    """The versions looked for, in no order: the current ones, unless an older one is meant."""
    intents = SendIntent.objects.filter(tenant=tenant)
    if search.wrong:
        return intents.none()
    for term in search.terms:
        intents = intents.filter(MEANS[term.kind](term.value, tenant))
    if search.subject:
        intents = intents.filter(subject__icontains=search.subject)
    if search.state:
        intents = intents.filter(_in_state(search.state, now))
    for name, column in COLUMNS.items():
        if value := getattr(search, name):
            intents = intents.filter(**{column: value})
    if search.follow_ups:
        intents = intents.filter(action__follows__isnull=False)
    if (begin := _begin(search, now)) is not None:
        # Keys sort by time: a range of the list's own index.
        intents = intents.filter(created_at__gte=begin, pk__gte=first_id(begin - CLOCKS_DIFFER_BY))
    if search.state == Status.SUPERSEDED or any(t.kind in OF_ONE_VERSION for t in search.terms):
        return intents
    return intents.current()


COLUMNS = {"agent": "agent__slug", "run": "run__name", "template": "template"}


def _begin(search: Search, now: datetime) -> datetime | None:
    if search.since is not None:
        return datetime.combine(search.since, time.min, timezone.get_current_timezone())
    return now - USUAL_SPAN if search.covers_usual_span else None


def _in_state(state: str, now: datetime) -> Q:
    if state in Status.values:
        return Q(status=state)
    if state in (ON_HOLD, HALTED):
        return _stopped(Switch.objects.off(now), everywhere=state == ON_HOLD)
    return Q(Exists(Delivery.objects.filter(intent=OuterRef("pk"), state=state)))


def _stopped(off: Iterable[Switch], *, everywhere: bool) -> Q:
    """Approved, and not going out: through a halted run, or for any other cause too."""
    off = list(off)
    halted = [switch.pk for switch in off if switch.kind == SwitchKind.RUN]
    stopped = Q(run__in=halted)
    if everywhere:
        closed = [switch.pk for switch in off if switch.kind != SwitchKind.RUN]
        if any(switch.kind == SwitchKind.INSTALLATION for switch in off):
            return Q(status__in=CLAIMABLE)
        stopped |= Q(holds__gt=0) | Q(tenant__in=closed)
        stopped |= Q(account__in=closed) | Q(sender__in=closed)
    return Q(status__in=CLAIMABLE) & stopped


# Filters, by the name that stands before the colon


def _is_text(name: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {name: value}


def _state(value: str) -> dict[str, Any]:
    code = value.lower().replace(" ", "_")
    labels = {label.lower().replace(" ", "_"): state for state, label in reversed(STATES.items())}
    if code and code not in STATES and code not in labels:
        raise ValueError(f'"{value}" is not a state. These are: {", ".join(STATES)}.')
    return {"state": code if code in STATES else labels.get(code, "")}


def _since(value: str) -> dict[str, Any]:
    try:
        return {"since": date.fromisoformat(value) if value else None}
    except ValueError:
        raise ValueError(f'"{value}" is not a date. Write it as from:2026-10-01.') from None


def _is(value: str) -> dict[str, Any]:
    if value.lower() not in ("followup", "follow-up"):
        raise ValueError(f"is:{value} means nothing here. There is is:followup.")
    return {"follow_ups": True}


FILTERS: dict[str, Callable[[str], dict[str, Any]]] = {
    **{name: _is_text(name) for name in ("subject", "agent", "run", "template")},
    "state": _state,
    "from": _since,
    "is": _is,
}


def _value(found: re.Match[str]) -> str:
    return found["plain"] if found["quoted"] is None else found["quoted"]


def _kind(word: str) -> Kind:
    return next((kind for kind, shape in SHAPES if shape.fullmatch(word)), Kind.WORD)


def _quoted(value: str) -> str:
    return f'"{value}"' if re.search(r"\s", value) and not value.startswith('"') else value


# What each kind of word asks of a version


def _of_number(value: str, tenant: Tenant) -> Q:
    return Q(action__in=Action.objects.filter(tenant=tenant, number=int(value.lstrip("#"))))


def _to_address(value: str, tenant: Tenant) -> Q:
    found = Delivery.objects.filter(tenant=tenant, normal=normal(value))
    return Q(pk__in=found.values("intent"))


def _to_domain(value: str, tenant: Tenant) -> Q:
    found = Delivery.objects.filter(tenant=tenant, domain=domain_of(value))
    return Q(pk__in=found.values("intent"))


def _identified(value: str, tenant: Tenant) -> Q:
    """Asked on its own, so that each half finds its index."""
    versions = SendIntent.objects.order_by().values_list("pk")
    by_action = versions.filter(action__tenant=tenant, action__action_key=value)
    by_provider = versions.filter(account__tenant=tenant, provider_message_id=value)
    by_provider = by_provider.exclude(provider_message_id="")
    found = by_action.union(by_provider)[:MOST_VERSIONS]
    return Q(pk__in=[pk for (pk,) in found])


MEANS: dict[Kind, Callable[[str, Tenant], Q]] = {
    Kind.NUMBER: _of_number,
    Kind.ADDRESS: _to_address,
    Kind.DOMAIN: _to_domain,
    Kind.KEY: lambda value, tenant: Q(idempotency_key=value),
    Kind.MESSAGE_ID: lambda value, tenant: Q(message_id=value),
    Kind.IDENTIFIER: _identified,
    Kind.WORD: lambda value, tenant: Q(subject__icontains=value),
}
