"""A freshly started installation, and a Chromium to use it with.

All browser tests share both: `tests/conftest.py` keeps them in one process. Both end with the
last of these tests: as long as Playwright's event loop runs, Django may not use its database.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.installation import Installation
from tests.ports import free_port

WIDE, NARROW = (1440, 900), (375, 800)
# A busy machine takes its time; what is right comes sooner.
PATIENCE_MS = 30_000


@dataclass(frozen=True)
class Place:
    """Where an installation is, and how to get in: what its `demo.json` says."""

    url: str
    agent_token: str
    sandbox_url: str
    people: dict[str, tuple[str, str]]  # role -> email, password


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A fresh installation of these tests alone, with its worker and its sandbox running."""
    with installed(tmp_path_factory.mktemp("installation")) as place:
        yield place


@contextmanager
def installed(folder: Path) -> Iterator[Place]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    env |= {
        "OUTBOX_DATA_DIR": str(folder),
        "PORT": str(free_port()),
        "SANDBOX_PORT": str(free_port()),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "outbox_admin.settings",
    }
    installation = Installation(env)
    try:
        installation.wait_until_it_says("Ctrl-C stops it.")
        yield _place(folder)
        installation.process.send_signal(signal.SIGINT)
        assert installation.wait() == 0, installation.said
    finally:
        installation.end()


def _place(folder: Path) -> Place:
    demo: dict[str, Any] = json.loads((folder / "demo.json").read_text())
    people = {p["role"]: (p["email"], p["password"]) for p in demo["people"]}
    return Place(demo["url"], demo["agent_token"], demo["sandbox_url"], people)


@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with started(chromium) as browser:
        yield browser


@contextmanager
def started(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser, place: Place) -> Iterator[BrowserContext]:
    context = browser.new_context(
        base_url=place.url, viewport={"width": WIDE[0], "height": WIDE[1]}
    )
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page on which no script may fail and nothing may be refused by the content policy."""
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda message: said.append(message.text) if _is_bad(message) else None)
    yield page
    assert said == []


def _is_bad(message: Any) -> bool:
    # An answer of 409 or 422 is content here, and Chromium's own line about it no fault. A clock
    # that a test moves is a script in every frame, and the frame of an email refuses it in time.
    harmless = ("Failed to load resource", "Blocked script execution in '")
    return message.type == "error" and not message.text.startswith(harmless)


def sign_in(page: Page, place: Place, role: str) -> None:
    """From the start page to the first page of this role."""
    email, password = place.people[role]
    page.goto("/")
    page.get_by_label("Email").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_label("Password").press("Enter")
    expect(page.get_by_role("navigation", name="Main")).to_be_visible()


def expect_accessible(page: Page) -> None:
    """Axe finds nothing: WCAG 2.0 to 2.2, A and AA, and its best practices."""
    found = Axe().run(page)
    violations = found.response["violations"]
    assert violations == [], [(v["id"], v["help"], v["nodes"][0]["html"]) for v in violations]


def expect_no_overflow(page: Page) -> None:
    """Nothing sticks out to the right."""
    width = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width[0] <= width[1], width
