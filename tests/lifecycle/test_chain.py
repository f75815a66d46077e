"""The chain of the audit log: what a check finds, an export vouches for, and a cut leaves."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import DatabaseError, transaction
from django.test import override_settings

from sends.lifecycle import audit, chain
from sends.lifecycle.chain import Cut, End, WrongExport
from sends.lifecycle.refusals import NotPossible
from sends.models import AuditCheckpoint, AuditEntry, Tenant, database_now
from tests.factories import make_tenant
from tests.lifecycle.races import at_once
from tests.lifecycle.tampering import no_triggers

LONG_AGO = timedelta(days=400)
YEAR = timedelta(days=365)


def record(tenant: Tenant, *, age: timedelta = timedelta(0), verb: str = "approve") -> AuditEntry:
    with transaction.atomic():
        return audit.record(
            tenant=tenant,
            actor="lead@example.com",
            verb=verb,
            target="message:7/v1",
            reason="it is right, «so» it is",
            facts={"n": 1},
            now=database_now() - age,
        )


@pytest.fixture
def tenant(db: None) -> Tenant:
    """With three old entries and two new ones, and a policy that keeps them for a year."""
    tenant = make_tenant(keep_audit=YEAR)
    for age in (LONG_AGO, LONG_AGO, LONG_AGO, timedelta(0), timedelta(0)):
        record(tenant, age=age)
    return tenant


def exported(tenant: Tenant) -> End:
    *_, last = chain.export(tenant)
    return chain.end_of(tenant, last)


def cut(tenant: Tenant) -> Cut:
    return chain.cut_off(tenant, exported=exported(tenant))


def without_triggers(rows: Any, **columns: Any) -> None:
    with no_triggers(rows.model):
        if columns:
            rows.update(**columns)
        else:
            rows.delete()


def test_an_export_has_every_entry_and_names_its_end(tenant: Tenant) -> None:
    *lines, last = [json.loads(line) for line in chain.export(tenant)]
    newest = AuditEntry.objects.get(tenant=tenant, sequence=5)
    assert [line["sequence"] for line in lines] == [1, 2, 3, 4, 5]
    assert lines[4]["hash"] == last["hash"] == newest.hash
    assert (last["entries"], last["sequence"]) == (5, 5)
    assert (lines[0]["reason"], lines[0]["facts"]) == ("it is right, «so» it is", {"n": 1})


def test_an_export_of_an_empty_log_holds() -> None:
    tenant = Tenant(slug="nobody")
    assert chain.end_of(tenant, chain._line(_end_line(tenant))) == End(0, audit.BEGINNING)


def _end_line(tenant: Tenant) -> dict[str, Any]:
    end = End(0, audit.BEGINNING)
    signature = chain._sign(chain.EXPORT, tenant, end)
    return {"tenant": tenant.slug, "sequence": 0, "hash": end.hash, "signature": signature}


def test_facts_that_somebody_made_unreadable_are_exported_all_the_same(tenant: Tenant) -> None:
    without_triggers(AuditEntry.objects.filter(sequence=2), facts=b"\xff{")
    lines = [json.loads(line) for line in chain.export(tenant)]
    assert lines[1]["facts"] == {"unreadable": "ff7b"}


def test_a_log_that_went_on_from_an_export_holds(tenant: Tenant) -> None:
    before = exported(tenant)
    record(tenant)
    found = chain.check(tenant, against=before)
    assert (found.broken, found.entries, found.end.sequence) == ("", 6, 6)


def test_entries_gone_from_the_end_are_missed_against_an_export(tenant: Tenant) -> None:
    before = exported(tenant)
    without_triggers(AuditEntry.objects.filter(sequence__gte=4))
    assert chain.check(tenant).broken == ""
    assert chain.check(tenant, against=before).broken == (
        f"entries 4 to 5 of {tenant}, which were exported, are gone from the end of the log"
    )


def test_an_end_that_was_written_anew_is_found_against_an_export(tenant: Tenant) -> None:
    before = exported(tenant)
    without_triggers(AuditEntry.objects.filter(sequence=5))
    record(tenant, verb="reject")
    record(tenant)
    assert chain.check(tenant).broken == ""
    assert "entry 5" in chain.check(tenant, against=before).broken


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "cut off"),
        ("[1]", "cut off"),
        ('{"sequence": 5, "hash": "x"}', "cut off"),
        ('{"tenant": "other", "sequence": 1, "hash": "x", "signature": "y"}', "log of other"),
    ],
)
def test_what_is_no_export_is_refused_in_words(tenant: Tenant, line: str, words: str) -> None:
    with pytest.raises(WrongExport, match=words):
        chain.end_of(tenant, line)


def test_a_forged_export_is_refused(tenant: Tenant) -> None:
    *_, last = chain.export(tenant)
    with pytest.raises(WrongExport, match="not signed"):
        chain.end_of(tenant, last.replace('"sequence": 5', '"sequence": 4'))


def test_old_entries_are_cut_off_and_a_checkpoint_stands_for_them(tenant: Tenant) -> None:
    assert cut(tenant) == Cut(sequence=3, entries=3)

    assert list(AuditEntry.objects.order_by("sequence").values_list("sequence", "verb")) == [
        (4, "approve"),
        (5, "approve"),
        (6, "cut_off_audit"),
    ]
    found = chain.check(tenant)
    assert (found.broken, found.entries) == ("", 3)
    assert found.checkpoint is not None
    assert found.checkpoint.sequence == 3
    assert record(tenant).sequence == 7


def test_a_second_cut_finds_nothing_more(tenant: Tenant) -> None:
    cut(tenant)
    assert cut(tenant).entries == 0
    assert AuditEntry.objects.count() == 3


def test_what_was_not_exported_is_not_cut_off(tenant: Tenant) -> None:
    entry = AuditEntry.objects.get(sequence=2)
    assert chain.cut_off(tenant, exported=End(2, entry.hash)) == Cut(2, 2)
    assert chain.check(tenant).broken == ""


def test_a_log_that_is_kept_for_ever_is_not_cut(db: None) -> None:
    tenant = make_tenant()
    record(tenant, age=LONG_AGO)
    with pytest.raises(NotPossible, match="kept for ever"):
        cut(tenant)


def test_a_log_whose_every_entry_is_old_goes_on(db: None) -> None:
    tenant = make_tenant(keep_audit=YEAR)
    record(tenant, age=LONG_AGO)
    cut(tenant)
    record(tenant)
    assert list(AuditEntry.objects.values_list("sequence", flat=True).order_by("sequence")) == [
        2,
        3,
    ]
    assert chain.check(tenant).broken == ""


def test_a_cut_that_was_interrupted_is_completed(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(chain, "_delete_old", lambda tenant: Cut(0, 0))
        cut(tenant)
    assert AuditEntry.objects.count() == 6
    assert chain.check(tenant).broken == ""

    assert cut(tenant).entries == 3
    assert AuditCheckpoint.objects.count() == 1
    assert chain.check(tenant).broken == ""


def test_an_export_from_before_a_cut_still_compares(tenant: Tenant) -> None:
    early = End(2, AuditEntry.objects.get(sequence=2).hash)
    at_the_cut = End(3, AuditEntry.objects.get(sequence=3).hash)
    late = exported(tenant)
    cut(tenant)
    for against in (early, at_the_cut, late):
        assert chain.check(tenant, against=against).broken == ""
    assert chain.check(tenant, against=End(3, "0" * 64)).broken != ""


def test_a_removed_beginning_without_a_checkpoint_is_found(tenant: Tenant) -> None:
    without_triggers(AuditEntry.objects.filter(sequence__lte=2))
    assert chain.check(tenant).broken == (
        f"entries 1 to 2 of {tenant} are missing, and no checkpoint stands for them"
    )


def test_a_removed_checkpoint_is_found(tenant: Tenant) -> None:
    cut(tenant)
    without_triggers(AuditCheckpoint.objects.filter(tenant=tenant))
    assert "no checkpoint stands for them" in chain.check(tenant).broken


def test_a_forged_checkpoint_is_found(tenant: Tenant) -> None:
    """Its maker had an export: the signature in there is one of another purpose."""
    *_, last = chain.export(tenant)
    signature = json.loads(last)["signature"]
    entry = AuditEntry.objects.get(sequence=5)
    AuditCheckpoint.objects.create(
        tenant=tenant,
        sequence=5,
        hash=entry.hash,
        made_at=database_now(),
        signature=signature,
    )
    assert "the checkpoint at entry 5" in chain.check(tenant).broken


def test_a_checkpoint_that_was_moved_is_found(tenant: Tenant) -> None:
    cut(tenant)
    fourth = AuditEntry.objects.get(sequence=4)
    without_triggers(AuditCheckpoint.objects.filter(tenant=tenant), sequence=4, hash=fourth.hash)
    assert "not signed by this installation" in chain.check(tenant).broken


def test_a_signature_outlives_its_key_as_long_as_that_is_named(tenant: Tenant) -> None:
    *_, last = chain.export(tenant)
    cut(tenant)
    with override_settings(SECRET_KEY="another-key" * 6, SECRET_KEY_FALLBACKS=[]):
        assert "SECRET_KEY_FALLBACKS" in chain.check(tenant).broken
    with override_settings(
        SECRET_KEY="another-key" * 6, SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]
    ):
        assert chain.check(tenant).broken == ""
        assert chain.end_of(tenant, last).sequence == 5


def test_the_database_lets_go_only_what_a_checkpoint_stands_for(tenant: Tenant) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        AuditEntry.objects.filter(sequence=1).delete()
    cut(tenant)
    with pytest.raises(DatabaseError), transaction.atomic():
        AuditEntry.objects.filter(sequence=4).delete()
    with pytest.raises(DatabaseError), transaction.atomic():
        AuditCheckpoint.objects.all().delete()
    with pytest.raises(DatabaseError), transaction.atomic():
        AuditCheckpoint.objects.update(signature="x")


def test_a_checkpoint_that_names_no_entry_is_refused(tenant: Tenant) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        AuditCheckpoint.objects.create(
            tenant=tenant, sequence=4, hash="0" * 64, made_at=database_now(), signature="x"
        )


@pytest.mark.django_db(transaction=True)
def test_cutting_while_others_decide_keeps_the_chain_whole() -> None:
    tenant = make_tenant(keep_audit=YEAR)
    for _ in range(10):
        record(tenant, age=LONG_AGO)

    def decide() -> None:
        for _ in range(5):
            record(tenant)

    answers = at_once(decide, lambda: cut(tenant), decide, lambda: cut(tenant))

    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert chain.check(tenant).broken == ""
    assert AuditEntry.objects.filter(verb="approve").count() == 10
