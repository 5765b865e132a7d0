"""Gather the records of a study into samples.csv, cells.csv and verdicts.csv."""

import argparse
from pathlib import Path

from scripts.frame import study as studies
from scripts.lib.program import json_object, run
from scripts.statistics import tables, verdicts


def main(argv: list[str] | None = None) -> int:
    """Write the three tables; all are computed before the first is written."""
    parser = argparse.ArgumentParser(prog="python -sE -m scripts.tables", description=__doc__)
    parser.add_argument("--run", required=True, help="name of the run, as its records carry it")
    parser.add_argument("--study", required=True, help="name of the study, as its records carry it")
    parser.add_argument(
        "--config-study",
        required=True,
        type=json_object,
        metavar="JSON",
        help='the study\'s settings: {"compare": [{"factor": …, "baseline": …}], "equivalence_percent": 5, "seed": 1}',
    )
    parser.add_argument("--matrix", required=True, type=Path, help="the study's matrix.csv")
    parser.add_argument("--records", required=True, type=Path, help="folder of <cell>/repeat=<n>.json")
    parser.add_argument("--out", required=True, type=Path, help="folder for the tables")
    arguments = parser.parse_args(argv)
    settings = arguments.config_study
    matrix = tables.read_matrix(arguments.matrix)
    runs, samples = tables.read_records(arguments.records, matrix, arguments.run, arguments.study)
    judged = verdicts.verdicts_table(
        matrix,
        runs,
        settings.get("compare", []),
        settings.get("equivalence_percent", 5),
        settings.get("seed", 1),
        studies.of(arguments.study).contest,
    )
    cells = tables.cells_table(matrix, runs)
    tables.write(samples, arguments.out / "samples.csv")
    tables.write(cells, arguments.out / "cells.csv", digits=12)
    tables.write(judged, arguments.out / "verdicts.csv", digits=12)
    return 0


if __name__ == "__main__":
    run(main)
