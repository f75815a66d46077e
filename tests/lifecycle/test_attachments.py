"""Attachments are kept once a tenant, carried by intents, and hashed again before they are sent."""

import base64
from dataclasses import replace
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from sends.lifecycle import attachments, claim, editing, review
from sends.lifecycle.intake import ActionKeyReuse, propose, propose_version
from sends.lifecycle.versions import BeyondAccount
from sends.models import (
    Agent,
    Anomaly,
    AnomalyKind,
    AttachmentContent,
    AttachmentUse,
    Payload,
    Role,
    SendIntent,
)
from sends.providers.registry import adapter_for
from sends.rules.keys import sha256
from sends.rules.payloads import Message, thaw
from sends.rules.proposals import Proposal, WrongProposal, parse
from sends.rules.statuses import Status
from tests.factories import make_agent_at, make_person
from tests.lifecycle.races import at_once
from tests.lifecycle.tampering import no_triggers

pytestmark = pytest.mark.django_db

RECEIPT = b"%PDF-1.7 a receipt"


@pytest.fixture
def agent() -> Agent:
    return make_agent_at()


def file(data: bytes = RECEIPT, name: str = "receipt.pdf", **fields: Any) -> dict[str, Any]:
    given = {"filename": name, "content_type": "application/pdf"} | fields
    return given | {"content_base64": base64.b64encode(data).decode()}


def proposal(*files: dict[str, Any], key: str | None = "refund:7731", **fields: Any) -> Proposal:
    given = {"to": ["jo@example.org"], "text": "Hello", "attachments": list(files)} | fields
    return parse(given | {"action_key": key}, needs_key=key is not None)


def took(agent: Agent, *files: dict[str, Any], **fields: Any) -> SendIntent:
    return propose(proposal(*files, **fields), agent=agent).intent


def message_of(intent: SendIntent) -> Message:
    return thaw(bytes(Payload.objects.get(intent=intent).body)).message


def contents_of(intent: SendIntent) -> list[bytes]:
    """The bytes of its attachments, in their order."""
    message = message_of(intent)
    found = attachments.contents_of(intent.pk, message.attachments)
    return [found[one.sha256] for one in message.attachments]


def names_of(intent: SendIntent) -> list[str]:
    return [one.filename for one in message_of(intent).attachments]


# Kept once


def test_the_bytes_are_kept_apart_from_the_message(agent: Agent) -> None:
    intent = took(agent, file(), file(b"", "empty.txt"))

    assert contents_of(intent) == [RECEIPT, b""]
    kept = AttachmentContent.objects.get(sha256=sha256(RECEIPT))
    assert (kept.tenant, kept.size, bytes(kept.body)) == (agent.tenant, len(RECEIPT), RECEIPT)
    body = bytes(Payload.objects.get().body)
    assert base64.b64encode(RECEIPT) not in body
    assert sha256(RECEIPT).encode() in body


def test_a_file_is_kept_once_a_tenant_whatever_it_is_called(agent: Agent) -> None:
    twice = took(agent, file(name="a.pdf"), file(name="b.pdf"))
    again = took(agent, file(name="c.pdf"), key="refund:2")
    elsewhere = took(make_agent_at(), file())

    assert AttachmentContent.objects.filter(tenant=agent.tenant).count() == 1
    assert AttachmentContent.objects.count() == 2
    assert AttachmentUse.objects.count() == 3
    assert contents_of(twice) == [RECEIPT, RECEIPT]
    assert contents_of(again) == contents_of(elsewhere) == [RECEIPT]


@pytest.mark.django_db(transaction=True)
def test_racing_intakes_of_the_same_files_keep_each_once(agent: Agent) -> None:
    files = [file(bytes([n]) * 10_000, f"{n}.bin") for n in range(4)]

    def take(n: int) -> Any:
        # Each names them in another order: whoever waits for another must not be waited for.
        return took(agent, *files[n % 4 :], *files[: n % 4], key=f"order:{n}")

    answers = at_once(*[lambda n=n: take(n) for n in range(8)])  # type: ignore[misc]

    assert all(isinstance(answer, SendIntent) for answer in answers), answers
    assert AttachmentContent.objects.count() == 4
    assert AttachmentUse.objects.count() == 32


