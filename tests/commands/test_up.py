"""The whole installation, started as `make up` does it."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from django.conf import settings

from tests.installation import Installation
from tests.ports import free_port


@pytest.fixture
def up_env(process_env: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in process_env.items() if name != "OUTBOX_SECRET_KEY"}
    return kept | {"PORT": str(free_port()), "SANDBOX_PORT": str(free_port())}


@pytest.fixture
def installation(up_env: dict[str, str]) -> Iterator[Installation]:
    installation = Installation(up_env)
    yield installation
    installation.end()


def test_it_starts_says_how_to_sign_in_stops_when_asked_and_continues(
    installation: Installation, up_env: dict[str, str], data_dir: Path
) -> None:
    installation.wait_until_it_says("Ctrl-C stops it.")
    demo = json.loads((data_dir / "demo.json").read_text())
    assert stat.S_IMODE((data_dir / "demo.json").stat().st_mode) == 0o600
    assert demo["url"] == f"http://localhost:{up_env['PORT']}"
    assert f"Outbox Admin is up: {demo['url']}" in installation.lines
    assert {person["role"] for person in demo["people"]} == {
        "viewer",
        "approver",
        "operator",
        "admin",
    }

    children = psutil.Process(installation.process.pid).children(recursive=True)
    installation.process.send_signal(signal.SIGINT)
    assert installation.wait() == 0, installation.said
    assert installation.lines[-1] == "Stopped. `make up` continues from here."
    assert [child for child in children if child.is_running()] == []

    again = Installation(up_env)
    try:
        again.wait_until_it_says("Ctrl-C stops it.")
        assert "Loading the demonstration" not in again.said
        assert json.loads((data_dir / "demo.json").read_text()) == demo
    finally:
        again.end()


def test_a_second_one_on_the_same_data_folder_is_one_sentence(
    installation: Installation, up_env: dict[str, str], data_dir: Path
) -> None:
    installation.wait_until_it_says("Preparing the database")
    assert refusal(up_env) == (
        f"CommandError: The installation in {data_dir} is up already. For a second one:"
        " make up PORT=9000 OUTBOX_DATA_DIR=/some/folder\n"
    )


def test_a_program_that_dies_by_itself_is_named_and_ends_the_others(
    installation: Installation,
) -> None:
    installation.wait_until_it_says("Ctrl-C stops it.")
    children = psutil.Process(installation.process.pid).children(recursive=True)
    next(child for child in children if "sends.sandbox" in child.cmdline()).kill()
    assert installation.wait() == 1
    assert installation.lines[-1] == (
        "CommandError: sandbox ended by itself with exit code -9; see above."
    )
    assert [child for child in children if child.is_running()] == []


@pytest.mark.parametrize("variable", ["PORT", "SANDBOX_PORT"])
def test_a_taken_port_is_one_sentence_before_anything_is_started(
    up_env: dict[str, str], data_dir: Path, variable: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refusal(up_env | {variable: str(port)})
    assert said.startswith(
        f"CommandError: Port {port} on 127.0.0.1 cannot be used: address already in use."
        f" Choose another one: make up {variable}="
    )
    assert not (data_dir / "outbox.sqlite3").exists()


def test_one_port_for_two_servers_is_one_sentence(up_env: dict[str, str], data_dir: Path) -> None:
    said = refusal(up_env | {"SANDBOX_PORT": up_env["PORT"]})
    assert (
        said
        == f"CommandError: PORT and SANDBOX_PORT are both {up_env['PORT']}; they must differ.\n"
    )
    assert not (data_dir / "outbox.sqlite3").exists()


@pytest.mark.parametrize("own_key", [True, False])
def test_an_unwritable_data_folder_is_one_sentence(
    up_env: dict[str, str], tmp_path: Path, own_key: bool
) -> None:
    (tmp_path / "file").touch()
    key = {"OUTBOX_SECRET_KEY": "x" * 60} if own_key else {}
    said = refusal(up_env | key | {"OUTBOX_DATA_DIR": str(tmp_path / "file" / "var")})
    assert str(tmp_path / "file" / "var") in said
    assert said.count("\n") == 1


def test_a_too_old_python_is_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "python3.9"
    old.write_text('#!/bin/sh\ncase "$2" in *version_info*) exit 1;; esac\necho 3.9.18\n')
    old.chmod(0o755)
    done = subprocess.run(
        ["sh", str(settings.BASE_DIR / ".ci" / "venv.sh"), str(old)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "Outbox Admin needs Python 3.11 or newer; found: 3.9.18."
        " Name one with PYTHON=, as in: make up PYTHON=python3.13\n"
    )
    assert not (tmp_path / ".venv").exists()


def refusal(env: dict[str, str]) -> str:
    """What `up` says on standard error when it refuses to start."""
    done = subprocess.run(
        [sys.executable, "manage.py", "up"],
        env={**os.environ, **env},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout
    return done.stderr
