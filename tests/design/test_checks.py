"""Checks of records: each has its rule, is listed by the method, and leads from a page to it."""

import importlib
import re
from pathlib import Path

import pytest
from conftest import ROOT

from sbench.design import checks
from sbench.pages import cell_tables, markup
from tests.rules import titles

MODULES = sorted((ROOT / "scripts/sbench").rglob("checks.py"))
METHOD = ROOT / "docs/method.md"


def find_checks(path: Path) -> dict:
    """Return the checks that a module defines, by name."""
    module = importlib.import_module(".".join(path.relative_to(ROOT / "scripts").with_suffix("").parts))
    named = {name: check for name, check in vars(module).items() if name.startswith("check_")}
    return {name: check for name, check in named.items() if getattr(check, "__module__", "") == module.__name__}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.parent.name)
def test_each_check_has_a_rule_of_the_method_that_lists_it(path):
    found = find_checks(path)
    assert found
    assert {name: check.rule for name, check in found.items() if check.rule not in titles()} == {}
    text = METHOD.read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| \[?(\d+)\b.*?\|(.+)\|$", text, re.MULTILINE))
    assert [name for name, check in found.items() if f"`{name}`" not in rows.get(str(check.rule), "")] == []


def test_a_line_of_a_check_ends_with_its_rule():
    assert checks.check_workers({"workers": 1, "workers_asked": 2}) == ["expected 2 workers, 1 were alive (rule 10)"]
    assert checks.check_workers({"workers": 2, "workers_asked": 2}) == []


@pytest.mark.rule(23)
def test_a_page_links_the_rule_that_was_broken():
    text = cell_tables.link_rules("repeat 1: expected 2 workers, 1 were alive (rule 10); ended (rule x)")
    assert markup.render_markdown_line(text).endswith(
        "1 were alive ([rule 10](../../docs/method.md#10-settings-are-read-back-from-the-library)); ended (rule x)"
    )
    assert 'href="../../docs/method.md#10-settings-are-read-back-from-the-library"' in markup.render_html_line(text)


def test_a_text_from_elsewhere_that_names_no_rule_of_the_method_stays_as_it_is():
    assert cell_tables.link_rules("ended (rule 99)") == "ended (rule 99)"


def test_every_rule_has_an_anchor():
    lines = "; ".join(f"x (rule {number})" for number in titles())
    assert markup.render_html_line(cell_tables.link_rules(lines)).count("<a ") == len(titles())
