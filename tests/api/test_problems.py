"""Every error is a problem: the same shape, a stable code, and words."""

import logging
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from sends.conf import conf
from sends.lifecycle import intake
from tests.api.doors import MESSAGE, Door, door, problem

pytestmark = pytest.mark.django_db


@pytest.fixture
def api() -> Door:
    return door()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nothing",
        "/intents/",
        "/intents/not-a-uuid",
        "/intents/01990000-0000-7000-8000-000000000000",
        "/intents/01990000-0000-7000-8000-000000000000/approve",
        "/runs/",
        "/runs/nothing",
        "/runs/a%00b",
        "/\u2028",
    ],
)
def test_there_is_nothing_there(api: Door, path: str) -> None:
    problem(api.get(path), 404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("put", "/intents", {"GET", "HEAD", "POST"}),
        ("delete", "/intents/01990000-0000-7000-8000-000000000000", {"GET", "HEAD"}),
        ("get", "/intents/01990000-0000-7000-8000-000000000000/versions", {"POST"}),
        ("post", "/runs/r", {"GET", "HEAD"}),
        ("options", "/intents", {"GET", "HEAD", "POST"}),
        ("put", "/docs", {"GET", "HEAD"}),
        ("options", "/openapi.json", {"GET", "HEAD"}),
        ("post", "/openapi.json", {"GET", "HEAD"}),
    ],
)
def test_another_method_is_told_which_ones_there_are(
    api: Door, method: str, path: str, allowed: set[str]
) -> None:
    client = Client(enforce_csrf_checks=True)
    answer = getattr(client, method)(f"/api/v1{path}", headers=api.headers())
    problem(answer, 405, "method_not_allowed")
    assert set(answer["Allow"].split(", ")) == allowed


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"\xff", "not UTF-8"),
        (b'{"text": NaN}', "NaN"),
        (b'{"a": 1, "a": 1}', "given twice"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_body_that_cannot_be_read(api: Door, body: bytes, said: str) -> None:
    assert said in problem(api.post("/intents", body), 400, "not_json")["detail"]


@pytest.mark.parametrize(
    "kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"]
)
def test_only_json_is_read(api: Door, kind: str) -> None:
    problem(api.post("/intents", b"{}", content_type=kind), 415, "media_type")


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "application/x+json", ""]
)
def test_json_by_any_of_its_names(api: Door, kind: str) -> None:
    assert api.post("/intents", MESSAGE, content_type=kind).status_code == 201


def test_a_body_that_is_too_large(api: Door) -> None:
    text = b"x" * (conf.limits.request - 1)
    problem(api.post("/intents", b'"' + text + b'"'), 413, "too_large")
    problem(api.post("/intents", b'"' + text[1:] + b'"'), 422, "wrong_fields")


def test_a_body_without_a_length_is_not_taken_for_an_empty_one(api: Door) -> None:
    answer = api.client.generic(
        "POST",
        "/api/v1/intents",
        headers=api.headers() | {"Transfer-Encoding": "chunked"},
        content_type="application/json",
    )
    problem(answer, 411, "length_required")


def test_a_body_said_to_be_too_large_is_refused_before_it_comes(api: Door) -> None:
    for path in ("/intents", "/intents/batch", "/runs"):
        answer = api.client.generic(
            "POST",
            f"/api/v1{path}",
            b"{}",
            headers=api.headers() | {"Content-Length": "1" + "0" * 17},
            content_type="application/json",
        )
        problem(answer, 413, "too_large")


@pytest.mark.parametrize("path", ["/intents", "/runs", "/runs/r"])
def test_thousands_of_parameters_are_no_fault_of_ours(api: Door, path: str) -> None:
    query = "&".join(["a"] * 1500)
    answer = api.client.get(f"/api/v1{path}?{query}", headers=api.headers())
    if path != "/runs/r":
        said = problem(answer, 422, "wrong_fields")
        assert [error["code"] for error in said["errors"]] == ["too_many"]
    else:
        problem(answer, 404, "not_found")


def test_our_own_mistake_is_a_problem_too_and_is_logged(
    api: Door, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(intake, "propose", fail)
    with caplog.at_level(logging.ERROR):
        said = problem(api.post("/intents", MESSAGE), 500, "internal")
    assert "secret detail" not in str(said)
    assert "secret detail" in caplog.text


def test_a_busy_database_asks_for_the_same_again(
    api: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(intake, "propose", locked)
    answer = api.post("/intents", MESSAGE)
    assert problem(answer, 503, "busy")["next_step"] == "wait"
    assert answer["Retry-After"] == "1"


def test_the_type_of_a_problem_leads_to_its_description(api: Door) -> None:
    said = problem(api.get("/nothing"), 404, "not_found")
    page, _, code = said["type"].partition("#")
    assert f'id="{code}"' in api.client.get(page).content.decode()


def test_answers_are_kept_by_no_cache(api: Door) -> None:
    assert api.post("/intents", MESSAGE)["Cache-Control"] == "no-store"
    assert api.get("/intents")["Cache-Control"] == "no-store"
    assert api.get("/nothing")["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/intents", "/runs", "/openapi.json", "/docs"])
def test_head_is_get_without_the_content(api: Door, path: str) -> None:
    get = api.get(path)
    head = api.client.head(f"/api/v1{path}", headers=api.headers())
    assert (head.status_code, head.content) == (200, b"")
    assert head["Content-Type"] == get["Content-Type"]
    assert head["Content-Length"] == str(len(get.content))


def test_head_where_nothing_can_be_read(api: Door) -> None:
    head = api.client.head("/api/v1/intents/batch", headers=api.headers())
    assert (head.status_code, head["Allow"], head.content) == (405, "POST", b"")


def test_head_of_nothing_has_no_content_either(api: Door) -> None:
    head = api.client.head("/api/v1/nothing", headers=api.headers())
    assert (head.status_code, head.content) == (404, b"")


@pytest.mark.parametrize("path", ["/intents", "/openapi.json"])
def test_who_accepts_no_json_is_told_so(api: Door, path: str) -> None:
    headers = api.headers() | {"Accept": "text/html, image/*;q=0.8"}
    answer = api.client.get(f"/api/v1{path}", headers=headers)
    problem(answer, 406, "not_acceptable")


@pytest.mark.parametrize("accept", ["*/*", "application/*", "application/json;q=0.1", ""])
def test_who_accepts_json_gets_it(api: Door, accept: str) -> None:
    headers = api.headers() | {"Accept": accept}
    assert api.client.get("/api/v1/intents", headers=headers).status_code == 200


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, gzip"])
def test_a_packed_body_is_not_unpacked(api: Door, coding: str) -> None:
    answer = api.post("/intents", MESSAGE, **{"Content-Encoding": coding})
    problem(answer, 415, "media_type")
