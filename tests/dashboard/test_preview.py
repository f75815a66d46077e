"""The exact bytes of a version: who gets them, and what they can do there (nothing)."""

import email
import email.policy
import hashlib

import pytest

from sends.models import Payload, Role
from tests.factories import make_agent_at, make_intent, make_person
from tests.lifecycle.tampering import no_triggers

pytestmark = pytest.mark.django_db


@pytest.fixture
def intent():
    return make_intent(make_agent_at(), text="Hello", html="<script>alert(1)</script><p>Grüße</p>")


@pytest.fixture
def approver(client, intent):
    client.force_login(make_person(intent.tenant))


def get(client, intent, part, query=""):
    return client.get(f"/payload/{intent.digest}/{part}/{query}")


def test_html_is_served_as_it_is_into_a_frame_that_can_do_nothing(client, intent, approver):
    answer = get(client, intent, "html")
    assert answer.text == "<script>alert(1)</script><p>Grüße</p>"
    assert answer["Content-Security-Policy"] == (
        "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
    )
    assert answer["X-Frame-Options"] == "SAMEORIGIN"
    assert answer["Referrer-Policy"] == "no-referrer"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "no-store" in answer["Cache-Control"]


def test_remote_images_are_let_in_for_one_view_only(client, intent, approver):
    shown = get(client, intent, "html", "?images=1")["Content-Security-Policy"]
    assert "img-src data: https:;" in shown
    assert "img-src data:;" in get(client, intent, "html")["Content-Security-Policy"]


def test_text_is_text_and_raw_is_what_the_digest_is_of(client, intent, approver):
    text = get(client, intent, "text")
    assert (text.text, text["Content-Type"]) == ("Hello", "text/plain; charset=utf-8")
    raw = get(client, intent, "raw")
    assert hashlib.sha256(raw.content).hexdigest() == intent.digest
    assert "attachment" in raw["Content-Disposition"]


def test_a_mail_program_opens_the_email_as_its_recipients_would_get_it(client, intent, approver):
    hidden = make_intent(intent.agent, subject="Grüße", text="Hello", bcc=("secret@example.org",))
    answer = get(client, hidden, "eml")
    assert answer["Content-Type"] == "message/rfc822"
    assert answer["Content-Disposition"] == (
        f'attachment; filename="email-{hidden.digest[:8]}.eml"'
    )
    mail = email.message_from_bytes(answer.content, policy=email.policy.default)
    assert (mail["Subject"], mail["Message-ID"]) == ("Grüße", hidden.message_id)
    assert mail.get_content() == "Hello"
    assert b"secret" not in answer.content
    assert get(client, hidden, "eml").content == answer.content


def test_a_part_that_is_not_there_is_not_found(client, intent, approver):
    plain = make_intent(intent.agent, html=None)
    assert get(client, plain, "html").status_code == 404


def test_bytes_that_are_not_what_was_frozen_are_not_shown(client, intent, approver):
    with no_triggers(Payload):
        Payload.objects.filter(intent=intent).update(body=b"{}")
    assert get(client, intent, "html").status_code == 404


@pytest.mark.parametrize("part", ["html", "text", "raw", "eml"])
def test_viewers_strangers_and_the_signed_out_get_nothing(client, intent, part):
    assert get(client, intent, part).status_code == 302
    client.force_login(make_person(intent.tenant, Role.VIEWER))
    assert get(client, intent, part).status_code == 403
    client.force_login(make_person(make_agent_at().tenant, Role.ADMIN))
    assert get(client, intent, part).status_code == 404
