"""Every address there is, asked by everybody there can be: what each of them gets."""

import re
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.people import invite
from sends.models import AnomalyKind, Role, Tenant, Token, database_now
from sends.reports.deadletters import grouped
from sends.rules.keys import sha256
from sends.rules.statuses import Status
from tests.factories import (
    make_agent_at,
    make_intent,
    make_person,
    make_run,
    make_tenant,
    make_token,
)
from tests.signing_in import sign_in

pytestmark = pytest.mark.django_db

WHO = (*Role, "nobody", "a stranger")  # the last is the admin of another tenant

# What is answered to a GET and to a POST of an empty form: one status for everybody, or one each
# for a viewer, an approver, an operator, an admin, for who is not signed in, and for a stranger.
TABLE = {
    "": ("302", "405"),
    r"^login/password/(?P<uidb36>[0-9a-f]{32})-(?P<key>[^/]+)/$": ("200", "200"),
    "account/": ("200 200 200 200 302 200", "405 405 405 405 302 405"),
    "account/app/": ("200 200 200 200 302 200", "200 200 200 200 302 200"),
    "account/app/remove/": ("404 404 404 404 302 404", "404 404 404 404 302 404"),
    "account/confirm/": ("200 200 200 200 302 200", "200 200 200 200 302 200"),
    "account/confirm/code/": ("302", "302"),
    "account/confirm/passkey/": ("302", "302"),
    "account/passkeys/": ("200 200 200 200 302 200", "405 405 405 405 302 405"),
    "account/passkeys/<int:pk>/": ("404 404 404 404 302 404", "404 404 404 404 302 404"),
    "account/passkeys/<int:pk>/remove/": ("404 404 404 404 302 404", "404 404 404 404 302 404"),
    "account/passkeys/add/": ("200 200 200 200 302 200", "200 200 200 200 302 200"),
    "account/password/": ("200 200 200 200 302 200", "200 200 200 200 302 200"),
    "account/recovery-codes/": ("404 404 404 404 302 404", "405 405 405 405 302 405"),
    "account/recovery-codes/new/": ("200 200 200 200 302 200", "200 200 200 200 302 200"),
    "account/sessions/": ("200 200 200 200 302 200", "302"),
    "anomalies/": ("200 200 200 200 302 200", "405"),
    "anomalies/<uuid:anomaly_id>/close/": ("405", "403 403 403 422 302 404"),
    "api/v1/": ("404", "404"),
    "api/v1/docs": ("200", "405"),
    "api/v1/intents": ("401", "401"),
    "api/v1/intents/<uuidstr:intent_id>": ("401", "405"),
    "api/v1/intents/<uuidstr:intent_id>/versions": ("405", "401"),
    "api/v1/intents/<uuidstr:intent_id>/withdraw": ("405", "401"),
    "api/v1/intents/batch": ("405", "401"),
    "api/v1/intents/simulate": ("405", "401"),
    "api/v1/openapi.json": ("200", "405"),
    "api/v1/runs": ("401", "401"),
    "api/v1/runs/<path:run_id>": ("401", "405"),
    "approvals/": ("200 200 200 200 302 200", "405"),
    "approvals/<int:number>/": ("200 200 200 200 302 404", "405"),
    "audit/": ("200 200 200 200 302 200", "405"),
    "audit/log.csv": ("200 200 200 200 302 200", "405"),
    "audit/log.jsonl": ("200 200 200 200 302 200", "405"),
    "dead-letters/": ("200 200 200 200 302 200", "405"),
    "dead-letters/<slug:group>/": ("200 200 200 200 302 200", "405"),
    "dead-letters/<slug:group>/close/": ("405", "403 403 422 422 302 422"),
    "dead-letters/<slug:group>/reopen/": ("405", "403 403 422 422 302 422"),
    "dead-letters/<slug:group>/requeue/": ("405", "403 403 422 422 302 422"),
    "healthz": ("200", "405"),
    "invitation/<str:token>/": ("200", "200 200 200 200 422 200"),
    "live/": ("200 200 200 200 401 200", "405"),
    "login/": ("302 302 302 302 200 302", "302 302 302 302 200 302"),
    "login/passkey/": ("302", "302"),
    "login/password/": ("200", "200"),
    "login/password/asked/": ("200", "405"),
    "login/second-factor/": ("302", "302"),
    "login/with/<slug:provider_id>/": ("404", "405"),
    "login/with/<slug:provider_id>/callback/": ("404", "405"),
    "logout/": ("405", "302"),
    "messages/": ("200 200 200 200 302 200", "405"),
    "messages/<int:number>/": ("200 200 200 200 302 404", "405"),
    "messages/<int:number>/approve/": ("405", "403 409 409 409 302 404"),
    "messages/<int:number>/ask-provider/": ("405", "403 403 409 409 302 404"),
    "messages/<int:number>/cancel/": ("403 403 200 200 302 404", "403 403 422 422 302 404"),
    "messages/<int:number>/confirm-not-accepted/": ("405", "403 403 422 422 302 404"),
    "messages/<int:number>/edit/": ("403 200 200 200 302 404", "403 422 422 422 302 404"),
    "messages/<int:number>/follow-up/": ("403 200 200 200 302 404", "403 422 422 422 302 404"),
    "messages/<int:number>/mark-accepted/": ("405", "403 403 422 422 302 404"),
    "messages/<int:number>/mark-not-accepted/": ("405", "403 403 422 422 302 404"),
    "messages/<int:number>/replay/": ("405", "403 403 422 422 302 404"),
    "messages/<int:number>/release/": ("403 403 200 200 302 404", "403 403 422 422 302 404"),
    "messages/<int:number>/resend/": ("403 403 200 200 302 404", "403 403 422 422 302 404"),
    "messages/<int:number>/retry-now/": ("405", "403 403 422 422 302 404"),
    "messages/<int:number>/send-back/": ("403 200 200 200 302 404", "403 422 422 422 302 404"),
    "messages/<int:number>/undo/": ("405", "403 409 409 409 302 404"),
    "messages/<int:number>/v/<int:version>/": ("200 200 200 200 302 404", "405"),
    "parts/": ("200", "200"),
    "payload/<slug:digest>/attachments/<int:place>/": ("403 200 200 200 302 404", "405"),
    "payload/<slug:digest>/eml/": ("403 200 200 200 302 404", "405"),
    "payload/<slug:digest>/html/": ("403 200 200 200 302 404", "405"),
    "payload/<slug:digest>/raw/": ("403 200 200 200 302 404", "405"),
    "payload/<slug:digest>/text/": ("403 200 200 200 302 404", "405"),
    "runs/": ("200 200 200 200 302 200", "405"),
    "runs/<uuid:run_id>/": ("200 200 200 200 302 404", "405"),
    "runs/<uuid:run_id>/cancel/": ("405", "403 403 422 422 302 404"),
    "runs/<uuid:run_id>/halt/": ("403 200 200 200 302 404", "403 422 422 422 302 404"),
    "runs/<uuid:run_id>/resume/": ("405", "403 403 422 422 302 404"),
    "settings/people/": ("403 403 403 200 302 200", "405"),
    "settings/people/<uuid:person_id>/": ("403 403 403 200 302 404", "405"),
    "settings/people/<uuid:person_id>/new-password/": ("405", "403 403 403 200 302 404"),
    "settings/people/<uuid:person_id>/remove/": ("405", "403 403 403 302 302 404"),
    "settings/people/<uuid:person_id>/reset-second-factor/": ("405", "403 403 403 302 302 404"),
    "settings/people/<uuid:person_id>/role/": ("405", "403 403 403 422 302 404"),
    "settings/people/<uuid:person_id>/sign-out/": ("405", "403 403 403 302 302 404"),
    "settings/people/<uuid:person_id>/switch-off/": ("405", "403 403 403 302 302 404"),
    "settings/people/<uuid:person_id>/switch-on/": ("405", "403 403 403 302 302 404"),
    "settings/people/invitations/<uuid:invitation_id>/revoke/": ("405", "403 403 403 302 302 404"),
    "settings/people/invite/": ("405", "403 403 403 422 302 422"),
    "settings/tokens/": ("403 403 403 200 302 200", "405"),
    "settings/tokens/<uuid:token_id>/revoke/": ("405", "403 403 403 302 302 404"),
    "settings/tokens/issue/": ("405", "403 403 403 422 302 422"),
    "switches/<uuid:scope>/off/": ("403 200 200 200 302 404", "403 422 422 422 302 404"),
    "switches/<uuid:scope>/on/": ("403 403 200 200 302 404", "403 403 422 422 302 404"),
    "uncertain/": ("200 200 200 200 302 200", "405"),
    "uncertain/<int:number>/": ("200 200 200 200 302 404", "405"),
    "webhooks/<slug:account>": ("405", "401"),
}


