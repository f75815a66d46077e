"""The READMEs say what is so. Run as a program, it writes anew what they have from the code."""

import ast
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sends.rules.limits import Limits
from sends.rules.statuses import LEGAL, SENTENCES, TRANSITIONS, Status

ROOT = Path(__file__).resolve().parent.parent
SENDS = ROOT / "sends"
HOUSE = SENDS / "README.md"
README = ROOT / "README.md"
SETTINGS = ROOT / "outbox_admin" / "settings.py"
ANEW = "write it anew: python -m tests.test_docs"

# The floors below the doors, from the top; whatever else lies in `sends/` is a door.
FLOORS = (
    ("3  WHAT HAPPENS", ("lifecycle", "reports")),
    ("2  THE TWO OUTER WORLDS, which do not know each other", ("models", "providers")),
    ("1  WHAT IS TRUE ANYWHERE", ("rules", "conf.py", "logs.py")),
)
APART = ("sandbox", "migrations")


# The map of the house


def house_map(house: Path) -> str:
    """Every module of the house on its floor, with the first sentence it says of itself."""
    below = {name for _, names in FLOORS for name in names}
    doors = sorted(
        (path.name for path in house.iterdir() if _is_shown(path, below)),
        key=lambda name: (name.endswith(".py"), name),
    )
    lines = ["```"]
    for title, names in (("4  DOORS", doors), *FLOORS):
        lines += [title, *(line for name in names for line in _listed(house / name, 1))]
    return "\n".join([*lines, "```"])


def _is_shown(path: Path, elsewhere: set[str]) -> bool:
    if path.name in elsewhere or path.name in APART or path.name.startswith("_"):
        return False
    return path.suffix == ".py" or (path.is_dir() and any(path.rglob("*.py")))


def _listed(path: Path, depth: int) -> Iterator[str]:
    margin = "  " * depth
    if path.is_dir():
        yield f"{margin}{path.name}/"
        inside = sorted(path.iterdir(), key=lambda found: (found.is_dir(), found.name))
        for found in inside:
            if _is_shown(found, set()):
                yield from _listed(found, depth + 1)
        return
    yield f"{margin + path.name:24}{_purpose(path)}"


def _purpose(path: Path) -> str:
    """The first paragraph of the module's docstring."""
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(said.split("\n\n")[0].split())


# The statuses


def status_table() -> str:
    lines = [
        "| status | shown as | what it says | goes on to |",
        "| --- | --- | --- | --- |",
    ]
    for status in Status:
        exits = [f"`{e.after}`: {e.when}" for e in TRANSITIONS if e.before is status]
        onward = "<br>".join(exits) or "nothing: it is over"
        lines.append(f"| `{status}` | {status.label} | {SENTENCES[status]} | {onward} |")
    return "\n".join(lines)


