"""Failures to sign in count for all web servers together, in processes of their own."""

import re
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from urllib.parse import urlencode

import pytest

from tests import ports
from tests.commands.test_serve import serving
from tests.factories import make_person, make_tenant

PASSWORD = "let me in please"


@pytest.mark.django_db(transaction=True)
def test_failures_at_one_web_server_count_at_the_other(process_env, database_url):
    email = make_person(make_tenant()).email
    env = process_env | {"OUTBOX_DATABASE_URL": database_url, "OUTBOX_WEB_WORKERS": "1"}
    first, second = ports.free_port(), ports.free_port()
    with serving(env, first), serving(env, second):
        for port in (first, second, first, second, first):
            assert "Email or password is not right." in sign_in(port, email, "a guess of mine")
        for port in (first, second):
            assert "Too many tries." in sign_in(port, email, PASSWORD)


def sign_in(port, email, password):
    """What the sign-in page of this server says; nothing where it lets in."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/login/")
    answer = connection.getresponse()
    page = answer.read().decode()
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    token = re.search(r'name="csrfmiddlewaretoken"\s+value="(\w+)"', page)[1]
    form = {"csrfmiddlewaretoken": token, "login": email, "password": password}
    headers = {
        "Cookie": f"{cookie.key}={cookie.value}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    connection.request("POST", "/login/", urlencode(form), headers)
    said = connection.getresponse().read().decode()
    connection.close()
    return said
