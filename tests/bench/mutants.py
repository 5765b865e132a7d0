"""Changes a copy of the code that judges in random places, one at a time, and prints each change that no test notices.

Only the tests of the module that start no process are run.
"""

import argparse
import ast
import difflib
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sbench.probe.program import Problem, run_main
from tests.bench.common import TREE, copy_tree

# Modules of the package that are changed, and the tests that have to notice.
JUDGING = {
    **{"design/blocks.py": ("blocks",), "design/fingerprint.py": ("software",)},
    **{"design/records.py": ("records", "tables"), "design/study.py": ("matrix", "blocks", "blobs_cells")},
    **{
        "measure/gather.py": ("tables", "records", "volumes_tables"),
        "measure/judging.py": ("verdicts", "software"),
        "measure/families.py": ("verdicts", "software"),
    },
    **{
        "measure/tables.py": ("tables", "records", "verdicts", "explained"),
        "pages/headline.py": ("words", "statements"),
    },
    **{"pages/statements.py": ("statement_kinds", "statements"), "probe/page_cache.py": ("page_cache", "host")},
    **dict.fromkeys(("runs/statements.py", "studies/volumes/report/statements.py"), ("statement_kinds",)),
    **{"verdicts/histograms.py": ("latency",), "verdicts/model.py": ("explained",)},
    **{"verdicts/scaling.py": ("verdicts",), "verdicts/sessions.py": ("sessions",)},
    "verdicts/stats.py": ("stats", "latency", "verdicts"),
}
_PAIRS = [(ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq)]
_PAIRS += [(ast.And, ast.Or), (ast.In, ast.NotIn), (ast.BitAnd, ast.BitOr)]
SWAPS = dict(_PAIRS) | {second: first for first, second in _PAIRS} | {ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult}


def main(argv: list[str] | None = None) -> int:
    """Change, test, and print the changes that no test noticed; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="how many changes, of thousands (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: %(default)s)")
    given, survivors = parser.parse_args(argv), 0
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        tree = copy_tree(Path(folder), (*TREE, "docs", "tests", "pyproject.toml"))
        modules = {name: ast.parse((tree / "scripts/sbench" / name).read_text(encoding="utf-8")) for name in JUDGING}
        changes = [(name, change) for name, module in modules.items() for change in list_changes(module)]
        kept = random.Random(given.seed).sample(changes, min(max(1, given.sample), len(changes)))
        print(f"{len(kept)} of {len(changes)} changes, seed {given.seed}", flush=True)
        for name in sorted({name for name, _ in kept}):
            if _is_noticed(tree, name):
                raise Problem(f"tests of {name} fail without a change: {', '.join(JUDGING[name])}; mend them first")
        for name, change in kept:
            path, before = tree / "scripts/sbench" / name, ast.unparse(modules[name])
            after = apply_change(modules[name], *change)
            path.write_text(after, encoding="utf-8")
            if not _is_noticed(tree, name):
                survivors += 1
                lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, n=2, lineterm="")
                print(*lines, "", sep="\n", flush=True)
            path.write_text(before, encoding="utf-8")
    print(f"{survivors} of {len(kept)} changes went unnoticed")
    return int(bool(survivors))


def list_changes(module: ast.Module) -> Iterator[tuple[ast.AST, str, object]]:
    """Yield (node, field, new value): other operators, numbers raised by 1, and negated conditions."""
    for node in ast.walk(module):
        match node:
            case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if swap := SWAPS.get(type(node.op)):
                yield node, "op", swap()
            case ast.Compare() if swap := SWAPS.get(type(node.ops[0])):
                yield node, "ops", [swap(), *node.ops[1:]]
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                yield node, "value", value + 1
            case ast.If() | ast.IfExp() | ast.While():
                yield node, "test", ast.UnaryOp(ast.Not(), node.test)


def apply_change(module: ast.Module, node: ast.AST, field: str, value: object) -> str:
    """Return the source of a module with a change, and leave the module as it was."""
    before = getattr(node, field)
    setattr(node, field, value)
    source = ast.unparse(module)
    setattr(node, field, before)
    return source


def _is_noticed(tree: Path, name: str) -> bool:
    tests = [str(path) for test in JUDGING[name] for path in tree.glob(f"tests/*/test_{test}.py")]
    command = [sys.executable, "-B", "-m", "pytest", "--fast", "-q", "-x", "-n0", "-p", "no:cacheprovider", *tests]
    try:
        return bool(subprocess.run(command, cwd=tree, capture_output=True, timeout=300, check=False).returncode)
    except subprocess.TimeoutExpired:
        return True


if __name__ == "__main__":
    run_main(main)