def test_what_no_intent_carries_any_more_is_found(agent: Agent) -> None:
    kept = took(agent, file(b"one"), file(b"both"))
    over = took(agent, file(b"two"), file(b"both"), key="refund:2")
    assert not AttachmentContent.objects.unused().exists()

    with no_triggers(AttachmentUse):
        AttachmentUse.objects.filter(intent=over).delete()

    unused = AttachmentContent.objects.unused()
    assert [content.sha256 for content in unused] == [sha256(b"two")]
    with CaptureQueriesContext(connection) as asked:
        unused.delete()
    assert not any('"body"' in query["sql"] for query in asked.captured_queries)
    assert contents_of(kept) == [b"one", b"both"]


@pytest.mark.django_db(transaction=True)
def test_a_file_that_is_purged_while_it_is_taken_in_is_kept_anew(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, purged = attachments.keep, []

    def keep_and_purge(*args: Any, **kwargs: Any) -> None:
        keep(*args, **kwargs)
        if not purged:
            purged.append(AttachmentContent.objects.unused().delete())

    monkeypatch.setattr(attachments, "keep", keep_and_purge)

    first = took(agent, file())
    assert contents_of(first) == [RECEIPT]
    assert len(purged) == 1

    purged.clear()
    next_ = propose_version(first.pk, proposal(file(b"corrected"), key=None), agent=agent).intent
    assert contents_of(next_) == [b"corrected"]
    assert len(purged) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE sends_attachmentcontent SET body = ''",
        "UPDATE sends_attachmentcontent SET sha256 = 'x'",
        "UPDATE sends_attachmentcontent SET size = 0",
        "UPDATE sends_attachmentuse SET id = id + 1",
        "DELETE FROM sends_attachmentuse",
    ],
)
def test_the_database_keeps_what_an_intent_carries_as_it_is(agent: Agent, sql: str) -> None:
    intent = took(agent, file())

    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    assert contents_of(intent) == [RECEIPT]


@pytest.mark.django_db(transaction=True)
def test_the_bytes_of_a_carried_file_are_not_deleted(agent: Agent) -> None:
    intent = took(agent, file())
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM sends_attachmentcontent")
    assert contents_of(intent) == [RECEIPT]


# One key, one content


@pytest.mark.parametrize(
    "other",
    [
        (file(RECEIPT + b"."),),
        (file(name="Receipt.pdf"),),
        (file(content_type="application/octet-stream"),),
        (file(content_id="receipt"),),
        (file(), file()),
        (),
    ],
)
def test_other_attachments_are_another_message(agent: Agent, other: tuple[Any, ...]) -> None:
    took(agent, file())
    with pytest.raises(ActionKeyReuse):
        took(agent, *other)
    assert SendIntent.objects.count() == 1
    assert AttachmentContent.objects.count() == 1


def test_the_same_attachments_are_a_replay(agent: Agent) -> None:
    first = took(agent, file())
    again = propose(proposal(file()), agent=agent)
    assert (again.intent, again.replayed) == (first, True)


# The next version


def test_a_version_that_says_nothing_of_them_keeps_them(agent: Agent) -> None:
    first = took(agent, file(), file(b"two", "two.txt"))
    said = proposal(key=None, text="Hello again", attachments=None)

    second = propose_version(first.pk, said, agent=agent)
    again = propose_version(first.pk, said, agent=agent)

    assert contents_of(second.intent) == [RECEIPT, b"two"]
    assert names_of(second.intent) == ["receipt.pdf", "two.txt"]
    assert (again.intent, again.replayed) == (second.intent, True)


def test_a_version_may_change_them_or_take_them_off(agent: Agent) -> None:
    first = took(agent, file(), file(b"two", "two.txt"))

    second = propose_version(first.pk, proposal(file(b"three"), key=None), agent=agent).intent
    third = propose_version(second.pk, proposal(key=None), agent=agent).intent

    assert contents_of(second) == [b"three"]
    assert contents_of(third) == []
    assert contents_of(first) == [RECEIPT, b"two"]  # until retention deletes its payload


