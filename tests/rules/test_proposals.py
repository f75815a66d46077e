"""Proposals: what is read, what is refused, and that everything wrong is named at once."""

import contextlib
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.payloads import Mailbox
from sends.rules.proposals import MOST_NAMED, Proposal, Withdrawal, WrongProposal, parse, parse_as
from tests.rules.documents import JSON

SENDER = Mailbox("support@mail.example.com", "Support")
LEAST: dict[str, Any] = {"action_key": "a", "to": ["jo@example.org"], "text": "Hello"}


def wrong(document: Any, **options: Any) -> dict[str, str]:
    """Pointer and code of everything that is wrong with it."""
    with pytest.raises(WrongProposal) as refused:
        parse(document, **options)
    return {found.pointer: found.code for found in refused.value.errors}


# The whole


@pytest.mark.parametrize(
    "flood",
    [
        {f"field{n}": 1 for n in range(1000)},
        {"to": ["nobody"] * 50, "cc": ["nobody"] * 50, "bcc": ["nobody"] * 50},
        {"headers": {f"X {n}": "v" for n in range(1000)}, "context": ["\x00"] * 1000},
    ],
)
def test_of_very_much_that_is_wrong_the_first_is_named(flood: dict[str, Any]) -> None:
    assert len(wrong(flood)) == MOST_NAMED


def test_too_many_are_counted_before_each_is_judged() -> None:
    flood = {"to": ["nobody"] * 1000, "references": ["x"] * 1000}
    assert wrong(LEAST | flood) == {"/to": "too_many", "/references": "too_many"}


@given(JSON)
def test_any_document_is_a_proposal_or_wrong_with_words(value: Any) -> None:
    with pytest.raises(WrongProposal) as refused:
        parse(value)
    assert all(found.code and found.detail for found in refused.value.errors)


def test_the_least_proposal() -> None:
    message = parse(LEAST).message(SENDER)
    assert message.to == (Mailbox("jo@example.org"),)
    assert message.sender == SENDER
    assert (message.text, message.html, message.subject) == ("Hello", None, "")


def test_null_is_left_out() -> None:
    nulls = dict.fromkeys(Proposal.model_fields) | LEAST
    assert parse(nulls) == parse(LEAST)


def test_everything_wrong_is_named_at_once_with_its_pointer() -> None:
    assert wrong(
        {
            "action_key": "has a blank",
            "run": "",
            "triggered_by": 7,
            "template": "x" * 256,
            "context_hash": "sha-256: no blanks",
            "sender": "nobody",
            "to": [{"name": 3, "address": "x", "extra": 1}, "a@example.org, b@example.org", 5],
            "cc": "Jo@Example.org",
            "bcc": ["jo@example.org"],
            "reply_to": [{}],
            "subject": ["a list"],
            "text": "nul \x00",
            "html": 1,
            "headers": {"Bcc": "x", "X-Note": "two\nlines", "x note": "", "X-Number": 1},
            "in_reply_to": "no brackets",
            "references": ["<a@b>", "c"],
            "reason": "half \ud800",
            "not_before": "2026-07-01T09:00:00",
            "deadline": "tomorrow",
            "metadata": {"a/b~c": "\x00"},
            "attachments": [{"filename": "a/b", "inline": "yes"}],
            "from": "x",
        }
    ) == {
        "/action_key": "action_key",
        "/run": "too_short",
        "/triggered_by": "wrong_type",
        "/template": "too_long",
        "/context_hash": "context_hash",
        "/sender": "address",
        "/to/0/name": "wrong_type",
        "/to/0/address": "address",
        "/to/0/extra": "unknown_field",
        "/to/1": "address",
        "/to/2": "wrong_type",
        "/bcc/0": "duplicate_recipient",
        "/reply_to/0/address": "required",
        "/subject": "wrong_type",
        "/text": "control_character",
        "/html": "wrong_type",
        "/headers/Bcc": "reserved_header",
        "/headers/X-Note": "control_character",
        "/headers/x note": "header_name",
        "/headers/X-Number": "wrong_type",
        "/in_reply_to": "message_id",
        "/references/1": "message_id",
        "/reason": "lone_surrogate",
        "/not_before": "time",
        "/deadline": "time",
        "/metadata/a~1b~0c": "control_character",
        "/attachments/0/filename": "file_name",
        "/attachments/0/content_type": "required",
        "/attachments/0/content_base64": "required",
        "/attachments/0/inline": "wrong_type",
        "/from": "unknown_field",
    }