def status_chart() -> str:
    """The table as a drawing in Mermaid: GitHub and many editors show it."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f'    state "{status.label}" as {status}' for status in Status]
    lines.append(f"    [*] --> {Status.AWAITING_APPROVAL}")
    lines += [f"    {edge.before} --> {edge.after}" for edge in TRANSITIONS]
    lines += [f"    {status} --> [*]" for status in Status if not LEGAL[status]]
    return "\n".join([*lines, "```"])


# What is generated stands between two comments.


def generated() -> dict[str, str]:
    made = {"map": house_map(SENDS), "chart": status_chart(), "table": status_table()}
    return {name: f"{text}\n" for name, text in made.items()}


def between(name: str, text: str) -> re.Match[str]:
    begin, end = f"<!-- {name}: made by tests/test_docs.py -->", f"<!-- end of {name} -->"
    found = re.search(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", text, re.DOTALL)
    assert found, f"sends/README.md lacks the comments around its {name}"
    return found


def write_anew() -> None:
    text = HOUSE.read_text(encoding="utf-8")
    for name, made in generated().items():
        found = between(name, text)
        text = text[: found.start()] + made + text[found.end() :]
    HOUSE.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["map", "chart", "table"])
def test_what_the_readme_has_from_the_code_is_as_the_code_says(name: str) -> None:
    there = between(name, HOUSE.read_text(encoding="utf-8"))[0]
    assert there == generated()[name], ANEW


def test_every_module_says_what_it_is_for() -> None:
    modules = [path for path in SENDS.rglob("*.py") if "migrations" not in path.parts]
    silent = [str(p.relative_to(ROOT)) for p in modules if p.stem != "__init__" and not _purpose(p)]
    assert silent == []


@pytest.mark.parametrize("readme", [README, HOUSE], ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_readme_names_exists(readme: Path) -> None:
    prose = re.sub(r"```.*?```", "", readme.read_text(encoding="utf-8"), flags=re.DOTALL)
    named = re.findall(r"`([\w./-]+\.(?:py|md|toml))`|\]\(([\w./-]+\.\w+)\)", prose)
    places = (readme.parent, ROOT)
    missing = [
        name
        for found in named
        if (name := found[0] or found[1]) and not any((place / name).exists() for place in places)
    ]
    assert missing == []


def test_a_module_without_a_place_on_a_floor_is_shown_as_a_door(tmp_path: Path) -> None:
    modules = {"tasks.py": "The clock.", "conf.py": "What is set.", "logs.py": "The log."}
    for name, said in (modules | {"_x.py": "No."}).items():
        (tmp_path / name).write_text(f'"""{said}"""\n')
    for _, names in FLOORS:
        for name in names:
            if not name.endswith(".py"):
                (tmp_path / name).mkdir()
    (tmp_path / "rules" / "keys.py").write_text('"""Names\nthat last.\n\nMore."""\n')

    lines = house_map(tmp_path).splitlines()

    assert lines.index("  tasks.py              The clock.") < lines.index("3  WHAT HAPPENS")
    assert lines.index("    keys.py             Names that last.") > lines.index("  rules/")
    assert lines[-3] == "  conf.py               What is set."
    assert not [line for line in lines if "_x" in line]


# The settings


class Setting(NamedTuple):
    reader: str
    default: Any  # None where it is not a plain value


class Row(NamedTuple):
    type: str
    default: str
    example: str
    purpose: str


# How the table calls what each reader of `outbox_admin/env.py` accepts.
TYPES = {
    "text": "text",
    "secret": "secret",
    "flag": "yes or no",
    "number": "whole number",
    "duration": "duration",
    "choice": "one of",
    "words": "list",
    "folder": "folder",
    "web_address": "web address",
    "database": "database address",
    "mail_server": "mail server",
}


def settings_read() -> dict[str, Setting]:
    """Every variable that the settings read, by its name."""
    found = {}
    for node in ast.walk(ast.parse(SETTINGS.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "env" and node.args:
            name, *rest = node.args
            assert isinstance(name, ast.Constant)
            found[str(name.value)] = Setting(node.func.attr, _plain(rest[0]) if rest else None)
    return found


def _plain(default: ast.expr) -> Any:
    if isinstance(default, ast.Attribute) and ast.unparse(default.value) == "Limits":
        return getattr(Limits, default.attr)
    return default.value if isinstance(default, ast.Constant) else None


def settings_told() -> dict[str, Row]:
    """The rows of the table in README.md, section Configuration."""
    text = README.read_text(encoding="utf-8")
    section = text.split("\n## Configuration\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|(.*)\|(.*)\|(.*)\|$", section, re.MULTILINE)
    return {name: Row(*(cell.strip() for cell in cells)) for name, *cells in rows}


def test_the_readme_names_every_setting_and_no_other() -> None:
    assert settings_told().keys() == settings_read().keys()


@pytest.mark.parametrize("name", settings_read())
def test_the_readme_says_what_a_setting_is(name: str) -> None:
    setting, row = settings_read()[name], settings_told()[name]

    assert row.type.split(":")[0] == TYPES[setting.reader]
    assert row.example.strip("`")
    assert row.purpose.endswith(".")
    if setting.default not in (None, ""):
        assert row.default.strip("`") == _shown(setting.default)


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return "yes" if default else "no"
    return str(default)


def test_every_example_of_a_setting_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, row in settings_told().items():
        monkeypatch.setenv(name, row.example.strip("`"))
    monkeypatch.setenv("OUTBOX_DATA_DIR", str(tmp_path))

    settings = runpy.run_path(str(SETTINGS))

    assert settings["OUTBOX_URL"] == settings_told()["OUTBOX_URL"].example.strip("`")


if __name__ == "__main__":
    write_anew()
    sys.stdout.write(f"{HOUSE.relative_to(ROOT)} is as the code says.\n")
