"""One example of each request and answer of the agents' door, all of one story."""

from typing import Any

from sends.conf import conf

API = f"{conf.url}/api/v1"
ID = "01994f3e-8a70-7c52-9b1e-5d0f6a2b7c31"
RUN_ID = "01994f3e-7b10-7f0a-8c44-0f1e2d3c4b5a"
AT = "2026-09-14T09:30:00Z"
CURSOR = "AZlPPopwfFKbHl0PaisXMQ"

PROPOSAL: dict[str, Any] = {
    "action_key": "order-7731-delayed",
    "to": ["delivered@example.org"],
    "subject": "Your order 7731: delivery moved to Thursday",
    "text": "The carrier has moved the delivery to Thursday.",
    "reason": "The customer asked where the order is.",
}
VERSION: dict[str, Any] = {
    **{name: value for name, value in PROPOSAL.items() if name != "action_key"},
    "text": "The carrier has moved the delivery to Friday.",
}
SECOND: dict[str, Any] = PROPOSAL | {
    "action_key": "order-7732-delayed",
    "to": ["someone@nowhere"],
}
SHORT: dict[str, Any] = {
    "id": ID,
    "number": 48213,
    "status": "awaiting_approval",
    "action_key": PROPOSAL["action_key"],
    "key_derived": False,
    "version": 1,
    "idempotency_key": "5f3a9c0b7e1d2c4f6a8b9d0e1f2a3b4c5d6e7f80",
    "digest": "9c56cc51b374c3ba189210d5b6d4bf57790d351c96c47c02190ecf1e430635ab",
    "next_step": "wait",
    "sentence": "A person has to decide; nothing has been sent. Nothing to do; look again later.",
    "run": {"id": RUN_ID, "name": "nightly-2026-09-14"},
    "subject": PROPOSAL["subject"],
    "created_at": AT,
    "status_at": AT,
    "links": {
        "self": f"{API}/intents/{ID}",
        "dashboard": f"{conf.url}/messages/48213/",
        "current": None,
    },
}
CREATED: dict[str, Any] = SHORT | {"replayed": False}
REPLAYED: dict[str, Any] = SHORT | {"replayed": True}
WITHDRAWN: dict[str, Any] = CREATED | {
    "status": "cancelled",
    "next_step": "do_not_resend",
    "sentence": "Taken back before anything was sent.",
}
WAITING: dict[str, Any] = {
    "sentence": "Waits for a person to approve it.",
    "until": "2026-09-21T09:30:00Z",
}
WHOLE: dict[str, Any] = SHORT | {
    "why_not_yet": WAITING,
    "in_doubt": False,
    "workflow": "",
    "template": "",
    "context_hash": "",
    "reason": PROPOSAL["reason"],
    "sender": "support@mail.example.com",
    "message_id": "<01994f3e8a707c529b1e5d0f6a2b7c31@mail.example.com>",
    "triggered_by": "",
    "purpose": "",
    "not_before": None,
    "deadline": None,
    "decide_by": "2026-09-21T09:30:00Z",
    "accepted_at": None,
    "end_reason": "",
    "provider_message_id": "",
    "provider_thread_id": "",
    "decision": None,
    "attempts": [],
    "deliveries": [
        {
            "kind": "to",
            "address": "delivered@example.org",
            "name": "",
            "state": "waiting",
            "reason": "",
            "changed_at": None,
        }
    ],
    "evidence": [],
    "attachments": [],
    "metadata": {},
    "purged_at": None,
}
PAGE: dict[str, Any] = {
    "items": [SHORT],
    "more": True,
    "next_cursor": CURSOR,
    "next_since": "A" * 21 + CURSOR * 2 + "A" * 21,
}
NAMED_RUN = {"name": "nightly-2026-09-14"}
RUN_SHORT: dict[str, Any] = {
    "id": RUN_ID,
    "name": NAMED_RUN["name"],
    "started_at": AT,
    "ended_at": None,
    "end_reason": "",
    "halted": False,
    "halt_reason": "",
    "retry_limit": 40,
    "retries_used": 0,
    "links": {"self": f"{API}/runs/{RUN_ID}", "dashboard": f"{conf.url}/runs/{RUN_ID}/"},
}
RUN: dict[str, Any] = RUN_SHORT | {"intents": {"awaiting_approval": 1}}
RUN_PAGE: dict[str, Any] = {"items": [RUN_SHORT], "next_cursor": None}
SIMULATION: dict[str, Any] = {
    "would": "create",
    "status": 201,
    "problem": None,
    "action_key": PROPOSAL["action_key"],
    "key_derived": False,
    "becomes": "awaiting_approval",
    "approvals": {"needed": 1, "rule": "default"},
    "recipients": [{"pointer": "/to/0", "address": "delivered@example.org", "suppressed": None}],
    "run": None,
    "why_not_yet": WAITING,
    "stops": [],
    "intent": None,
}
WRONG_ADDRESS = {
    "pointer": "/to/0",
    "code": "address",
    "detail": "is not an address: the part after the @-sign is not valid",
}
