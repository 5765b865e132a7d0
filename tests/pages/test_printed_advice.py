"""What programs print for people to type can be typed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.project.test_docs import FORMER, targets_of_make, understand

# A call within a text: a command and what follows it, up to a word of the sentence or a mark. In place of what is known
# when it is printed is `x`, alone or within a path or a level; RUN, RUN… and <name> are what people put there.
ARGUMENT = r"--[a-z-]+|'[^']*'|[A-Z]+…?|<[a-z]+>|(?:[\w./-]*[/=])?x(?![a-wyz])[\w./=-]*"
CALL = re.compile(rf"\bsbench (?!x\b)([a-z]+)((?: (?:{ARGUMENT}))*)")
# What was said to make before there was sbench.
MAKE = re.compile(rf"(?<![.\w])make ({'|'.join(set(FORMER) - set(targets_of_make()))})\b")
VARIABLE = re.compile(
    r"\b((CONFIG|RUN|STUDY|ONLY|CORES|YES|CELL|FROM|TO|LIMIT|DIR|PAUSE|RAW|A|B|KEEP|BY|OUT|RATE|REPEATS|METRIC|CLONE)=|"
    r"(FAIL_ON|PAIRED|PARTIAL|QUICK|SCRATCH|COLUMNS|DATASETS|ACCESS|LATENCY)\b)"
)
# Of sbench itself this says what there is not.
ITSELF = ROOT / "scripts/sbench/cli/__main__.py"
SOURCES = sorted((ROOT / "scripts").rglob("*.py"))
FILES = [
    *SOURCES,
    *(path for folder in ("rules", "config", "envs", "profiles") for path in (ROOT / folder).rglob("*.*")),
    *(ROOT / "scripts").rglob("*.sh"),
    *(ROOT / "plugins").rglob("*.py"),
    ROOT / "Snakefile",
]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that are no docstrings, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_out = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and isinstance(node.body[0], ast.Expr)
    }
    left_out |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def calls() -> dict[str, tuple[str, list[str]]]:
    """Return (command, arguments) of each call that a program may print, by where it is."""
    found = {}
    for path in SOURCES:
        for line, text in texts(path) if path != ITSELF else ():
            for match in CALL.finditer(text):
                words = [word.strip("'") for word in re.findall(ARGUMENT, match[2])]
                found[f"{path.relative_to(ROOT)}:{line}: {match[0]}"] = match[1], words
    return found


CALLS = calls()


def test_there_are_such_lines():
    assert len(CALLS) > 20
    assert any("import --config x" in place for place in CALLS)
    assert any("run x --name x-again --only x" in place for place in CALLS)


@pytest.mark.parametrize("place", CALLS)
def test_a_call_that_is_printed_is_one_of_sbench(place: str):
    command, arguments = CALLS[place]
    # What is put in may be several words.
    understand(command, [] if arguments == ["x"] else arguments)


def test_no_target_of_make_is_named_that_is_a_command_now():
    sources = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}
    assert [f"{place}: {found[0]}" for place, text in sources.items() for found in MAKE.finditer(text)] == []


def test_no_variable_of_make_is_named_that_is_an_option_now():
    said = {f"{path.relative_to(ROOT)}:{line}": text for path in SOURCES for line, text in texts(path)}
    assert [f"{place}: {found[0]}" for place, text in said.items() for found in VARIABLE.finditer(text)] == []
