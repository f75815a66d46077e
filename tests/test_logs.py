"""A line of the log: fields of fixed names, and nothing of what people or programs wrote."""

import ast
import json
import logging
import re
from pathlib import Path

import pytest
from django.db import IntegrityError, OperationalError

from sends import logs

ROOT = Path(__file__).resolve().parent.parent
SECRET = "alice@example.org"


def line(msg, *args, as_json=True, logger="some.library", raised=None, **fields):
    record = logging.LogRecord(
        logger,
        logging.INFO,
        __file__,
        1,
        msg,
        args,
        raised and (type(raised), raised, raised.__traceback__),
    )
    vars(record).update(fields)
    said = logs.Line(as_json=as_json).format(record)
    return json.loads(said) if as_json else said


def caught(error, cause=None):
    try:
        raise error from cause
    except type(error) as found:
        return found


def test_a_program_reads_json_with_numbers_as_such():
    said = line("attempt", logger="sends.attempt", outcome="accepted", number=2, late=True)

    assert said.pop("time").endswith("Z")
    assert said == {
        "level": "info",
        "logger": "sends.attempt",
        "event": "attempt",
        "number": 2,
        "outcome": "accepted",
        "late": True,
    }


def test_a_person_reads_one_line_of_words():
    said = line("request", as_json=False, status=200, route="messages/<int:number>/", error_kind=1)

    assert re.fullmatch(
        r"\S+Z info some\.library request route=messages/<int:number>/ status=200", said
    )


def test_a_field_of_another_name_is_left_out():
    assert "subject" not in line("attempt", subject="Your refund")


def test_a_field_is_of_the_record_or_else_of_the_request_around_it():
    with logs.lines_about(request_id="of-the-request", tenant="t1"):
        logs.about(agent="a1")
        said = line("attempt", request_id="of-the-intent")
        with logs.lines_about(request_id="of-another"):
            assert not {"tenant", "agent"} & line("attempt").keys()

    logs.about(tenant="of-no-request")
    assert (said["request_id"], said["tenant"], said["agent"]) == ("of-the-intent", "t1", "a1")
    assert "tenant" not in line("attempt")


@pytest.mark.parametrize(
    ("msg", "args", "event"),
    [
        ("pool is full for %s, size %d", (SECRET, 10), "pool is full for …, size 10"),
        ("%s and no more", (), "%s and no more"),
        ("too many %s", ("a", "b"), "too many %s"),
        (
            f"Invalid request from ip=192.0.2.1: GET /?q={SECRET}",
            (),
            "Invalid request from ip=192.0.2.1",
        ),
        (f"Failed\nTraceback {SECRET}", (), "Failed"),
        (f"hello {SECRET}, again", (), "hello …, again"),
        (ValueError(SECRET), (), "ValueError"),
        ("%(who)s came", ({"who": SECRET},), "%(who)s came"),
    ],
)
def test_what_a_library_fills_into_its_words_is_not_repeated(msg, args, event):
    assert line(msg, *args)["event"] == event


def test_an_exception_is_told_by_kind_and_place_and_so_is_its_cause():
    cause = caught(IntegrityError(f"Key (address)=({SECRET}) already exists"))
    said = line("failed", raised=caught(RuntimeError(f"about {SECRET}"), cause))

    assert said["error"] == "RuntimeError"
    assert "test_logs.py" in said["trace"]
    assert said["trace"].endswith("\nRuntimeError")
    assert "\nIntegrityError\n" in said["trace"]
    assert SECRET not in str(said)
    assert "already" not in str(said)


def test_what_the_system_says_of_a_file_is_repeated_without_its_name():
    said = line("failed", raised=caught(OSError(28, "No space left on device", f"/{SECRET}")))

    assert said["error"] == "OSError: No space left on device"
    assert SECRET not in str(said)


def test_why_the_database_fails_is_repeated_without_its_details():
    said = line("failed", raised=caught(OperationalError(f"deadlock\nDETAIL: {SECRET}")))

    assert said["error"] == "OperationalError: deadlock"
    assert SECRET not in str(said)


def test_the_trace_stands_below_the_line_for_people():
    said = line("failed", as_json=False, raised=caught(KeyError(SECRET)))

    first, *trace = said.splitlines()
    assert first.endswith("failed error=KeyError")
    assert trace[-1] == "KeyError"


@pytest.mark.parametrize("value", [SECRET, f"<{SECRET}>", f"mailto:{SECRET}", [f"x {SECRET}"]])
def test_an_address_in_a_field_is_masked(value):
    assert SECRET not in str(line("attempt", error=value))


def test_the_documentation_names_every_field_and_no_other():
    fields = (ROOT / "docs" / "log.md").read_text(encoding="utf-8").split("\n## Fields\n")[1]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", fields, re.MULTILINE)) == logs.FIELDS


def used_fields():
    """Every name that some call gives to the log, with where it stands."""
    for path in (ROOT / "sends").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "extra":
                if isinstance(node.value, ast.Dict):
                    yield from ((key.value, path.name) for key in node.value.keys)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "logs.about",
                "logs.lines_about",
            ):
                yield from ((keyword.arg, path.name) for keyword in node.keywords)


def test_every_field_that_is_given_to_the_log_is_one_of_its_own():
    assert {(name, where) for name, where in used_fields() if name not in logs.FIELDS} == set()