@pytest.mark.parametrize("document", [None, [], "text", 7, True])
def test_a_proposal_is_an_object(document: Any) -> None:
    assert wrong(document) == {"": "wrong_type"}


def test_an_unknown_field_is_told_what_is_allowed() -> None:
    with pytest.raises(WrongProposal, match=r"/recipients: is not known here; allowed are .* to, "):
        parse(LEAST | {"recipients": []})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"text": None}, {"/text": "required"}),
        ({"text": ""}, {"/text": "required"}),
        ({"text": None, "html": "<p>x</p>"}, None),
        ({"text": "", "html": "<p>x</p>"}, None),
        ({"to": []}, {"/to": "required"}),
        ({"to": None}, {"/to": "required"}),
        ({"to": [], "bcc": ["jo@example.org"]}, None),
        ({"to": [f"r{n}@example.org" for n in range(50)]}, None),
        ({"to": [f"r{n}@example.org" for n in range(51)]}, {"/to": "too_many"}),
        (
            {
                "to": [f"r{n}@example.org" for n in range(30)],
                "cc": [f"c{n}@example.org" for n in range(30)],
            },
            {"/to": "too_many"},
        ),
        ({"purpose": "receipt"}, {"/purpose": "without_trigger"}),
        ({"purpose": "receipt", "triggered_by": "evt_1"}, None),
        ({"context": {}, "context_hash": "x"}, {"/context_hash": "two_contexts"}),
        (
            {"not_before": "2026-07-01T10:00:00Z", "deadline": "2026-07-01T09:00:00Z"},
            {"/deadline": "deadline"},
        ),
        (
            {"not_before": "2026-07-01T10:00:00Z", "deadline": "2026-07-01T12:00:00+02:00"},
            {"/deadline": "deadline"},
        ),
        ({"not_before": "2026-07-01T10:00:00Z", "deadline": "2026-07-01T10:00:01Z"}, None),
        ({"metadata": {"a": "x" * 20_000}}, {"/metadata": "too_large"}),
        ({"metadata": []}, {"/metadata": "wrong_type"}),
        ({"subject": "x" * 998}, None),
        ({"subject": "x" * 999}, {"/subject": "too_long"}),
        ({"text": "x" * 1_000_001}, {"/text": "too_long"}),
        ({"headers": {f"X-{n}": "" for n in range(51)}}, {"/headers": "too_many"}),
        ({"headers": {"X-A": "1", "x-a": "2"}}, {"/headers": "header_twice"}),
        ({"headers": [["X-A", "1"]]}, {"/headers": "wrong_type"}),
    ],
)
def test_what_holds_between_fields_and_how_much_they_take(
    change: dict[str, Any], expected: dict[str, str] | None
) -> None:
    if expected is None:
        parse(LEAST | change)
    else:
        assert wrong(LEAST | change) == expected


# Keys


@pytest.mark.parametrize(
    ("field", "header", "expected"),
    [
        ("a", None, "a"),
        (None, "a", "a"),
        ("a", "a", "a"),
        (None, '"a"', "a"),  # a string of structured fields, RFC 8941
        ("refund:7731", '"refund:7731"', "refund:7731"),
    ],
)
def test_an_action_key_comes_by_field_or_header(
    field: str | None, header: str | None, expected: str
) -> None:
    assert parse(LEAST | {"action_key": field}, header_key=header).key() == (expected, False)


@pytest.mark.parametrize(
    ("field", "header", "code"),
    [
        ("a", "b", "two_keys"),
        ("a", "", "empty_key"),
        (None, "", "empty_key"),
        (None, '""', "empty_key"),
        ("", None, "action_key"),
        (None, "has a blank", "action_key"),
        ("kä", None, "action_key"),
        ("a" * 256, None, "action_key"),
        ("a\n", None, "action_key"),
        (7, None, "wrong_type"),
    ],
)
def test_a_key_that_is_empty_malformed_or_ambiguous_is_refused(
    field: Any, header: str | None, code: str
) -> None:
    assert wrong(LEAST | {"action_key": field}, header_key=header) == {"/action_key": code}


DERIVED = {
    "run": "run-1",
    "template": "refund",
    "context": {"order": 7731, "lines": [1, 2]},
    "to": ["Jo@Example.org", "al@example.org"],
    "text": "Hello",
}


