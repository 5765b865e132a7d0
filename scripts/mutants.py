"""Changes what judges in many small ways and prints each change that no test notices (mutation testing).

A copy of the project is changed, in random places, one at a time; the tests beside it that need no build have to fail.
"""

import argparse
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.benchmarks.common import TREE, copy_tree
from scripts.lib.program import Problem, run

# What is changed, and the tests that should notice.
JUDGING = ("statistics", "frame/blocks.py", "frame/records.py", "frame/software.py", "frame/study.py", "lib/cache.py")
TESTS = ("blocks", "host", "page_cache", "stats", "verdicts", "tables", "latency", "records", "software")
LOCK = "envs/mutants.lock"
_CONFIG = """[cosmic-ray]
module-path = {modules}
timeout = 300.0
excluded-modules = ["**/__init__.py"]
test-command = {command}
[cosmic-ray.distributor]
name = "local"
"""


def main(argv: list[str] | None = None) -> int:
    """Change, test, and print what survived; return 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=100, help="how many changes, of thousands (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: %(default)s)")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="mutants.") as folder:
        tree = copy_tree(Path(folder), (*TREE, "docs", "tests", "pyproject.toml"))
        tests = " ".join(f"tests/test_{name}.py" for name in TESTS)
        command = f"{sys.executable} -m pytest -q -x -n0 -p no:cacheprovider {tests}"
        text = _CONFIG.format(modules=json.dumps([f"scripts/{name}" for name in JUDGING]), command=json.dumps(command))
        (tree / "mutants.toml").write_text(text, encoding="utf-8")
        _cosmic_ray(tree, "baseline", "mutants.toml")
        _cosmic_ray(tree, "init", "mutants.toml", "session.sqlite")
        kept, many = _keep(tree / "session.sqlite", max(1, arguments.sample), arguments.seed)
        print(f"{kept} of {many} changes, seed {arguments.seed}", flush=True)
        _cosmic_ray(tree, "exec", "mutants.toml", "session.sqlite")
        survivors = list(_survivors(_cosmic_ray(tree, "dump", "session.sqlite")))
    print("\n\n".join([*survivors, f"{len(survivors)} of {kept} changes went unnoticed"]))
    return int(bool(survivors))


def _cosmic_ray(tree: Path, *arguments: str) -> str:
    """Call the mutation tester in an environment of its own; returns what it prints."""
    uv = Path(sys.executable).with_name("uv")
    tool = [str(uv), "run", "--quiet", "--no-project", "--isolated", "--python", sys.executable]
    command = [*tool, "--with-requirements", str(Path(LOCK).resolve()), "cosmic-ray", *arguments]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = f"it said nothing\n{done.stdout}{done.stderr}".strip().splitlines()
        why = next((line for line in lines if line.startswith("FAILED")), lines[-1])
        raise Problem(f"cosmic-ray {arguments[0]} ended with status {done.returncode}: {why}")
    return done.stdout


def _keep(session: Path, sample: int, seed: int) -> tuple[int, int]:
    """Leave a random sample of the changes in a session; returns how many are left, and how many there were."""
    with sqlite3.connect(session) as database:
        jobs = [job for (job,) in database.execute("select job_id from work_items order by job_id")]
        kept = set(random.Random(seed).sample(jobs, min(sample, len(jobs))))
        dropped = [(job,) for job in jobs if job not in kept]
        for table in ("mutation_specs", "work_items"):
            database.executemany(f"delete from {table} where job_id = ?", dropped)
    return len(kept), len(jobs)


def _survivors(dump: str) -> Iterator[str]:
    """Yield the changes that no test noticed, as differences."""
    for line in dump.splitlines():
        _, result = json.loads(line)
        if result and result["test_outcome"] == "survived":
            yield result["diff"].strip()


if __name__ == "__main__":
    run(main)
