"""Every word of the fault menu: what the client sees, and what was taken in truth."""

from __future__ import annotations

import json
import re
import time
from functools import partial
from typing import Any

import pytest

from sends.sandbox.faults import MENU, word_of
from tests.sandboxes import ROOT, Sandbox

from .asking import Seen, fresh_key, get, message, post

TAKEN, NOT = True, False

# What two requests with one key see, and whether the first, and both, took a message.
COURSES: dict[str, tuple[Any, Any, bool, bool]] = {
    "delivered": (201, 200, TAKEN, TAKEN),
    "accepted": (201, 200, TAKEN, TAKEN),
    "bounce": (201, 200, TAKEN, TAKEN),
    "soft-bounce": (201, 200, TAKEN, TAKEN),
    "complain": (201, 200, TAKEN, TAKEN),
    "defer": (201, 200, TAKEN, TAKEN),
    "dropped": (201, 200, TAKEN, TAKEN),
    "refuse-one": (422, 422, NOT, NOT),  # alone; in company see below
    "event-first": (201, 200, TAKEN, TAKEN),
    "lost-answer": ("cut", 200, TAKEN, TAKEN),
    "cut-answer": ("truncated", 200, TAKEN, TAKEN),
    "accept-reset": ("reset", 200, TAKEN, TAKEN),
    "silent": ("silence", "silence", TAKEN, TAKEN),
    "silent-found": ("silence", "silence", TAKEN, TAKEN),
    "silent-delivered": ("silence", "silence", TAKEN, TAKEN),
    "slow": ("silence", 409, TAKEN, TAKEN),
    "slower": ("silence", 409, TAKEN, TAKEN),
    "drip": ("silence", 200, TAKEN, TAKEN),
    "cut-json": (200, 200, TAKEN, TAKEN),
    "non-utf8": (201, 200, TAKEN, TAKEN),
    "no-proof": (202, 200, TAKEN, TAKEN),
    "http-500": (500, 200, TAKEN, TAKEN),
    "http-502-taken": (502, 200, TAKEN, TAKEN),
    "busy": (429, 201, NOT, TAKEN),
    "busy-date": (429, 201, NOT, TAKEN),
    "busy-past": (429, 201, NOT, TAKEN),
    "busy-huge": (429, 201, NOT, TAKEN),
    "busy-negative": (429, 201, NOT, TAKEN),
    "busy-nan": (429, 201, NOT, TAKEN),
    "busy-none": (429, 201, NOT, TAKEN),
    "busy-always": (429, 429, NOT, NOT),
    "busy-503": (503, 503, NOT, NOT),
    "reset-before": ("reset", 201, NOT, TAKEN),
    "reset-after": ("reset", 201, NOT, TAKEN),
    "html-200": (200, 201, NOT, TAKEN),
    "http-500-always": (500, 500, NOT, NOT),
    "http-501": (501, 501, NOT, NOT),
    "http-505": (505, 505, NOT, NOT),
    "key-in-progress": (409, 409, NOT, NOT),
    "bad-request": (400, 400, NOT, NOT),
    "unprocessable": (422, 422, NOT, NOT),
    "suppressed": (422, 422, NOT, NOT),
    "too-large": (413, 413, NOT, NOT),
    "not-found": (404, 404, NOT, NOT),
    "rejected-body": (200, 200, NOT, NOT),
    "payment": (402, 402, NOT, NOT),
    "forbidden": (403, 403, NOT, NOT),
    "badkey": (401, 401, NOT, NOT),
    "quota": (429, 429, NOT, NOT),
    "redirect": (302, 302, NOT, NOT),
    "key-conflict": (409, 409, NOT, NOT),
}


def test_every_word_of_the_menu_has_a_course() -> None:
    assert set(COURSES) == set(MENU)


def test_the_readme_lists_every_word_with_its_meaning() -> None:
    readme = (ROOT / "sends/sandbox/README.md").read_text()
    listed = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (.+?) \|", readme, re.MULTILINE))
    assert listed == {word: fault.means for word, fault in MENU.items()}


def taken(sandbox: Sandbox, key: str) -> int:
    return sum(row["key"] == key for row in sandbox.journal())


def posted(sandbox: Sandbox, key: str) -> list[dict[str, Any]]:
    return [row for row in sandbox.requests() if row["key"] == key]


@pytest.mark.parametrize("word", COURSES)
def test_a_word_keeps_to_its_course(sandbox: Sandbox, word: str) -> None:
    first_seen, second_seen, first_taken, both_taken = COURSES[word]
    key = fresh_key()

    first = post(sandbox, message(word), key=key, timeout=0.3 if first_seen == "silence" else 20)
    assert first.how == first_seen
    if first_seen == "silence":
        sandbox.await_that(lambda one: taken(one, key))  # nothing says when it has been
    assert taken(sandbox, key) == first_taken
    second = post(sandbox, message(word), key=key, timeout=0.3 if second_seen == "silence" else 20)
    assert second.how == second_seen
    assert taken(sandbox, key) == both_taken

    rows = sandbox.await_that(lambda one: len(both := posted(one, key)) == 2 and both)
    assert [row["word"] for row in rows] == [word, word]
    assert [row["status"] for row in rows] == [planned(first, word), planned(second, word)]


def planned(seen: Seen, word: str) -> int | None:
    """The status that the journal names: of an answer that was too slow for us, too."""
    late = {"slow": 201, "slower": 201, "drip": 201, "cut-answer": 201}
    return seen.how if isinstance(seen.how, int) else late.get(word)


