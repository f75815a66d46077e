"""What every test may ask for, and the line that says what a run left out."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import hypothesis
import pytest
from django.apps import apps
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test import TransactionTestCase
from django.test.utils import CaptureQueriesContext
from django_q.models import Schedule

from sends.models import Installation, Switch, SwitchKind, triggers
from tests import browsers, ports

# Whatever a script starts in the background has SIGINT ignored, and its children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in each run, however slow the machine is.
hypothesis.settings.register_profile(
    "usual",
    deadline=None,
    derandomize=True,
    max_examples=300,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("usual")
# `--hypothesis-profile=deep`: for hours, and elsewhere each time.
hypothesis.settings.register_profile(
    "deep",
    max_examples=1000,
    stateful_step_count=60,
    deadline=None,
    print_blob=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)

EMPTIED = ("sends", "sessions", "django_q", "account", "mfa", "usersessions", "socialaccount")
DATABASE_FIXTURES = {"db", "transactional_db", "live_server", "database_url"}


@pytest.fixture(scope="session", autouse=True)
def _quick_flush() -> None:
    """Let tests that commit be cleaned up, past the triggers that refuse to delete, and quickly.

    Django's flush truncates every table and sends post_migrate: more than a second on PostgreSQL.
    """
    TransactionTestCase._fixture_teardown = lambda self: _delete_rows()  # type: ignore[method-assign]


def _delete_rows() -> None:
    """Empty the tables that tests write to; the rows that migrate makes stay as it left them."""
    if connection.vendor == "sqlite":
        triggers.drop(connection)
    installation = Installation.objects.get()
    models = [m for m in apps.get_models() if m._meta.app_label in EMPTIED]
    kept = (Installation, Switch, Schedule)
    names = [connection.ops.quote_name(m._meta.db_table) for m in models if m not in kept]
    statements = [f"DELETE FROM {name}" for name in names]
    switches = connection.ops.quote_name(Switch._meta.db_table)
    statements.append(f"DELETE FROM {switches} WHERE kind <> '{SwitchKind.INSTALLATION}'")
    with connection.constraint_checks_disabled(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET session_replication_role = replica")  # no triggers, no keys
            cursor.execute("; ".join(statements))
            cursor.execute("SET session_replication_role = DEFAULT")
        else:
            for statement in statements:
                cursor.execute(statement)
    Switch.objects.filter(pk=installation.pk).update(causes=0, resume_at=None)
    cache.clear()
    if triggers.missing(connection):
        triggers.install(connection)


@pytest.fixture(autouse=True)
def _forgetful_folder() -> None:
    """The data folder remembers nothing of earlier tests: it would take their end for a restore."""
    for memory in (*settings.DATA_DIR.glob("installation.*"), *settings.DATA_DIR.glob("drain-*")):
        memory.unlink(missing_ok=True)


@pytest.fixture
def asks_at_most() -> Callable[[int], AbstractContextManager[None]]:
    """`with asks_at_most(8):` fails where the block asks the database more often.

    Reading its clock does not count: PostgreSQL has one and SQLite has none.
    """

    @contextmanager
    def block(most: int) -> Iterator[None]:
        with CaptureQueriesContext(connection) as asked:
            yield
        asked_for = [q["sql"] for q in asked.captured_queries if "clock_timestamp" not in q["sql"]]
        assert len(asked_for) <= most, "\n".join(asked_for)

    return block


@pytest.fixture(scope="session")
def database_kind() -> str:
    """`sqlite` or `postgresql`."""
    return connection.vendor


@pytest.fixture
def database_url(django_db_setup: None) -> str:
    """OUTBOX_DATABASE_URL of the test database, for processes that a test starts.

    They see what is committed, so the test itself needs `transaction=True`.
    """
    database = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{quote(str(database['NAME']))}"
    who = f"{quote(database['USER'])}:{quote(database['PASSWORD'])}"
    where = urlencode({"host": database["HOST"]}) if database["HOST"] else ""
    port = f":{database['PORT']}" if database["PORT"] else ""
    host = "" if database["HOST"].startswith("/") else database["HOST"]
    return f"postgres://{who}@{host}{port}/{database['NAME']}" + ("" if host else f"?{where}")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """An empty data folder, of this test alone."""
    folder = tmp_path / "var"
    folder.mkdir()
    return folder


@pytest.fixture
def process_env(data_dir: Path) -> dict[str, str]:
    """The environment for `manage.py` in a process of its own, with an empty SQLite database.

    Run it with `cwd=settings.BASE_DIR`; add `{"OUTBOX_DATABASE_URL": database_url}` where it is
    to share the database of the test.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTBOX_")}
    return kept | {
        "DJANGO_SETTINGS_MODULE": "outbox_admin.settings",
        "OUTBOX_DATA_DIR": str(data_dir),
        "OUTBOX_SECRET_KEY": settings.SECRET_KEY,
        "PYTHONUNBUFFERED": "1",
    }


@pytest.fixture
def free_port() -> int:
    """A port of the loopback that nobody listens on; `tests.ports` has more."""
    return ports.free_port()


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; skips the test where there is none."""
    path = browsers.chromium()
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(browsers.NAMES)} is on the path")
    return path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Spread the tests over the processes file by file, the largest first.

    The tests of a file share what it starts, and those of the browser one installation.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "browser" if nodeid.startswith("tests/browser/") else nodeid.split("::")[0]

    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PostgreSQL, run what needs a database; the rest has its turn on SQLite."""
    if "OUTBOX_TEST_DATABASE_URL" not in os.environ:
        return
    others = [item for item in items if not _needs_database(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _needs_database(item)]


def _needs_database(item: pytest.Item) -> bool:
    asked = set(getattr(item, "fixturenames", ()))
    return item.get_closest_marker("django_db") is not None or bool(asked & DATABASE_FIXTURES)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """For `make test`: one line that says what this run and those before it left out."""
    if "OUTBOX_TEST_LEFT_OUT" not in os.environ:
        return
    before = os.environ["OUTBOX_TEST_LEFT_OUT"]
    left_out = {before} if before else set()
    for report in terminalreporter.stats.get("skipped", []):
        left_out.add(str(report.longrepr[2]).removeprefix("Skipped: "))
    said = "; ".join(sorted(left_out))
    terminalreporter.write_line(f"Left out: {said}." if said else "Nothing was left out.")


def pytest_unconfigure() -> None:
    shutil.rmtree(settings.DATA_DIR, ignore_errors=True)
