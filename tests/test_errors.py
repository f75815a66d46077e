"""What is answered where no door could: it says whether anything was decided, and asks nobody."""

import json
import logging
from typing import Any

import pytest
from django.core.exceptions import DisallowedHost, RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest
from django.test import Client, RequestFactory

from sends import errors, logs
from tests.api.doors import door
from tests.factories import make_person, make_tenant

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def asked(method: str = "get", **headers: str) -> HttpRequest:
    request: Any = getattr(RequestFactory(), method)("/messages/7/approve/", headers=headers)
    request.request_id = "7f3a"
    return request


def failed(request: HttpRequest) -> Any:
    try:
        raise ValueError("boom")
    except ValueError:
        return errors.server_error(request)


def test_the_page_shows_the_id_under_which_the_log_has_the_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    page = failed(asked(**BROWSER))

    assert page.status_code == 500
    assert "<code>7f3a</code>" in page.text
    assert caplog.records[-1].exc_info
    assert "boom" not in page.text


def test_a_page_that_could_not_be_shown_has_decided_nothing() -> None:
    assert "Nothing was decided" in failed(asked(**BROWSER)).text


def test_a_form_that_failed_leads_back_to_where_it_can_be_seen() -> None:
    page = failed(asked("post", **BROWSER, Referer="http://testserver/messages/7/"))

    assert "Nothing was decided" not in page.text
    assert "We cannot say here whether it was done" in page.text
    assert 'href="http://testserver/messages/7/"' in page.text


def test_the_address_of_a_form_says_that_there_is_no_page(client: Client) -> None:
    page = client.get("/messages/7/approve/", headers=BROWSER)

    assert (page.status_code, page["Allow"]) == (405, "POST")
    assert "Nothing was decided" in page.text


def test_it_leads_to_no_other_site() -> None:
    page = failed(asked("post", **BROWSER, Referer="https://elsewhere.example.net/"))

    assert "elsewhere" not in page.text


def test_no_answer_here_asks_the_database() -> None:
    # Without the mark for tests that use it, each question would raise.
    for request in (asked(**BROWSER), asked("post", **BROWSER), asked("post")):
        assert failed(request).status_code == 500
        assert errors.not_now(request, "").status_code == 503
        assert errors.bad_request(request, SuspiciousOperation()).status_code == 400


@pytest.mark.parametrize("headers", [{}, {"Accept": "*/*"}, {"Accept": "application/json"}])
def test_a_program_gets_a_problem(headers: dict[str, str]) -> None:
    with logs.lines_about(request_id="7f3a"):
        answer = failed(asked("post", **headers))

    assert answer["Content-Type"] == "application/problem+json"
    said = json.loads(answer.content)
    assert (said["status"], said["code"], said["next_step"]) == (500, "internal", "wait")
    assert said["request_id"] == "7f3a"


@pytest.mark.django_db
def test_its_problem_has_the_members_of_every_other() -> None:
    assert failed(asked()).headers["Content-Type"] == "application/problem+json"
    assert json.loads(failed(asked()).content).keys() == door().get("/nothing").json().keys()


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (RequestDataTooBig(), 413, "too large"),
        (SuspiciousOperation("made up"), 400, "Nothing was decided"),
        (DisallowedHost(), 400, "OUTBOX_URL"),
    ],
)
def test_what_is_no_request_is_refused_in_words(error: Any, status: int, words: str) -> None:
    page = errors.bad_request(asked("post", **BROWSER), error)

    assert page.status_code == status
    assert words in page.text
    assert "made up" not in page.text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("get", "/nowhere/", 404), ("post", "/messages/999999/approve/", 404)],
)
def test_a_refusal_keeps_the_frame_and_says_that_nothing_was_decided(
    client: Client, method: str, path: str, status: int
) -> None:
    client.force_login(make_person(make_tenant()))

    page = getattr(client, method)(path, headers={"X-Request-ID": "7f3a"})

    assert page.status_code == status
    assert 'aria-label="Main"' in page.text
    assert "<code>7f3a</code>" in page.text
    assert "Nothing was decided" in page.text


@pytest.mark.django_db
def test_a_form_without_its_token_decides_nothing_and_says_so() -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_person(make_tenant()))

    page = client.post("/messages/1/approve/", headers=BROWSER)

    assert page.status_code == 403
    assert "Nothing was decided" in page.text
    assert page["X-Request-ID"] in page.text


@pytest.mark.django_db
def test_htmx_gets_a_note_instead_of_a_page_for_a_form_without_its_token(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_person(make_tenant()))

    note = client.post("/messages/1/approve/", headers={"HX-Request": "true"})

    assert note.status_code == 403
    assert "Nothing was decided" in note.text
    assert "<html" not in note.text
    refused = next(r for r in caplog.records if r.getMessage() == "form refused")
    assert "CSRF cookie" in vars(refused)["error"]


@pytest.mark.django_db
def test_an_exception_in_a_view_is_one_line_with_its_place_and_the_line_of_the_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: HttpRequest) -> None:
        raise ValueError("boom")

    client = Client(raise_request_exception=False)
    client.force_login(make_person(make_tenant()))
    monkeypatch.setattr("sends.dashboard.shell.shell_of", broken)

    answer = client.get("/messages/", headers=BROWSER)

    assert answer.status_code == 500
    lines = [r for r in caplog.records if r.levelno >= logging.ERROR and r.name != "django.request"]
    assert [(r.name, r.getMessage()) for r in lines] == [
        ("sends.request", "request failed"),
        ("sends.request", "request"),
    ]
