"""Nothing that people or programs wrote is in the log, whatever goes well or wrong.

Everything written here holds the word ZEBRA, and so does what the log must not repeat of it. The
installation is a real one, at the level that logs most.
"""

import json
import os
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.installation import Installation
from tests.ports import free_port

ZEBRA = "zebra"
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
# Each way in which an attempt can end that is over quickly; the last one blocks the account.
WORDS = (
    *("delivered", "bounce", "complain", "refuse-one", "lost-answer", "cut-answer", "cut-json"),
    *("non-utf8", "no-proof", "html-200", "http-500-always", "reset-before", "reset-after"),
    *("bad-request", "unprocessable", "suppressed", "too-large", "not-found", "rejected-body"),
    *("busy-none", "http-501", "key-conflict", "badkey"),
)
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("installation")


@pytest.fixture(scope="module")
def installation(folder: Path) -> Iterator[Installation]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    env |= {
        "OUTBOX_DATA_DIR": str(folder),
        "OUTBOX_LOG_FORMAT": "JSON",
        "OUTBOX_LOG_LEVEL": "DEBUG",
        "PORT": str(free_port()),
        "SANDBOX_PORT": str(free_port()),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "outbox_admin.settings",
    }
    started = Installation(env)
    try:
        started.wait_until_it_says("Ctrl-C stops it.")
        yield started
    finally:
        started.end()


class Caller:
    """An agent and a person of the demonstration, who write zebras everywhere."""

    def __init__(self, folder: Path) -> None:
        self.access = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
        self.url = self.access["url"]
        self.browser = requests.Session()

    def api(self, method: str, path: str, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.access['agent_token']}"}
        headers |= options.pop("headers", {})
        url = f"{self.url}/api/v1{path}"
        return requests.request(method, url, headers=headers, timeout=60, **options)

    def propose(self, word: str) -> requests.Response:
        document = {
            "action_key": f"{ZEBRA}-key:{word}",
            "to": [{"address": f"{word}+{ZEBRA}@example.org", "name": f"Al {ZEBRA}"}],
            "subject": f"{ZEBRA} subject",
            "text": f"{ZEBRA} text",
            "html": f"<p>{ZEBRA} html</p>",
            "reason": f"{ZEBRA} reason",
            "metadata": {ZEBRA: f"{ZEBRA} metadata"},
            "template": "welcome",  # which nobody has to approve
        }
        return self.api("POST", "/intents", json=document, headers={"X-Request-ID": f"at-{word}"})

    def form(self, path: str, **fields: str) -> requests.Response:
        page = self.browser.get(f"{self.url}{path}", timeout=60)
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
        fields["csrfmiddlewaretoken"] = token[1] if token else ""
        headers = {"Referer": page.url}
        return self.browser.post(page.url, data=fields, headers=headers, timeout=60)

    def raw(self, content: bytes) -> None:
        host, _, port = self.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(content)
            connection.recv(1000)


def printed(installation: Installation) -> list[str]:
    """What its three programs wrote, without what `up` says of the demonstration."""
    return [line.partition("| ")[2] for line in [*installation.lines] if "| " in line[:12]]


def log_of(installation: Installation, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in printed(installation) if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


def test_no_line_of_the_log_holds_what_anybody_wrote(
    installation: Installation, folder: Path
) -> None:
    caller = Caller(folder)
    send_every_word(caller, installation)
    be_refused(caller)
    break_the_ledger(folder)
    be_failed(caller, installation)
    installation.process.send_signal(signal.SIGINT)
    installation.wait()

    for event in ("request", "attempt", "webhook", "event", "request failed"):
        assert log_of(installation, event), event
    lines = printed(installation)
    secrets = [
        caller.access["agent_token"],
        *(person["password"] for person in caller.access["people"]),
        *(path.read_text().strip() for path in folder.glob("sandbox-*") if path.is_file()),
        (folder / "secret-key").read_text().strip(),
    ]
    assert [line for line in lines if ZEBRA in line.lower()] == []
    assert [line for line in lines if ADDRESS.search(line)] == []
    assert [line for line in lines if any(secret in line for secret in secrets)] == []


def send_every_word(caller: Caller, installation: Installation) -> None:
    """Until the log has an attempt of each, under its request's id, and news from the provider."""
    for word in WORDS:
        answer = caller.propose(word)
        assert answer.status_code == 201, answer.text
        assert answer.headers["X-Request-ID"] == f"at-{word}"
    wanted = {f"at-{word}" for word in WORDS}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while missing := wanted - {line["request_id"] for line in log_of(installation, "attempt")}:
        assert time.monotonic() < deadline, missing
        time.sleep(0.2)
    while not log_of(installation, "event"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def be_refused(caller: Caller) -> None:
    caller.propose("delivered")  # a replay
    for body in (b'{"subject": "zebra', b'{"subject": "zebra"}', b"\xff zebra"):
        assert caller.api("POST", "/intents", data=body).status_code in (400, 415, 422)
    stranger = {"Authorization": "Bearer zebra-token"}
    assert caller.api("GET", "/intents", headers=stranger).status_code == 401
    caller.api("GET", "/intents/zebra@example.org")
    caller.api("GET", "/intents", params={"to": "zebra@example.org"})
    page = caller.browser.get(f"{caller.url}/messages/", timeout=60).url
    sign_in = page.removeprefix(caller.url)
    caller.form(sign_in, login="zebra@example.org", password="zebra-password")
    person = caller.access["people"][0]
    caller.form(sign_in, login=person["email"], password=person["password"])
    assert (
        caller.browser.get(f"{caller.url}/messages/", timeout=60).url == f"{caller.url}/messages/"
    )
    caller.browser.get(f"{caller.url}/messages/", params={"q": "zebra@example.org"}, timeout=60)
    caller.browser.get(f"{caller.url}/messages/zebra@example.org/", timeout=60)
    caller.browser.post(f"{caller.url}/messages/1/approve/", data={"note": "zebra"}, timeout=60)
    hook = f"{caller.url}/webhooks/sandbox"
    assert requests.post(hook, data=b'{"zebra": 1}', timeout=60).status_code == 401
    requests.get(f"{caller.url}/", headers={"Host": "zebra@example.org"}, timeout=60)
    caller.raw(b"GET /zebra?q=zebra@example.org NONSENSE/9\r\n\r\n")
    caller.raw(b"GET /zebra HTTP/1.1\r\nzebra@example.org\r\n\r\n")
    caller.raw(b"GET /zebra?" + b"zebra@example.org" * 500 + b" HTTP/1.1\r\nHost: a\r\n\r\n")


def break_the_ledger(folder: Path) -> None:
    """From here on nobody's role can be read, and no worker can ask what is due."""
    with sqlite3.connect(folder / "outbox.sqlite3", timeout=60) as database:
        for name in ("membership", "switch"):
            database.execute(f"ALTER TABLE sends_{name} RENAME TO zebra_{name}")


def be_failed(caller: Caller, installation: Installation) -> None:
    caller.propose("slow")
    headers = {"Accept": "text/html", "X-Request-ID": "the-page"}
    failed = caller.browser.get(f"{caller.url}/messages/", headers=headers, timeout=60)
    assert failed.status_code == 500
    assert "<code>the-page</code>" in failed.text
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not log_of(installation, "the ledger could not be asked; trying again"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