def routes(resolver: URLResolver, before: str = "") -> Iterator[str]:
    for pattern in resolver.url_patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route
        else:
            yield from routes(pattern, route)


class World(NamedTuple):
    """A tenant in which there is something of everything."""

    tenant: Tenant
    values: dict[str, Any]

    def address(self, route: str) -> str:
        """The address of what there is: of the uncertain email where that is the room."""
        values = self.values
        if route.startswith("uncertain/") or any(verb in route for verb in SETTLING):
            values = {**values, "number": values["uncertain_number"]}
        if route.startswith("^"):
            return f"/login/password/{values['person_id'].hex}-no-such-key/"
        return "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda found: str(values[found[1]]), route)

    def nowhere(self) -> "World":
        """The same with ids that there never were."""
        missing = {name: _another(value) for name, value in self.values.items()}
        return World(self.tenant, missing)

    def client(self, who: Role | str, **options: Any) -> Client:
        client = Client(**options)
        if isinstance(who, Role):
            sign_in(client, make_person(self.tenant, who))
        elif who == "a stranger":
            sign_in(client, make_person(make_tenant(), Role.ADMIN))
        return client


def _another(value: Any) -> Any:
    if isinstance(value, int):
        return value + 1_000_000
    return uuid.uuid4() if isinstance(value, uuid.UUID) else sha256(str(value).encode())


