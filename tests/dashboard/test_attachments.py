"""Files on the screens: named with what is odd about them, handed out so that they do nothing."""

import base64
from typing import Any

import pytest

from sends.lifecycle.intake import propose
from sends.models import AttachmentContent, Role, SendIntent
from sends.rules.payloads import thaw
from sends.rules.proposals import parse
from tests.factories import make_agent_at, make_intent, make_person
from tests.lifecycle.tampering import no_triggers

pytestmark = pytest.mark.django_db

PNG = b"\x89PNG\r\n\x1a\n and so on"
SVG = b"<svg onload='alert(1)'/>"


def file(name: str, data: bytes, **fields: Any) -> dict[str, Any]:
    given = {"filename": name, "content_type": "application/octet-stream"} | fields
    return given | {"content_base64": base64.b64encode(data).decode()}


def took(*files: dict[str, Any], **fields: Any) -> SendIntent:
    given = {"action_key": "k", "to": ["jo@example.org"], "text": "Hello"} | fields
    return propose(parse(given | {"attachments": list(files)}), agent=make_agent_at()).intent


def approver_of(client, intent: SendIntent):
    client.force_login(make_person(intent.tenant, Role.APPROVER))
    return client


def test_a_file_is_handed_out_to_be_kept_and_can_do_nothing(client):
    data = b"<script>alert(1)</script>"
    intent = took(file("Rechnung für März.html", data, content_type="text/html"))

    answer = approver_of(client, intent).get(f"/payload/{intent.digest}/attachments/1/")

    assert answer.content == data
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == (
        "attachment; filename*=utf-8''Rechnung%20f%C3%BCr%20M%C3%A4rz.html"
    )
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Security-Policy"].startswith("sandbox; default-src 'none';")
    assert "no-store" in answer["Cache-Control"]


@pytest.mark.parametrize("name", ['a"b;c.txt', "a%0d%0ab", "x" * 255, "請求書.pdf", "a=?b"])
def test_no_name_breaks_out_of_its_header(client, name):
    intent = took(file(name, b"x"))
    answer = approver_of(client, intent).get(f"/payload/{intent.digest}/attachments/1/")
    assert answer["Content-Disposition"].startswith("attachment; filename")
    assert answer["Content-Disposition"].isascii()


def test_only_what_an_email_of_ours_carries_is_there(client):
    intent = took(file("a.txt", b"a"))
    approver_of(client, intent)
    for place in (0, 2, 10**12):
        assert client.get(f"/payload/{intent.digest}/attachments/{place}/").status_code == 404
    other = make_intent(files={"a.txt": b"a"})
    assert client.get(f"/payload/{other.digest}/attachments/1/").status_code == 404


def test_bytes_that_are_not_those_of_the_seal_are_not_handed_out(client):
    intent = took(file("a.txt", b"a"))
    with no_triggers(AttachmentContent):
        AttachmentContent.objects.update(body=b"another")
    approver_of(client, intent)
    assert client.get(f"/payload/{intent.digest}/attachments/1/").status_code == 404
    assert client.get(f"/payload/{intent.digest}/html/").status_code == 404  # it has no HTML


def test_approvals_and_the_message_list_them(client):
    logo = file("logo.png", PNG, content_type="image/png", content_id="logo", inline=True)
    intent = took(file("offer.pdf", b"%PDF-1.7"), logo, html="<p>Hello")
    approver_of(client, intent)
    number = intent.action.number

    for page in (
        client.get(f"/approvals/{number}/?tab=attachments").text,
        client.get(f"/messages/{number}/").text,
    ):
        for said in ("offer.pdf", "by its bytes PDF", "logo.png", "in the HTML", "8\xa0bytes"):
            assert said in page, said
        sha256 = thaw(bytes(intent.payload.body)).message.attachments[0].sha256
        assert sha256[:16] in page
        assert f'href="/payload/{intent.digest}/attachments/2/"' in page


def test_without_files_there_is_no_tab_and_no_list(client):
    intent = took()
    approver_of(client, intent)
    assert "Attachments" not in client.get(f"/approvals/{intent.action.number}/").text
    assert "Attachments" not in client.get(f"/messages/{intent.action.number}/").text


def test_who_may_not_read_the_email_is_not_told_of_its_files(client):
    intent = took(file("offer.pdf", b"%PDF-1.7"))
    client.force_login(make_person(intent.tenant, Role.VIEWER))
    number = intent.action.number
    assert "offer.pdf" not in client.get(f"/approvals/{number}/?tab=attachments").text
    assert "offer.pdf" not in client.get(f"/messages/{number}/").text


def test_what_is_odd_is_said_before_approving(client):
    intent = took(
        file("invoice.pdf.exe", b"MZ"),
        file("a\u200bb.pdf", b"hello", content_type="application/pdf"),
        file("empty.txt", b""),
    )
    page = approver_of(client, intent).get(f"/approvals/{intent.action.number}/").text
    for said in (
        "3 attachments",
        "An attachment hides what it is",
        "invoice.pdf.exe ends in .exe",
        "An attachment is not what it says",
        "U+200B",
        "An attachment is empty",
    ):
        assert said in page, said


def test_pictures_that_the_html_brings_along_are_shown_if_they_are_pictures(client):
    intent = took(
        file("a.png", PNG, content_id="a@shop", inline=True),
        file("b.svg", SVG, content_type="image/svg+xml", content_id="b", inline=True),
        file("c.png", SVG, content_type="image/png", content_id="c", inline=True),
        html="<img src='cid:a%40shop'><img src=\"CID:b\"><img src=cid:c><p>cid:a@shop</p>"
        '<td background="cid:a@shop" style="background:url(cid:a@shop)"><img src=\'cid:none\'>',
    )
    answer = approver_of(client, intent).get(f"/payload/{intent.digest}/html/")

    picture = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert answer.text == (
        f"<img src='{picture}'><img src=\"CID:b\"><img src=cid:c><p>cid:a@shop</p>"
        f'<td background="{picture}" style="background:url({picture})"><img src=\'cid:none\'>'
    )
    assert "img-src data:;" in answer["Content-Security-Policy"]


def test_to_show_the_pictures_no_other_file_is_read(client):
    logo = file("a.png", PNG, content_id="a", inline=True)
    intent = took(logo, file("b.zip", b"large"), html="<img src=cid:a>")
    with no_triggers(AttachmentContent):
        AttachmentContent.objects.filter(size=5).update(body=b"altered")
    answer = approver_of(client, intent).get(f"/payload/{intent.digest}/html/")
    assert "data:image/png" in answer.text


def test_a_picture_that_is_named_too_often_does_not_fill_the_memory(client):
    logo = file("a.png", PNG + bytes(1_500_000), content_id="a", inline=True)
    intent = took(logo, html="<img src=cid:a>" * 1000)
    answer = approver_of(client, intent).get(f"/payload/{intent.digest}/html/")
    assert answer.text.count("data:image/png") == 3
    assert answer.text.count("src=cid:a") == 997
