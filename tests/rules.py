"""Which tests stand for which rule of docs/method.md: `python -m tests.rules` prints them.

A test that fails where a rule is broken is marked with the rule's number: `@pytest.mark.rule(8)`.
"""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
METHOD = TESTS.parent / "docs/method.md"


def titles() -> dict[int, str]:
    """Return the titles of the rules by their number, as the document has them."""
    headings = re.findall(r"^### (\d+)\. (.+)$", METHOD.read_text(encoding="utf-8"), re.MULTILINE)
    return {int(number): title for number, title in headings}


def marked() -> dict[int, list[str]]:
    """Return the tests that are marked with each rule, as pytest names them, by the number of the rule."""
    tests: dict[int, list[str]] = {}
    for path in sorted(TESTS.glob("*/test_*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.rule":
                    for number in map(ast.literal_eval, mark.args):
                        tests.setdefault(number, []).append(f"tests/{path.relative_to(TESTS)}::{node.name}")
    return tests


def main() -> None:
    """Print each rule and, indented, its tests."""
    tests = marked()
    for number, title in titles().items():
        print("\n    ".join([f"{number}. {title}", *tests.get(number, ())]))


if __name__ == "__main__":
    main()
