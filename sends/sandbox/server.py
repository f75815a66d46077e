"""The HTTP server: connections, who may ask what, and the routes."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import h11

from . import journal as entries
from .contract import Contract
from .faults import MENU, Manner, Reply, error
from .intake import Verdict, refuse, take
from .journal import Journal, Received
from .reading import KEY_FORMAT, UnreadableError, read_message
from .settings import (
    Settings,
    WrongSettingError,
    changed,
    is_scripted,
    next_scripted,
    read_script,
    store,
    store_script,
    stored,
)
from .webhooks import Sender
from .wire import LARGEST_BODY, Answer, Wire, answer_of, json_answer

PAGE = """\
Outbox Admin sandbox: an email provider that mails nobody.

POST /v1/messages          take a message (bearer token sandbox_…)
GET  /v1/messages/ID       look one up; also /v1/messages?tag=… and ?key=…
GET  /v1/journal?since=N   every message that was accepted
GET  /v1/requests?since=N  every POST that arrived
GET  /v1/stats             how many, and how many twice
PUT  /v1/config            change what it does
POST /v1/reset             forget everything

The local part of the first recipient chooses what happens:
"""
LARGEST_PAGE = 10_000
BAD_KEY = error(401, "bad_key", "Give a bearer token that starts with sandbox_.")
NOT_FOUND = error(404, "not_found", "There is nothing here.")
NO_LOOKUP = error(404, "not_supported", "This provider has no look-up.")
WRONG_KEY = error(
    400, "bad_idempotency_key", "Idempotency-Key must be 1 to 256 of A-Z a-z 0-9 . _ : ~ -"
)
TOO_LARGE = error(413, "too_large", "The body is over 40 MiB.")


@dataclass(frozen=True)
class Asked:
    """The head of a request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]

    @property
    def posts_message(self) -> bool:
        return self.method == "POST" and self.path == "/v1/messages"

    @property
    def org(self) -> str | None:
        """The organisation of the token, or None for a token that is not good."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.startswith("sandbox_"):
            return None
        return token.removeprefix("sandbox_").partition("_")[0]


def asked_of(head: h11.Request) -> Asked:
    parts = urlsplit(head.target.decode("latin-1"))
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    return Asked(head.method.decode(), unquote(parts.path), query, headers)


class Server:
    def __init__(self, journal: Journal, given: Settings) -> None:
        self._journal = journal
        self._given = given
        self.settings = stored(journal.db, given)
        self.sender = Sender(journal, lambda: self.settings)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end; the callback of `asyncio.start_server`."""
        wire = Wire(reader, writer)
        try:
            while await self._serve_one(wire):
                pass
        except (ConnectionError, h11.ProtocolError):
            pass
        except asyncio.CancelledError:
            pass  # stopping; Python 3.11 would log the cancelled connection as an error
        finally:
            writer.close()

    async def _serve_one(self, wire: Wire) -> bool:
        """Whether the connection can carry another request."""
        head = await wire.head()
        if head is None:
            return False
        asked = asked_of(head)
        if asked.posts_message:
            return await self._post_message(wire, asked)
        if self.settings.down and asked.path.startswith("/v1/messages"):
            wire.reset()
            return False
        raw = await wire.body()
        if raw is None:
            return False
        return await wire.send(await self._other(asked, raw))

    async def _post_message(self, wire: Wire, asked: Asked) -> bool:
        key = asked.headers.get("idempotency-key")
        received = Received(time.time(), time.monotonic(), 0, asked.org or "", key)
        if await self._strikes_early(received):
            wire.reset()
            return False
        raw = await wire.body()
        received = replace(received, bytes=wire.body_bytes)
        if raw is None:
            await self._journal.write(partial(leave, received=received, outcome="incomplete"))
            return False
        try:
            verdict = await self._journal.write(self._step(asked, received, raw))
        except sqlite3.Error as problem:
            # Nothing was committed, and a client cannot know that: as with any 500.
            return await wire.send(answer_of(error(500, "journal_failed", str(problem))))
        if verdict.send_first is not None:
            await self.sender.send_first(verdict.send_first)
        self.sender.wake()
        return await wire.send(verdict.answer)

    async def _strikes_early(self, received: Received) -> bool:
        """Whether the connection is to be reset before the body is read."""
        if self.settings.down:
            await self._journal.write(partial(leave, received=received, outcome="down"))
            return True
        if not is_scripted(self._journal.db, "reset-before"):
            return False
        return await self._journal.write(partial(strike_early, received=received))

    def _step(
        self, asked: Asked, received: Received, raw: bytes
    ) -> Callable[[sqlite3.Connection], Verdict]:
        """What the journal is to do about a POST that was read whole."""
        if received.bytes > LARGEST_BODY:
            return turned_away(received, TOO_LARGE)
        if asked.org is None:
            return turned_away(received, BAD_KEY, "unauthorized")
        if self.settings.contract is Contract.REPLAY and not is_good_key(received.key):
            return turned_away(received, WRONG_KEY)
        try:
            message = read_message(raw)
        except UnreadableError as problem:
            return turned_away(received, problem.reply)
        return partial(
            take, received=received, message=message, settings=self.settings, now=time.time()
        )

    async def _other(self, asked: Asked, raw: bytes) -> Answer:
        """Answer anything but a posted message."""
        match asked.method, asked.path.split("/")[1:]:
            case "GET", [""]:
                return Answer(200, front_page().encode(), content_type="text/plain; charset=utf-8")
            case "GET", ["healthz"]:
                return json_answer(200, {"status": "ready"})
            case "GET", ["v1", "stats"]:
                return json_answer(200, await self._journal.write(entries.stats))
            case "GET", ["v1", "journal"]:
                return await self._page(asked, "messages", entries.messages_since)
            case "GET", ["v1", "requests"]:
                return await self._page(asked, "requests", entries.requests_since)
            case "GET", ["v1", "messages", *rest]:
                return await self._look_up(asked, rest)
            case "PUT", ["v1", "config"]:
                return await self._configure(raw)
            case "POST", ["v1", "reset"]:
                await self._journal.write(entries.clear)
                self.settings = self._given
                return json_answer(200, {"status": "empty"})
            case _:
                return answer_of(NOT_FOUND)

    async def _page(
        self,
        asked: Asked,
        name: str,
        read: Callable[[sqlite3.Connection, int, int], list[dict[str, Any]]],
    ) -> Answer:
        try:
            since = int(asked.query.get("since", 0))
            limit = int(asked.query.get("limit", 1_000))
        except ValueError:
            return answer_of(error(400, "bad_query", "since and limit must be whole numbers."))
        limit = max(1, min(limit, LARGEST_PAGE))
        rows = await self._journal.write(lambda db: read(db, since, limit))
        return json_answer(200, {name: rows})

    async def _look_up(self, asked: Asked, rest: list[str]) -> Answer:
        org = asked.org
        if org is None:
            return answer_of(BAD_KEY)
        if not self.settings.lookup:
            return answer_of(NO_LOOKUP)
        fields = {"id": rest[0]} if len(rest) == 1 else asked.query
        field = next((name for name in ("id", "tag", "key") if name in fields), None)
        if len(rest) > 1 or field is None or (field == "id" and not rest):
            return answer_of(
                error(400, "bad_query", "Look up by tag, by key, or by id in the path.")
            )
        value, now = fields[field], time.time()
        found = await self._journal.write(lambda db: entries.find(db, org, field, value, now))
        if not rest:
            return json_answer(200, {"messages": found})
        return json_answer(200, found[0]) if found else answer_of(NOT_FOUND)

    async def _configure(self, raw: bytes) -> Answer:
        try:
            given = json.loads(raw)
            if not isinstance(given, dict):
                raise WrongSettingError("The body is not a JSON object.")
            script = read_script(given.pop("faults")) if "faults" in given else None
            settings = changed(self.settings, given)
        except (ValueError, WrongSettingError) as problem:
            return answer_of(error(400, "bad_config", str(problem)))

        def keep(db: sqlite3.Connection) -> None:
            store(db, given)
            if script is not None:
                store_script(db, script)

        await self._journal.write(keep)
        self.settings = settings
        self.sender.wake()
        return json_answer(200, settings.public())


def leave(db: sqlite3.Connection, received: Received, *, outcome: str) -> None:
    """Enter a request that is not answered because it was never read whole."""
    answer = Manner.RESET if outcome == "down" else Manner.CUT
    entries.enter_request(db, received, outcome=outcome, status=None, answer=answer)


def strike_early(db: sqlite3.Connection, received: Received) -> bool:
    word = next_scripted(db, {"key": received.key}, only="reset-before")
    if word is not None:
        entries.enter_request(
            db, received, outcome="reset", status=None, answer=Manner.RESET, word=word
        )
    return word is not None


def turned_away(
    received: Received, reply: Reply, outcome: str = "refused"
) -> Callable[[sqlite3.Connection], Verdict]:
    return partial(refuse, received=received, reply=reply, outcome=outcome)


def is_good_key(key: str | None) -> bool:
    return key is None or KEY_FORMAT.fullmatch(key) is not None


def front_page() -> str:
    width = max(map(len, MENU)) + 2
    return PAGE + "".join(f"  {word:{width}}{fault.means}\n" for word, fault in MENU.items())
