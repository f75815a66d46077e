"""What a hostile agent, provider, stranger or colleague tries, and does not get."""

import uuid
from itertools import chain
from urllib.parse import quote

import pytest
from django.test import Client
from django.urls import reverse
from selectolax.lexbor import LexborHTMLParser

from sends.dashboard.requests import ours
from sends.lifecycle.anomalies import open_anomaly
from sends.lifecycle.resolve import record_evidence
from sends.models import (
    ActionResult,
    Anomaly,
    AnomalyKind,
    Approval,
    Cause,
    Delivery,
    Direction,
    EventState,
    EvidenceKind,
    Membership,
    ProviderEvent,
    Role,
    Run,
    SendIntent,
    Switch,
    Verdict,
    database_now,
)
from sends.reports.deadletters import grouped
from sends.rules.outcomes import Outcome
from sends.rules.statuses import DeliveryState, Status
from tests.factories import (
    make_account,
    make_agent,
    make_agent_at,
    make_attempt,
    make_intent,
    make_person,
    make_run,
    make_sender,
    make_tenant,
)

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}


def signed_in(tenant, role=Role.ADMIN, **options):
    client = Client(**options)
    client.force_login(make_person(tenant, role))
    return client


# What agents, providers and people write is text on every page

EVIL = "\"'></textarea></title><img src=x onerror=alert(1)> onmouseover=alert(1) {{ 7|add:7 }}"
TURNED = "\u202emoc.elpmaxe"  # is shown from right to left, so that it reads as another text


@pytest.fixture
def hostile():
    """A tenant in which every text that comes from outside wants to be more than text."""
    said = EVIL + TURNED
    tenant, now = make_tenant(), database_now()
    account = make_account(tenant, base_url="http://127.0.0.1:9")
    agent = make_agent(make_sender(account, name=said))
    run = make_run(agent, name=said)
    admin = make_person(tenant, Role.ADMIN)
    texts = {"subject": said, "text": said, "html": f"<p>{said}", "note": said, "template": said}
    to = f'"{said}"@example.org'

    def email(status, **fields):
        if status is not Status.AWAITING_APPROVAL:
            fields.setdefault("end_reason", said)
        return make_intent(agent, status=status, run=run, to=to, cc=(to,), **texts, **fields)

    emails = {status: email(status) for status in Status}
    waiting, uncertain = emails[Status.AWAITING_APPROVAL], emails[Status.UNCERTAIN]
    waiting.action.action_key = said
    asked = email(Status.CHANGES_REQUESTED)
    Approval.objects.create(
        intent=asked,
        digest=asked.digest,
        verdict=Verdict.CHANGES,
        person=admin,
        reason_code="other",
        note=said,
        made_at=now,
    )
    SendIntent.objects.filter(pk=asked.pk).update(status=Status.SUPERSEDED, fence=asked.fence + 1)
    newer = make_intent(agent, action=asked.action, to=to, author=admin, **texts)
    answer = {"reason": said, "body": said, "code": said[:120], "http_status": 422}
    for intent in (uncertain, emails[Status.DEAD_LETTER]):
        outcome = Outcome.AMBIGUOUS if intent is uncertain else Outcome.REFUSED
        make_attempt(intent, outcome=outcome, error=said[:40], worker=said[:120], **answer)
    record_evidence(
        uncertain,
        kind=EvidenceKind.PERSON,
        direction=Direction.NOT_ACCEPTED,
        proves=False,
        summary=said,
        value=said,
        person=admin,
        now=now,
    )
    sent = emails[Status.SUBMITTED]
    ProviderEvent.objects.create(
        account=account,
        event_id="1",
        fingerprint="1",
        kind="bounced",
        recipient=said,
        reason=said,
        occurred_at=now,
        received_at=now,
        raw=b"",
        state=EventState.APPLIED,
        intent=sent,
    )
    Delivery.objects.filter(intent=sent).update(state=DeliveryState.BOUNCED, reason=said)
    open_anomaly(sent, kind=AnomalyKind.TWICE, detail=said, now=now)
    Anomaly.objects.create(
        tenant=tenant,
        action=waiting.action,
        intent=waiting,
        kind=AnomalyKind.TWICE,
        detail=said,
        opened_at=now,
        closed_at=now,
        closed_by=admin,
        close_reason=said,
    )
    for scope in (account.pk, run.pk):
        Switch.objects.filter(pk=scope).update(
            causes=Cause.PAUSED | Cause.BLOCKED,
            paused_by=said,
            pause_reason=said,
            paused_at=now,
            block_reason=said,
            blocked_at=now,
        )
    tenant.name = said
    tenant.save(update_fields=["name"])
    return tenant, emails, newer


