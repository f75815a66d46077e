"""Where the keys of a TOML text stand."""

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sends.rules.lines import Path, line_at, lines_of

EVERYTHING = '''\
# a comment with = and [brackets]
title = "a # no comment"
"quoted key" = 1
a.b.c = 2

[owner] # a comment
born = 1979-05-27 07:32:00
text = """
[not_a_table]
still = "text" \\""" and ""
"""
literal = \'\'\'
[nor.this]
''two quotes\'\'\'\'
after = true

[[people]]
name = "one"
tags = [ "a", # why
  "b]",
  [1, 2],
]
[people.home]
town = { name = "x}", "zip.code" = [
  "1",
] }

[[people]]
name = 'two'
[[people.pets]]
name = 1.5e3
[[people.pets]]
kind = inf
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("quoted key",), 3),
        (("a",), 4),
        (("a", "b", "c"), 4),
        (("owner",), 6),
        (("owner", "born"), 7),
        (("owner", "text"), 8),
        (("owner", "literal"), 12),
        (("owner", "after"), 15),
        (("people",), 17),
        (("people", 0), 17),
        (("people", 0, "tags", 0), 19),
        (("people", 0, "tags", 1), 20),
        (("people", 0, "tags", 2), 21),
        (("people", 0, "tags", 2, 1), 21),
        (("people", 0, "home"), 23),
        (("people", 0, "home", "town", "zip.code"), 24),
        (("people", 0, "home", "town", "zip.code", 0), 25),
        (("people", 1), 28),
        (("people", 1, "name"), 29),
        (("people", 1, "pets", 0, "name"), 31),
        (("people", 1, "pets", 1, "kind"), 33),
    ],
)
def test_every_key_table_and_element_has_its_line(path: Path, line: int) -> None:
    assert lines_of(EVERYTHING)[path] == line


def test_a_part_that_is_not_there_is_looked_for_where_it_belongs() -> None:
    lines = lines_of(EVERYTHING)
    assert line_at(lines, ("people", 1, "pets", 1, "name")) == 32
    assert line_at(lines, ("nobody", "knows")) == 1


def test_nothing_that_the_parser_finds_is_without_a_line() -> None:
    found = set(lines_of(EVERYTHING))
    assert set(_paths(tomllib.loads(EVERYTHING))) <= found


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for name, one in inner:
        yield (*path, name)
        if isinstance(one, dict | list):
            yield from _paths(one, (*path, name))


@given(st.text("a=[]{}\"'#\\\n ,.1", max_size=40))
def test_a_text_that_the_parser_takes_is_walked_to_its_end(text: str) -> None:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    found = lines_of(text)
    assert {path[0] for path in found} == set(content)
