"""How often a token may ask, what it is told when that was too often, and what others notice."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest

from sends.api import allowances, auth
from sends.api.allowances import Counts
from sends.models import SendIntent
from sends.rules.allowances import Rate
from tests.api.doors import MESSAGE, Door, door, problem
from tests.commands.test_serve import serving
from tests.factories import make_agent_at, make_token

pytestmark = pytest.mark.django_db
SLOW = Rate(per_minute=1, burst=3)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three requests, and then one a minute."""
    monkeypatch.setattr(allowances, "counts", Counts(tmp_path / "allowances.sqlite3"))
    monkeypatch.setattr(allowances, "OF_A_TOKEN", SLOW)
    monkeypatch.setattr(allowances, "OF_FAILURES", SLOW)


@pytest.mark.usefixtures("slow")
def test_every_answer_says_what_is_left() -> None:
    api = door()
    answers = [api.get("/intents"), api.post("/intents", b"{"), api.get("/intents/nothing")]
    assert [a["RateLimit-Policy"] for a in answers[:2]] == ['"requests";q=3;w=180'] * 2
    assert [a["RateLimit"].split(";")[1] for a in answers[:2]] == ["r=2", "r=1"]
    assert "RateLimit" not in answers[2]  # nobody was asked who it is


@pytest.mark.usefixtures("slow")
def test_who_asks_too_often_is_told_when_to_come_again() -> None:
    api = door()
    for _ in range(3):
        assert api.get("/intents").status_code == 200
    answer = api.post("/intents", MESSAGE)
    said = problem(answer, 429, "too_many_requests")
    assert said["next_step"] == "wait"
    assert 1 <= int(answer["Retry-After"]) <= 60
    assert answer["RateLimit"].startswith('"requests";r=0;')
    assert api.get("/intents").status_code == 429
    assert door().get("/intents").status_code == 200  # another token has its own


@pytest.mark.usefixtures("slow")
def test_every_message_of_a_batch_counts() -> None:
    api = door()
    batch = [MESSAGE | {"action_key": f"k{number}"} for number in range(4)]
    said = api.post("/intents/batch", batch)
    assert said.json()["created"] == 4
    assert said["RateLimit"].startswith('"requests";r=0;')
    assert int(problem_wait(api)) > 60


@pytest.mark.usefixtures("slow")
def test_what_a_batch_owes_is_never_forgiven() -> None:
    api = door()
    api.post("/intents/batch", [MESSAGE | {"action_key": f"k{number}"} for number in range(30)])
    assert int(problem_wait(api)) > 27 * 60


@pytest.mark.usefixtures("slow")
def test_of_two_batches_at_once_the_second_waits_and_nothing_of_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = door()

    def count(request: HttpRequest, token_id: str) -> None:
        """Let it in, and then the other batch is faster."""
        allowances.count(request, token_id)
        allowances.counts.take(f"token:{token_id}", SLOW, requests=5, owing=True)

    monkeypatch.setattr(auth, "count", count)
    answer = api.post("/intents/batch", [MESSAGE, MESSAGE | {"action_key": "other"}])

    problem(answer, 429, "too_many_requests")
    assert int(answer["Retry-After"]) > 180
    assert not SendIntent.objects.exists()


def problem_wait(api: Door) -> str:
    answer = api.get("/intents")
    problem(answer, 429, "too_many_requests")
    wait: str = answer["Retry-After"]
    return wait


@pytest.mark.usefixtures("slow")
def test_a_token_without_the_scope_uses_its_own_up() -> None:
    api = door(make_token(make_agent_at(), "read"))
    found = [api.post("/intents", MESSAGE).status_code for _ in range(4)]
    assert found == [403, 403, 403, 429]


@pytest.mark.usefixtures("slow")
def test_who_tries_out_tokens_is_told_no_more_and_keeps_nobody_out() -> None:
    guesses = [door(f"obx_{number:064}").get("/intents") for number in range(4)]
    assert [answer.status_code for answer in guesses] == [401, 401, 401, 429]
    said = problem(guesses[-1], 429, "too_many_requests")
    assert "address" in said["detail"]
    assert int(guesses[-1]["Retry-After"]) > 0
    assert door().get("/intents").status_code == 200  # from the same address


def test_what_cannot_be_counted_is_allowed(tmp_path: Path, caplog: Any) -> None:
    broken = tmp_path / "allowances.sqlite3"
    broken.write_bytes(b"no database" * 1000)
    counts = Counts(broken)
    assert [counts.take("a", SLOW).wait for _ in range(5)] == [0] * 5
    assert "not counted" in caplog.text


def test_who_came_back_to_all_is_forgotten(tmp_path: Path) -> None:
    counts = Counts(tmp_path / "allowances.sqlite3")
    fast = Rate(per_minute=1_000_000, burst=1)
    for number in range(50):
        counts.take(f"address:{number}", fast)
    counts.take("one more", SLOW)
    (rows,) = counts._connection().execute("SELECT COUNT(*) FROM counts").fetchone()
    assert rows < 50


@pytest.mark.django_db(transaction=True)
def test_two_web_processes_count_together(
    process_env: dict[str, str], database_url: str, free_port: int
) -> None:
    """However the requests fall on the processes: together they let through what was set."""
    token = make_token(make_agent_at())
    env = process_env | {
        "OUTBOX_DATABASE_URL": database_url,
        "OUTBOX_WEB_WORKERS": "2",
        "OUTBOX_API_RATE": "1",
        "OUTBOX_API_BURST": "20",
    }

    def ask(_: int) -> tuple[int, str | None]:
        connection = HTTPConnection("127.0.0.1", free_port, timeout=60)
        connection.request("GET", "/api/v1/intents", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        json.loads(answer.read())
        connection.close()
        return answer.status, answer.headers["Retry-After"]

    with serving(env, free_port), ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(40)))
    found = Counter(status for status, _ in answers)
    # One more may have come back meanwhile for each minute that it took.
    assert 20 <= found[200] <= 23
    assert found[200] + found[429] == 40
    assert all(wait for status, wait in answers if status == 429)
