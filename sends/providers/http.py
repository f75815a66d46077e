"""The one place that calls requests: one absolute deadline, and how far a request got."""

import contextlib
import http.client
import ipaddress
import logging
import queue
import socket
import ssl
import threading
import time
from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from http.cookiejar import DefaultCookiePolicy
from io import BufferedReader
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.hooks import default_hooks
from requests.structures import CaseInsensitiveDict
from requests.utils import DEFAULT_CA_BUNDLE_PATH
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, IncompleteRead, ProtocolError

from sends.rules.outcomes import Phase

logger = logging.getLogger(__name__)

LONGEST_BODY = 64 * 1024
_CHUNK = 16 * 1024
# Counts the time in which the machine was asleep: a laptop that wakes up must not send what was
# due hours ago. On macOS CLOCK_MONOTONIC counts it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """The clock of `deadline` and `not_after`: seconds that never go back and never stop."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True)
class Answer:
    """What came back, or how far the request got.

    `error` is "" or one word: dns, refused, unreachable, connect_timeout, tls, too_late,
    write_timeout, reset, closed, deadline, bad_answer, cut, internal. With a `status` it is about
    the rest of the answer: "cut" and "deadline" say that the head or the body did not come whole;
    of a cut head no header is kept. `headers` have lower-case names; `body` is at most
    LONGEST_BODY. `seconds` says when each step was reached, counted from the call.
    """

    phase: Phase
    error: str = ""
    detail: str = ""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    bytes_sent: int = 0
    bytes_total: int = 0
    seconds: dict[str, float] = field(default_factory=dict)