def test_a_derived_key_is_the_same_for_the_same_run_template_context_and_recipients() -> None:
    key, derived = parse(DERIVED).key()
    assert derived
    again = DERIVED | {
        "to": ["AL@example.org"],
        "bcc": ["jo@example.org"],
        "context": {"lines": [1, 2], "order": 7731},
        "text": "In other words",
        "reason": "again",
    }
    assert parse(again).key() == (key, True)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "run-2"},
        {"template": "reminder"},
        {"context": {"order": 7732, "lines": [1, 2]}},
        {"context": {"order": "7731", "lines": [1, 2]}},
        {"to": ["jo@example.org"]},
    ],
)
def test_a_derived_key_differs_with_each_of_them(change: dict[str, Any]) -> None:
    assert parse(DERIVED | change).key() != parse(DERIVED).key()


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (["run"], "missing: run"),
        (["template"], "missing: template"),
        (["context"], "missing: context or context_hash"),
        (["run", "context"], "missing: context or context_hash, run"),
    ],
)
def test_a_key_is_derived_only_where_nothing_is_missing(left_out: list[str], said: str) -> None:
    document = {name: value for name, value in DERIVED.items() if name not in left_out}
    with pytest.raises(WrongProposal, match=said) as refused:
        parse(document)
    assert [found.pointer for found in refused.value.errors] == ["/action_key"]


def test_a_context_hash_stands_for_its_context() -> None:
    document = {name: value for name, value in DERIVED.items() if name != "context"}
    digest = parse(DERIVED).context_digest
    assert parse(document | {"context_hash": digest}).key() == parse(DERIVED).key()


# Addresses


@pytest.mark.parametrize(
    ("given", "address", "name"),
    [
        ("jo@example.org", "jo@example.org", ""),
        ("Jo+Tag@Example.ORG", "Jo+Tag@Example.ORG", ""),  # as given: never folded, never trimmed
        ('"a b"@example.org', '"a b"@example.org', ""),
        ('"Doe, Jo" <jo@example.org>', "jo@example.org", "Doe, Jo"),
        ("Jo Doe <Jo@example.org>", "Jo@example.org", "Jo Doe"),
        ("Jo D. Doe <jo@example.org>", "jo@example.org", "Jo D. Doe"),
        ("Jö <jo@bücher.example>", "jo@xn--bcher-kva.example", "Jö"),
        ('Jo <"jo"@example.org>', '"jo"@example.org', "Jo"),
        ("<jo@example.org>", "jo@example.org", ""),
        ("=?utf-8?q?J=C3=B6?= <jo@example.org>", "jo@example.org", "Jö"),
        ("=?utf-8?q?J=C3=B6?= =?utf-8?q?_D.?= <jo@example.org>", "jo@example.org", "Jö D."),
        ({"address": "jo@example.org", "name": "Doe, Jo"}, "jo@example.org", "Doe, Jo"),
        ({"address": "jo@faß.example"}, "jo@xn--fa-hia.example", ""),  # IDNA 2008, not 2003
        ({"address": "jö@example.org"}, "jö@example.org", ""),
        ({"address": "jo@mail.test"}, "jo@mail.test", ""),
    ],
)
def test_a_mailbox_is_taken_as_given_with_its_domain_in_ascii(
    given: Any, address: str, name: str
) -> None:
    (box,) = parse(LEAST | {"to": [given]}).message(SENDER).to
    assert (box.address, box.name) == (address, name)
    assert parse(LEAST | {"to": given}).recipients == [address]


@pytest.mark.parametrize(
    "given",
    [
        "",
        " ",
        "jo",
        "jo@",
        "@example.org",
        "jo@localhost",
        "jo@example.org ",
        "jo@example..org",
        "jo@[127.0.0.1]",
        "jo@example.org, al@example.org",
        "Doe, Jo <jo@example.org>",
        "friends: jo@example.org;",
        "jo@example.org (comment)",
        "Jo <jo@example.org> <al@example.org>",
        "Jo <jo@example.org",
        "jo@example.org\r\nBcc: al@example.org",
        "Jo\n <jo@example.org>",
        "=?utf-8?q?Jo=0D=0ABcc:_al@example.org?= <jo@example.org>",
        "=?utf-8?b?Sm8KQmNjOiB4?= <jo@example.org>",
        {"address": "Jo <jo@example.org>"},
        {"address": "jo@example.org", "name": "Jo\r\nBcc: al@example.org"},
        {"address": "jo@example.org", "name": "=?utf-8?q?Jo=0D=0ABcc:x?="},
        {"address": "jo@example.org", "name": "Jo\x85"},
        {"address": "jo\u2028@example.org"},
        {"name": "Jo"},
        ["jo@example.org"],
        "a" * 65 + "@example.org",
        # Where Python's own parser trips.
        ". <jo@example.org>",
        ":=?utf-16?b?AAo=?= <jo@example.org>",
        ".==.= <jo@example.org>",
        "(" * 900 + "<jo@example.org>",
        "(" * 100_000 + "<jo@example.org>",
    ],
)
def test_what_is_not_exactly_one_mailbox_is_refused(given: Any) -> None:
    (pointer,) = wrong(LEAST | {"to": [given]})
    assert pointer.startswith("/to/0")


