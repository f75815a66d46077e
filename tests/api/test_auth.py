"""Who may come in: a token in force, and only as far as its scopes reach."""

from datetime import timedelta
from typing import Any

import pytest

from sends.lifecycle import tokens
from sends.models import Scope, Token, database_now
from tests.api.doors import MESSAGE, Door, door, problem
from tests.factories import make_agent_at, make_intent, make_token

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer obx_unknown",
        "Bearer \xff\xfe",
        "Basic dXNlcjpwYXNz",
        "obx_without_a_scheme",
    ],
)
def test_without_a_token_in_force_nobody_comes_in(header: str | None) -> None:
    api = door("")
    headers = {} if header is None else {"Authorization": header}
    for answer in (
        api.client.get("/api/v1/intents", headers=headers),
        api.client.post("/api/v1/intents", MESSAGE, "application/json", headers=headers),
        api.client.get("/api/v1/runs/r", headers=headers),
    ):
        problem(answer, 401, "unauthorized")
        assert answer["WWW-Authenticate"] == 'Bearer realm="outbox"'


def test_the_scheme_is_read_whatever_its_case() -> None:
    api = door()
    headers = {"Authorization": f"bEaReR {api.token}"}
    assert api.client.get("/api/v1/intents", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        {"revoked_at": timedelta(0)},
        {"revoked_at": timedelta(days=1)},  # revoked is revoked, whatever the clocks say
        {"expires_at": timedelta(0)},
        {"expires_at": timedelta(days=-1)},
    ],
)
def test_a_revoked_or_expired_token_is_no_token(change: dict[str, timedelta]) -> None:
    api = door()
    Token.objects.update(**{name: database_now() + span for name, span in change.items()})
    problem(api.get("/intents"), 401, "unauthorized")


def test_a_token_is_good_until_it_expires() -> None:
    api = door()
    Token.objects.update(expires_at=database_now() + timedelta(minutes=5))
    assert api.get("/intents").status_code == 200


SCOPES = [
    (Scope.SUBMIT, lambda api, pk: api.post("/intents", MESSAGE)),
    (Scope.SUBMIT, lambda api, pk: api.post(f"/intents/{pk}/versions", {"text": "x"})),
    (Scope.WITHDRAW, lambda api, pk: api.post(f"/intents/{pk}/withdraw")),
    (Scope.READ, lambda api, pk: api.get("/intents")),
    (Scope.READ, lambda api, pk: api.get(f"/intents/{pk}")),
    (Scope.READ, lambda api, pk: api.get("/runs/r")),
]


@pytest.mark.parametrize(("scope", "call"), SCOPES)
def test_a_token_reaches_as_far_as_its_scopes(scope: Scope, call: Any) -> None:
    agent = make_agent_at()
    intent = make_intent(agent)
    others = [other for other in Scope if other is not scope]
    answer = call(door(make_token(agent, *others)), intent.pk)
    assert scope in problem(answer, 403, "missing_scope")["detail"]
    assert call(door(make_token(agent, scope)), intent.pk).status_code in (200, 201, 404, 422)


def test_no_scope_approves() -> None:
    assert set(Token.SCOPES) == {"submit", "read", "withdraw"}
    agent = make_agent_at()
    intent = make_intent(agent)
    api = door(make_token(agent))
    for path in ("approve", "reject", "edit", "requeue", "resolve"):
        problem(api.post(f"/intents/{intent.pk}/{path}", {}), 404, "not_found")


def test_only_the_digest_of_a_token_is_kept() -> None:
    api = door()
    kept = Token.objects.get()
    assert api.token not in {str(value) for value in vars(kept).values()}


def test_the_last_use_is_written_once_a_minute() -> None:
    api = door()
    now = database_now()
    assert tokens.holder(api.token, now=now) is not None
    assert Token.objects.get().last_used_at == now
    tokens.holder(api.token, now=now + timedelta(seconds=59))
    assert Token.objects.get().last_used_at == now
    tokens.holder(api.token, now=now + timedelta(seconds=61))
    assert Token.objects.get().last_used_at == now + timedelta(seconds=61)


def test_a_signed_in_person_is_no_agent(client: Any) -> None:
    from tests.factories import make_person, make_tenant

    client.force_login(make_person(make_tenant()))
    answer = client.get("/api/v1/intents")
    problem(answer, 401, "unauthorized")


def test_the_door_needs_no_csrf_token() -> None:
    api = door()
    api.client.handler.enforce_csrf_checks = True
    assert api.post("/intents", MESSAGE).status_code == 201


def test_the_body_is_read_only_for_who_may_send_one() -> None:
    api = Door("", door("").client)
    problem(api.post("/intents", b"{"), 401, "unauthorized")
