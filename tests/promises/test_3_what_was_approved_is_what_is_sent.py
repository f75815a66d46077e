"""Promise 3: the bytes on the wire are those whose digest a person approved."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from sends.lifecycle import editing, refusals, review, worker
from sends.lifecycle.intake import propose
from sends.models import Anomaly, AnomalyKind, Payload, Role, SendIntent, new_id, triggers
from sends.rules.payloads import Message, thaw
from sends.rules.proposals import WrongProposal, parse
from sends.rules.statuses import Status
from tests.factories import make_person
from tests.lifecycle.races import at_once
from tests.promises.stage import Stage

pytestmark = pytest.mark.django_db(transaction=True)

S = Status


def fresh(intent: SendIntent) -> SendIntent:
    return SendIntent.objects.get(pk=intent.pk)


def reworded(intent: SendIntent, text: str) -> Message:
    return replace(thaw(bytes(intent.payload.body)).message, text=text)


def test_what_arrives_is_what_was_approved(stage: Stage) -> None:
    """To, Cc, Bcc, subject and Message-ID, each as the approver saw them."""
    intent = stage.approved(
        to=("delivered@example.org", "second@example.net"),  # type: ignore[arg-type]
        cc=("third@example.net",),
        bcc=("fourth@example.net",),
        subject="Ihr Auftrag 7731 – geändert",
        text="Zwei Zeilen\nmit Umlaut: ü\n",
    )

    stage.work()

    [message] = stage.sandbox.journal()
    assert message["subject"] == intent.subject
    assert message["message_id"] == intent.message_id
    assert sorted(message["recipients"]) == sorted(
        intent.deliveries.values_list("address", flat=True)
    )
    stage.witness.ends(S.SUBMITTED)


LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="/\\")
ATTACHED = st.fixed_dictionaries(
    {
        "filename": st.text(LETTERS, min_size=1, max_size=60),
        "content_type": st.sampled_from(("application/pdf", "text/plain; charset=utf-8", "a/b+c")),
        "content_base64": st.binary(max_size=2000).map(lambda data: b64encode(data).decode()),
        "inline": st.booleans(),
    }
)


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.lists(ATTACHED, min_size=1, max_size=4))
def test_attachments_arrive_byte_for_byte(stage: Stage, files: list[dict[str, Any]]) -> None:
    """Case D12: each by its name, in its order, also the empty ones and the odd names."""
    for number, file in enumerate(files):
        file["content_id"] = f"part-{number}@example.com"
    said = {"action_key": new_id().hex, "to": ["delivered@example.org"], "html": "<p>Hello"}
    try:
        proposal = parse(said | {"attachments": files})
    except WrongProposal:
        reject()  # a name that is refused never gets here

    intent = propose(proposal, agent=stage.agent).intent
    review.approve(intent.pk, person=stage.approver, digest=intent.digest)
    stage.work()

    assert stage.sandbox.journal()[-1]["attachments"] == [
        {
            "filename": file["filename"],
            "content_type": file["content_type"],
            "content_id": file["content_id"],
            "disposition": "inline" if file["inline"] else "attachment",
            "size": len(data),
            "sha256": sha256(data).hexdigest(),
        }
        for file in files
        for data in [b64decode(file["content_base64"])]
    ]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("sends_payload", "body", b"{}"),
        ("sends_sendintent", "digest", "0" * 64),
        ("sends_sendintent", "subject", "Something else"),
        ("sends_sendintent", "idempotency_key", "0" * 40),
        ("sends_sendintent", "approved_digest", "0" * 64),
        ("sends_delivery", "address", "somebody-else@example.org"),
    ],
)
def test_the_database_refuses_an_edit(stage: Stage, table: str, column: str, value: object) -> None:
    """Cases B3, B4: no code of ours, and no statement typed by hand, changes what was approved."""
    stage.approved()

    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = %s", [value])

    stage.work()
    stage.witness.ends(S.SUBMITTED)


@contextmanager
def without_triggers() -> Iterator[None]:
    """As somebody who owns the database could change it."""
    is_postgresql = connection.vendor == "postgresql"
    with connection.cursor() as cursor:
        if is_postgresql:
            cursor.execute("ALTER TABLE sends_payload DISABLE TRIGGER USER")
        else:
            triggers.drop(connection)
        yield
        if is_postgresql:
            cursor.execute("ALTER TABLE sends_payload ENABLE TRIGGER USER")
        else:
            triggers.install(connection)


def alter(intent: SendIntent) -> None:
    payload = Payload.objects.get(intent=intent)
    body = bytes(payload.body).replace(b"Hello", b"Pay me")
    assert body != bytes(payload.body)
    with without_triggers():
        Payload.objects.filter(pk=payload.pk).update(body=body)


def test_bytes_altered_after_the_approval_are_not_sent(stage: Stage) -> None:
    """Case B3: the seal is computed again before every attempt; a mismatch stops and alarms."""
    intent = stage.approved()
    alter(intent)

    stage.take_turns(2)

    assert stage.sandbox.stats()["requests"] == 0
    assert Anomaly.objects.get().kind == AnomalyKind.DIGEST_DIFFERS
    assert fresh(intent).status == S.QUEUED
    assert fresh(intent).holds


def test_bytes_altered_between_two_attempts_are_not_sent(stage: Stage) -> None:
    intent = stage.approved("busy-503")
    stage.send(1)
    requests = stage.sandbox.stats()["requests"]
    alter(intent)

    SendIntent.objects.filter(pk=intent.pk).update(next_attempt_at=fresh(intent).created_at)
    stage.take_turns(2)

    assert stage.sandbox.stats()["requests"] == requests
    assert Anomaly.objects.get().kind == AnomalyKind.DIGEST_DIFFERS
    assert stage.sandbox.journal() == []


def test_bytes_altered_before_the_approval_are_not_approved(stage: Stage) -> None:
    intent = stage.proposed()
    alter(intent)

    with pytest.raises(refusals.DigestDiffers):
        review.approve(intent.pk, person=stage.approver, digest=intent.digest)

    stage.take_turns(1)
    assert fresh(intent).status == S.AWAITING_APPROVAL
    assert stage.sandbox.stats()["requests"] == 0


def test_an_approval_is_of_the_digest_on_the_screen(stage: Stage) -> None:
    """Case B4: whoever saw version 1 does not approve version 2."""
    intent = stage.proposed()
    other = make_person(stage.tenant, Role.APPROVER)
    newer = editing.edit(
        intent.pk,
        person=other,
        message=reworded(intent, "Goodbye"),
        digest=intent.digest,
        reason="says it better",
    )

    for target in (intent, newer):
        with pytest.raises(refusals.VersionChanged):
            review.approve(target.pk, person=stage.approver, digest=intent.digest)
    stage.take_turns(1)
    assert stage.sandbox.stats()["requests"] == 0

    review.approve(newer.pk, person=stage.approver, digest=newer.digest)
    stage.work()
    [message] = stage.sandbox.journal()
    assert message["tag"] == newer.pk.hex
    assert fresh(intent).status == S.SUPERSEDED
    stage.witness.ends()


def test_after_an_edit_the_original_never_leaves(stage: Stage) -> None:
    """Case B5: approved, edited, and the new version rejected: nothing is sent at all."""
    intent = stage.approved()
    newer = editing.edit(
        intent.pk,
        person=stage.operator,
        message=reworded(intent, "Goodbye"),
        digest=intent.digest,
        reason="says it better",
    )
    review.reject(
        newer.pk,
        person=stage.approver,
        digest=newer.digest,
        note="neither of the two",
        reason_code="not_needed",
    )

    stage.take_turns(2)

    assert stage.sandbox.stats()["requests"] == 0
    stage.witness.ends(S.SUPERSEDED, S.REJECTED)


def test_who_wrote_a_version_is_not_its_only_approver(stage: Stage) -> None:
    """Case B2, in the service and not only on the screen."""
    intent = stage.proposed()
    newer = editing.edit(
        intent.pk,
        person=stage.approver,
        message=reworded(intent, "Goodbye"),
        digest=intent.digest,
        reason="says it better",
    )

    with pytest.raises(refusals.NotAllowed):
        review.approve(newer.pk, person=stage.approver, digest=newer.digest)
    stage.take_turns(1)

    assert stage.sandbox.stats()["requests"] == 0
    stage.witness.ends()


def test_an_edit_and_an_approval_race(stage: Stage) -> None:
    """What leaves is what its approver saw, or nothing."""
    pairs = []
    for number in range(6):
        intent = stage.proposed(f"delivered+{number}")
        pairs.append((intent, reworded(intent, f"Version 2 of {number}")))

    def edit_all() -> None:
        for intent, message in pairs:
            try:
                editing.edit(
                    intent.pk,
                    person=stage.operator,
                    message=message,
                    digest=intent.digest,
                    reason="says it better",
                )
            except refusals.Refused:
                continue

    def approve_all() -> None:
        for intent, _ in pairs:
            try:
                review.approve(intent.pk, person=stage.approver, digest=intent.digest)
            except refusals.Refused:
                continue

    answers = at_once(edit_all, approve_all, worker.drain)
    assert [a for a in answers if isinstance(a, Exception)] == []
    stage.take_turns(2)

    stage.witness.ends()
    tags = {message["tag"] for message in stage.sandbox.journal()}
    assert tags <= {intent.pk.hex for intent, _ in pairs}, "nobody approved a second version"


def test_every_attempt_sends_the_same_bytes(stage: Stage) -> None:
    """Case B10: Message-ID, key and body are made once; a retry is a repeat."""
    stage.policy = {"backoff_cap": timedelta(milliseconds=20)}
    stage.approved("busy-503", text="Line\n" * 50)

    stage.work()

    requests = stage.sandbox.requests()
    assert len(requests) == 3
    assert len({(r["key"], r["tag"], r["bytes"]) for r in requests}) == 1
    stage.witness.ends(S.SUBMITTED)
