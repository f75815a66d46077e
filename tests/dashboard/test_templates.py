"""What holds for every template, stylesheet and script at once."""

import gzip
import re

import pytest
from django.conf import settings

TEMPLATES = sorted((settings.BASE_DIR / "templates").rglob("*.html"))
FRAGMENTS = [path for path in TEMPLATES if path.name.startswith("_")]
STATIC = settings.BASE_DIR / "static/sends"


def name_of(path):
    return str(path.relative_to(settings.BASE_DIR / "templates"))


@pytest.mark.parametrize("path", TEMPLATES, ids=name_of)
def test_no_template_needs_what_the_content_security_policy_forbids(path):
    source = path.read_text()
    assert not re.search(r"\sstyle=|<style|\son[a-z]+=|javascript:|hx-on|hx-vals=.js:", source)
    # What is of another type than a script is data, and never run.
    assert not re.search(r'<script(?![^>]*\s(?:src=|type="application/json"))', source)
    assert not re.search(r"""(?:src|href|action)=["']https?:""", source)


@pytest.mark.parametrize("path", FRAGMENTS, ids=name_of)
def test_a_fragment_opens_with_what_it_is_and_needs_and_extends_nothing(path):
    source = path.read_text()
    assert source.startswith("{# ")
    assert "{% extends" not in source


@pytest.mark.parametrize(("name", "budget"), [("app.css", 12_000), ("app.js", 6_000)])
def test_the_page_stays_light(name, budget):
    assert len(gzip.compress((STATIC / name).read_bytes())) <= budget


def test_every_class_of_a_template_is_in_the_stylesheet():
    """A class that nothing styles is a slip of the pen."""
    styled = set(re.findall(r"\.([a-z][\w-]*)", re.sub(r"/\*.*?\*/", "", css(), flags=re.DOTALL)))
    worn = set()
    for path in TEMPLATES:
        for value in re.findall(
            r'class="([^"]*)"', re.sub(r"{[%{].*?[%}]}", " ", path.read_text())
        ):
            worn |= set(value.split())
    assert {name for name in worn if not name.endswith("-")} <= styled | {"i"}


def css() -> str:
    return (STATIC / "app.css").read_text()
