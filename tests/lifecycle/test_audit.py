"""The audit log is one unbroken chain a tenant, and says where it was broken."""

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction

from sends.lifecycle import audit, chain
from sends.models import AuditEntry, Role, Tenant, database_now
from sends.rules.keys import canonical
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_intent, make_person, make_tenant
from tests.lifecycle.races import at_once
from tests.lifecycle.tampering import no_triggers


def record(tenant: Tenant, verb: str = "approve", **facts: Any) -> AuditEntry:
    with transaction.atomic():
        return audit.record(
            tenant=tenant,
            actor="lead@example.com",
            verb=verb,
            target="message:7/v1",
            reason="it is right",
            facts=facts,
            now=database_now(),
        )


@pytest.mark.django_db
def test_each_entry_follows_from_the_one_before_it():
    tenant = make_tenant()
    first, second, third = (record(tenant, n=n) for n in range(3))
    assert first.previous == audit.BEGINNING
    assert (second.previous, third.previous) == (first.hash, second.hash)
    assert [entry.sequence for entry in (first, second, third)] == [1, 2, 3]
    assert chain.check(tenant).broken == ""


@pytest.mark.django_db
def test_each_tenant_has_a_chain_of_its_own():
    one, other = make_tenant(), make_tenant()
    record(one)
    assert record(other).previous == audit.BEGINNING
    assert chain.check(one).broken == chain.check(other).broken == ""


@pytest.mark.django_db
def test_the_facts_are_canonical_bytes():
    entry = record(make_tenant(), b=1, a="é")
    entry.refresh_from_db()
    assert bytes(entry.facts) == canonical({"a": "é", "b": 1}) == '{"a":"é","b":1}'.encode()


@pytest.mark.django_db
def test_an_empty_chain_holds():
    assert chain.check(make_tenant()).broken == ""


CHANGES = [
    ("at", lambda entry: entry.at + timedelta(microseconds=1)),
    ("actor", lambda entry: "somebody@example.com"),
    ("verb", lambda entry: "reject"),
    ("target", lambda entry: "message:8/v1"),
    ("reason", lambda entry: "it is wrong"),
    ("facts", lambda entry: b"\xff"),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("field", "changed"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_changed_field_is_found_and_named(field: str, changed: Any):
    tenant = make_tenant()
    entries = [record(tenant) for _ in range(3)]
    _past_the_triggers(AuditEntry.objects.filter(pk=entries[1].pk), **{field: changed(entries[1])})
    assert chain.check(tenant).broken == f"entry 2 of {tenant} was changed: its hash does not match"


@pytest.mark.django_db
def test_an_entry_rewritten_with_its_own_hash_breaks_the_next():
    tenant = make_tenant()
    first, _ = record(tenant), record(tenant)
    first.actor = "somebody@example.com"
    _past_the_triggers(
        AuditEntry.objects.filter(pk=first.pk), actor=first.actor, hash=audit.hash_of(first)
    )
    assert (
        chain.check(tenant).broken == f"entry 2 of {tenant} does not follow from the one before it"
    )


@pytest.mark.django_db
def test_a_missing_entry_is_found():
    tenant = make_tenant()
    entries = [record(tenant) for _ in range(3)]
    with no_triggers(AuditEntry):
        AuditEntry.objects.filter(pk=entries[1].pk).delete()
    assert chain.check(tenant).broken == f"entry 2 of {tenant} is missing; the next one is 3"


@pytest.mark.django_db(transaction=True)
def test_writers_at_the_same_moment_do_not_fork_the_chain():
    tenant = make_tenant()
    writers, each = 4, 5

    def write() -> None:
        for _ in range(each):
            record(tenant)

    assert at_once(*[write] * writers) == [None] * writers
    assert chain.check(tenant).broken == ""
    assert AuditEntry.objects.filter(tenant=tenant).count() == writers * each


@pytest.mark.django_db(transaction=True)
def test_an_entry_of_a_decision_that_was_rolled_back_leaves_no_gap():
    tenant = make_tenant()
    record(tenant)
    with transaction.atomic():
        record(tenant)
        transaction.set_rollback(True)
    assert record(tenant).sequence == 2
    assert chain.check(tenant).broken == ""


def _past_the_triggers(rows: Any, **columns: Any) -> None:
    with no_triggers(AuditEntry):
        rows.update(**columns)


BULK = """
import sys, uuid
import django
django.setup()
from sends.lifecycle import requeue
from sends.models import Person
person = Person.objects.get(pk=sys.argv[1])
sys.stdin.readline()
for intent_id in sys.argv[2:]:
    requeue.close(uuid.UUID(intent_id), person=person, reason="looked at")
"""


@pytest.mark.django_db(transaction=True)
def test_bulk_decisions_of_two_processes_at_once_do_not_fork_the_chain(
    process_env: dict[str, str], database_url: str
) -> None:
    agent = make_agent_at()
    person = make_person(agent.tenant, Role.OPERATOR)
    dead = [make_intent(agent, status=Status.DEAD_LETTER) for _ in range(20)]
    halves = (dead[::2], dead[1::2])

    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BULK, str(person.pk), *(str(one.pk) for one in half)],
            cwd=settings.BASE_DIR,
            env=process_env | {"OUTBOX_DATABASE_URL": database_url},
            stdin=subprocess.PIPE,
            text=True,
        )
        for half in halves
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=120)
    assert [process.returncode for process in processes] == [0, 0]

    found = chain.check(agent.tenant)
    assert (found.broken, found.entries, found.end.sequence) == ("", 20, 20)