def pages_of(tenant, emails, newer):
    """The addresses of all pages that show something of theirs."""
    groups = [group.signature.id for group in grouped(tenant).groups]
    numbers = [intent.action.number for intent in (*emails.values(), newer)]
    uncertain = emails[Status.UNCERTAIN].action.number
    scope = emails[Status.QUEUED].account_id
    run = emails[Status.QUEUED].run_id
    yield from ("/approvals/?view=runs", "/messages/", "/uncertain/", "/dead-letters/")
    yield from ("/runs/", f"/runs/{run}/", f"/runs/{run}/halt/", "/anomalies/")
    yield from (f"/messages/?q={quote(EVIL)}", f"/approvals/?agent={quote(EVIL)}&run={quote(EVIL)}")
    yield from (f"/switches/{scope}/on/", f"/switches/{scope}/off/", f"/uncertain/{uncertain}/")
    yield from (f"/dead-letters/{group}/" for group in groups)
    yield from (f"/messages/{number}/" for number in numbers)
    for number in (emails[Status.AWAITING_APPROVAL].action.number, newer.action.number):
        for tab in ("html", "text", "changes", "headers", "history"):
            yield f"/approvals/{number}/?tab={tab}"
        yield from (f"/messages/{number}/{verb}/" for verb in ("edit", "send-back", "cancel"))
    yield f"/messages/{emails[Status.SUBMITTED].action.number}/follow-up/"
    yield f"/messages/{emails[Status.DEAD_LETTER].action.number}/resend/"


def test_no_text_from_outside_becomes_markup_or_hides_its_letters(hostile):
    client = signed_in(hostile[0])
    for address in pages_of(*hostile):
        for headers in ({}, HTMX):
            answer = client.get(address, headers=headers)
            if answer.status_code == 204:
                continue
            assert answer.status_code == 200, address
            page = LexborHTMLParser(answer.text)
            assert not page.css("img[src=x], [onerror], [onmouseover]"), address
            assert not page.css("script:not([src])"), address
            assert "alert(1) 14" not in answer.text, address
            for node in page.css("title, textarea, input, select, [data-copy]"):
                node.decompose()
            assert "\u202e" not in page.html, (address, page.html.split("\u202e")[0][-200:])


def test_an_email_may_do_nothing_in_its_frame(hostile):
    tenant, emails, _ = hostile
    answer = signed_in(tenant).get(
        f"/payload/{emails[Status.AWAITING_APPROVAL].digest}/html/?images=1"
    )
    policy = answer["Content-Security-Policy"]
    assert policy.startswith("sandbox; default-src 'none'; ")
    assert "script" not in policy
    assert "allow-" not in policy
    assert "form-action 'none'" in policy


# Addresses that a request names are ours, or nobody's


@pytest.mark.parametrize(
    ("address", "leads_to"),
    [
        ("http://testserver/approvals/7/?view=runs", "/approvals/7/?view=runs"),
        ("/runs/", "/runs/"),
        ("", "/"),
        ("https://evil.example.net/", "/"),
        ("//evil.example.net/", "/"),
        ("http://testserver//evil.example.net/", "/"),
        ("http://testserver///evil.example.net/", "/"),
        ("http://testserver/\\evil.example.net/", "/"),
        ("http://testserver/\t/evil.example.net/", "/"),
        ("http://testserver/\\\t\\evil.example.net/", "/"),
        ("http://testserver@evil.example.net/", "/"),
        ("http://testserver", "/"),
        ("javascript:alert(1)", "/"),
        ("http://[::1", "/"),
        ("http://testserver/a\r\nSet-Cookie: a=b", "/aSet-Cookie: a=b"),
        ("approvals/", "/"),
    ],
)
def test_the_way_back_never_leaves_this_host(rf, address, leads_to):
    assert ours(rf.get("/"), address) == leads_to


FORGED = [
    "http://testserver/approvals/\u00b2/",
    "http://testserver/approvals/" + "9" * 5000 + "/",
    "http://testserver/approvals/?agent=%00&run=%00&sender=%00&domain=%00&template=%00",
    "http://testserver/approvals/?after=%00",
    "http://testserver//approvals/",
    "http://[::1",
    "http://testserver/dead-letters/%00/",
    "\u0000",
]


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("is_encoded", [True, False])
def test_a_forged_place_of_the_reader_breaks_nothing(forged, is_encoded):
    intent = make_intent()
    client = signed_in(intent.tenant)
    place = {"HX-Current-URL": forged.encode().decode("latin-1")}
    if is_encoded:
        place = {"HX-Current-URL": quote(forged), "HX-Current-URL-URI-AutoEncoded": "true"}
    headers = {**HTMX, **place, "HX-Target": "detail"}
    group = "0" * 16
    for address in (
        "/live/?ids=x",
        f"/approvals/{intent.action.number}/",
        f"/dead-letters/{group}/",
    ):
        assert client.get(address, headers=headers).status_code < 500, address
    for verb in ("approve", "send-back", "undo", "cancel"):
        answer = client.post(f"/messages/{intent.action.number}/{verb}/", headers=headers)
        assert answer.status_code in (409, 422)


