"""A client of the sandbox that says what came back, however broken it was."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from http.client import HTTPConnection, IncompleteRead, RemoteDisconnected
from typing import Any
from uuid import uuid4

from tests.sandboxes import Sandbox


@dataclass(frozen=True)
class Seen:
    """`how` is the status, or cut, truncated, reset, silence."""

    how: int | str
    raw: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


def fresh_key() -> str:
    return uuid4().hex


def message(word: str = "ann", **fields: Any) -> dict[str, Any]:
    return {
        "from": {"name": "Shop", "address": "shop@example.com"},
        "to": [{"address": f"{word}@example.org"}],
        "subject": "Your order",
        "text": "It is on its way.",
        **fields,
    }


RECEIPT = {"filename": "receipt.pdf", "content_type": "application/pdf", "content": "JVBERg=="}


def post(
    sandbox: Sandbox,
    body: dict[str, Any] | bytes,
    *,
    key: str | None = None,
    token: str = "sandbox_shop",
    timeout: float = 5.0,
) -> Seen:
    headers = {"Authorization": f"Bearer {token}"}
    if key is not None:
        headers["Idempotency-Key"] = key
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ask(sandbox, "POST", "/v1/messages", raw, headers, timeout)


def get(sandbox: Sandbox, path: str, token: str = "sandbox_shop") -> Seen:
    return ask(sandbox, "GET", path, None, {"Authorization": f"Bearer {token}"}, 5.0)


def ask(
    sandbox: Sandbox,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    timeout: float,
) -> Seen:
    connection = HTTPConnection(sandbox.host, sandbox.port, timeout=timeout)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return Seen(answer.status, answer.read(), dict(answer.getheaders()))
    except RemoteDisconnected:
        return Seen("cut")
    except IncompleteRead:
        return Seen("truncated")
    except (ConnectionResetError, BrokenPipeError):
        return Seen("reset")
    except TimeoutError:
        return Seen("silence")
    finally:
        connection.close()