def why_unsafe(url: str) -> str:
    """Why nothing may be sent to this URL, in words, or "" for a good one."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as failure:
        return f"{url!r} cannot be read as a URL: {failure}"
    if not host or parts.scheme not in ("http", "https"):
        return f"{url!r} is not a URL with a host; give one that starts with https://"
    if parts.username is not None or parts.password is not None:
        return "the URL holds a user name or password; give the credential by its reference instead"
    if parts.scheme == "http" and not _is_loopback(host):
        return f"{url!r} is not encrypted; give one that starts with https://"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Http:
    """The keep-alive connections of this process, a session for each account; for any thread.

    No retries, redirects, cookies, proxies or netrc. `size` is how many idle connections an
    account keeps: as many as there are threads. `ca_file` names authorities to trust beside the
    usual ones.
    """

    def __init__(self, *, size: int = 64, ca_file: Path | None = None) -> None:
        self._size = size
        self._ca_file = ca_file
        self._sessions: dict[Hashable, requests.Session] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def send(
        self,
        method: str,
        url: str,
        *,
        account: Hashable,
        headers: Mapping[str, str],
        body: bytes = b"",
        deadline: float,
        not_after: float | None = None,
        connect_seconds: float = 5.0,
        reuse_idle: bool,
    ) -> Answer:
        """One request and its answer. Trouble of the network is an Answer, never an exception.

        `deadline` ends everything; past `not_after` no first byte is written. Both are moments
        of `clock()`. Give `reuse_idle=False` where a repeat is not safe: a kept connection may
        just have been closed by the other side, and what is written to it then is in doubt.
        """
        if reason := why_unsafe(url):
            raise ValueError(reason)
        progress = _Progress(deadline, not_after, connect_seconds, reuse_idle, len(body))
        token = _current.set(progress)
        try:
            self._exchange(self._session(account), _prepared(method, url, headers, body), progress)
        finally:
            _current.reset(token)
        return progress.answer()

    def _session(self, account: Hashable) -> requests.Session:
        with self._lock:
            if account not in self._sessions:
                self._sessions[account] = _Session(_Doors(self._size, self._ca_file))
            return self._sessions[account]

    def _exchange(
        self, session: requests.Session, request: requests.PreparedRequest, progress: "_Progress"
    ) -> None:
        try:
            response = session.send(request, stream=True, allow_redirects=False, proxies={})
            with contextlib.closing(response):
                progress.answered(response)
                if not progress.error:
                    _read_body(response, progress)
        except _Stopped as stopped:
            progress.error, progress.detail = stopped.error, stopped.detail
        except (requests.RequestException, HTTPError, http.client.HTTPException, OSError) as broken:
            progress.broke(broken)
        except Exception:
            if progress.phase < Phase.DISPATCHED:
                raise
            # What was sent is in doubt, whatever our own fault was: that must not get lost.
            logger.exception("an answer could not be handled")
            progress.error = "internal"
        progress.mark("end")


def _prepared(
    method: str, url: str, headers: Mapping[str, str], body: bytes
) -> requests.PreparedRequest:
    """Made by hand: `prepare()` costs more than all else of a request, and would touch headers."""
    request = requests.PreparedRequest()
    request.method = method
    request.url = url
    request.headers = CaseInsensitiveDict({"User-Agent": "outbox-admin", **headers})
    request.body = body or None
    request.hooks = default_hooks()
    if body:
        request.headers["Content-Length"] = str(len(body))
    return request


def _read_body(response: requests.Response, progress: "_Progress") -> None:
    """Best effort: what came before a cut is kept."""
    while len(progress.body) < LONGEST_BODY:
        part = response.raw.read1(_CHUNK, decode_content=True)
        if not part:
            return
        progress.body = (progress.body + part)[:LONGEST_BODY]


class _Stopped(Exception):
    """Ended by ourselves at the connection; passes through urllib3 and requests untouched."""

    def __init__(self, error: str, detail: object = "") -> None:
        super().__init__(error)
        self.error = error
        self.detail = str(detail)


class _Progress:
    """How far the request of this thread got; the connection writes it down as it happens."""

    def __init__(
        self,
        deadline: float,
        not_after: float | None,
        connect_seconds: float,
        reuse_idle: bool,
        body_length: int,
    ) -> None:
        self.began = clock()
        self.deadline = deadline
        self.not_after = not_after
        self.connect_by = min(deadline, self.began + connect_seconds)
        self.reuse_idle = reuse_idle
        self.phase = Phase.PREPARED
        self.error = self.detail = ""
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.body = b""
        self.head_written = False
        self.ended = False  # the other side sent its end of file
        self.bytes_sent = 0
        self.bytes_total = body_length
        self.seconds: dict[str, float] = {}

    def mark(self, step: str) -> None:
        self.seconds[step] = round(clock() - self.began, 6)

    def left(self, error: str) -> float:
        """Seconds up to the deadline, or a stop with this error."""
        seconds = self.deadline - clock()
        if seconds <= 0:
            raise _Stopped(error)
        return seconds

    def left_to_connect(self, error: str = "connect_timeout") -> float:
        seconds = self.connect_by - clock()
        if seconds <= 0:
            raise _Stopped(error)
        return seconds

    def writing_head(self, length: int) -> None:
        """The last look at the clock before the first byte."""
        self.head_written = True
        self.bytes_total += length
        self.phase = Phase.CONNECTED
        if self.not_after is not None and clock() > self.not_after:
            raise _Stopped("too_late")

    def wrote(self, count: int) -> None:
        self.bytes_sent += count
        self.phase = max(self.phase, Phase.DISPATCHED)
        if self.bytes_sent == self.bytes_total:
            self.phase = max(self.phase, Phase.SENT)
            self.mark("sent")

    def read(self, count: int) -> None:
        if not count:
            self.ended = True
        elif self.phase < Phase.ANSWERING:
            self.phase = Phase.ANSWERING
            self.mark("first_byte")

    def answered(self, response: requests.Response) -> None:
        self.status = response.status_code
        self.phase = Phase.ANSWERED
        if self.ended:
            # http.client takes a head that ends too early for a whole one. Its last header may
            # be half of one: half a message id, half a Retry-After.
            self.error = "cut"
            return
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    def broke(self, broken: Exception) -> None:
        self.detail = type(broken).__name__
        if self.status is not None:
            is_cut = isinstance(broken, IncompleteRead | ProtocolError)
            self.error = "cut" if is_cut else "bad_answer"
        elif self.error:
            pass  # named where it happened
        elif self.phase == Phase.ANSWERING:
            self.error = "bad_answer"
        else:
            self.error = "closed" if self.ended else "reset"

    def answer(self) -> Answer:
        return Answer(
            phase=self.phase,
            error=self.error,
            detail=self.detail,
            status=self.status,
            headers=self.headers,
            body=self.body,
            bytes_sent=self.bytes_sent,
            bytes_total=self.bytes_total,
            seconds=self.seconds,
        )


# A connection is used by one thread at a time, but by another one for each request.
_current: ContextVar[_Progress] = ContextVar("progress")


class _Wire:
    """A connected socket whose every call ends at the deadline and is written down.

    Each call gets the time that is left, so that no number of single bytes, each of them in
    time, adds up to more.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._is_tls = isinstance(connected, ssl.SSLSocket)

    def sendall(self, data: bytes) -> None:
        progress = _current.get()
        if not progress.head_written:
            progress.writing_head(len(data))
        rest = memoryview(data)
        while rest:
            self._socket.settimeout(progress.left("write_timeout"))
            if self._is_tls:
                # A record may have left although the call fails; of plain TCP none has.
                progress.wrote(0)
            try:
                count = self._socket.send(rest)
            except TimeoutError:
                raise _Stopped("write_timeout") from None
            progress.wrote(count)
            rest = rest[count:]

    def recv_into(self, buffer: memoryview) -> int:
        progress = _current.get()
        self._socket.settimeout(progress.left("deadline"))
        try:
            count = self._socket.recv_into(buffer)
        except TimeoutError:
            raise _Stopped("deadline") from None
        except ssl.SSLError:
            progress.error = "tls"
            raise
        except OSError:
            progress.error = "reset"
            raise
        progress.read(count)
        return count

    def makefile(self, mode: str) -> BufferedReader:
        """For http.client; counted, so that the socket stays open until the last file is closed."""
        raw = socket.SocketIO(cast(socket.socket, self), "r")
        self._socket._io_refs += 1  # type: ignore[attr-defined]
        return BufferedReader(raw, _CHUNK)

    def _decref_socketios(self) -> None:
        self._socket._decref_socketios()  # type: ignore[attr-defined]

    def settimeout(self, seconds: float | None) -> None:
        """Nothing: only the deadline counts."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def shutdown(self, how: int) -> None:
        self._socket.shutdown(how)

    def close(self) -> None:
        self._socket.close()


class _Response(http.client.HTTPResponse):
    def begin(self) -> None:
        super().begin()
        if not _current.get().reuse_idle:
            self.will_close = True


class _Connection(HTTPConnection):
    response_class = _Response

    @property
    def is_connected(self) -> bool:
        """What the pool asks before it hands out a kept connection again."""
        return _current.get().reuse_idle and super().is_connected

    def _new_conn(self) -> socket.socket:
        progress = _current.get()
        progress.phase = Phase.CONNECTING
        addresses = _resolve(self._dns_host.strip("[]"), self.port, progress)
        connected = _open(addresses, progress)
        progress.mark("connect")
        connected.settimeout(progress.left_to_connect())  # of the whole TLS handshake, if any
        return connected

    def connect(self) -> None:
        super().connect()
        self.sock = cast(Any, _Wire(self.sock))
        _current.get().phase = Phase.CONNECTED

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        self.sock.sendall(data)


class _TLSConnection(_Connection, HTTPSConnection):
    def connect(self) -> None:
        try:
            super().connect()
        except _Stopped:
            raise
        except (OSError, ValueError, HTTPError) as failure:
            raise _Stopped("tls", failure) from failure
        _current.get().mark("tls")


def _resolve(host: str, port: int, progress: _Progress) -> list[Any]:
    """The addresses of a host. getaddrinfo knows no deadline, so it is asked in a thread that is
    left behind when it takes too long."""
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    with contextlib.suppress(OSError, UnicodeError):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    found: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as failure:
            found.put(failure)

    threading.Thread(target=ask, name="resolve", daemon=True).start()
    try:
        addresses = found.get(timeout=progress.left_to_connect("dns"))
    except queue.Empty:
        raise _Stopped("dns", "the name service did not answer in time") from None
    if isinstance(addresses, Exception):
        raise _Stopped("dns", addresses)
    return addresses


def _open(addresses: list[Any], progress: _Progress) -> socket.socket:
    """Connect to the first address that answers; each gets its share of the time that is left."""
    stopped = _Stopped("unreachable", "the host has no address")
    for place, (family, kind, protocol, _, address) in enumerate(addresses):
        seconds = progress.left_to_connect() / (len(addresses) - place)
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.settimeout(seconds)
            opened.connect(address)
            if opened.getsockname() == opened.getpeername():
                # Linux connects a socket with itself where nobody listens on a port that it
                # happens to get as its own: we would read back our own request.
                raise ConnectionRefusedError("connected to itself")
            return opened
        except OSError as failure:
            opened.close()
            stopped = _Stopped(_connect_error(failure), failure)
    raise stopped


def _connect_error(failure: OSError) -> str:
    if isinstance(failure, TimeoutError):
        return "connect_timeout"
    return "refused" if isinstance(failure, ConnectionRefusedError) else "unreachable"


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class _Doors(HTTPAdapter):
    """Pools whose connections are ours."""

    def __init__(self, size: int, ca_file: Path | None) -> None:
        self._ca_file = ca_file
        super().__init__(pool_connections=4, pool_maxsize=size, max_retries=0)

    def init_poolmanager(self, *sizes: Any, **options: Any) -> None:
        super().init_poolmanager(*sizes, ssl_context=trusted(self._ca_file), **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def get_connection_with_tls_context(
        self, request: requests.PreparedRequest, *_: Any, **__: Any
    ) -> HTTPConnectionPool:
        pool: HTTPConnectionPool = self.poolmanager.connection_from_url(str(request.url))
        return pool

    def cert_verify(self, *_: Any, **__: Any) -> None:
        """Nothing to set: the TLS context verifies certificate and host, always."""


class _Session(requests.Session):
    def __init__(self, doors: _Doors) -> None:
        super().__init__()
        self.trust_env = False
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.mount("https://", doors)
        self.mount("http://", doors)

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Never any: even where it does not follow one, requests would read its whole body."""


@cache
def trusted(ca_file: Path | None = None) -> ssl.SSLContext:
    """The authorities of the system, those that come with requests, and our own."""
    context = ssl.create_default_context()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context
