"""The web server as a process of its own."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

from django.conf import settings


@contextmanager
def serving(
    env: dict[str, str], port: int, *, log: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    """A web server that listens. A pipe that nobody reads would stop it, once its log fills it."""
    server = manage(env, "serve", f"--port={port}", log=log)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == f"listening on http://127.0.0.1:{port}\n"
        yield server
    finally:
        server.kill()
        server.communicate(timeout=20)


def manage(
    env: dict[str, str], *arguments: str, log: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        env=env,
        cwd=settings.BASE_DIR,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )


def get(port: int, path: str, headers: Mapping[str, str] = {}) -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_it_answers_and_ends_when_asked(process_env: dict[str, str], free_port: int) -> None:
    with serving(process_env, free_port) as server:
        assert get(free_port, "/healthz").status == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=20) == 0


def test_into_a_file_it_says_once_and_at_once_where_it_listens(
    process_env: dict[str, str], free_port: int
) -> None:
    buffered = {name: v for name, v in process_env.items() if name != "PYTHONUNBUFFERED"}
    with serving(buffered, free_port) as server:
        server.send_signal(signal.SIGTERM)
        rest, _ = server.communicate(timeout=20)
    assert rest == ""


def test_a_host_that_is_not_ours_costs_one_line_of_log(
    process_env: dict[str, str], free_port: int
) -> None:
    with serving(process_env, free_port, log=subprocess.PIPE) as server:
        assert get(free_port, "/healthz", {"Host": "elsewhere.example.net"}).status == 400
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=20)
    lines = [json.loads(line) for line in log.splitlines()]
    (line,) = [line for line in lines if line["logger"] == "sends.request"]
    assert line["host"] == "elsewhere.example.net"
    assert "elsewhere" not in str([other for other in lines if other != line])


def test_static_files_have_their_hash_in_the_name_and_are_kept_for_years(
    process_env: dict[str, str], free_port: int
) -> None:
    with serving(process_env, free_port):
        folder = Path(process_env["OUTBOX_DATA_DIR"]) / "static"
        name = json.loads((folder / "staticfiles.json").read_text())["paths"]["sends/app.css"]
        assert name != "sends/app.css"
        answer = get(free_port, f"/static/{name}")
        assert answer.status == 200
        assert answer.headers["Cache-Control"] == "max-age=315360000, public, immutable"


def test_a_port_that_is_taken_is_one_sentence(process_env: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = manage(process_env, "serve", f"--port={port}")
        _, said = server.communicate(timeout=30)
    assert server.returncode == 1
    assert said == (
        f"CommandError: Port {port} on 127.0.0.1 cannot be used: address already in use."
        " Give another one with --port or PORT=.\n"
    )
