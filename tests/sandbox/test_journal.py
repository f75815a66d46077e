"""The sandbox as a witness: its books, its look-ups, and its settings."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import time
from hashlib import sha256
from pathlib import Path

import pytest

from sends.sandbox.journal import Journal
from tests.sandboxes import Sandbox

from .asking import RECEIPT, fresh_key, get, message, post
from .conftest import StartSandbox


def test_stats_count_what_really_happened(start: StartSandbox) -> None:
    sandbox = start()
    for key, body in [
        ("k1", message(tag="t1")),
        ("k1", message(tag="t1")),  # a replay
        ("k1", message(tag="t1", subject="Other")),  # a conflict
        ("k2", message(tag="t1")),  # a second message for one tag
        (None, message()),
        (None, message()),
        ("k3", message("bad-request")),
        ("k4", message("lost-answer", tag="t2")),
    ]:
        post(sandbox, body, key=key)
    post(sandbox, message(), token="nonsense")

    assert sandbox.stats() == {
        "accepted": 5,
        "distinct_keys": 3,
        "distinct_tags": 2,
        "duplicate_keys": 0,
        "duplicate_tags": 1,
        "requests": 9,
        "replays": 1,
        "conflicts": 1,
        "by_outcome": {
            "accepted": 5,
            "replayed": 1,
            "conflict": 1,
            "refused": 1,
            "unauthorized": 1,
        },
        "events": {"off": 5},
    }
    assert len(sandbox.journal()) == 5
    assert [row["outcome"] for row in sandbox.requests()] == [
        "accepted",
        "replayed",
        "conflict",
        "accepted",
        "accepted",
        "accepted",
        "refused",
        "accepted",
        "unauthorized",
    ]
    sandbox.reset()
    assert sandbox.stats()["requests"] == 0
    assert post(sandbox, message(tag="t1"), key="k1").how == 201


def test_the_journal_keeps_what_was_accepted(sandbox: Sandbox) -> None:
    key, before = fresh_key(), time.monotonic()
    raw = json.dumps(
        message(bcc=[{"address": "boss@example.org"}], tag=key, message_id="<m@example.com>")
    ).encode()
    answer = post(sandbox, raw, key=key)
    (row,) = [row for row in sandbox.journal() if row["key"] == key]
    (request,) = [one for one in sandbox.requests() if one["seq"] == row["request_no"]]

    assert row["id"] == answer.json["id"]
    assert row["digest"] == sha256(raw).hexdigest()
    assert row["recipients"] == ["ann@example.org", "boss@example.org"]
    assert (row["tag"], row["message_id"], row["subject"]) == (key, "<m@example.com>", "Your order")
    assert (request["outcome"], request["status"], request["bytes"]) == ("accepted", 201, len(raw))
    assert before < request["received_mono"] < time.monotonic()


def test_the_journal_keeps_what_attachments_were_but_not_their_bytes(sandbox: Sandbox) -> None:
    key = fresh_key()
    logo = RECEIPT | {"disposition": "inline", "content_id": "logo", "content": ""}
    assert post(sandbox, message(attachments=[RECEIPT, logo]), key=key).how == 201

    (row,) = [row for row in sandbox.journal() if row["key"] == key]
    common = {"filename": "receipt.pdf", "content_type": "application/pdf"}
    assert row["attachments"] == [
        common
        | {"disposition": "attachment", "content_id": None}
        | {"size": 4, "sha256": sha256(b"%PDF").hexdigest()},
        common
        | {"disposition": "inline", "content_id": "logo"}
        | {"size": 0, "sha256": sha256(b"").hexdigest()},
    ]


def test_pages_of_the_journal_follow_one_another(start: StartSandbox) -> None:
    sandbox = start()
    for number in range(5):
        post(sandbox, message(subject=str(number)))
    page = get(sandbox, "/v1/journal?since=1&limit=2").json["messages"]
    assert [row["subject"] for row in page] == ["1", "2"]
    assert get(sandbox, "/v1/journal?since=x").how == 400


def test_a_request_that_breaks_off_is_entered_and_takes_nothing(sandbox: Sandbox) -> None:
    key = fresh_key()
    head = (
        "POST /v1/messages HTTP/1.1\r\nHost: sandbox\r\nAuthorization: Bearer sandbox_a\r\n"
        f"Idempotency-Key: {key}\r\nContent-Length: 100\r\n\r\n{{"
    )
    with socket.create_connection((sandbox.host, sandbox.port)) as client:
        client.sendall(head.encode())
    (row,) = sandbox.await_that(lambda one: [row for row in one.requests() if row["key"] == key])
    assert (row["outcome"], row["bytes"], row["status"]) == ("incomplete", 1, None)


def test_look_ups_find_by_id_tag_and_key_within_the_organisation(sandbox: Sandbox) -> None:
    key, tag = fresh_key(), fresh_key()
    made = post(sandbox, message("bounce", tag=tag), key=key).json["id"]
    for path in (f"/v1/messages?tag={tag}", f"/v1/messages?key={key}"):
        (found,) = get(sandbox, path).json["messages"]
        assert (found["id"], found["tag"], found["key"]) == (made, tag, key)
        assert get(sandbox, path, token="sandbox_other").json["messages"] == []
    assert get(sandbox, f"/v1/messages/{made}").json["id"] == made
    assert get(sandbox, "/v1/messages/sbx_nothing").code == "not_found"
    assert get(sandbox, f"/v1/messages?tag={tag}", token="wrong").how == 401
    sandbox.await_that(
        lambda one: (
            get(one, f"/v1/messages/{made}").json["recipients"]
            == [{"address": "bounce@example.org", "state": "bounced"}]
        )
    )


def test_look_ups_can_be_off(start: StartSandbox) -> None:
    sandbox = start(lookup="off")
    made = post(sandbox, message()).json["id"]
    assert get(sandbox, f"/v1/messages/{made}").code == "not_supported"
    assert get(sandbox, "/v1/messages?tag=t").how == 404


def test_the_front_page_and_the_health_check_answer(sandbox: Sandbox) -> None:
    assert get(sandbox, "/healthz").how == 200
    assert b"lost-answer" in get(sandbox, "/").raw


def test_a_step_that_fails_takes_its_group_with_it_and_not_the_next(tmp_path: Path) -> None:
    async def run(journal: Journal) -> list[object]:
        def insert(db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO config (name, value) VALUES ('x', '1')")

        def fail(_: sqlite3.Connection) -> None:
            raise ValueError("no")

        group = [journal.write(insert), journal.write(fail)]
        results = await asyncio.gather(*group, return_exceptions=True)
        await journal.write(insert)
        return list(results)

    journal = Journal(tmp_path)
    group = asyncio.run(run(journal))
    rows = journal.db.execute("SELECT * FROM config").fetchall()
    journal.close()
    assert [type(result) for result in group] == [ValueError, ValueError]
    assert len(rows) == 1


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"colour": "red"}, "colour"),
        ({"window": -1}, "window"),
        ({"contract": "both"}, "contract"),
        ({"webhook": "ftp://example.org"}, "webhook"),
        ({"webhook": "http://example.org:abc"}, "webhook"),
        ({"events": {"mode": "never"}}, "events"),
        ({"faults": [{"fault": "nonsense"}]}, "nonsense"),
        ({"faults": [{"match": {"colour": "red"}, "fault": "busy"}]}, "colour"),
        ({"faults": [{"fault": "busy", "times": 0}]}, "times"),
        ({"down": "yes"}, "down"),
    ],
)
def test_a_wrong_setting_is_named_and_changes_nothing(
    sandbox: Sandbox, wrong: dict[str, object], names: str
) -> None:
    before = sandbox.configure()
    with pytest.raises(AssertionError, match=names):
        sandbox.configure(lookup=False, **wrong)
    assert sandbox.configure() == before
