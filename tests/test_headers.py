"""What every answer forbids the browser, and everybody who might keep a copy of it."""

import pytest
from django.test import Client

from tests.factories import make_person, make_tenant

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "path", ["/messages/", "/nowhere/", "/api/v1/nothing", "/api/v1/docs", "/healthz"]
)
def test_every_answer_is_kept_by_nobody_and_can_do_little(client: Client, path: str) -> None:
    client.force_login(make_person(make_tenant()))
    headers = client.get(path).headers

    assert "no-store" in headers["Cache-Control"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "camera=()" in headers["Permissions-Policy"]
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