PIECES = st.sampled_from(
    [*'ab@.<>()"\\,;: []=?\t\r\nü\u3002\u200b\ud800', *("=?utf-8?q?", "=?utf-8?b?", "?=")]
)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_a_mailbox_and_a_line_or_wrong(text: str) -> None:
    with contextlib.suppress(WrongProposal):
        parse(LEAST | {"to": [f"{text} <jo@example.org>"], "cc": [text], "subject": text})


@pytest.mark.parametrize(
    "second", ["jo@example.org", "JO@EXAMPLE.ORG", "Jo <jo@example.org>", "jo@Example.org"]
)
def test_one_recipient_in_two_spellings_is_named(second: str) -> None:
    assert wrong(LEAST | {"cc": [second]}) == {"/cc/0": "duplicate_recipient"}


def test_the_two_forms_of_a_domain_are_one_recipient() -> None:
    boxes = ["jo@bücher.example", "jo@XN--BCHER-KVA.example"]
    assert wrong(LEAST | {"to": boxes}) == {"/to/1": "duplicate_recipient"}


def test_a_plus_tag_makes_another_recipient() -> None:
    assert len(parse(LEAST | {"cc": ["jo+x@example.org"]}).recipients) == 2


# Lines and texts

FORGED = [
    "a\r\nBcc: b@example.org",
    "a\nb",
    "a\rb",
    "a\x00b",
    "a\tb",
    "a\x0bb",
    "a\x1bb",
    "a\x7fb",
    "a\x85b",
    "a\u2028b",
    "a\u2029b",
    "a\ud800b",
    "=?utf-8?q?a=0D=0ABcc:_b?=",
    "=?UTF-8?B?YQ0KQmNjOiBi?=",
    "=?utf-8*en?q?a=0Ab?=",
    "=?utf-7?q?a+AAo-b?=",
    "=?utf-16-le?q?a=00=0A=00?=",
    "=?utf-8?q?=3D=3Futf-8=3Fq=3Fa=3D0Ab=3F=3D?=",
    "=?nonsense?q?a?=",
    "=?utf-8?q?a=0D=0A b?=",  # broken up, or left open: none, but some readers take it for one
    "=?utf-8?q?a=0D=0A",
    "=?utf-8?b?a?=",
    "=?utf-8?q?=FF?=",
]


@pytest.mark.parametrize("line", FORGED)
@pytest.mark.parametrize(
    ("field", "pointer"),
    [
        ("subject", "/subject"),
        ("run", "/run"),
        ("workflow", "/workflow"),
        ("template", "/template"),
        ("triggered_by", "/triggered_by"),
    ],
)
def test_no_line_hides_a_line_break_or_a_control(line: str, field: str, pointer: str) -> None:
    (found,) = wrong(LEAST | {field: line})
    assert found == pointer


@pytest.mark.parametrize("line", FORGED)
def test_no_header_or_name_hides_one_either(line: str) -> None:
    boxes = [{"address": "jo@example.org", "name": line}]
    forged = LEAST | {"headers": {"X-Note": line}, "to": boxes, "reply_to": boxes}
    assert set(wrong(forged)) == {"/headers/X-Note", "/to/0/name", "/reply_to/0/name"}


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Grüße 👩‍👩‍👧", "Grüße 👩‍👩‍👧"),
        ("=?utf-8?q?Caf=C3=A9_ol=C3=A9?=", "Café olé"),
        ("Re: =?iso-8859-1?q?Gr=FC=DFe?= an", "Re: Grüße an"),
        ("=?utf-8?q?a?= =?utf-8?q?b?=", "ab"),
        ("=?utf-8?b?R3LDvMOfZQ==?=", "Grüße"),
        ("1 =? 2 ?= 3", "1 =? 2 ?= 3"),
        ("1 =?= =?? 2", "1 =?= =?? 2"),  # blanks go between encoded words alone
    ],
)
def test_the_approver_sees_a_subject_as_its_reader_will(line: str, shown: str) -> None:
    assert parse(LEAST | {"subject": line}).subject == shown


