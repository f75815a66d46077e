"""What the adapters share: facts of an answer, texts that can be kept, look-ups, fingerprints."""

import inspect
from datetime import UTC, datetime, timedelta

import pytest

from sends.providers.adapter import (
    KEPT_BYTES,
    Found,
    LookUp,
    ProviderError,
    facts_of,
    fingerprint,
    identifier,
    json_object,
    moment,
    text,
    without_secrets,
)
from sends.providers.http import Answer
from sends.rules.deliveries import EventKind
from sends.rules.outcomes import Happened, Outcome, Phase

from .conformance import Canned
from .test_sandbox import TestSandbox as Samples

DELIVERED = {
    "provider": "sandbox",
    "message": "sbx_1",
    "recipient": "ann@example.org",
    "kind": EventKind.DELIVERED,
    "occurred_at": datetime(2026, 11, 30, tzinfo=UTC),
    "raw": "r1",
}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2),
        ({"retry-after": "2", "date": "never"}, 2),
        (
            {
                "retry-after": "Mon, 30 Nov 2026 10:00:07 GMT",
                "date": "Mon, 30 Nov 2026 10:00:00 GMT",
            },
            7,
        ),
        (
            {"retry-after": "Mon Nov 30 10:00:07 2026", "date": "Mon Nov 30 10:00:00 2026"},
            7,
        ),
        ({"retry-after": "Mon, 30 Nov 1998 10:00:07 GMT"}, None),
    ],
)
def test_the_wait_that_an_answer_asks_for(headers: dict[str, str], seconds: int | None) -> None:
    wait = facts_of(Answer(Phase.ANSWERED, status=429, headers=headers)).retry_after
    assert wait == (None if seconds is None else timedelta(seconds=seconds))


def test_an_adapter_that_fails_to_read_an_answer_leaves_doubt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    samples = Samples()

    def fail(*_: object) -> Happened:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(samples.adapter, "read", fail)
    happened = samples.adapter.submit(
        samples.request(), samples.account, Canned(Answer(Phase.ANSWERED, status=400, body=b"no"))
    )
    assert (happened.says, happened.error) == (Outcome.AMBIGUOUS, "unreadable")
    assert (happened.status, happened.body) == (400, "no")
    assert "a fault of ours" in caplog.text


@pytest.mark.parametrize(
    ("secrets", "said", "kept"),
    [
        (["s3"], "key s3, Bearer s3", "key [hidden], Bearer [hidden]"),
        (["s3", "s3cret"], "s3cret s3", "[hidden] [hidden]"),
        (["s3", "Bearer s3"], "Bearer s3", "[hidden]"),
        ([""], "unchanged", "unchanged"),
        (["s3"], "nul\x00 \ud800", "nul ?"),
    ],
)
def test_secrets_are_hidden_and_texts_made_fit(secrets: list[str], said: str, kept: str) -> None:
    happened = Happened(Phase.ANSWERED, body=said, message=said, code=said)
    clean = without_secrets(happened, secrets)
    assert (clean.body, clean.message, clean.code) == (kept, kept, kept)


def test_a_secret_at_the_edge_of_what_is_kept_is_hidden_whole() -> None:
    said = "x" * (KEPT_BYTES - 3) + "s3cret"
    clean = without_secrets(Happened(Phase.ANSWERED, body=said), ["s3cret"])
    assert "s3c" not in clean.body
    assert len(clean.body.encode()) <= KEPT_BYTES


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("Zürich", "Zürich"),
        ("a\x00b", "ab"),
        ("\ud800x", "?x"),
        ("é" * 4, "é" * 2),
        (None, ""),
        (5, ""),
        (["a"], ""),
    ],
)
def test_a_text_fits_the_database(value: object, kept: str) -> None:
    assert text(value, 5 if value == "é" * 4 else 100) == kept


@pytest.mark.parametrize("value", [None, "", 5, "a\nb", "a\x00", "\ud800", "x" * 256])
def test_what_cannot_be_asked_for_again_is_no_identifier(value: object) -> None:
    assert identifier(value) == ""
    assert identifier("<A1@example.com>") == "<A1@example.com>"


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("2026-11-30T10:00:00Z", datetime(2026, 11, 30, 10, tzinfo=UTC)),
        ("2026-11-30T10:00:00+02:00", datetime(2026, 11, 30, 8, tzinfo=UTC)),
        ("2026-11-30T10:00:00", datetime(2026, 11, 30, 10, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        (1_700_000_000, None),
        (None, None),
    ],
)
def test_a_moment_has_its_zone(value: object, read: datetime | None) -> None:
    assert moment(value) == read


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"\xff{}", b"{", b"[" * 100_000])
def test_what_is_no_json_object_is_an_empty_one(body: bytes) -> None:
    assert json_object(body) == {}


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        ({}, True),
        ({"raw": "r2"}, True),
        ({"message": "sbx_2"}, False),
        ({"recipient": "bob@example.org"}, False),
        ({"kind": EventKind.BOUNCED}, False),
        ({"occurred_at": datetime(2026, 11, 29, tzinfo=UTC)}, False),
        ({"provider": "other"}, False),
        ({"occurred_at": None}, False),
    ],
)
def test_a_fingerprint_is_of_the_happening(change: dict[str, object], is_same: bool) -> None:
    changed = fingerprint(**{**DELIVERED, **change})  # type: ignore[arg-type]
    assert (changed == fingerprint(**DELIVERED)) is is_same  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [{"message": ""}, {"occurred_at": None}])
def test_without_message_or_moment_only_the_very_same_content_is_the_same(
    missing: dict[str, object],
) -> None:
    bare = {**DELIVERED, **missing}
    first = fingerprint(**bare)  # type: ignore[arg-type]
    assert first == fingerprint(**bare)  # type: ignore[arg-type]
    assert first != fingerprint(**{**bare, "raw": "r2"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("look_up", "proves", "summary"),
    [
        (LookUp("tag", "t"), False, "asked for tag t: no messages found"),
        (LookUp("tag", "t", (Found("1"),)), True, "asked for tag t: 1 message found"),
        (LookUp("tag", "t", (Found("1"), Found("2"))), False, "asked for tag t: 2 messages found"),
        (
            LookUp("key", "k", error="deadline"),
            False,
            "asked for key k: no usable answer (deadline)",
        ),
    ],
)
def test_only_one_hit_proves(look_up: LookUp, proves: bool, summary: str) -> None:
    assert (look_up.proves is not None) is proves
    assert look_up.summary == summary


def test_the_tree_of_errors_is_the_one_that_is_drawn() -> None:
    def names(root: type[Exception]) -> list[str]:
        below = sorted(root.__subclasses__(), key=lambda one: one.__name__)
        return [root.__name__, *(name for one in below for name in names(one))]

    # Python 3.13 takes the margin and the last line break out of a docstring; getdoc always did.
    tree = (inspect.getdoc(ProviderError) or "").splitlines()[2:]
    drawn = [line.strip(" │├└─").split()[0] for line in tree]
    assert sorted(drawn) == sorted(names(ProviderError))
