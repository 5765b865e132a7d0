"""Rates of habits of language, next to those of two projects of the field: `python -m tests.prose` prints them.

A rate counts hits per 1,000 words. A high rate points at sentences without a noun for their subject.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORD = re.compile(r"[A-Za-z']+")
# Words of a string; shorter strings are keys or names.
SHORTEST_MESSAGE = 4


class Habit(NamedTuple):
    """A habit of language.

    Attributes:
        pattern: a regular expression of its hits.
        code: its rate in docstrings and comments of asv 7032df7 and pyperf ab7fd04.
        documents: its rate in their documents.
        limit: the largest accepted rate here.
    """

    pattern: str
    code: float
    documents: float
    limit: float


HABITS = {
    "what": Habit(r"\bwhat\b", 0.20, 0.19, 0.6),
    "say, tell": Habit(r"\b(say|says|said|tell|tells|told)\b", 0.07, 0.06, 0.3),
    "own": Habit(r"\bown\b", 0.07, 0.16, 0.3),
    "that of, those of": Habit(r"\b(that of|those (of|that|which|with|from|in))\b", 0.07, 0.03, 0.3),
    "beside": Habit(r"\bbeside\b", 0.0, 0.0, 0.1),
    "where": Habit(r"\bwhere\b", 0.99, 1.15, 3),
    "one": Habit(r"\b(one|ones)\b(?! (of|per|day|row|file|line|process|block|cell))", 1.58, 0.99, 3),
    "is no": Habit(r"\b(is|are|was|has|have|had|be) (no|none)\b", 0.53, 0.45, 1.5),
    "of which": Habit(r"\b(of|by|in|for|from|with|through|on|to) (which|whom|whose)\b", 0.39, 0.32, 1.2),
    "passive": Habit(r"\b(is|are|was|were|be|been|being) \w+(ed|en|wn|ne|ught|ld|pt|ft|st|ut)\b", 10.0, 11.5, 15),
}
# First words of names of functions.
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
    get set make build read write load save open close run start stop check find list print show draw format
    parse add remove move copy send receive serve compute count measure compare judge test is has need to from
    select filter sort merge split join render expand resolve validate require expect ensure create update
    delete fetch install upload download estimate describe report convert choose plan record register call iter
    next apply walk wait kill match
    """,
    )
)
# Shares of names in asv and pyperf.
ONE_WORD, VERB_FIRST = 0.21, 0.60


def list_sources() -> list[Path]:
    """Return the Python files of the package, the programs and the plugins."""
    return [path for folder in ("scripts", "plugins") for path in sorted((ROOT / folder).rglob("*.py"))]


def iter_descriptions(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
            yield text
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def iter_strings(source: str) -> Iterator[str]:
    """Yield the strings of a source, without docstrings and without the fields of templates."""
    nodes = [*ast.walk(ast.parse(source))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield re.sub(r"\{[^}]*\}", "", node.value)


def list_functions() -> list[str]:
    """Return the names of all functions, without those of Python itself such as __init__."""
    nodes = (node for path in list_sources() for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return [node.name for node in nodes if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")]


def load_texts() -> dict[str, str]:
    """Return the project's texts by kind; documents and pages without their code."""
    sources = [path.read_text(encoding="utf-8") for path in list_sources()]
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    folders = (ROOT / "reports/example", ROOT / "reports/published", ROOT / "tests/pages/__snapshots__/test_pages")
    pages = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    return {
        "descriptions": "\n".join(text for source in sources for text in iter_descriptions(source)),
        "documents": "\n".join(map(_read_prose, documents)),
        "messages": "\n".join(
            text for source in sources for text in iter_strings(source) if len(WORD.findall(text)) >= SHORTEST_MESSAGE
        ),
        "pages": "\n".join(map(_read_prose, pages)),
    }


def _read_prose(path: Path) -> str:
    return re.sub(r"```.*?```|`[^`]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def compute_rate(text: str, pattern: str) -> float:
    """Return the hits of a pattern per 1,000 words of a text."""
    return 1000 * len(re.findall(pattern, text, re.IGNORECASE)) / max(1, len(WORD.findall(text)))


def compute_name_shares(names: list[str]) -> tuple[float, float]:
    """Return the shares of names with one word, and of names that begin with a verb."""
    words = [name.strip("_").split("_") for name in names]
    return sum(len(parts) == 1 for parts in words) / len(words), sum(parts[0] in VERBS for parts in words) / len(words)


def main() -> None:
    """Print the rates of each kind of text, the models' rates and the limits."""
    texts = load_texts()
    columns = (*texts, "models' code", "models' docs", "limit")
    print(f"{'per 1,000 words':20}" + "".join(f"{column:>14}" for column in columns))
    for name, habit in HABITS.items():
        rates = (*(compute_rate(text, habit.pattern) for text in texts.values()), *habit[1:])
        print(f"{name:20}" + "".join(f"{rate:14.2f}" for rate in rates))
    one_word, verb_first = compute_name_shares(list_functions())
    print(f"functions: one word {one_word:.0%} (models {ONE_WORD:.0%}), verb first {verb_first:.0%} ({VERB_FIRST:.0%})")


if __name__ == "__main__":
    main()