@pytest.mark.parametrize("text", ["a\x00", "a\x0c", "a\x1b[31m", "a\ud800", "a\x7f"])
def test_no_body_has_a_control(text: str) -> None:
    found = wrong(LEAST | {"text": text, "html": text, "reason": text})
    assert set(found) == {"/text", "/html", "/reason"}


def test_a_body_is_kept_to_the_letter() -> None:
    text = "  a\r\n\tb\n\nc \u2028 \u00e9 e\u0301\r"
    message = parse(LEAST | {"text": text, "html": text}).message(SENDER)
    assert (message.text, message.html) == (text, text)


@pytest.mark.parametrize(
    "name",
    [
        *("From", "from", "BCC", "Message-ID", "Date", "Subject", "Reply-To", "Sender"),
        *("MIME-Version", "Content-Type", "Content-Transfer-Encoding", "Received", "Return-Path"),
        *("DKIM-Signature", "DKIM-Filter", "Received-SPF", "X-Envelope-To", "X-SG-EID"),
        *("ARC-Seal", "Resent-To", "X-Outbox-Intent", "Idempotency-Key"),
        *("X-SMTPAPI", "X-MC-BccAddress", "X-SES-Configuration-Set", "X-PM-KeepID"),
    ],
)
def test_a_header_that_is_ours_or_gives_a_provider_orders_is_reserved(name: str) -> None:
    assert wrong(LEAST | {"headers": {name: "x"}}) == {f"/headers/{name}": "reserved_header"}


@pytest.mark.parametrize("name", ["", "X Note", "X:Note", "X-Nöte", "X-Note\n", "-X", "X" * 77])
def test_a_header_has_a_plain_name(name: str) -> None:
    assert wrong(LEAST | {"headers": {name: "x"}}) == {f"/headers/{name}": "header_name"}


def test_the_order_of_headers_means_nothing() -> None:
    one = parse(LEAST | {"headers": {"X-A": "1", "List-Unsubscribe": "<https://example.com>"}})
    other = parse(LEAST | {"headers": {"List-Unsubscribe": "<https://example.com>", "X-A": "1"}})
    assert one.message(SENDER) == other.message(SENDER)


def test_references_come_as_a_list_or_as_the_header_has_them() -> None:
    both = ["<a@example.org>", "<b@example.org>"]
    for references in (both, " ".join(both)):
        assert parse(LEAST | {"references": references}).message(SENDER).references == tuple(both)


# Times


@pytest.mark.parametrize(
    "text",
    [
        "2026-07-01T09:30:00Z",
        "2026-07-01t09:30:00z",
        "2026-07-01 09:30:00Z",
        "2026-07-01T11:30:00+02:00",
        "2026-07-01T09:30:00.000000Z",
        "2026-07-01T09:30:00.000000000Z",
    ],
)
def test_a_time_is_read_with_its_zone(text: str) -> None:
    expected = datetime(2026, 7, 1, 9, 30, tzinfo=UTC)
    assert parse(LEAST | {"not_before": text}).not_before == expected


@pytest.mark.parametrize(
    "value",
    [
        "2026-07-01T09:30:00",
        "2026-07-01",
        "2026-07-01T09:30Z",
        "20260701T093000Z",
        "2026-13-01T09:30:00Z",
        "2026-02-30T09:30:00Z",
        "2026-07-01T25:30:00Z",
        "2026-07-01T09:30:00+99:00",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "٢٠٢٦-07-01T09:30:00Z",
        "now",
        "",
        1782898200,
        True,
        {},
    ],
)
def test_no_other_time_is_guessed_at(value: Any) -> None:
    assert wrong(LEAST | {"deadline": value}) == {"/deadline": "time"}


# Withdrawals


def test_a_withdrawal_may_say_why() -> None:
    assert parse_as(Withdrawal, {}).reason == ""
    assert parse_as(Withdrawal, {"reason": "paid meanwhile"}).reason == "paid meanwhile"


@pytest.mark.parametrize("document", [[], {"reason": 1}, {"why": "x"}, {"reason": "\x00"}])
def test_a_withdrawal_says_nothing_else(document: Any) -> None:
    with pytest.raises(WrongProposal):
        parse_as(Withdrawal, document)
