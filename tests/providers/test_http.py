"""The HTTP room against servers that break in every place."""

import gzip
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sends.providers import http
from sends.providers.http import LONGEST_BODY, Answer, Http, clock, why_unsafe
from sends.rules.outcomes import Phase

from .servers import OK, Peer, Script, Server, serving

BODY = b'{"subject": "hello"}'
FORGED = b"HTTP/1.1 201 FORGED\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def room() -> Iterator[Http]:
    room = Http(size=16)
    yield room
    room.close()


# Where nothing is to end in time; and what is far less than that on the busiest machine.
LONG = 60.0
SOON = 20.0


def post(room: Http, url: str, *, seconds: float = LONG, **changes: Any) -> Answer:
    options: dict[str, Any] = {
        "account": "account",
        "headers": {"Content-Type": "application/json"},
        "body": BODY,
        "deadline": clock() + seconds,
        "reuse_idle": True,
    }
    return room.send("POST", url, **options | changes)


def say(content: bytes) -> Script:
    """Read a request, say this, close."""
    return lambda peer: peer.answer(content)


@contextmanager
def full_queue() -> Iterator[int]:
    """The port of a listener whose queue is full, so that Linux answers no further SYN."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])


# -- an answer


def test_an_answer_comes_with_its_phases_bytes_and_seconds(room: Http) -> None:
    with serving(say(OK)) as server:
        answer = post(room, server.url)
    assert (answer.status, answer.body, answer.error) == (200, b"hi", "")
    assert answer.phase is Phase.ANSWERED
    assert answer.bytes_sent == answer.bytes_total == len(server.received()[0])
    steps = [answer.seconds[step] for step in ("connect", "sent", "first_byte", "end")]
    assert steps == sorted(steps)


def test_the_request_is_what_was_given_and_nothing_of_the_environment(
    room: Http, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with serving(say(OK)) as server:
        answer = post(room, server.url + "?a=b%20c", headers={"X-One": "1"})
    assert answer.status == 200
    head, _, body = server.received()[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /v1/messages?a=b%20c HTTP/1.1"
    assert {line.partition(b":")[0].lower() for line in lines[1:]} == {
        *(b"host", b"accept-encoding", b"user-agent", b"content-length", b"x-one"),
    }
    assert body == BODY


def test_header_names_come_in_lower_case(room: Http) -> None:
    with serving(
        say(b"HTTP/1.1 202 Accepted\r\nX-Message-ID: A1\r\nContent-Length: 0\r\n\r\n")
    ) as s:
        assert post(room, s.url).headers["x-message-id"] == "A1"


def test_a_body_of_100_kb_is_read_up_to_64(room: Http) -> None:
    big = b"HTTP/1.1 200 OK\r\nContent-Length: 102400\r\n\r\n" + b"x" * 102_400
    with serving(say(big)) as server:
        answer = post(room, server.url)
    assert (answer.status, answer.phase, answer.error) == (200, Phase.ANSWERED, "")
    assert len(answer.body) == LONGEST_BODY


def test_an_endless_body_does_not_hold_the_thread(room: Http) -> None:
    def script(peer: Peer) -> None:
        peer.answer(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            peer.send(b"x" * 4_096)

    with serving(script) as server:
        answer = post(room, server.url)
    assert (answer.error, len(answer.body)) == ("", LONGEST_BODY)


@pytest.mark.parametrize(
    ("head", "body", "expected"),
    [
        (b"Transfer-Encoding: chunked", b"2\r\nhi\r\n3\r\nyou\r\n0\r\n\r\n", b"hiyou"),
        (b"Content-Length: 0", b"", b""),
        (b"Connection: close", b"until the end", b"until the end"),
        (b"Content-Encoding: gzip", gzip.compress(b"packed", mtime=0), b"packed"),
        (b"Content-Length: 4", b"\xff\xfe\x00a", b"\xff\xfe\x00a"),
    ],
)
def test_a_body_is_read_however_it_is_framed(
    room: Http, head: bytes, body: bytes, expected: bytes
) -> None:
    with serving(say(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body)) as server:
        answer = post(room, server.url)
    assert (answer.status, answer.error, answer.body) == (200, "", expected)


def test_a_redirect_is_an_answer_and_is_not_followed(room: Http) -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    with serving(lambda peer: [peer.answer(moved), peer.answer(OK)]) as server:
        answer = post(room, server.url)
        room.close()
        assert answer.status == 302
        assert [received.count(b"POST") for received in server.received()] == [1]


def test_an_answer_that_comes_before_the_whole_body_is_read(room: Http) -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        peer.socket.shutdown(socket.SHUT_WR)
        peer.read_to_the_end()

    with serving(script) as server:
        assert post(room, server.url, body=b"x" * 1_000_000).status == 413


def test_interim_answers_are_passed_over(room: Http) -> None:
    with serving(say(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)) as server:
        assert post(room, server.url).status == 200


def test_cookies_are_neither_kept_nor_sent(room: Http) -> None:
    cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"

    def script(peer: Peer) -> None:
        while peer.answer(cookie):
            pass

    with serving(script) as server:
        post(room, server.url)
        post(room, server.url)
        room.close()
        assert b"cookie" not in server.received()[0].lower()


# -- no connection: nothing can have arrived


def test_a_name_that_does_not_exist_is_dns(room: Http) -> None:
    answer = post(room, "https://name.invalid/")
    assert (answer.phase, answer.error, answer.bytes_sent) == (Phase.CONNECTING, "dns", 0)


def test_a_name_service_that_does_not_answer_is_left_behind(
    room: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()

    def hang(*_: Any, flags: int = 0, **__: Any) -> Any:
        if not flags & socket.AI_NUMERICHOST:
            let_go.wait(LONG)
        raise socket.gaierror("no")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    began = time.monotonic()
    answer = post(room, "https://slow.test/", connect_seconds=1)
    let_go.set()
    assert (answer.phase, answer.error) == (Phase.CONNECTING, "dns")
    assert time.monotonic() - began < SOON


def test_a_port_that_nobody_listens_on_is_refused(room: Http, free_port: int) -> None:
    answer = post(room, f"http://127.0.0.1:{free_port}/")
    assert (answer.phase, answer.error) == (Phase.CONNECTING, "refused")
    assert answer.bytes_total == len(BODY)


def test_a_host_that_does_not_answer_is_a_connect_timeout(room: Http) -> None:
    with full_queue() as port:
        began = time.monotonic()
        answer = post(room, f"http://127.0.0.1:{port}/", connect_seconds=1)
    assert (answer.phase, answer.error) == (Phase.CONNECTING, "connect_timeout")
    assert time.monotonic() - began < SOON


def test_the_next_address_of_a_host_is_tried(
    room: Http, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    with serving(say(OK)) as server:
        family = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        two = [(*family, ("127.0.0.1", free_port)), (*family, ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: two)
        assert post(room, server.url.replace("127.0.0.1", "localhost")).status == 200


def test_ipv6(room: Http) -> None:
    try:
        server = Server(say(OK), host="::1")
    except OSError:
        pytest.skip("no IPv6 on the loopback")
    try:
        assert post(room, server.url).status == 200
    finally:
        server.close()
    assert f"Host: [::1]:{server.port}".encode() in server.received()[0]


def test_past_not_after_no_byte_is_written(room: Http) -> None:
    with serving(Peer.read_to_the_end) as server:
        answer = post(room, server.url, not_after=clock() - 0.001)
        assert (answer.phase, answer.error) == (Phase.CONNECTED, "too_late")
        assert (answer.bytes_sent, server.received()) == (0, [b""])


def test_past_not_after_a_kept_connection_is_not_written_to_either(room: Http) -> None:
    with serving(lambda peer: [peer.answer(), peer.read_to_the_end()]) as server:
        assert post(room, server.url).status == 200
        answer = post(room, server.url, not_after=clock() - 0.001)
        assert (answer.phase, answer.error) == (Phase.CONNECTED, "too_late")
        assert [received.count(b"POST") for received in server.received()] == [1]


def test_a_deadline_that_has_passed_writes_nothing(room: Http) -> None:
    with serving(Peer.read_to_the_end) as server:
        answer = post(room, server.url, seconds=-1)
        assert answer.phase < Phase.DISPATCHED
        assert answer.bytes_sent == 0


def test_the_clock_counts_the_time_asleep() -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("no CLOCK_BOOTTIME")
    assert abs(clock() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


# -- written, and no answer: it may have been taken


@pytest.mark.parametrize(
    ("script", "phase", "error"),
    [
        (lambda peer: peer.read_request(), Phase.SENT, "closed"),
        (lambda peer: [peer.read_request(), peer.reset()], Phase.SENT, "reset"),
        (say(b"HTTP/1.1 2"), Phase.ANSWERING, "bad_answer"),
        (say(b"SSH-2.0-OpenSSH_9.2\r\n"), Phase.ANSWERING, "bad_answer"),
        (say(b"\x00\xff\x00\xff" * 50), Phase.ANSWERING, "bad_answer"),
        (say(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"), Phase.ANSWERING, "bad_answer"),
        (say(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 99_999), Phase.ANSWERING, "bad_answer"),
    ],
)
def test_without_a_whole_head_it_may_have_been_taken(
    room: Http, script: Script, phase: Phase, error: str
) -> None:
    with serving(script) as server:
        answer = post(room, server.url)
    assert (answer.phase, answer.error, answer.status) == (phase, error, None)
    assert answer.bytes_sent == answer.bytes_total


def test_a_reset_in_the_middle_of_the_request(room: Http) -> None:
    with serving(lambda peer: [peer.read_head(), peer.reset()]) as server:
        answer = post(room, server.url, body=b"x" * 30_000_000)
    assert answer.phase is Phase.DISPATCHED
    assert answer.error in ("reset", "closed")
    assert 0 < answer.bytes_sent < answer.bytes_total


def test_a_request_that_is_not_read_ends_at_the_deadline(room: Http) -> None:
    done = threading.Event()
    with serving(lambda peer: done.wait(LONG)) as server:
        began = time.monotonic()
        answer = post(room, server.url, seconds=1, body=b"x" * 30_000_000)
        done.set()
    assert (answer.phase, answer.error) == (Phase.DISPATCHED, "write_timeout")
    assert 0 < answer.bytes_sent < answer.bytes_total
    assert time.monotonic() - began < SOON


def test_no_answer_ends_at_the_deadline(room: Http) -> None:
    with serving(lambda peer: [peer.read_request(), peer.read_to_the_end()]) as server:
        began = time.monotonic()
        answer = post(room, server.url, seconds=1)
    assert (answer.phase, answer.error) == (Phase.SENT, "deadline")
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize(
    ("head", "dripped", "phase", "status"),
    [
        (b"", b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20, Phase.ANSWERING, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", b"x" * 99, Phase.ANSWERED, 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"01\r\nx\r\n" * 9, 6, 200),
    ],
    ids=["the head", "the body", "chunks"],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_single_bytes_cannot_outlive_the_deadline(
    request: pytest.FixtureRequest,
    room: Http,
    scheme: str,
    head: bytes,
    dripped: bytes,
    phase: Phase,
    status: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deadline passes while the answer drips in, on a clock that its sender moves."""
    tls = None
    if scheme == "https":
        certificate: Certificate = request.getfixturevalue("certificate")
        tls, room = certificate.context, Http(ca_file=certificate.path)

    skipped = [0.0]
    monkeypatch.setattr("sends.providers.http.clock", lambda: clock() + sum(skipped))

    def script(peer: Peer) -> None:
        peer.answer(head)
        peer.drip(dripped, then=lambda: skipped.append(LONG))

    with serving(script, tls=tls) as server:
        answer = post(room, server.url, seconds=LONG)
    room.close()
    assert (answer.phase, answer.error, answer.status) == (phase, "deadline", status)


