"""Expands a study's matrix: its cells, their settings and order, and what is left out and why."""

import argparse
import csv
import io
from pathlib import Path

from scripts.frame import blocks, matrix
from scripts.frame import config as configuration
from scripts.frame.study import Cell, for_level
from scripts.lib.program import json_object, run, write_json, write_text


def main(argv: list[str] | None = None) -> int:
    """Write matrix.csv (for people and the report) and plan.json (for the steps that measure)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=json_object, help="the resolved configuration, JSON")
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--matrix", required=True, type=Path, help="matrix.csv to write")
    parser.add_argument("--out", required=True, type=Path, help="plan.json to write")
    arguments = parser.parse_args(argv)
    config, study = arguments.config, arguments.study
    cells, omitted = matrix.expand(config, study)
    write_text(arguments.matrix, matrix_csv(study, cells, omitted))
    write_json(arguments.out, plan(config, study, cells))
    return 0


def plan(config: dict, study: str, cells: list[Cell]) -> dict:
    """Return what the steps of a study need to know: {"status", "run", "study", "order", "cells": {name: …}}."""
    return {
        "status": "done",
        "run": config["run"],
        "study": study,
        "order": {"seed": blocks.order_seed(config, study)},
        "cells": {
            cell.name: {
                "settings": cell.settings,
                "dataset": cell.dataset,
                "time_limit_s": for_level(config["studies"][study]["time_limit_s"], cell.levels),
            }
            for cell in cells
        },
    }


def matrix_csv(study: str, cells: list[Cell], omitted: list[matrix.Omitted]) -> str:
    """Return the matrix as CSV: cell, factors, omitted (the reason), twin_of."""
    text = io.StringIO()
    columns = ["cell", *configuration.factors(study), "control", "omitted", "twin_of"]
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({"cell": cell.name, **cell.levels, "twin_of": cell.twin_of} for cell in cells)
    writer.writerows({**one.levels, "omitted": one.reason} for one in omitted)
    return text.getvalue()


if __name__ == "__main__":
    run(main)
