"""Build a study's matrix.csv, for readers and the report, and its plan.json, for the measuring jobs."""

import csv
import io

from sbench.design import blocks, matrix, schema
from sbench.design.study import Cell, get_study, resolve_setting


def build_plan(config: dict, study: str, cells: list[Cell]) -> dict:
    """Build the plan that a study's jobs read: {"status", "run", "study", "order", "cells": {name: …}}."""
    return {
        "status": "done",
        "run": config["run"],
        "study": study,
        "order": {"seed": blocks.get_order_seed(config, study), **_get_most_repeats(config, study)},
        "cells": {
            cell.name: {
                "settings": cell.settings,
                "dataset": cell.dataset,
                "time_limit_s": resolve_setting(config["studies"][study]["time_limit_s"], cell.levels),
            }
            for cell in cells
        },
    }


def _get_most_repeats(config: dict, study: str) -> dict[str, int]:
    """Return {"most_repeats": …} if the study measures until it can decide, otherwise an empty dictionary."""
    program = get_study(study)
    most = program.count_most_repeats(config)
    return {"most_repeats": most} if most > program.count_repeats(config) else {}


def format_matrix_csv(study: str, cells: list[Cell], omitted: list[matrix.Omitted]) -> str:
    """Format the matrix as CSV with the columns cell, factors…, control, omitted (the reason) and twin_of."""
    text = io.StringIO()
    columns = ["cell", *schema.get_factors(study), "control", "omitted", "twin_of"]
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({"cell": cell.name, **cell.levels, "twin_of": cell.twin_of} for cell in cells)
    writer.writerows({**one.levels, "omitted": one.reason} for one in omitted)
    return text.getvalue()