def test_busy_503_takes_the_third_request(sandbox: Sandbox) -> None:
    key = fresh_key()
    seen = [post(sandbox, message("busy-503"), key=key).how for _ in range(4)]
    assert seen == [503, 503, 201, 200]


def test_key_in_progress_ends_after_two_seconds(sandbox: Sandbox) -> None:
    key, begun = fresh_key(), time.monotonic()
    sandbox.await_that(
        lambda one: post(one, message("key-in-progress"), key=key).how == 201, seconds=20
    )
    assert time.monotonic() - begun > 1.9


@pytest.mark.parametrize(
    ("word", "pattern"),
    [
        ("busy", "2"),
        ("busy-date", r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"),
        ("busy-past", r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"),
        ("busy-huge", "1e309"),
        ("busy-negative", "-5"),
        ("busy-nan", "nan"),
        ("busy-none", ""),
        ("quota", ""),
    ],
)
def test_busy_words_differ_in_retry_after(sandbox: Sandbox, word: str, pattern: str) -> None:
    seen = post(sandbox, message(word), key=fresh_key())
    assert re.fullmatch(pattern, seen.headers.get("Retry-After", ""))


def test_spoilt_answers_are_spoilt_as_said(sandbox: Sandbox) -> None:
    cut = post(sandbox, message("cut-json"), key=fresh_key())
    assert cut.raw.startswith(b'{"id"')
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut.raw)
    with pytest.raises(UnicodeDecodeError):
        post(sandbox, message("non-utf8"), key=fresh_key()).raw.decode()
    assert post(sandbox, message("no-proof"), key=fresh_key()).raw == b""
    assert b"<h1>" in post(sandbox, message("http-500"), key=fresh_key()).raw
    assert post(sandbox, message("rejected-body"), key=fresh_key()).json["status"] == "rejected"
    assert post(sandbox, message("forbidden")).json["error"]["scope"] == "sender"


def test_refuse_one_is_refused_alone_and_the_others_are_accepted(sandbox: Sandbox) -> None:
    names = ["ann@example.org", "refuse-one@example.org"]
    seen = post(sandbox, message(to=[{"address": one} for one in names], tag=fresh_key()))
    assert seen.how == 201
    assert (seen.json["accepted"], seen.json["refused"]) == ([names[0]], [names[1]])


def test_silent_is_known_to_the_journal_alone(sandbox: Sandbox) -> None:
    seen = {}
    for word in ("silent", "silent-found"):
        key = fresh_key()
        post(sandbox, message(word, tag=key), key=key, timeout=0.3)
        sandbox.await_that(partial(taken, key=key))
        seen[word] = len(get(sandbox, f"/v1/messages?tag={key}").json["messages"])
    assert seen == {"silent": 0, "silent-found": 1}


def test_without_a_key_the_tag_counts_and_without_a_tag_each_request(sandbox: Sandbox) -> None:
    tag = fresh_key()
    assert [post(sandbox, message("busy", tag=tag)).how for _ in range(2)] == [429, 201]
    assert [post(sandbox, message("busy")).how for _ in range(2)] == [429, 429]


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("bounce@example.org", "bounce"),
        ("Bounce+17@example.com", "bounce"),
        ("bouncer@example.org", "delivered"),
        ("ann@example.org", "delivered"),
    ],
)
def test_the_local_part_chooses_the_word(address: str, word: str) -> None:
    assert word_of(address) == word


def test_a_script_is_used_up_in_order_and_only_by_what_matches(sandbox: Sandbox) -> None:
    mine, other = fresh_key(), fresh_key()
    sandbox.configure(
        faults=[
            {"match": {"key": mine}, "fault": "busy", "times": 2},
            {"match": {"to": "ann@example.org"}, "fault": "http-500"},
            {"match": {"tag": "nobody"}, "fault": "payment"},
        ]
    )
    assert post(sandbox, message("bob"), key=other).how == 201
    assert [post(sandbox, message(), key=mine).how for _ in range(4)] == [429, 429, 500, 200]
    sandbox.configure(faults=[])


def test_a_scripted_word_speaks_for_the_recipients(sandbox: Sandbox) -> None:
    tag = fresh_key()
    sandbox.script("bounce", tag=tag)
    post(sandbox, message(tag=tag))
    states = sandbox.await_that(
        lambda one: [
            row["recipients"][0]["state"] == "bounced"
            for row in get(one, f"/v1/messages?tag={tag}").json["messages"]
        ]
    )
    assert states == [True]


def test_reset_before_by_script_strikes_before_the_body_is_read(sandbox: Sandbox) -> None:
    key = fresh_key()
    sandbox.script("reset-before", key=key)
    assert post(sandbox, message(), key=key).how == "reset"
    (row,) = posted(sandbox, key)
    assert (row["outcome"], row["bytes"], row["status"]) == ("reset", 0, None)
    assert post(sandbox, message(), key=key).how == 201


def test_a_sandbox_that_is_down_resets_and_takes_nothing(sandbox: Sandbox) -> None:
    key = fresh_key()
    sandbox.configure(down=True)
    assert post(sandbox, message(), key=key).how == "reset"
    assert get(sandbox, f"/v1/messages?key={key}").how == "reset"
    sandbox.configure(down=False)
    assert post(sandbox, message(), key=key).how == 201
    assert [row["outcome"] for row in posted(sandbox, key)] == [
        "down",
        "accepted",
    ]
