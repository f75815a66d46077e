"""How `make test` says what it left out."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from django.conf import settings

from tests.conftest import pytest_terminal_summary


@dataclass
class Skipped:
    longrepr: tuple[str, int, str]


@dataclass
class Reporter:
    stats: dict[str, list[Skipped]]
    lines: list[str] = field(default_factory=list)

    def write_line(self, line: str) -> None:
        self.lines.append(line)


@pytest.mark.parametrize(
    ("before", "skipped", "said"),
    [
        ("", [], "Nothing was left out."),
        ("PostgreSQL (none here)", [], "Left out: PostgreSQL (none here)."),
        ("", ["no Chromium", "no Chromium"], "Left out: no Chromium."),
        ("PostgreSQL", ["no Chromium"], "Left out: PostgreSQL; no Chromium."),
    ],
)
def test_one_line_says_what_was_left_out(
    monkeypatch: pytest.MonkeyPatch, before: str, skipped: list[str], said: str
) -> None:
    monkeypatch.setenv("OUTBOX_TEST_LEFT_OUT", before)
    reporter = Reporter({"skipped": [Skipped(("t.py", 1, f"Skipped: {why}")) for why in skipped]})
    pytest_terminal_summary(reporter)
    assert reporter.lines == [said]


def test_nothing_is_said_outside_make_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTBOX_TEST_LEFT_OUT", raising=False)
    reporter = Reporter({})
    pytest_terminal_summary(reporter)
    assert reporter.lines == []


def test_ci_refuses_to_run_without_a_browser(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.run", "--nothing-left-out"],
        env=os.environ | {"PATH": str(tmp_path), "OUTBOX_TEST_DATABASE_URL": "postgres://named"},
        cwd=settings.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "Not run: the browser tests (no Chromium on the path) would be left out.\n"
    )
    assert done.stdout == ""
