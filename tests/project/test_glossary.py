"""The glossary: short definitions, names that exist in code, and tooltips on pages."""

import re

import pytest
from conftest import ROOT

from sbench.pages import terms

ROWS = re.findall(
    r"^\| ([^|]+) \| ([^|]+) \| ([^|]*) \| ([^|]*)\|$",
    (ROOT / "docs/glossary.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
NOUNS = [row for row in ROWS if row[0] != "Noun"]
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "scripts").rglob("*"))
    if path.suffix in (".py", ".yaml", ".go")
)


def test_about_sixty_nouns_have_a_definition_each():
    nouns = [noun for noun, *_ in NOUNS]
    assert 55 <= len(nouns) <= 75
    assert len(set(nouns)) == len(nouns)


@pytest.mark.parametrize("noun,meaning,code", [row[:3] for row in NOUNS], ids=[row[0] for row in NOUNS])
def test_a_definition_is_short_and_its_name_exists_in_code(noun: str, meaning: str, code: str):
    assert len(meaning.split()) <= 25
    names = re.findall(r"`([^`]+)`", code)
    for name in names:
        if "/" in name or name.endswith(".py"):
            assert list(ROOT.glob(re.sub(r"<\w+>", "*", name))) or list((ROOT / "scripts").rglob(name)), name
        elif name.startswith("sbench."):
            assert (ROOT / "scripts" / f"{name.replace('.', '/')}.py").is_file(), name
        else:
            for part in name.split("."):
                pattern = re.escape(part).replace(r"\*", r"\w+")
                assert re.search(rf"(?<!\w){pattern}(?!\w)", SOURCES), name


def test_each_noun_that_pages_explain_is_in_the_glossary():
    assert set(terms.NOUNS) <= {noun for noun, *_ in NOUNS}
    assert len(terms.read_definitions()) >= len(terms.NOUNS)


def test_a_word_is_explained_at_its_first_use_and_outside_code_links_and_headings():
    explained: set[str] = set()
    html = "<h2>Blocks</h2><p>6 blocks, <code>harness</code>, <a href='x'>harness</a>; 3 blocks of the harness.</p>"
    text = terms.explain_words(html, explained)
    assert text.startswith("<h2>Blocks</h2><p>6 <abbr ")
    assert text.count("<abbr ") == 2
    assert "<code>harness</code>, <a href='x'>harness</a>; 3 blocks of the <abbr " in text
    assert re.search(r'title="[^"]*every cell measured once[^"]*">blocks</abbr>', text)
    assert terms.explain_words("<p>blocks</p>", explained) == "<p>blocks</p>"
