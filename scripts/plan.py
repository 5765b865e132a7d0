"""Expand a study's matrix: list its cells with their settings and order, and the omitted combinations with reasons."""

import argparse
from pathlib import Path

from sbench.design import matrix, plan
from sbench.probe.program import parse_json_object, run_main, write_json, write_text


def main(argv: list[str] | None = None) -> int:
    """Write matrix.csv, for people and the report, and plan.json, for the measuring steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=parse_json_object, help="the resolved configuration, JSON")
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--matrix", required=True, type=Path, help="matrix.csv to write")
    parser.add_argument("--out", required=True, type=Path, help="plan.json to write")
    arguments = parser.parse_args(argv)
    config, study = arguments.config, arguments.study
    cells, omitted = matrix.expand_matrix(config, study)
    write_text(arguments.matrix, plan.format_matrix_csv(study, cells, omitted))
    write_json(arguments.out, plan.build_plan(config, study, cells))
    return 0


if __name__ == "__main__":
    run_main(main)
