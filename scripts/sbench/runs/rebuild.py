"""Make tables and pages from records without the workflow, by the programs that the workflow calls."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sbench.probe.program import Problem, build_command


def make_plan(config: Mapping, study: str, results: Path) -> None:
    """Write the matrix and the plan of a study into the folder of a run's results."""
    folder = results / study
    given = ("--config", json.dumps(config), "--study", study)
    run_program("plan", *given, "--matrix", folder / "matrix.csv", "--out", folder / "plan.json")


def make_tables(config: Mapping, study: str, results: Path) -> None:
    """Gather the records of a study in the folder of a run's results."""
    imported = results / study / "imported.json"
    given = ("--config", json.dumps(config), "--study", study, "--results", results)
    run_program("gather", *given, *(["--imported", imported] if imported.exists() else []))


def make_page(notebook: str, tables: Path, out: Path) -> Path:
    """Make the page of a notebook from a folder of tables, and return the path of its answers."""
    given = ("--tables", tables, "--facts", tables / "facts.json", "--out", out)
    run_program("report", "--notebook", f"notebooks/{notebook}.ipynb", *given)
    print(f"page: {out}", file=sys.stderr)
    return out.with_name(f"{out.stem}_answers.json")


def make_index(answers: Sequence[Path], reports: Path) -> Path:
    """Make the first page from the answers of other pages, and return its path."""
    out = reports / "index.html"
    run_program("report", "--notebook", "notebooks/index.ipynb", "--answers", *answers, "--out", out)
    return out


def run_program(name: str, *arguments: object) -> None:
    """Run a program of the workflow; raise a Problem with its last line if it fails."""
    done = subprocess.run(build_command(name, *arguments), stderr=subprocess.PIPE, text=True)
    if done.returncode:
        *_, last = f"\n{done.stderr}".rstrip().splitlines() or [""]
        reason = last.removeprefix("problem: ")
        raise Problem(reason if reason != last else f"scripts/{name}.py failed: {last.strip() or done.returncode}")
