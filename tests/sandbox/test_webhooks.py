"""Events reach the webhook signed, in order, again until taken; or wrong in the way asked for."""

from __future__ import annotations

import hmac
import time
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.sandboxes import Sandbox

from .asking import fresh_key, message, post
from .conftest import Delivery, Receiver


def signed_with(secret: str, delivery: Delivery) -> bool:
    parts = [part.split("=", 1) for part in delivery.headers["X-Sandbox-Signature"].split(",")]
    signed = parts[0][1].encode() + b"." + delivery.raw
    wanted = hmac.new(secret.encode(), signed, "sha256").hexdigest()
    return parts[0][0] == "t" and ["v1", wanted] in parts


def age(delivery: Delivery) -> float:
    stamp = delivery.headers["X-Sandbox-Signature"].split(",")[0].removeprefix("t=")
    return delivery.at - float(stamp)


def test_an_event_is_signed_and_says_what_it_is_about(hooked: Sandbox, receiver: Receiver) -> None:
    answer = post(hooked, message("bounce", tag="t-1", message_id="<m1@example.com>"))
    (delivery,) = receiver.wait_for(1)
    event = delivery.json

    assert signed_with("whsec_new", delivery)
    assert -2 < age(delivery) < 10
    assert delivery.headers["X-Sandbox-Event-Id"] == event["id"]
    assert event["id"].startswith("evt_")
    assert event["type"] == "bounced"
    assert datetime.fromisoformat(event["created_at"]).utcoffset() is not None
    assert event["data"] == {
        "message_id_provider": answer.json["id"],
        "message_id": "<m1@example.com>",
        "tag": "t-1",
        "recipient": "bounce@example.org",
        "reason": "550 5.1.1 no such user",
        "hard": True,
    }


@pytest.mark.parametrize(
    ("word", "types"),
    [
        ("ann", ["delivered"]),
        ("accepted", ["accepted"]),
        ("bounce", ["bounced"]),
        ("soft-bounce", ["deferred", "bounced"]),
        ("complain", ["delivered", "complained"]),
        ("defer", ["deferred", "delivered"]),
        ("dropped", ["dropped"]),
        ("lost-answer", ["delivered"]),
        ("event-first", ["delivered"]),
    ],
)
def test_a_word_is_told_as_its_events_in_order(
    hooked: Sandbox, receiver: Receiver, word: str, types: list[str]
) -> None:
    post(hooked, message(word))
    assert receiver.types(len(types)) == types
    hooked.await_that(lambda one: one.stats()["events"] == {"sent": len(types)})


def test_each_recipient_has_events_of_its_own(hooked: Sandbox, receiver: Receiver) -> None:
    names = ["ann@example.org", "bounce@example.org", "refuse-one@example.org"]
    post(hooked, message(to=[{"address": one} for one in names]))
    told = {one.json["data"]["recipient"]: one.json["type"] for one in receiver.wait_for(3)}
    assert told == dict(zip(names, ["delivered", "bounced", "refused"], strict=True))


def test_silence_is_silence_and_silent_delivered_is_told(
    hooked: Sandbox, receiver: Receiver
) -> None:
    post(hooked, message("silent"), timeout=0.2)
    post(hooked, message("silent-found"), timeout=0.2)
    post(hooked, message("silent-delivered"), timeout=0.2)
    assert receiver.types(1) == ["delivered"]
    hooked.await_that(lambda one: one.stats()["accepted"] == 3)
    assert sum(hooked.stats()["events"].values()) == 1


def test_what_is_not_taken_is_sent_again_unchanged_until_it_is(
    hooked: Sandbox, receiver: Receiver
) -> None:
    receiver.statuses = [500, 302, 404]
    post(hooked, message("defer"))
    deliveries = receiver.wait_for(5)
    assert [one.json["type"] for one in deliveries] == ["deferred"] * 4 + ["delivered"]
    assert len({one.raw for one in deliveries[:4]}) == 1
    gaps = [later.at - one.at for one, later in pairwise(deliveries[:4])]
    assert [gap > wait for gap, wait in zip(gaps, [0.18, 0.45, 0.9], strict=True)] == [True] * 3


