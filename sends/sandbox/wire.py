"""HTTP at the level of bytes: requests read whole, answers written whole, cut, dripped or not."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import h11

from .faults import Manner, Reply

LARGEST_BODY = 40 * 1024 * 1024
HELD_SECONDS = 120.0
DRIP_SECONDS = 0.5


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    manner: Manner = Manner.WHOLE
    delay_seconds: float = 0.0


def json_answer(status: int, value: Any, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, json.dumps(value).encode(), headers or {})


def answer_of(reply: Reply) -> Answer:
    headers = {
        name: formatdate(time.time() + value.total_seconds(), usegmt=True)
        if isinstance(value, timedelta)
        else value
        for name, value in reply.headers.items()
    }
    return Answer(reply.status, reply.body, headers, reply.content_type)


class Wire:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.h11 = h11.Connection(h11.SERVER)
        self.body_bytes = 0

    async def head(self) -> h11.Request | None:
        """The head of the next request, or None where the client has gone."""
        event = await self._next()
        return event if isinstance(event, h11.Request) else None

    async def body(self) -> bytes | None:
        """The body of that request, or None where it never came whole.

        What is over LARGEST_BODY is read, so that the client hears the answer, but not kept.
        """
        if self.h11.they_are_waiting_for_100_continue:
            interim = h11.InformationalResponse(status_code=100, headers=[])
            self.writer.write(self.h11.send(interim) or b"")
        parts: list[bytes] = []
        self.body_bytes = 0
        try:
            while not isinstance(event := await self._next(), h11.EndOfMessage):
                if not isinstance(event, h11.Data):
                    return None
                self.body_bytes += len(event.data)
                if self.body_bytes <= LARGEST_BODY:
                    parts.append(bytes(event.data))
        except h11.RemoteProtocolError:
            return None
        return b"".join(parts)

    async def _next(self) -> Any:
        while (event := self.h11.next_event()) is h11.NEED_DATA:
            try:
                data = await self.reader.read(65_536)
            except ConnectionError:
                return None
            if not data and self.h11.their_state in (h11.IDLE, h11.SEND_BODY):
                return None
            self.h11.receive_data(data)
        return event

    async def send(self, answer: Answer) -> bool:
        """Answer in the manner asked for; False where the connection ended with it."""
        if answer.delay_seconds:
            await asyncio.sleep(answer.delay_seconds)
        match answer.manner:
            case Manner.CUT:
                return False
            case Manner.RESET:
                self.reset()
                return False
            case Manner.HELD:
                await self._hold()
                return False
        head, body = self._encode(answer)
        match answer.manner:
            case Manner.TRUNCATED:
                self.writer.write(head + body[: len(body) // 2])
                await self.writer.drain()
                return False
            case Manner.DRIP:
                await self._drip(head + body)
                return False
        self.writer.write(head + body)
        await self.writer.drain()
        if self.h11.our_state is not h11.DONE or self.h11.their_state is not h11.DONE:
            return False
        self.h11.start_next_cycle()
        return True

    def _encode(self, answer: Answer) -> tuple[bytes, bytes]:
        headers = [
            ("Date", formatdate(usegmt=True)),
            ("Server", "sandbox"),
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *answer.headers.items(),
        ]
        phrase = HTTPStatus(answer.status).phrase
        response = h11.Response(status_code=answer.status, reason=phrase, headers=headers)
        head = self.h11.send(response) or b""
        body = self.h11.send(h11.Data(data=answer.body)) or b""
        self.h11.send(h11.EndOfMessage())
        return head, body

    async def _hold(self) -> None:
        """Say nothing until the client leaves, or for as long as a sandbox has patience."""
        try:
            async with asyncio.timeout(HELD_SECONDS):
                while await self.reader.read(65_536):
                    pass
        except (TimeoutError, ConnectionError):
            pass

    async def _drip(self, answer: bytes) -> None:
        end = time.monotonic() + HELD_SECONDS
        for place in range(len(answer)):
            if time.monotonic() > end or self.writer.is_closing():
                return
            self.writer.write(answer[place : place + 1])
            await self.writer.drain()
            await asyncio.sleep(DRIP_SECONDS)

    def reset(self) -> None:
        """End the connection with an RST: a linger of nothing throws away what is unsent."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
