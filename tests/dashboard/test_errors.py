"""Error pages: inside the frame, and with a reference that the log has too."""

import re

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import DatabaseError
from django.test import RequestFactory

from sends.dashboard import errors, shell
from tests.factories import make_person, make_tenant

pytestmark = pytest.mark.django_db


def failed_request(person):
    request = RequestFactory().post("/messages/7/approve/")
    request.user = person
    return request


def test_what_fails_is_logged_under_the_reference_that_the_page_shows(caplog):
    try:
        raise ValueError("boom")
    except ValueError:
        page = errors.server_error(failed_request(make_person(make_tenant())))
    reference = re.search(r"Reference <code>(\w+)</code>", page.text).group(1)
    assert page.status_code == 500
    assert "Nothing was decided" in page.text
    assert 'aria-label="Main"' in page.text
    assert f"reference {reference}" in caplog.text
    assert "boom" in caplog.text


def test_where_the_frame_fails_too_the_page_stands_alone(monkeypatch):
    def broken(request):
        raise DatabaseError("gone")

    monkeypatch.setattr(shell, "shell_of", broken)
    page = errors.server_error(failed_request(AnonymousUser()))
    assert "Reference" in page.text
    assert 'aria-label="Main"' not in page.text


def test_an_unknown_address_keeps_the_frame(client):
    client.force_login(make_person(make_tenant()))
    page = client.get("/nowhere/")
    assert page.status_code == 404
    assert 'aria-label="Main"' in page.text
