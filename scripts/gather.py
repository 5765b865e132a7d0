"""Gathers the records of a study, each read once, into its tables and into what its report says beside its figures."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from scripts.frame import facts, records
from scripts.frame import study as studies
from scripts.lib.program import json_object, read_json, run, write_json
from scripts.statistics import controls, exchanges, tables, verdicts


def main(argv: list[str] | None = None) -> int:
    """Write the tables and facts.json; all of it is computed before the first is written."""
    parser = argparse.ArgumentParser(prog="python -sE -m scripts.gather", description=__doc__)
    parser.add_argument("--config", required=True, type=json_object, help="the resolved configuration, JSON")
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--results", required=True, type=Path, help="the run's folder in results/")
    parser.add_argument("--imported", type=Path, nargs="?", metavar="JSON", help="artefact of results from elsewhere")
    arguments = parser.parse_args(argv)
    config, study, folder = arguments.config, arguments.study, arguments.results / arguments.study
    matrix, kept = read(folder, config["run"], study)
    imported = read_json(arguments.imported) if arguments.imported else {}
    made = merged(config, study, matrix, kept, imported)
    said = facts.facts(config, study, arguments.results, kept, imported)
    said["controls"] = controls.of_run(made["verdicts"], kept, arguments.results, study, said["machine"])
    write(made, folder)
    write_json(folder / "facts.json", said)
    return 0


def read(folder: Path, run_name: str, study: str) -> tuple[pd.DataFrame, list[records.Kept]]:
    """Return the matrix of a study and the records of its cells, from the study's folder of a run."""
    matrix = tables.read_matrix(folder / "matrix.csv")
    return matrix, list(records.of_cells(folder / "records", tables.levels_of(matrix), run_name, study))


def merged(
    config: dict, study: str, matrix: pd.DataFrame, kept: Sequence[records.Kept], imported: dict
) -> dict[str, pd.DataFrame]:
    """Return the tables of a study by name: those of blocks, or those that it makes of its records itself."""
    program = studies.of(study)
    own = program.tables(matrix, kept, imported, config)
    if own is not None:
        return own
    runs, samples = tables.runs_and_samples(matrix, kept)
    compare, equivalence = program.section(config)["compare"], config["equivalence_percent"]
    judged = verdicts.verdicts_table(
        matrix, runs, compare, equivalence, config["seed"], program.contest, program.of_tasks
    )
    made = {"samples": samples, "cells": tables.cells_table(matrix, runs), "verdicts": judged}
    return made | {"requests": exchanges.table(kept)}


def write(made: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write tables as CSV: what was measured in full, what was computed from it with 12 digits."""
    for name, table in made.items():
        tables.write(table, folder / f"{name}.csv", digits=None if name == "samples" else 12)


if __name__ == "__main__":
    run(main)
