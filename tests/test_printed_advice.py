"""What programs print for people to type can be typed."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE))
# A call within a text: a target of the Makefile, and values of variables; in place of what is known when it is printed
# stands `x`.
CALL = re.compile(rf"\bmake ({'|'.join(TARGETS)})\b((?: [A-Z]+=(?:'[^']*'|[^\s;,)`]*))*)")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that are no docstrings, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def calls() -> dict[str, tuple[str, str]]:
    """Return (target, variables) of each call that a program may print, by where it stands."""
    found = {}
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        for line, text in texts(path):
            for match in CALL.finditer(text):
                found[f"{path.relative_to(ROOT)}:{line}: {match[0]}"] = match[1], match[2]
    return found


CALLS = calls()


def test_there_are_such_lines():
    assert len(CALLS) > 20
    assert any("import CONFIG=" in place for place in CALLS)


@pytest.mark.parametrize("place", CALLS)
def test_a_call_that_is_printed_is_one_of_make(place: str):
    target, variables = CALLS[place]
    given = re.findall(r"([A-Z]+)=", variables)
    for name in given:
        assert re.search(rf"\b{name}\b", MAKEFILE.partition("DEFAULT =")[0]), f"the Makefile takes no {name}"
    # Angle brackets and dots stand for what people put there.
    words = [word.replace("<", "").replace(">", "") for word in re.findall(r"[A-Z]+=(?:'[^']*'|\S*)", variables)]
    done = subprocess.run(["make", "--dry-run", target, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
