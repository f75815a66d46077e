"""What the sandbox promises about a repeated key, and what it does not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.sandboxes import Sandbox

from .asking import RECEIPT, fresh_key, message, post
from .conftest import StartSandbox


def accepted_with(sandbox: Sandbox, key: str) -> list[dict[str, Any]]:
    return [row for row in sandbox.journal() if row["key"] == key]


def test_a_repeat_is_answered_with_the_first_answer_and_takes_nothing(sandbox: Sandbox) -> None:
    key = fresh_key()
    first = post(sandbox, message(tag=key), key=key)
    second = post(sandbox, message(tag=key), key=key)

    assert (first.how, second.how) == (201, 200)
    assert first.json["replayed"] is False
    assert second.json == {**first.json, "replayed": True}
    assert second.headers["Idempotent-Replayed"] == "true"
    assert [row["id"] for row in accepted_with(sandbox, key)] == [first.json["id"]]


def test_the_same_body_spelt_otherwise_is_a_repeat(sandbox: Sandbox) -> None:
    key = fresh_key()
    post(
        sandbox, b'{"from":{"address":"a@example.com"},"to":[{"address":"b@example.org"}]}', key=key
    )
    again = post(
        sandbox,
        b'{ "to": [{"address": "b@example.org"}], "from": {"address": "\\u0061@example.com"} }',
        key=key,
    )
    assert again.json["replayed"] is True


def test_another_body_under_the_key_is_a_conflict_and_takes_nothing(sandbox: Sandbox) -> None:
    key = fresh_key()
    post(sandbox, message(), key=key)
    other = post(sandbox, message(subject="Another"), key=key)

    assert (other.how, other.code) == (409, "key_conflict")
    assert len(accepted_with(sandbox, key)) == 1


def test_a_key_means_something_else_in_another_organisation(sandbox: Sandbox) -> None:
    key = fresh_key()
    assert post(sandbox, message(), key=key, token="sandbox_one_abc").how == 201
    assert post(sandbox, message(), key=key, token="sandbox_two_abc").how == 201
    assert post(sandbox, message(), key=key, token="sandbox_one_def").how == 200


def test_a_key_is_in_progress_until_its_first_request_is_answered(sandbox: Sandbox) -> None:
    key = fresh_key()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, sandbox, message("slow"), key=key, timeout=20)
        sandbox.await_that(lambda one: accepted_with(one, key))
        meanwhile = post(sandbox, message("slow"), key=key)
        assert (meanwhile.how, meanwhile.code) == (409, "key_in_progress")
        assert first.result().how == 201

    assert post(sandbox, message("slow"), key=key).json["replayed"] is True
    assert len(accepted_with(sandbox, key)) == 1


def test_of_many_at_once_one_is_accepted_and_the_others_are_replays(sandbox: Sandbox) -> None:
    key, together = fresh_key(), threading.Barrier(12)

    def race(_: int) -> int | str:
        together.wait(10)
        return post(sandbox, message(), key=key).how

    with ThreadPoolExecutor(12) as pool:
        seen = sorted(map(str, pool.map(race, range(12))))
    assert seen == ["200"] * 11 + ["201"]
    assert len(accepted_with(sandbox, key)) == 1


def test_after_the_window_the_key_is_forgotten_and_a_repeat_is_a_second_message(
    start: StartSandbox,
) -> None:
    sandbox, key = start(window=60), fresh_key()
    first = post(sandbox, message(tag="t"), key=key)
    assert post(sandbox, message(tag="t"), key=key).json["replayed"] is True
    sandbox.configure(window=0.5)
    second = sandbox.await_that(
        lambda one: (seen := post(one, message(tag="t"), key=key)).how == 201 and seen
    )

    assert second.json["id"] != first.json["id"]
    stats = sandbox.stats()
    assert (stats["accepted"], stats["distinct_keys"], stats["duplicate_keys"]) == (2, 1, 1)
    assert (stats["distinct_tags"], stats["duplicate_tags"]) == (1, 1)


def test_without_a_contract_every_request_is_a_new_message(start: StartSandbox) -> None:
    sandbox = start(contract="none")
    seen = [post(sandbox, message(), key="one key").how for _ in range(3)]

    assert seen == [201, 201, 201]
    assert [row["contract"] for row in sandbox.journal()] == ["none"] * 3
    assert sandbox.stats()["duplicate_keys"] == 1


def test_what_took_nothing_is_not_remembered(sandbox: Sandbox) -> None:
    key = fresh_key()
    sandbox.script("bad-request", key=key)
    assert post(sandbox, message(subject="wrong"), key=key).how == 400
    assert post(sandbox, message(subject="right"), key=key).how == 201


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 257])
def test_a_key_of_another_shape_is_refused(sandbox: Sandbox, key: str) -> None:
    seen = post(sandbox, message(), key=key)
    assert (seen.how, seen.code) == (400, "bad_idempotency_key")


@pytest.mark.parametrize("token", ["", "live_abc", "sandbox"])
def test_a_token_of_another_kind_is_turned_away(sandbox: Sandbox, token: str) -> None:
    seen = post(sandbox, message(), token=token)
    assert (seen.how, seen.code) == (401, "bad_key")


@pytest.mark.parametrize(
    ("body", "status", "names"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "object"),
        (b'{"from": NaN}', 400, "NaN"),
        (message(html=3), 422, "html"),
        (message(cc=["ann@example.org"]), 422, "cc"),
        (message(to=[]), 422, "to"),
        (message(colour="red"), 422, "colour"),
        (message(attachments={}), 422, "attachments"),
        (message(attachments=[{}]), 422, "filename"),
        (message(attachments=[RECEIPT | {"colour": "red"}]), 422, "colour"),
        (message(attachments=[RECEIPT | {"content": "JVBERg="}]), 422, "base64"),
        (message(attachments=[RECEIPT | {"disposition": "form-data"}]), 422, "disposition"),
        (message(attachments=[RECEIPT | {"content_id": 7}]), 422, "attachment"),
        (message(headers={"X-A": 1}), 422, "headers"),
        ({"to": [{"address": "ann@example.org"}]}, 422, "from"),
    ],
)
def test_a_wrong_body_is_refused_by_name(
    sandbox: Sandbox, body: dict[str, Any] | bytes, status: int, names: str
) -> None:
    seen = post(sandbox, body)
    assert seen.how == status
    assert names in seen.json["error"]["message"]
