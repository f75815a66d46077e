"""The answer to "are you up?"."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from sends.conf import conf


@pytest.fixture
def beat() -> Iterator[Path]:
    conf.worker_beat.unlink(missing_ok=True)
    yield conf.worker_beat
    conf.worker_beat.unlink(missing_ok=True)


@pytest.mark.django_db
def test_healthz_answers_without_a_worker(client: Client, beat: Path) -> None:
    answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "ok", "worker_beat_seconds": None}


@pytest.mark.django_db
def test_healthz_says_how_long_ago_the_worker_lived(client: Client, beat: Path) -> None:
    beat.touch()
    os.utime(beat, (time.time() - 30, time.time() - 30))
    assert 29 <= client.get("/healthz").json()["worker_beat_seconds"] <= 40


def test_pages_load_nothing_from_elsewhere_and_stand_in_no_frame(client: Client) -> None:
    policy = client.get("/nothing-here/")["Content-Security-Policy"]
    assert sorted(policy.split("; ")) == [
        "base-uri 'none'",
        "default-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    ]


def test_the_tests_have_a_data_folder_of_their_own() -> None:
    assert settings.DATA_DIR != settings.BASE_DIR / "var"