def test_what_html_shows_is_not_kept_without_it(agent: Agent) -> None:
    logo = file(content_id="logo", inline=True)
    first = took(agent, logo, html='<img src="cid:logo">')

    with pytest.raises(WrongProposal, match="/attachments: some are shown by html"):
        propose_version(first.pk, proposal(key=None, attachments=None), agent=agent)


def test_an_edit_and_a_follow_up_carry_what_they_are_given(agent: Agent) -> None:
    first = took(agent, file(), file(b"two", "two.txt"))
    person = make_person(agent.tenant, Role.APPROVER)
    message = message_of(first)
    fewer = Message(message.sender, message.to, text="Edited", attachments=message.attachments[1:])

    edited = editing.edit(
        first.pk, person=person, message=fewer, digest=first.digest, reason="one is wrong"
    )

    assert contents_of(edited) == [b"two"]
    assert AttachmentUse.objects.filter(intent=edited).count() == 1


# What the account takes


def test_a_message_too_large_for_its_account_names_the_limit(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(agent, monkeypatch, max_bytes=30_000)

    took(agent, file(b"x" * 20_000), key="fits")
    with pytest.raises(BeyondAccount) as caught:
        took(agent, file(b"x" * 30_000))

    [wrong] = caught.value.errors
    assert (wrong.pointer, wrong.code) == ("/attachments", "too_large")
    assert "takes at most 30,000 bytes" in wrong.detail
    assert agent.sender is not None
    assert agent.sender.account.slug in caught.value.words
    assert SendIntent.objects.count() == AttachmentContent.objects.count() == 1


def test_what_a_provider_cannot_carry_is_refused_by_name(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    logo = file(content_id="logo", inline=True)

    limited(agent, monkeypatch, takes_inline=False)
    took(agent, file(), key="a-file")
    with pytest.raises(BeyondAccount, match="no attachments that the HTML shows"):
        took(agent, logo, html="<p>Hi")

    limited(agent, monkeypatch, takes_attachments=False)
    with pytest.raises(BeyondAccount, match="takes no attachments"):
        took(agent, file())
    took(agent)


def limited(agent: Agent, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    """Let the agent's provider have another contract."""
    assert agent.sender is not None
    adapter = adapter_for(agent.sender.account.provider)
    contract = adapter.contract({})
    monkeypatch.setattr(type(adapter), "contract", lambda self, options: replace(contract, **facts))


# Sending


def approved(intent: SendIntent) -> None:
    person = make_person(intent.tenant, Role.APPROVER)
    review.approve(intent.pk, person=person, digest=intent.digest)


@pytest.mark.django_db(transaction=True)
def test_no_more_is_claimed_at_once_than_there_is_room_for(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_KEY", "sandbox_test_key")
    claim.installation_id.cache_clear()
    for key in ("a", "b", "c"):
        approved(took(agent, file(b"x" * 100_000), key=key))

    two = claim.claim("a worker", at_most=5, room=300_000)
    one = claim.claim("a worker", at_most=5, room=1)  # else it would never go

    assert [len(two), len(one)] == [2, 1]
    assert all(133_000 < claimed.size < 140_000 for claimed in two + one)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", ["altered", "gone"])
def test_what_is_no_longer_what_was_approved_is_an_anomaly(
    agent: Agent, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_KEY", "sandbox_test_key")
    claim.installation_id.cache_clear()
    intent = took(agent, file())
    approved(intent)
    if change == "altered":
        with no_triggers(AttachmentContent):
            AttachmentContent.objects.update(body=b"another")
    else:
        with no_triggers(AttachmentUse):
            AttachmentUse.objects.all().delete()

    assert claim.claim("a worker", at_most=1) == []

    assert Anomaly.objects.get().kind == AnomalyKind.DIGEST_DIFFERS
    assert SendIntent.objects.get().status == Status.QUEUED
    assert claim.claim("a worker", at_most=1) == []  # held from now on
