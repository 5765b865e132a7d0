"""Generate tables and HTML pages from records with the programs of the workflow, but without Snakemake."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sbench.probe.program import Problem, build_command


def make_plan(config: Mapping, study: str, results: Path) -> None:
    """Write a study's matrix (matrix.csv) and plan (plan.json) to a run's results folder."""
    folder = results / study
    given = ("--config", json.dumps(config), "--study", study)
    run_program("plan", *given, "--matrix", folder / "matrix.csv", "--out", folder / "plan.json")


def make_tables(config: Mapping, study: str, results: Path) -> None:
    """Generate the tables of a study from its records in a run's results folder."""
    imported = results / study / "imported.json"
    given = ("--config", json.dumps(config), "--study", study, "--results", results)
    run_program("gather", *given, *(["--imported", imported] if imported.exists() else []))


def make_page(notebook: str, tables: Path, out: Path) -> Path:
    """Generate a page from a notebook and a folder of tables.

    Returns:
        Path of the JSON file with the page's headline and other results, from which the index page is generated.
    """
    given = ("--tables", tables, "--facts", tables / "facts.json", "--out", out)
    run_program("report", "--notebook", f"notebooks/{notebook}.ipynb", *given)
    print(f"page: {out}", file=sys.stderr)
    return out.with_name(f"{out.stem}_answers.json")


def make_index(answers: Sequence[Path], reports: Path) -> Path:
    """Generate the index page from the JSON files that `make_page` returned, and return its path."""
    out = reports / "index.html"
    run_program("report", "--notebook", "notebooks/index.ipynb", "--answers", *answers, "--out", out)
    return out


def run_program(name: str, *arguments: object) -> None:
    """Run a program of the workflow; raise Problem with the last line of its standard error if it fails."""
    done = subprocess.run(build_command(name, *arguments), stderr=subprocess.PIPE, text=True)
    if done.returncode:
        *_, last = f"\n{done.stderr}".rstrip().splitlines() or [""]
        reason = last.removeprefix("problem: ")
        raise Problem(reason if reason != last else f"scripts/{name}.py failed: {last.strip() or done.returncode}")
