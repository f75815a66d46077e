"""`manage.py demo`: what an empty installation is filled with, and how one gets in."""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.core.management import CommandError, call_command

from sends.conf import conf
from sends.lifecycle import chain, requeue, resolve, tokens, watchdog
from sends.lifecycle.claim import anything_due
from sends.management.commands import demo
from sends.models import (
    Account,
    Agent,
    Approval,
    Attempt,
    Cause,
    Membership,
    Person,
    Role,
    SendIntent,
    Switch,
    Tenant,
    database_now,
)
from sends.rules.payloads import seal, thaw
from sends.rules.statuses import Status
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_variables_and_file(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SANDBOX_URL", "SANDBOX_KEY", "SANDBOX_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "")
    yield
    demo.path().unlink(missing_ok=True)


def load(*words: str) -> str:
    out = StringIO()
    call_command("demo", *words, stdout=out)
    return out.getvalue().strip()


def access() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(demo.path().read_text("utf-8"))
    return content


def of(status: Status) -> list[SendIntent]:
    return list(SendIntent.objects.filter(status=status).order_by("pk"))


def test_it_loads_a_demonstration_and_says_where_the_keys_are() -> None:
    assert load() == f"The demonstration is loaded; {demo.path()} says how to get in."
    assert Tenant.objects.get().is_demo
    assert Counter(SendIntent.objects.values_list("status", flat=True)) == {
        Status.AWAITING_APPROVAL: 8,
        Status.UNCERTAIN: 1,
        Status.DEAD_LETTER: 6,
        Status.QUEUED: 2,
    }


def test_the_file_has_exactly_what_scripts_need_and_only_its_owner_reads_it() -> None:
    load("--url=http://outbox.test:9000", "--sandbox-url=http://127.0.0.1:9001")
    content = access()
    assert list(content) == ["url", "agent_token", "sandbox_url", "people"]
    assert content["url"] == "http://outbox.test:9000"
    assert content["sandbox_url"] == "http://127.0.0.1:9001"
    assert all(list(person) == ["email", "password", "role"] for person in content["people"])
    assert stat.S_IMODE(demo.path().stat().st_mode) == 0o600
    assert not list(conf.data_dir.glob("demo.draft*"))


def test_without_addresses_they_are_those_of_this_machine() -> None:
    load()
    assert access()["url"] == conf.url
    assert access()["sandbox_url"] == f"http://127.0.0.1:{conf.sandbox_port}"
    assert Account.objects.get().base_url == access()["sandbox_url"]


def test_everybody_in_the_file_can_sign_in_with_the_role_it_says() -> None:
    load()
    roles = []
    for entry in access()["people"]:
        person = authenticate(username=entry["email"], password=entry["password"])
        assert isinstance(person, Person)
        assert Role(Membership.objects.get(person=person).role).name.lower() == entry["role"]
        roles.append(entry["role"])
    assert roles == ["viewer", "approver", "operator", "admin"]


def test_the_token_in_the_file_is_an_agents_with_every_scope() -> None:
    load()
    token = tokens.holder(access()["agent_token"], now=database_now())
    assert token is not None
    assert token.agent.slug == "support-followup"
    assert set(token.scopes) == {"submit", "read", "withdraw"}


def test_eight_emails_of_three_agents_await_approval_and_one_needs_two_people() -> None:
    load()
    awaiting = of(Status.AWAITING_APPROVAL)
    assert {intent.agent.slug for intent in awaiting if intent.agent} == set(
        Agent.objects.values_list("slug", flat=True)
    )
    (two,) = [intent for intent in awaiting if intent.approvals_needed == 2]
    assert Approval.objects.filter(intent=two).count() == 1
    for intent in awaiting:
        message = thaw(bytes(intent.payload.body)).message
        assert message.text
        assert message.html
        assert intent.note


def test_two_emails_are_on_hold_since_a_person_halted_their_run() -> None:
    load()
    held = of(Status.QUEUED)
    (run_id,) = {intent.run_id for intent in held}
    switch = Switch.objects.get(pk=run_id)
    assert switch.causes == Cause.PAUSED
    assert switch.paused_by == "approver@example.com"
    assert switch.pause_reason


def test_the_dead_letters_are_of_two_kinds_and_one_kind_may_be_sent_again() -> None:
    load()
    letters = of(Status.DEAD_LETTER)
    kinds = Counter(letter.attempts.latest("number").outcome for letter in letters)
    assert kinds == {"not_sent": 4, "refused": 2}
    may = [letter for letter in letters if requeue.may_requeue(letter) is None]
    assert len(may) == 4


def test_the_uncertain_one_can_be_replayed_for_hours_to_come() -> None:
    load()
    (uncertain,) = of(Status.UNCERTAIN)
    assert resolve.may_replay(uncertain, database_now()) is None
    assert uncertain.attempts.filter(may_have_arrived=True).count() == 5


def test_nothing_of_it_goes_out_or_changes_by_itself() -> None:
    load()
    before = list(SendIntent.objects.order_by("pk").values_list("pk", "status", "fence"))
    assert not anything_due()
    watchdog.sweep()
    assert list(SendIntent.objects.order_by("pk").values_list("pk", "status", "fence")) == before


def test_its_history_is_whole() -> None:
    load()
    assert not Attempt.objects.filter(closed_at=None).exists()
    assert not Attempt.objects.filter(opened_at__gt=database_now()).exists()
    assert all(
        seal(bytes(intent.payload.body)) == intent.digest for intent in SendIntent.objects.all()
    )
    assert chain.check(Tenant.objects.get()).broken == ""


def test_the_second_time_nothing_is_added_and_it_says_so() -> None:
    load()
    first, count = access(), SendIntent.objects.count()
    assert load() == "The database is not empty; no demonstration was loaded."
    assert access() == first
    assert SendIntent.objects.count() == count


def test_on_other_ports_it_is_the_same_demonstration() -> None:
    load("--sandbox-url=http://127.0.0.1:9001")
    first, scope = access(), Account.objects.get().scope
    load("--url=http://localhost:9100", "--sandbox-url=http://127.0.0.1:9101")
    moved = {"url": "http://localhost:9100", "sandbox_url": "http://127.0.0.1:9101"}
    assert access() == first | moved
    account = Account.objects.get()
    assert (account.base_url, account.scope) == ("http://127.0.0.1:9101", scope)


def test_a_database_with_a_tenant_is_left_alone() -> None:
    make_tenant()
    assert load() == "The database is not empty; no demonstration was loaded."
    assert not Person.objects.exists()
    assert not demo.path().exists()


def test_where_the_file_cannot_be_written_nothing_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "path", lambda: tmp_path / "missing" / "demo.json")
    with pytest.raises(CommandError, match=r"demo\.draft cannot be used: No such file"):
        load()
    assert not Tenant.objects.exists()


def test_the_sandboxes_secrets_are_kept_for_whoever_is_started_next() -> None:
    load()
    key = os.environ["SANDBOX_KEY"]
    os.environ["SANDBOX_KEY"] = ""
    load()
    assert os.environ["SANDBOX_KEY"] == key
