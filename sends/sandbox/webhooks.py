"""Sends events to the webhook: signed, repeated until taken, beside the work of the server."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import h11

from . import events
from .events import Event
from .journal import Journal
from .settings import EventMode, Settings

TOGETHER = 16
DEADLINE_SECONDS = 10.0
OLD_SECRET = "sandbox-old-secret"
CLOCK_OFF_SECONDS = 3_600
UNKNOWN = {"message_id": "<unknown@sandbox.example.net>", "tag": "unknown"}


def signature(body: bytes, signing_secrets: Sequence[str], at: int) -> str:
    """`t=…,v1=…`, with one v1 for each secret: HMAC-SHA256 in hex over `t.body`."""
    signed = b"%d.%s" % (at, body)
    marks = [hmac.new(one.encode(), signed, "sha256").hexdigest() for one in signing_secrets]
    return ",".join([f"t={at}", *(f"v1={mark}" for mark in marks)])


def content_of(event: Event, mode: EventMode) -> bytes:
    data: dict[str, Any] = event.data
    if mode is EventMode.UNKNOWN_IDS:
        data = {**data, **UNKNOWN, "message_id_provider": f"sbx_{secrets.token_hex(12)}"}
    if mode is EventMode.NULLS:
        data = dict.fromkeys(data, None) | {"message_id_provider": data["message_id_provider"]}
    content = {"id": event.id, "type": event.type, "created_at": event.created_at, "data": data}
    return json.dumps(content).encode()


def headers_of(event: Event, body: bytes, settings: Settings, now: float) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "X-Sandbox-Event-Id": event.id}
    at = int(now) - (CLOCK_OFF_SECONDS if settings.events is EventMode.CLOCK_OFF else 0)
    old = settings.events is EventMode.OLD_SECRET
    signing_secrets = [OLD_SECRET] if old else settings.webhook_secrets
    if signing_secrets and settings.events is not EventMode.UNSIGNED:
        headers["X-Sandbox-Signature"] = signature(body, signing_secrets, at)
    return headers


class Sender:
    """Sends what is due until it is cancelled. `settings` is asked anew for each event."""

    def __init__(self, journal: Journal, settings: Callable[[], Settings]) -> None:
        self._journal = journal
        self._settings = settings
        self._changed = asyncio.Event()
        self._on_the_way: dict[int, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Look again: there are new events, or new settings."""
        self._changed.set()

    async def send_first(self, message: int) -> None:
        """Try the events of the message that must be out before its answer, each once."""
        for event in await self._journal.write(partial(events.claim_first, message=message)):
            await self._send(event)

    async def run(self) -> None:
        await self._journal.write(events.release_first)
        while True:
            self._changed.clear()
            if self._settings().webhook is not None:
                self._start_due()
            try:
                async with asyncio.timeout(self._seconds_to_next()):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _start_due(self) -> None:
        room = TOGETHER - len(self._on_the_way)
        if room <= 0:
            return
        for event in events.due(self._journal.db, time.time(), room, self._on_the_way):
            self._on_the_way[event.seq] = asyncio.create_task(self._send_and_wake(event))

    def _seconds_to_next(self) -> float | None:
        if self._settings().webhook is None or len(self._on_the_way) >= TOGETHER:
            return None
        at = events.next_due(self._journal.db, self._on_the_way)
        return None if at is None else max(at - time.time(), 0.02)

    async def _send_and_wake(self, event: Event) -> None:
        try:
            await self._send(event)
        finally:
            self._on_the_way.pop(event.seq, None)
            self.wake()

    async def _send(self, event: Event) -> None:
        settings, now = self._settings(), time.time()
        if settings.webhook is None:
            return
        body = content_of(event, settings.events)
        headers = headers_of(event, body, settings, now)
        taken = 200 <= await post(settings.webhook, body, headers) < 300
        await self._journal.write(partial(events.settle, event=event, taken=taken, now=time.time()))


async def post(url: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of the answer; 0 where there is none."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
            try:
                return await exchange(reader, writer, parts.netloc, target(url), body, headers)
            finally:
                writer.close()
    except (OSError, TimeoutError, h11.ProtocolError):
        return 0


def target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
) -> int:
    client = h11.Connection(h11.CLIENT)
    fixed = {"Host": host, "Connection": "close", "Content-Length": str(len(body))}
    request = h11.Request(method="POST", target=path, headers=[*(fixed | headers).items()])
    for event in (request, h11.Data(data=body), h11.EndOfMessage()):
        writer.write(client.send(event) or b"")
    await writer.drain()
    while True:
        said = client.next_event()
        if isinstance(said, h11.Response):
            return int(said.status_code)
        if said is h11.NEED_DATA:
            client.receive_data(await reader.read(65_536))
        elif not isinstance(said, h11.InformationalResponse):
            return 0
