"""The floors of the house: imports point down. Run as a program, it names each line that climbs."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SENDS = ROOT / "sends"
# What each room may import of ours, besides itself. A door may use everything below, but of
# `providers` only the registry, and no other door.
BELOW = {"conf", "logs", "rules", "models", "providers.registry", "reports", "lifecycle"}
DOORS = (
    *("api", "webhooks", "dashboard", "signin", "templatetags", "health"),
    *("access_log", "errors", "headers"),
    *("tasks", "broker", "schedule", "checks", "guard", "management"),
)
ROOMS: dict[str, set[str]] = {
    "sandbox": set(),
    "conf": {"rules"},  # for the shape of what it says
    "logs": set(),
    "rules": set(),
    "models": {"rules"},
    "migrations": {"models", "rules"},
    "providers": {"rules", "conf"},
    "reports": {"conf", "models", "providers", "rules"},
    "lifecycle": {"conf", "logs", "rules", "models", "providers"},
    **dict.fromkeys(DOORS, BELOW),
    "dashboard": BELOW | {"templatetags"},  # its words and pictures, as its templates know them
    # django-q2's three ends: what it calls, what wakes it, and who watches over it.
    "broker": BELOW | {"tasks"},
    "schedule": BELOW | {"tasks"},
    "management": BELOW | {"broker", "schedule"},
    "guard": BELOW | {"errors"},
    # Where Django is told which doors there are.
    "apps": BELOW | {"checks", "schedule"},
    "urls": BELOW | {"api", "webhooks", "dashboard", "signin", "health"},
}
DJANGO_IN_RULES = {"django.db.models.TextChoices", "django.db.models.IntegerChoices"}


@dataclass(frozen=True)
class Import:
    path: Path
    line: int
    name: str  # dotted, with the name that was taken from the module

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.name}"


def climbs(path: Path, source: str) -> list[str]:
    """A sentence for each import in the file that its room does not allow."""
    inside = path.relative_to("sends").with_suffix("")
    room = inside.parts[0]
    if room == "__init__":
        room = "conf"
    if room not in ROOMS:
        return [f"{path} is in no room that the plan knows; add it to ROOMS with what it may use."]
    return [
        f"{found}, but `{room}` may use {_said(room, found.name)}"
        for found in imports(path, source)
        if not _is_allowed(room, found.name)
    ]


def _is_allowed(room: str, name: str) -> bool:
    if room == "rules" and name.startswith("django"):
        return name in DJANGO_IN_RULES
    if name == "django.conf.settings":
        return room in ("conf", "management", "migrations")
    if not name.startswith("sends."):
        return True
    target = name.removeprefix("sends.")
    return any(
        target == open_room or target.startswith(f"{open_room}.")
        for open_room in {*ROOMS[room], room}
    )


def _said(room: str, name: str) -> str:
    if name == "django.conf.settings":
        return "settings through sends.conf alone"
    if not name.startswith("sends."):
        return f"of Django only {', '.join(DJANGO_IN_RULES)}"
    return f"of ours only {', '.join(sorted(ROOMS[room])) or 'itself'}"


def imports(path: Path, source: str) -> Iterator[Import]:
    """Every import of the file, also those inside functions, with relative ones made absolute."""
    package = path.with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package[: len(package) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            for alias in node.names:
                yield Import(path, node.lineno, f"{base}.{alias.name}")


def all_climbs() -> list[str]:
    return [
        said
        for path in sorted(SENDS.rglob("*.py"))
        for said in climbs(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
    ]


def test_no_import_climbs() -> None:
    assert all_climbs() == []


def test_the_sandbox_is_imported_by_nobody() -> None:
    paths = [path for path in SENDS.rglob("*.py") if SENDS / "sandbox" not in path.parents]
    found = [
        str(found)
        for path in [*paths, *(ROOT / "outbox_admin").rglob("*.py")]
        for found in imports(path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        if found.name.startswith("sends.sandbox")
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("sends/rules/keys.py", "from sends.models import SendIntent"),
        ("sends/rules/keys.py", "from django.utils import timezone"),
        ("sends/rules/keys.py", "import sends.conf"),
        ("sends/models/intents.py", "from ..lifecycle.claim import claim"),
        ("sends/models/intents.py", "from django.conf import settings"),
        ("sends/providers/sandbox.py", "from sends.models import Attempt"),
        ("sends/reports/rates.py", "from sends.lifecycle import intake"),
        ("sends/lifecycle/claim.py", "from sends.dashboard import live"),
        ("sends/dashboard/messages.py", "from sends.api import views"),
        ("sends/dashboard/messages.py", "from sends.providers.sandbox import Sandbox"),
        ("sends/dashboard/messages.py", "from sends.providers import adapter"),
        ("sends/sandbox/server.py", "from sends.rules import keys"),
        ("sends/webhooks.py", "def late():\n    from sends.tasks import drain"),
        ("sends/utils.py", ""),
    ],
)
def test_an_import_that_climbs_is_named_with_its_line(path: str, source: str) -> None:
    said = climbs(Path(path), source)
    assert len(said) == 1
    assert said[0].startswith(path)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("sends/rules/statuses.py", "from django.db.models import TextChoices"),
        ("sends/rules/decisions.py", "from sends.rules.contracts import Contract"),
        ("sends/rules/decisions.py", "from . import backoff"),
        ("sends/models/intents.py", "from sends.rules.statuses import Status"),
        ("sends/lifecycle/submit.py", "from sends.providers.adapter import Adapter"),
        ("sends/dashboard/messages.py", "from sends.dashboard.access import role_needed"),
        ("sends/api/views.py", "from sends.lifecycle import intake"),
        ("sends/api/views.py", "from sends.providers import registry"),
        ("sends/sandbox/server.py", "from .journal import Journal"),
        ("sends/conf.py", "from django.conf import settings"),
    ],
)
def test_an_import_that_points_down_is_let_through(path: str, source: str) -> None:
    assert climbs(Path(path), source) == []


if __name__ == "__main__":
    sys.exit("\n".join(all_climbs()) or None)