def test_a_receiver_that_is_away_holds_up_no_accept(hooked: Sandbox, receiver: Receiver) -> None:
    hooked.configure(webhook="http://127.0.0.1:9/nobody")
    begun = time.monotonic()
    assert [post(hooked, message()).how for _ in range(20)] == [201] * 20
    assert time.monotonic() - begun < 20
    hooked.configure(webhook=receiver.url)
    receiver.wait_for(20)


def test_events_come_after_deliver_after(hooked: Sandbox, receiver: Receiver) -> None:
    hooked.configure(deliver_after=0.5)
    posted = time.time()
    post(hooked, message())
    assert receiver.wait_for(1)[0].at - posted > 0.5


def test_two_secrets_sign_twice(hooked: Sandbox, receiver: Receiver) -> None:
    hooked.configure(webhook_secrets=["whsec_new", "whsec_next"])
    post(hooked, message())
    (delivery,) = receiver.wait_for(1)
    assert signed_with("whsec_new", delivery)
    assert signed_with("whsec_next", delivery)


def with_mode(hooked: Sandbox, mode: str, word: str = "defer", **fields: Any) -> str:
    hooked.configure(events={"mode": mode})
    return str(post(hooked, message(word, **fields)).json["id"])


def test_mode_off_sends_nothing(hooked: Sandbox, receiver: Receiver) -> None:
    with_mode(hooked, "off")
    with_mode(hooked, "normal")
    receiver.wait_for(2)
    assert hooked.stats()["events"]["off"] == 2


def test_mode_doubled_sends_each_event_twice(hooked: Sandbox, receiver: Receiver) -> None:
    with_mode(hooked, "doubled")
    assert receiver.types(4) == ["deferred", "deferred", "delivered", "delivered"]
    assert len({one.raw for one in receiver.deliveries}) == 2


def test_mode_changed_ids_sends_the_second_under_another_id(
    hooked: Sandbox, receiver: Receiver
) -> None:
    with_mode(hooked, "changed-ids")
    assert receiver.types(4) == ["deferred", "deferred", "delivered", "delivered"]
    assert len({one.json["id"] for one in receiver.deliveries}) == 4


def test_mode_reversed_tells_the_last_first_with_its_true_time(
    hooked: Sandbox, receiver: Receiver
) -> None:
    with_mode(hooked, "reversed")
    assert receiver.types(2) == ["delivered", "deferred"]
    first, second = receiver.deliveries
    assert first.json["created_at"] > second.json["created_at"]


@pytest.mark.parametrize("by", ["word", "mode"])
def test_event_first_is_told_before_the_answer(
    hooked: Sandbox, receiver: Receiver, by: str
) -> None:
    hooked.configure(deliver_after=60)
    if by == "word":
        post(hooked, message("event-first"))
    else:
        with_mode(hooked, "before-answer", "ann")
    assert [one.json["type"] for one in receiver.deliveries] == ["delivered"]


def test_mode_unknown_ids_names_no_message_of_ours(hooked: Sandbox, receiver: Receiver) -> None:
    provider_id = with_mode(hooked, "unknown-ids", "ann", tag="t-9", message_id="<m@example.com>")
    data = receiver.wait_for(1)[0].json["data"]
    assert data["message_id_provider"] not in (provider_id, None)
    assert data["tag"] != "t-9"
    assert data["message_id"] != "<m@example.com>"


def test_mode_nulls_leaves_the_provider_id_alone(hooked: Sandbox, receiver: Receiver) -> None:
    provider_id = with_mode(hooked, "nulls", "bounce", tag=fresh_key())
    data = receiver.wait_for(1)[0].json["data"]
    assert {name for name, value in data.items() if value is not None} == {"message_id_provider"}
    assert data["message_id_provider"] == provider_id


def test_modes_that_spoil_the_signature(hooked: Sandbox, receiver: Receiver) -> None:
    with_mode(hooked, "unsigned", "ann")
    receiver.wait_for(1)
    with_mode(hooked, "old-secret", "ann")
    receiver.wait_for(2)
    with_mode(hooked, "clock-off", "ann")
    unsigned, old, off = receiver.wait_for(3)
    assert "X-Sandbox-Signature" not in unsigned.headers
    assert not signed_with("whsec_new", old)
    assert signed_with("sandbox-old-secret", old)
    assert signed_with("whsec_new", off)
    assert age(off) > 3_500
