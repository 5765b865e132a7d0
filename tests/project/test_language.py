"""Documents, pages, notebooks and descriptions of settings say things as an engineer would."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from tests import prose

_EACH = "battery|cell|comparison|file|host|job|layout|object|pattern|record|run|series|shot|size|study|task|worker"
# What is not English, or not the field's word, and what is.
SAY = {
    r"\bdata[ -]sets?\b": "dataset",
    r"(?<!here )\b(is|are|was|were) (no (?!longer|more|less|\d)|none\b)": "is not a …",
    r"\b(bytes|operations|totals?|time`?|all)\b[^.|]{0,40}(?<!divided) by (all|time|total|bytes|`)": "divided by",
    rf"\ban? \w+ an? ({_EACH})\b": "one row per cell",
    r"\btimes (slower|faster)": "took 27 % longer, was 1.8× as fast",
    r"\b(chunks?|requests|reads|calls)\b[^.;|]{0,30} at once": "requests in flight",
    r"\b(operations|requests|reads|writes)\b[^.;|]{0,20} a second\b": "IOPS, or reads per second",
    r"\bprocess 0\b": "rank 0",
    r"\bcould have (been )?(seen|found)": "could have detected",
    r"\bnothing else is said": "Unless noted",
    r"\bDecided (is )?by": "Verdicts use …",
    r"\b95 % (\w+ )?intervals?": "95 % CI",
    r"\bwhole (95 % CI|interval)": "the 95 % CI",
    r"\b(stands?|stood) (at|before|behind|beside|here|in|on|there)\b": "is in, is beside, follows",
    r"\b(clone|cells|data|files?|folder|objects|project|records?) (lies?|lay)\b": "is in",
    r"\banew\b": "again",
    r"\bblanks?\b": "space",
    r"\blooks? whether": "checks whether",
    r"\bAll else\b": "Everything else",
    r"\bgreatest\b": "largest",
    r"\bin the mean\b": "on average",
    r"\bshall\b": "must, or the present tense",
}
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "tests/pages/__snapshots__/test_pages").glob("*.md")),
]
SETTINGS = [*sorted((ROOT / "config").rglob("*.yaml")), *sorted((ROOT / "config/fio").glob("*.fio"))]
# Names that say how a value came about and not what it is; `one` may be what a short loop runs over.
NOT_NAMES = {"asked", "found", "known", "told"}
NOT_PARAMETERS = {*NOT_NAMES, "one"}
# Those of toys are copied.
SOURCES = [*sorted((ROOT / "scripts").rglob("*.py")), *sorted((ROOT / "tests/toys").rglob("*.py"))]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def described(values: object) -> Iterator[str]:
    """Yield the descriptions in a schema."""
    if isinstance(values, dict):
        yield from (value for key, value in values.items() if key == "description" and isinstance(value, str))
    for value in values.values() if isinstance(values, dict) else values if isinstance(values, list) else ():
        yield from described(value)


def said(path: Path) -> str:
    """Return what a file says to people: all of a document, a notebook's cells, comments and descriptions of YAML."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    if path.suffix in (".yaml", ".fio"):
        comments = re.findall(r"(?:^|\s)# ?(.*)$", text, re.MULTILINE)
        return "\n".join([*comments, *(described(yaml.safe_load(text)) if path.suffix == ".yaml" else ())])
    return text


@pytest.mark.parametrize("path", [*DOCUMENTS, *SETTINGS, *NOTEBOOKS], ids=lambda path: path.name)
def test_texts_are_plain_technical_english(path: Path):
    text = re.sub(r"\s*\n\s*(?![-*|#>])", " ", said(path))
    wrong = [
        f"…{text[max(0, match.start() - 40) : match.end() + 40]}…: write {good}".replace("\n", " ")
        for bad, good in SAY.items()
        for match in re.finditer(bad, text)
    ]
    if wrong:
        pytest.fail("\n".join(wrong))


@pytest.mark.parametrize("text", ["a row a cell", "all bytes by all time", "which is no block", "four times slower"])
def test_a_sentence_that_nobody_would_write_is_caught(text: str):
    assert any(re.search(bad, text) for bad in SAY)


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield what a source names as it should not: the line, and the name of a function, parameter or variable."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name) if name in NOT_PARAMETERS:
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()) if name in NOT_NAMES:
                yield node.lineno, name


def test_names_say_what_a_thing_is():
    assert len(SOURCES) > 50
    assert [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in SOURCES
        for line, name in names(ast.parse(path.read_text(encoding="utf-8")))
    ] == []


@pytest.mark.parametrize("source", ["found = 1", "def f(one): pass", "def told(): pass", "for asked in x: pass"])
def test_a_name_that_says_nothing_is_caught(source: str):
    assert list(names(ast.parse(source)))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return prose.load_texts()


@pytest.mark.parametrize("kind", ["descriptions", "documents", "messages", "pages"])
@pytest.mark.parametrize("name", prose.HABITS)
def test_habits_of_language_are_as_rare_as_in_the_field(texts: dict[str, str], name: str, kind: str):
    habit = prose.HABITS[name]
    rate = prose.compute_rate(texts[kind], habit.pattern)
    assert rate <= habit.limit, f"{rate:.2f} per 1,000 words; asv and pyperf: {habit.code}, {habit.documents}"


def test_functions_are_named_by_a_verb_and_an_object():
    one_word, verb_first = prose.compute_name_shares(prose.list_functions())
    assert one_word <= 0.40
    assert verb_first >= 0.55


def test_rates_and_shares_are_counted():
    assert prose.compute_rate("what one says, what it is", r"\bwhat\b") == pytest.approx(2000 / 6)
    assert prose.compute_name_shares(["of", "load_records", "_apart", "is_done"]) == (0.5, 0.5)
    assert list(prose.iter_descriptions('"""A."""\nx = "b"  # c')) == ["A.", "# c"]
    assert list(prose.iter_strings('"""A."""\nx = "b"  # c')) == ["b"]
