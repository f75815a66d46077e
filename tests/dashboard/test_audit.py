"""The audit log on the screen and as a file: found, paged, read by those of its tenant."""

import csv
import io
import json
from datetime import timedelta

import pytest
from django.db import transaction

from sends.dashboard import audit as room
from sends.lifecycle import audit, chain
from sends.models import AuditEntry, Role, database_now
from tests.factories import make_agent_at, make_person, make_run, make_tenant
from tests.lifecycle.tampering import no_triggers

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant():
    return make_tenant()


@pytest.fixture
def viewer(client, tenant):
    client.force_login(make_person(tenant, Role.VIEWER))


def record(tenant, **fields):
    age = fields.pop("age", timedelta(0))
    with transaction.atomic():
        return audit.record(
            **{
                "tenant": tenant,
                "actor": "lead@example.com",
                "verb": "approve",
                "target": "message:7/v1",
                "reason": "it is right",
                "now": database_now() - age,
            }
            | fields
        )


def test_an_entry_says_who_did_what_to_what_and_why(client, tenant, viewer):
    entry = record(tenant, verb="mark_accepted", facts={"value": "msg_1", "found_by": "console"})
    page = client.get("/audit/").text
    for words in ("Mark accepted", "lead@example.com", "it is right", "Found by", "console"):
        assert words in page
    assert 'href="/messages/7/v/1/"' in page
    assert entry.hash[:8] in page


def test_sending_that_was_stopped_is_called_so(client, tenant, viewer):
    record(tenant, verb="turn_off", target="tenant:example")
    assert client.get("/audit/").text.count("Stop sending") == 2  # the entry, and the filter


def test_an_empty_log_says_what_would_be_there(client, viewer):
    assert "Nothing was decided yet" in client.get("/audit/").text


def test_things_that_are_no_page_are_named_and_not_linked(client, tenant, viewer):
    run = make_run(make_agent_at(tenant))
    record(tenant, target=audit.run_target(run))
    record(tenant, target="tenant:example")
    page = client.get("/audit/").text
    assert f'href="/runs/{run.pk}/"' in page
    assert "tenant:example" in page


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["first", "second", "third"]),
        ("actor=lead@example.com", ["first", "third"]),
        ("actor=nobody@example.com", []),
        ("verb=reject", ["second"]),
        ("verb=no-such-verb", []),
        ("since=2999-01-01", []),
        ("until=2000-01-01", []),
        ("since=tomorrow", []),
        ("actor=lead@example.com&verb=approve", ["first", "third"]),
        ("actor=%00", []),
    ],
)
def test_it_is_narrowed_by_person_verb_and_time(client, tenant, viewer, query, shown):
    record(tenant, reason="first")
    record(tenant, reason="second", actor="agent:bot", verb="reject")
    record(tenant, reason="third")
    page = client.get(f"/audit/?{query}").text
    assert [word for word in ("first", "second", "third") if f"{word}\n" in page] == shown
    file = client.get(f"/audit/log.csv?{query}").getvalue().decode()
    assert [word for word in ("first", "second", "third") if f",{word}," in file] == shown


def test_a_day_begins_and_ends_where_the_reader_is(client, tenant, viewer):
    record(tenant, reason="long ago", age=timedelta(days=3))
    record(tenant, reason="just now")
    day = f"{database_now() - timedelta(days=3):%Y-%m-%d}"
    page = client.get(f"/audit/?since={day}&until={day}").text
    assert "long ago" in page
    assert "just now" not in page


def test_pages_go_on_where_the_last_one_ended(client, tenant, viewer, monkeypatch):
    monkeypatch.setattr(room, "PAGE", 2)
    for _ in range(5):
        record(tenant)
    first = client.get("/audit/?verb=approve")
    assert numbers(first) == [5, 4]
    assert not first.context["newer"]
    second = client.get(first.context["older"])
    assert numbers(second) == [3, 2]
    last = client.get(second.context["older"])
    assert (numbers(last), last.context["older"]) == ([1], "")
    assert numbers(client.get(last.context["newer"])) == [3, 2]
    back = client.get(second.context["newer"])
    assert (numbers(back), back.context["newer"]) == ([5, 4], "")
    assert "verb=approve" in second.context["newer"]


def numbers(answer):
    return [row.entry.sequence for row in answer.context["rows"]]


def test_as_csv_it_has_every_entry_and_no_formula(client, tenant, viewer):
    record(tenant, reason='=HYPERLINK("https://attacker.example.net")', facts={"n": 1})
    record(tenant, reason="two\nlines, «quoted»")
    answer = client.get("/audit/log.csv")
    head, first, second = csv.reader(io.StringIO(answer.getvalue().decode()))
    assert head[:4] == ["sequence", "at", "actor", "verb"]
    assert first[5] == '\'=HYPERLINK("https://attacker.example.net")'
    assert first[6] == '{"n": 1}'
    assert second[5] == "two\nlines, «quoted»"
    assert answer["Content-Disposition"].startswith('attachment; filename="audit-')
    assert "no-store" in answer["Cache-Control"]


def test_the_whole_log_is_what_the_command_compares_with(client, tenant, viewer):
    record(tenant)
    *lines, last = client.get("/audit/log.jsonl?verb=none").getvalue().decode().splitlines()
    assert json.loads(lines[0])["verb"] == "approve"
    record(tenant)
    assert chain.check(tenant, against=chain.end_of(tenant, last)).broken == ""


def test_an_admin_has_the_chain_checked(client, tenant):
    record(tenant)
    client.force_login(make_person(tenant, Role.ADMIN))
    assert "unbroken" in client.get("/audit/?check=1").text
    with no_triggers(AuditEntry):
        AuditEntry.objects.update(reason="other")
    assert "Entry 1 of" in client.get("/audit/?check=1").text


def test_nobody_else_makes_it_read_every_entry(client, tenant, viewer):
    record(tenant)
    page = client.get("/audit/?check=1").text
    assert "unbroken" not in page
    assert "Check the chain" not in page


def test_nothing_of_another_tenant_is_in_it(client, tenant, viewer):
    record(make_tenant(), reason="theirs", actor="them@example.net", verb="their_verb")
    for address in ("/audit/", "/audit/log.csv", "/audit/log.jsonl"):
        assert b"their" not in client.get(address).getvalue()


def test_the_list_asks_as_often_for_many_as_for_few(client, tenant, viewer, asks_at_most):
    for _ in range(30):
        record(tenant)
    client.get("/audit/")
    with asks_at_most(14):
        client.get("/audit/")