SETTLING = ("/replay/", "/ask-provider/", "/mark-", "/confirm-")
OURS = "Only for us"
FILES = {f"{OURS}.txt": OURS.encode()}


@pytest.fixture
def world():
    agent = make_agent_at()
    run = make_run(agent)
    waiting = make_intent(agent, run=run, subject=OURS, html="<p>Hello</p>", files=FILES)
    uncertain = make_intent(agent, subject=OURS, status=Status.UNCERTAIN)
    make_intent(agent, subject=OURS, status=Status.DEAD_LETTER)
    odd = make_intent(agent, subject=OURS, status=Status.CANCELLED)
    now = database_now()
    anomaly = open_anomaly(odd, kind=AnomalyKind.ACCEPTED_UNSENT, detail=OURS, now=now)
    (group,) = grouped(agent.tenant).groups
    colleague = make_person(agent.tenant, Role.OPERATOR)
    admin = make_person(agent.tenant, Role.ADMIN)
    invited = invite("new@example.org", role=Role.VIEWER, tenant=agent.tenant, by=admin)
    make_token(agent)
    values = {
        "number": waiting.action.number,
        "uncertain_number": uncertain.action.number,
        "version": waiting.version,
        "scope": agent.tenant_id,
        "digest": waiting.digest,
        "place": 1,
        "group": group.signature.id,
        "run_id": run.pk,
        "anomaly_id": anomaly.pk,
        "intent_id": waiting.pk,
        "account": agent.sender.account.slug,
        "person_id": colleague.pk,
        "invitation_id": invited.invitation.pk,
        "token": invited.link.strip("/").rpartition("/")[2],
        "token_id": Token.objects.get().pk,
        "pk": 1,
        "provider_id": "there-is-none",
    }
    return World(agent.tenant, values)


def test_the_table_names_every_address():
    assert sorted(set(routes(get_resolver()))) == sorted(TABLE)


@pytest.mark.parametrize("route", TABLE)
def test_everybody_gets_what_the_table_says(world, route):
    address = world.address(route)
    for method, cells in zip(("GET", "POST"), TABLE[route], strict=True):
        expected = cells.split() * (1 if " " in cells else len(WHO))
        for who, status in zip(WHO, expected, strict=True):
            answer = world.client(who).generic(method, address)
            assert answer.status_code == int(status), (method, who)
            assert_guarded(answer, route)
            if not isinstance(who, Role):
                assert OURS.encode() not in answer.getvalue(), (method, who)


IN_A_TENANT = [r for r in TABLE if not r.startswith(("api/", "webhooks/", "healthz"))]


@pytest.mark.parametrize("route", IN_A_TENANT)
def test_the_tenant_before_an_address_changes_only_who_is_let_in(world, route):
    address = world.address(route)
    within = f"/t/{world.tenant.slug}{address}"
    for who in (Role.ADMIN, "nobody"):
        client = world.client(who)
        assert client.get(within).status_code == client.get(address).status_code, who
    alone = ("login/", "logout/", "account/", "invitation/", "parts/", "^")  # no tenant's own
    if not route.startswith((*alone, "live/")):
        get = TABLE[route][0]
        assert world.client("a stranger").get(within).status_code == (405 if get == "405" else 404)


IDS = [r for r in IN_A_TENANT if "<" in r and not r.startswith(("login/", "invitation/", "^"))]


@pytest.mark.parametrize("route", IDS)
def test_what_is_another_tenants_answers_as_what_is_not(world, route):
    client = world.client("a stranger")
    for method in ("GET", "POST"):
        theirs, missing = (
            client.generic(method, address, headers={"X-Request-ID": "the-same"})
            for address in (world.address(route), world.nowhere().address(route))
        )
        assert theirs.status_code == missing.status_code
        assert without_ids(theirs.text) == without_ids(missing.text)


def without_ids(page: str) -> str:
    """The page but for what it was asked for, the values of its fields, and times."""
    asked = r"[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f-]{27}"
    return re.sub(rf'{asked}|\svalue="[^"]*"|<time.*?</time>', "", page, flags=re.DOTALL)


def assert_guarded(answer, route):
    """No answer may be framed, guessed at or kept, nor those that refuse: their page has a frame
    with the names and counts of a tenant."""
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "no-store" in answer["Cache-Control"]
    if route.startswith("payload/") and answer.status_code == 200:
        assert "frame-ancestors 'self'" in answer["Content-Security-Policy"]
    else:
        assert answer["X-Frame-Options"] == "DENY"
        assert "frame-ancestors 'none'" in answer["Content-Security-Policy"]


OTHERS_SPEAK_HERE = ("api/", "webhooks/")  # programs, which are known by a secret of their own


FORMS = [r for r in TABLE if TABLE[r][1] != "405" and not r.startswith(OTHERS_SPEAK_HERE)]


@pytest.mark.parametrize("route", FORMS)
def test_a_form_of_another_site_is_refused(world, route):
    for who in (Role.ADMIN, "nobody"):
        answer = world.client(who, enforce_csrf_checks=True).post(world.address(route))
        assert answer.status_code == 403, who
        assert_guarded(answer, "")