def test_endless_interim_answers_cannot_outlive_the_deadline(room: Http) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        while True:
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 20)

    with serving(script) as server:
        began = time.monotonic()
        answer = post(room, server.url, seconds=1)
    assert (answer.error, answer.status) == ("deadline", None)
    assert time.monotonic() - began < SOON


# -- an answer that is cut is an answer


@pytest.mark.parametrize(
    ("content", "body"),
    [
        (b'HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\n{"id": "sbx', b'{"id": "sbx'),
        (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{", b"{"),
        (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"{"),
    ],
)
def test_of_a_cut_body_the_status_and_the_beginning_are_known(
    room: Http, content: bytes, body: bytes
) -> None:
    with serving(say(content)) as server:
        answer = post(room, server.url)
    assert (answer.phase, answer.status, answer.error) == (Phase.ANSWERED, 201, "cut")
    assert answer.body == body


def test_of_a_cut_head_no_header_is_believed(room: Http) -> None:
    with serving(say(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nX-Message-Id: A1")) as server:
        answer = post(room, server.url)
    assert (answer.phase, answer.status, answer.error) == (Phase.ANSWERED, 202, "cut")
    assert (answer.headers, answer.body) == ({}, b"")


def test_a_body_that_cannot_be_unpacked_leaves_the_status(room: Http) -> None:
    junk = b"HTTP/1.1 422 No\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\njunk"
    with serving(say(junk)) as server:
        answer = post(room, server.url)
    assert (answer.phase, answer.status, answer.error) == (Phase.ANSWERED, 422, "bad_answer")


# -- kept connections


def keep_answering(peer: Peer) -> None:
    while peer.answer():
        pass


def test_a_connection_is_kept_where_that_is_safe(room: Http) -> None:
    with serving(keep_answering) as server:
        answers = [post(room, server.url) for _ in range(3)]
        assert len(server.peers) == 1
    assert [answer.status for answer in answers] == [200] * 3
    assert "connect" not in answers[1].seconds


def test_without_reuse_each_request_has_its_own_connection(room: Http) -> None:
    with serving(keep_answering) as server:
        statuses = [post(room, server.url, reuse_idle=False).status for _ in range(3)]
        assert statuses == [200] * 3
        # Each was closed by us after its answer: all scripts end without room.close().
        assert [received.count(b"POST") for received in server.received(3)] == [1, 1, 1]


def test_without_reuse_a_connection_that_another_request_kept_is_not_taken(room: Http) -> None:
    with serving(keep_answering) as server:
        post(room, server.url, reuse_idle=True)
        post(room, server.url, reuse_idle=False)
        assert len(server.peers) == 2


def test_a_kept_connection_that_was_closed_is_replaced(room: Http) -> None:
    closed = threading.Event()

    def script(peer: Peer) -> None:
        peer.answer()
        peer.socket.close()
        closed.set()

    with serving(script) as server:
        assert post(room, server.url).status == 200
        assert closed.wait(5)
        assert post(room, server.url).status == 200


def test_a_kept_connection_that_breaks_after_the_write_leaves_doubt(room: Http) -> None:
    def script(peer: Peer) -> None:
        peer.answer()
        peer.read_request()
        peer.reset()

    with serving(script) as server:
        post(room, server.url)
        answer = post(room, server.url)
        assert len(server.peers) == 1
    assert (answer.phase, answer.error) == (Phase.SENT, "reset")


def test_nothing_is_in_doubt_where_the_kernel_took_no_byte() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    progress = http._Progress(clock() + 5, None, 5, True, 0)
    token = http._current.set(progress)
    with ours, pytest.raises(BrokenPipeError):
        http._Wire(ours).sendall(b"POST")
    http._current.reset(token)
    assert (progress.phase, progress.bytes_sent) == (Phase.CONNECTED, 0)


@pytest.mark.parametrize("at_once", [True, False])
def test_what_follows_an_answer_is_never_read_as_the_next_one(room: Http, at_once: bool) -> None:
    arrived = threading.Event()

    def script(peer: Peer) -> None:
        peer.answer(OK + FORGED if at_once else OK)
        if not at_once:
            peer.send(FORGED)
        arrived.set()
        keep_answering(peer)

    with serving(script) as server:
        assert post(room, server.url).status == 200
        assert arrived.wait(5)
        answer = post(room, server.url)
    assert (answer.status, answer.body) == (200, b"hi")


def test_accounts_share_no_connection(room: Http) -> None:
    with serving(keep_answering) as server:
        post(room, server.url, account="one")
        post(room, server.url, account="two")
        assert len(server.peers) == 2


def test_threads_that_share_the_room_get_their_own_answers(room: Http) -> None:
    def script(peer: Peer) -> None:
        while request := peer.read_request():
            body = request.partition(b"\r\n\r\n")[2]
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with serving(script) as server, ThreadPoolExecutor(16) as pool:
        bodies = [f"body {number}".encode() * (1 + number % 7) for number in range(300)]
        answers = list(pool.map(lambda body: post(room, server.url, body=body), bodies))
        assert [answer.body for answer in answers] == bodies
        assert len(server.peers) <= 16


# -- URLs


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://127.0.0.1:8026",
        "http://127.9.9.9/",
        "http://localhost:8026/x",
        "http://[::1]:80/",
    ],
)
def test_a_url_that_is_safe(url: str) -> None:
    assert why_unsafe(url) == ""


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("http://api.example.com/v1", "not encrypted"),
        ("http://127.0.0.1.example.com/", "not encrypted"),
        ("http://localhost.example.com/", "not encrypted"),
        ("http://10.0.0.1/", "not encrypted"),
        ("http://[::2]/", "not encrypted"),
        ("ftp://example.com/", "not a URL with a host"),
        ("api.example.com", "not a URL with a host"),
        ("https://", "not a URL with a host"),
        ("", "not a URL with a host"),
        ("https://me:secret@example.com/", "password"),
        ("https://example.com:port/", "cannot be read"),
        ("https://[::1/", "cannot be read"),
    ],
)
def test_a_url_that_is_not_safe_is_refused_before_the_network(
    room: Http, url: str, word: str
) -> None:
    assert word in why_unsafe(url)
    assert "secret" not in why_unsafe(url)
    with pytest.raises(ValueError, match=r"URL|encrypted"):
        post(room, url)


# -- TLS


class Certificate:
    """A self-signed one for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "certificate.pem"
        key = folder / "key.pem"
        command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        command += f" -subj /CN=test -addext subjectAltName=IP:127.0.0.1 -keyout {key}"
        subprocess.run(
            [*command.split(), "-out", str(self.path)], check=True, capture_output=True, timeout=30
        )
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.path, key)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    if not shutil.which("openssl"):
        pytest.skip("no openssl on the path")
    return Certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def trusting(certificate: Certificate) -> Iterator[Http]:
    room = Http(ca_file=certificate.path)
    yield room
    room.close()


def test_over_tls_the_phases_are_the_same(trusting: Http, certificate: Certificate) -> None:
    with serving(keep_answering, tls=certificate.context) as server:
        answer, again = post(trusting, server.url), post(trusting, server.url)
        assert len(server.peers) == 1
    assert (answer.status, answer.body, answer.phase) == (200, b"hi", Phase.ANSWERED)
    steps = [answer.seconds[step] for step in ("connect", "tls", "sent", "first_byte", "end")]
    assert steps == sorted(steps)
    assert (again.status, again.bytes_sent) == (200, again.bytes_total)


def test_over_tls_without_reuse_each_request_has_its_own_connection(
    trusting: Http, certificate: Certificate
) -> None:
    with serving(keep_answering, tls=certificate.context) as server:
        assert [post(trusting, server.url, reuse_idle=False).body for _ in range(2)] == [b"hi"] * 2
        assert len(server.received(2)) == 2


@pytest.mark.parametrize(
    ("script", "phase", "errors"),
    [
        (lambda peer: peer.read_request(), Phase.SENT, {"closed"}),
        # OpenSSL tells an RST from an end only at times.
        (lambda peer: [peer.read_request(), peer.reset()], Phase.SENT, {"reset", "closed"}),
        (say(b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{"), Phase.ANSWERED, {"cut"}),
    ],
)
def test_over_tls_the_failures_are_the_same(
    trusting: Http, certificate: Certificate, script: Script, phase: Phase, errors: set[str]
) -> None:
    with serving(script, tls=certificate.context) as server:
        answer = post(trusting, server.url)
    assert answer.phase is phase
    assert answer.error in errors


def test_a_certificate_that_nobody_vouches_for_ends_it_before_the_request(
    room: Http, certificate: Certificate
) -> None:
    with serving(keep_answering, tls=certificate.context) as server:
        answer = post(room, server.url)
        assert (answer.phase, answer.error) == (Phase.CONNECTING, "tls")
        assert "certificate" in answer.detail
        assert server.received(0) == []


def test_a_certificate_for_another_host_ends_it_before_the_request(
    trusting: Http, certificate: Certificate
) -> None:
    with serving(keep_answering, tls=certificate.context) as server:
        answer = post(trusting, server.url.replace("127.0.0.1", "localhost"))
    assert (answer.phase, answer.error) == (Phase.CONNECTING, "tls")


def test_a_server_that_speaks_no_tls(room: Http) -> None:
    with serving(say(OK)) as server:
        answer = post(room, server.url.replace("http:", "https:"), connect_seconds=1)
    assert (answer.phase, answer.error) == (Phase.CONNECTING, "tls")


@pytest.mark.parametrize("hello", [b"", b"\x16\x03\x03\x40\x00" + b"\x02" * 99])
def test_a_handshake_that_never_ends_is_over_in_time(room: Http, hello: bytes) -> None:
    def script(peer: Peer) -> None:
        peer.drip(hello)
        peer.read_to_the_end()

    with serving(script) as server:
        began = time.monotonic()
        answer = post(room, server.url.replace("http:", "https:"), connect_seconds=1)
    assert (answer.phase, answer.error) == (Phase.CONNECTING, "tls")
    assert time.monotonic() - began < SOON