# Letters that a database or an encoding cannot hold

ODD = {
    "NUL": "a%00b",
    "lone surrogate": "a%ED%A0%80b",
    "cut UTF-8": "a%C3",
    "superscript": "%C2%B2",
    "many digits": "9" * 5000,
    "a big number": "9" * 18,
    "a negative number": "-1",
    "a Turkish I": "%C4%B0@example.com",
    "giant": "a" * 200_000,
}
LISTS = {
    "/approvals/": "view agent run sender domain template after tab images",
    "/messages/": "q before after state agent run template since",
    "/uncertain/": "after",
    "/dead-letters/": "show",
    "/runs/": "before after",
    "/anomalies/": "after",
    "/live/": "since ids",
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_letters_in_a_list_s_address_break_nothing(odd):
    intent = make_intent()
    client = signed_in(intent.tenant)
    for address, names in LISTS.items():
        for name in names.split():
            filters = "&filter=1" if address == "/messages/" and name != "q" else ""
            answer = client.get(f"{address}?{name}={ODD[odd]}{filters}")
            assert answer.status_code < 500, (address, name)


@pytest.mark.parametrize("odd", ODD)
def test_odd_letters_in_a_search_break_nothing(odd):
    intent = make_intent()
    client = signed_in(intent.tenant)
    words = ["", "subject:", "agent:", "run:", "template:", "state:", "from:", "is:", "%23", "%3C"]
    shapes = [f"{word}{ODD[odd]}" for word in words]
    for text in [*shapes, f"{ODD[odd]}@example.com", f"{ODD[odd]}:1_", f"%22{ODD[odd]}%22"]:
        assert client.get(f"/messages/?q={text}").status_code == 200, text[:100]


@pytest.mark.parametrize("odd", ODD)
def test_odd_letters_in_the_address_of_one_thing_break_nothing(odd):
    intent = make_intent()
    client = signed_in(intent.tenant)
    word = ODD[odd]
    for address in (
        f"/approvals/{word}/",
        f"/messages/{word}/",
        f"/messages/{intent.action.number}/v/{word}/",
        f"/messages/{intent.action.number}/cancel/?version={word}",
        f"/messages/{intent.action.number}/follow-up/?version={word}",
        f"/messages/{intent.action.number}/?show={word}&seen={word}",
        f"/messages/{intent.action.number}/send-back/?outcome={word}&note={word}",
        f"/messages/{intent.action.number}/send-back/?reason_code={word}&next={word}",
        f"/uncertain/{word}/",
        f"/dead-letters/{word}/",
        f"/payload/{word}/html/",
        f"/payload/{word}/raw/",
        f"/runs/{word}/",
        f"/switches/{word}/off/",
    ):
        for headers in ({}, HTMX):
            assert client.get(address, headers=headers).status_code < 500, address[:100]


TEXTS = ["reason", "note", "value", "provider_message_id", "to", "cc", "bcc", "subject"]
CHOICES = ["then", "compared", "version", "digest", "outcome", "reason_code", "add_retries"]
FIELDS = [*TEXTS, *CHOICES, "text", "html", "next", "back", "emails", "login", "password"]
FORMS = {
    "approve": "",
    "send_back": "",
    "undo": "",
    "edit": "",
    "follow_up": "",
    "retry_now": "",
    "cancel": "",
    "resend": "",
    "replay": "",
    "mark_accepted": "accepted-",
    "mark_not_accepted": "not-accepted-",
    "confirm_not_accepted": "confirming-",
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_letters_in_a_form_break_nothing(odd):
    intent = make_intent()
    run = make_run(intent.agent)
    number, tenant = intent.action.number, intent.tenant
    client = signed_in(tenant)
    addresses = {reverse(f"dashboard:{name}", args=[number]): FORMS[name] for name in FORMS}
    addresses |= {
        f"/switches/{tenant.pk}/off/": "",
        f"/runs/{run.pk}/halt/": "",
        f"/runs/{run.pk}/resume/": "",
        f"/runs/{run.pk}/cancel/": "",
        "/dead-letters/0000/close/": "",
        "/dead-letters/0000/requeue/": "",
        "/login/": "",
    }
    right = {"version": "1", "digest": intent.digest, "action_id": str(uuid.uuid4())}
    right |= {"to": "a@example.org", "reason": "A reason", "subject": "Hello", "text": "Hello"}
    for address, prefix in addresses.items():
        for wrong in (FIELDS, *([name] for name in ("version", "next", "back", "reason", "to"))):
            given = {**right, **dict.fromkeys(wrong, ODD[odd])}
            body = "&".join(f"{prefix}{name}={value}" for name, value in given.items())
            kind = "application/x-www-form-urlencoded"
            answer = client.post(address, body, content_type=kind)
            assert answer.status_code < 500, (address, wrong)


def test_more_parameters_than_anybody_needs_are_refused():
    client = signed_in(make_tenant())
    assert client.get("/messages/?" + "&".join(["q=a"] * 2000)).status_code in (200, 400)
    assert client.post("/login/", "&".join(["q=a"] * 2000), "application/x-www-form-urlencoded")


def test_a_line_end_in_an_address_ends_no_header():
    intent = make_intent()
    client = signed_in(intent.tenant)
    given = {"version": 1, "digest": intent.digest, "action_id": uuid.uuid4()}
    for headers in ({}, HTMX):
        answer = client.post(
            f"/messages/{intent.action.number}/approve/?agent=%0D%0ASet-Cookie:a=b",
            given,
            headers=headers,
        )
        assert "a" not in answer.cookies
        for name in ("Location", "HX-Push-Url"):
            assert not {"\r", "\n"} & set(answer.get(name, ""))


# Strangers


def test_an_admin_of_another_tenant_decides_nothing_here():
    agent = make_agent_at()
    emails = {status: make_intent(agent, status=status) for status in Status}
    run, now = make_run(agent), database_now()
    anomaly = open_anomaly(
        emails[Status.CANCELLED], kind=AnomalyKind.ACCEPTED_UNSENT, detail="", now=now
    )
    (group,) = grouped(agent.tenant).groups
    stranger = make_agent_at()
    own = make_intent(stranger, status=Status.DEAD_LETTER)  # with the same signature
    client = signed_in(stranger.tenant)

    def standing():
        intents = SendIntent.objects.exclude(tenant=stranger.tenant).order_by("pk")
        return (
            list(intents.values_list("pk", "status", "fence", "holds", "closed_at")),
            list(Switch.objects.order_by("pk").values_list("pk", "causes", "resume_at")),
            list(Run.objects.values_list("ended_at")),
            list(Anomaly.objects.values_list("closed_at")),
            Approval.objects.count(),
        )

    before = standing()
    for intent in emails.values():
        for name, prefix in FORMS.items():
            given = {
                "action_id": uuid.uuid4(),
                "version": intent.version,
                "digest": intent.digest,
                "reason": "Because I can",
                "note": "Because I can",
                "outcome": "reject",
                "reason_code": "other",
                "value": "Because",
                "then": "leave",
            }
            given = {prefix + field: value for field, value in given.items()}
            url = reverse(f"dashboard:{name}", args=[intent.action.number])
            assert client.post(url, given).status_code == 404 or _has(stranger, intent), url
    said = {"reason": "Because I can", "add_retries": 0}
    for url in (
        f"/runs/{run.pk}/halt/",
        f"/runs/{run.pk}/resume/",
        f"/runs/{run.pk}/cancel/",
        f"/switches/{agent.tenant_id}/off/",
        f"/switches/{agent.tenant_id}/on/",
        f"/switches/{agent.sender.account_id}/off/",
        f"/anomalies/{anomaly.pk}/close/",
    ):
        assert client.post(url, {**said, "action_id": uuid.uuid4()}).status_code == 404
    for verb in ("requeue", "close", "reopen"):
        emails_of_both = [emails[Status.DEAD_LETTER].pk, own.pk]
        given = {**said, "emails": emails_of_both, "action_id": uuid.uuid4()}
        answer = client.post(f"/dead-letters/{group.signature.id}/{verb}/", given)
        assert answer.status_code == 422
    for intent in emails.values():
        for part in ("html", "text", "raw"):
            assert client.get(f"/payload/{intent.digest}/{part}/").status_code == 404
    ids = ",".join(str(intent.pk) for intent in emails.values())
    for room in ("approvals", "messages", "uncertain"):
        place = {**HTMX, "HX-Current-URL": f"http://testserver/{room}/"}
        assert agent.slug not in client.get(f"/live/?ids={ids}", headers=place).text
    assert standing() == before


def _has(stranger, intent):
    """Whether the stranger has a message of the same number, so that it was theirs."""
    return SendIntent.objects.filter(
        tenant=stranger.tenant, action__number=intent.action.number
    ).exists()


def test_the_brake_of_the_installation_is_no_tenant_s():
    (above_all,) = Switch.objects.filter(tenant=None)
    client = signed_in(make_tenant())
    for way in ("off", "on"):
        given = {"reason": "Because I can", "action_id": uuid.uuid4()}
        assert client.post(f"/switches/{above_all.pk}/{way}/", given).status_code == 404


# Colleagues


BODY = "What only approvers read"


def test_a_viewer_reads_no_body_anywhere():
    agent = make_agent_at()
    run = make_run(agent)
    texts = {"text": BODY, "html": f"<p>{BODY}</p>", "run": run}
    emails = {status: make_intent(agent, status=status, **texts) for status in Status}
    newer = make_intent(agent, action=emails[Status.SUPERSEDED].action, **texts)
    client = signed_in(agent.tenant, Role.VIEWER)
    digests = [intent.digest for intent in (*emails.values(), newer)]
    bodies = [f"/payload/{d}/{part}/" for d in digests for part in ("html", "text", "raw")]
    for address in chain(pages_of(agent.tenant, emails, newer), bodies):
        for headers in ({}, HTMX):
            answer = client.get(address, headers=headers)
            assert answer.status_code in (200, 204, 403)
            assert BODY not in answer.text, address
    for address in bodies:
        assert client.head(address).status_code == 403


def test_a_form_sent_again_by_somebody_else_is_their_own_decision():
    intent = make_intent()
    first, second = (signed_in(intent.tenant, Role.APPROVER) for _ in range(2))
    given = {"version": 1, "digest": intent.digest, "action_id": uuid.uuid4()}
    url = f"/messages/{intent.action.number}/approve/"
    assert first.post(url, given).status_code == 302
    assert first.post(url, given).status_code == 302
    answer = second.post(url, given)
    assert answer.status_code == 409
    assert "Approved by somebody else already" in answer.text
    assert Approval.objects.count() == 1


def test_a_form_with_the_id_of_another_decides_about_what_it_names():
    """A browser that fills in a page anew may put the hidden id of one email into another's."""
    agent = make_agent_at()
    one, other = make_intent(agent), make_intent(agent)
    client, action_id = signed_in(agent.tenant), uuid.uuid4()
    for intent in (one, other):
        given = {"version": 1, "digest": intent.digest, "action_id": action_id}
        assert client.post(f"/messages/{intent.action.number}/approve/", given).status_code == 302
        assert SendIntent.objects.get(pk=intent.pk).status == Status.QUEUED
    runs = [make_run(agent), make_run(agent)]
    for run in runs:
        client.post(f"/runs/{run.pk}/halt/", {"reason": "Stop", "action_id": action_id})
        assert Switch.objects.get(pk=run.pk).causes == Cause.PAUSED
    assert ActionResult.objects.count() == 4


# Sessions


def test_signing_in_begins_a_new_session(client):
    person = make_person(make_tenant())
    client.get("/login/")
    session = client.session
    session["planted"] = True
    session.save()
    client.cookies["outbox_session"] = planted = session.session_key
    given = {"login": person.email, "password": "let me in please"}
    assert client.post("/login/", given).status_code == 302
    assert client.cookies["outbox_session"].value != planted
    assert client.cookies["outbox_session"]["httponly"]
    assert client.cookies["outbox_session"]["samesite"] == "Lax"


def test_a_session_is_over_with_the_sign_out_on_every_tab():
    client = signed_in(make_tenant())
    key = client.cookies["outbox_session"].value
    client.post("/logout/")
    client.cookies["outbox_session"] = key
    assert client.get("/messages/")["Location"].startswith("/login/")


def test_who_loses_a_role_or_a_password_loses_what_it_opened_at_once():
    tenant = make_tenant()
    person = make_person(tenant, Role.OPERATOR)
    client = Client()
    client.force_login(person)
    assert client.get(f"/switches/{tenant.pk}/on/").status_code == 200
    Membership.objects.filter(person=person).update(role=Role.APPROVER)
    assert client.get(f"/switches/{tenant.pk}/on/").status_code == 403
    person.set_password("something else entirely")
    person.save(update_fields=["password"])
    assert client.get("/messages/")["Location"].startswith("/login/")
    client.force_login(person)
    person.is_active = False
    person.save(update_fields=["is_active"])
    assert client.get("/messages/")["Location"].startswith("/login/")
