"""Changes what judges in many small ways and prints each change that no test notices (mutation testing).

A copy of the project is changed, in random places, one at a time; the tests beside it that need no build have to fail.
"""

import argparse
import itertools
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from sbench.probe.program import Problem, run
from tests.bench.common import TREE, copy_tree

# What is changed, and the tests that should notice.
JUDGING = {
    "frame/blocks.py": ("blocks",),
    "frame/records.py": ("records", "tables"),
    "frame/software.py": ("software",),
    "frame/study.py": ("matrix", "blocks", "blobs_cells"),
    "gather.py": ("tables", "records", "volumes_tables"),
    "lib/cache.py": ("page_cache", "host"),
    "published/statements.py": ("statement_kinds",),
    "report/headline.py": ("words", "statements"),
    "report/statements.py": ("statement_kinds", "statements"),
    "statistics/histograms.py": ("latency",),
    "statistics/sessions.py": ("sessions",),
    "statistics/model.py": ("explained",),
    "statistics/scaling.py": ("verdicts",),
    "statistics/stats.py": ("stats", "latency", "verdicts"),
    "statistics/tables.py": ("tables", "records", "verdicts", "explained"),
    "statistics/verdicts.py": ("verdicts", "software", "tables"),
}
# Statements that a study makes of its own.
JUDGING |= {
    path.relative_to("scripts").as_posix(): ("statement_kinds",)
    for path in sorted(Path("scripts/sbench/studies").glob("*/report/statements.py"))
}
# What fails in any test or changes nothing: operators that the types do not have, identity of what is equal, and
# options (strict=True of zip, frozen=True).
_SENSIBLE = "Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_Mul|Pow_Mul|BitAnd_BitOr|BitOr_BitAnd"
NOISE = (
    f"core/ReplaceBinaryOperator_(?!({_SENSIBLE})$)",
    "core/ReplaceComparisonOperator_(Eq|NotEq|Lt|LtE|Gt|GtE)_Is",
    "core/ReplaceTrueWithFalse",
)
LOCK = "envs/mutants.lock"
_CONFIG = """[cosmic-ray]
module-path = {modules}
timeout = 300.0
excluded-modules = []
test-command = {command}
[cosmic-ray.distributor]
name = "local"
[cosmic-ray.filters.operators-filter]
exclude-operators = {noise}
"""


def main(argv: list[str] | None = None) -> int:
    """Change, test, and print what survived; return 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="how many changes, of thousands (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: %(default)s)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        tree = copy_tree(Path(folder), (*TREE, "docs", "tests", "pyproject.toml"))
        _configure(tree, JUDGING)
        _call(tree, "cosmic-ray", "init", "mutants.toml", "session.sqlite")
        _call(tree, "cr-filter-operators", "session.sqlite", "mutants.toml")
        kept, many = _sample(tree / "session.sqlite", max(1, arguments.sample), arguments.seed)
        print(f"{len(kept)} of {many} changes, seed {arguments.seed}", flush=True)
        survivors = 0
        for change in itertools.chain(*(_survivors(tree, name, kept) for name in JUDGING)):
            survivors += 1
            print(*change.splitlines(), "", sep="\n", flush=True)
    print(f"{survivors} of {len(kept)} changes went unnoticed")
    return int(bool(survivors))


def _configure(tree: Path, names: Iterable[str]) -> None:
    """Write what is changed, and the tests of it that start no process and take no thousands of draws."""
    tests = " ".join(f"tests/test_{test}.py" for name in names for test in JUDGING[name])
    command = f"{sys.executable} -m pytest --fast -q -x -n0 -p no:cacheprovider {tests}"
    values = {"modules": [f"scripts/{name}" for name in names], "command": command, "noise": NOISE}
    text = _CONFIG.format(**{key: json.dumps(value) for key, value in values.items()})
    (tree / "mutants.toml").write_text(text, encoding="utf-8")


def _call(tree: Path, *command: str) -> str:
    """Call a program of the mutation tester in an environment of its own; returns what it prints."""
    uv = Path(sys.executable).with_name("uv")
    tool = [str(uv), "run", "--quiet", "--no-project", "--isolated", "--python", sys.executable]
    command = (*tool, "--with-requirements", str(Path(LOCK).resolve()), *command)
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = f"it said nothing\n{done.stdout}{done.stderr}".strip().splitlines()
        why = next((line for line in lines if line.startswith("FAILED")), lines[-1])
        raise Problem(f"{' '.join(command[-3:])} ended with status {done.returncode}: {why}")
    return done.stdout


def _sample(session: Path, sample: int, seed: int) -> tuple[list[str], int]:
    """Return a random sample of the changes in a session that are no noise, and how many there are."""
    with sqlite3.connect(session) as database:
        query = """select job_id from mutation_specs where job_id not in (select job_id from work_results)
            order by module_path, operator_name, occurrence"""
        jobs = [job for (job,) in database.execute(query)]
    return random.Random(seed).sample(jobs, min(sample, len(jobs))), len(jobs)


def _survivors(tree: Path, name: str, kept: Collection[str]) -> Iterator[str]:
    """Yield the changes of a module, of those that are kept, that no test notices, as differences."""
    session = f"{name.replace('/', '.')}.sqlite"
    shutil.copy(tree / "session.sqlite", tree / session)
    with sqlite3.connect(tree / session) as database:
        jobs = database.execute("select job_id, module_path from mutation_specs").fetchall()
        dropped = [(job,) for job, path in jobs if path != f"scripts/{name}" or job not in kept]
        for table in ("mutation_specs", "work_items", "work_results"):
            database.executemany(f"delete from {table} where job_id = ?", dropped)
    if len(dropped) == len(jobs):
        return
    _configure(tree, [name])
    _call(tree, "cosmic-ray", "baseline", "mutants.toml")
    _call(tree, "cosmic-ray", "exec", "mutants.toml", session)
    for line in _call(tree, "cosmic-ray", "dump", session).splitlines():
        _, result = json.loads(line)
        if result and result["test_outcome"] == "survived":
            yield result["diff"].strip()


if __name__ == "__main__":
    run(main)
