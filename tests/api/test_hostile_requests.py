"""Bytes that no client would send, to a server that really runs: refused, and nothing created."""

import gzip
import json
import socket
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sends.models import Action, Run, SendIntent
from sends.rules.strict_json import MAX_DEPTH
from tests.api.doors import MESSAGE
from tests.commands.test_serve import serving
from tests.factories import make_agent_at, make_intent, make_token

PATHS = ("/intents", "/intents/batch", "/intents/simulate", "/runs", "/intents/{id}/versions")
GOOD = json.dumps(MESSAGE).encode()
BOMB = b"0" * 20_000_000


def request(
    path: str, body: bytes, *headers: bytes, method: bytes = b"POST", length: bytes | None = None
) -> bytes:
    """A request as it goes over the wire; `{token}` and `{id}` are filled in later."""
    size = b"Content-Length: " + (str(len(body)).encode() if length is None else length)
    given_type = any(header.lower().startswith(b"content-type") for header in headers)
    lines = [
        method + b" /api/v1" + path.encode() + b" HTTP/1.1",
        b"Host: localhost",
        b"Authorization: Bearer {token}",
        *([] if given_type else [b"Content-Type: application/json"]),
        *([size] if length != b"" else []),
        *headers,
        b"Connection: close",
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(body: bytes, size: int) -> bytes:
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def percent(raw: bytes) -> str:
    return "".join(f"%{byte:02x}" for byte in raw)


def not_a_proposal(body: bytes) -> bool:
    return not body.strip(b" \t\r\n").startswith((b"{", b"["))


def may_be_meant(body: bytes) -> bool:
    """A space or a letter that became an escape: JSON as good as before."""
    try:
        return json.loads(body).keys() == MESSAGE.keys() and b"\x7f" not in body
    except ValueError:
        return False


paths = st.sampled_from(PATHS)
line = st.binary(max_size=60).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b""))
whole = st.binary(max_size=400)
any_body = st.builds(request, paths, st.binary(max_size=300).filter(not_a_proposal))
cut_short = st.builds(
    lambda path, at: request(path, GOOD[:at]), paths, st.integers(0, len(GOOD) - 1)
)
cut_off = st.builds(
    lambda path, at: request(path, GOOD[:at], length=str(len(GOOD)).encode()),
    paths,
    st.integers(0, len(GOOD) - 1),
)
one_byte_wrong = st.builds(
    request,
    paths.filter(lambda path: path != "/intents/batch"),
    st.builds(
        lambda at, byte: GOOD[:at] + bytes([byte]) + GOOD[at + 1 :],
        st.integers(0, len(GOOD) - 1),
        st.sampled_from([0, 10, 34, 92, 127, 128, 192, 255]),
    ).filter(lambda body: not may_be_meant(body)),
)
other_type = st.builds(
    lambda path, kind: request(path, GOOD, b"Content-Type: " + kind),
    paths,
    line.filter(lambda raw: b"json" not in raw.lower() and raw.strip()),
)
deep = st.builds(
    lambda path, unit, depth: request(path, unit * depth),
    paths,
    st.sampled_from([b"[", b'{"a":', b'[{"to":', b'{"context":[']),
    st.integers(MAX_DEPTH, 50_000),
)
in_chunks = st.builds(
    lambda path, size, cut: request(
        path, chunked(GOOD, size)[: -cut or None], b"Transfer-Encoding: chunked", length=b""
    ),
    paths,
    st.integers(1, 100),
    st.integers(0, 20),
)
packed = st.builds(
    lambda path, packing: request(path, packing[1], b"Content-Encoding: " + packing[0]),
    paths,
    st.sampled_from(
        [
            (b"gzip", gzip.compress(BOMB)),
            (b"deflate", zlib.compress(BOMB)),
            (b"gzip", gzip.compress(GOOD)),
            (b"br", GOOD),
        ]
    ),
)
odd_header = st.builds(
    lambda path, name, value: request(path, b"{}", name + b": " + value),
    paths,
    st.sampled_from(
        [
            *(b"Accept", b"Authorization", b"Content-Length", b"Transfer-Encoding", b"Expect"),
            *(b"X-Request-ID", b"Idempotency-Key", b"X-Forwarded-For", b"Cookie", b"Host"),
        ]
    ),
    line,
)
odd_query = st.builds(
    lambda name, raw: request(
        f"/intents?{name}=" + "".join(f"%{b:02x}" for b in raw), b"", method=b"GET"
    ),
    st.sampled_from(["since", "cursor", "status", "run", "action_key", "limit", "x%00"]),
    st.binary(max_size=40),
)
odd_path = st.builds(lambda raw: request(f"/{percent(raw)}", GOOD), st.binary(max_size=40))
KINDS = {
    "any bytes": whole,
    "any body": any_body,
    "cut short": cut_short,
    "cut off": cut_off,
    "one byte wrong": one_byte_wrong,
    "another type": other_type,
    "deep": deep,
    "in chunks": in_chunks,
    "packed": packed,
    "an odd header": odd_header,
    "an odd query": odd_query,
    "an odd path": odd_path,
}


def answer_to(port: int, raw: bytes) -> bytes:
    """The first line of the answer; empty where the server just hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has answered before it read everything
        answer = b""
        try:
            while chunk := connection.recv(65536):
                answer += chunk
        except ConnectionResetError:
            pass
    return answer.split(b"\r\n", 1)[0]


@pytest.mark.django_db(transaction=True)
def test_nothing_of_it_is_taken_in_and_nothing_breaks(
    process_env: dict[str, str], database_url: str, free_port: int
) -> None:
    agent = make_agent_at()
    intent, token = make_intent(agent), make_token(agent)
    env = process_env | {
        "OUTBOX_DATABASE_URL": database_url,
        "OUTBOX_API_RATE": "1000000",
        "OUTBOX_API_BURST": "1000000",
        "OUTBOX_API_FAILURES": "1000000",
    }

    def ask(raw: bytes) -> bytes:
        raw = raw.replace(b"{token}", token.encode()).replace(b"{id}", str(intent.pk).encode())
        return answer_to(free_port, raw)

    @settings(
        max_examples=max(200, settings().max_examples * 2),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(*(st.tuples(st.just(name), kind) for name, kind in KINDS.items())))
    def is_refused(made_up: tuple[str, bytes]) -> None:
        name, raw = made_up
        status = ask(raw)
        # The one that RFC 9112 wants, for a transfer coding that nobody knows.
        assert b" 5" not in status[:10] or b" 501 " in status, (name, status)

    fine = request("/intents", b"", method=b"GET")
    with serving(env, free_port):
        assert b" 200 " in ask(fine)
        is_refused()
        assert b" 200 " in ask(fine)
    assert SendIntent.objects.count() == Action.objects.count() == 1
    assert not Run.objects.exists()
