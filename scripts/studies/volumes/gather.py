"""Gather the batteries of the volumes study, measured and imported, into its tables."""

import argparse
from pathlib import Path

from scripts.lib.program import json_object, run
from scripts.statistics import tables
from scripts.studies.volumes import series
from scripts.studies.volumes.tables import build


def main(argv: list[str] | None = None) -> int:
    """Write the tables; all are computed before the first is written."""
    parser = argparse.ArgumentParser(prog="python -sE -m scripts.studies.volumes.gather", description=__doc__)
    parser.add_argument("--run", required=True, help="name of the run, as its records carry it")
    parser.add_argument(
        "--config-study",
        required=True,
        type=json_object,
        metavar="JSON",
        help='the study\'s settings: {"limits": ["etcd"], "compare": [{"factor": …, "baseline": …}], '
        '"equivalence_percent": 5, "seed": 1, "stores": {name: {"volume": {"type": "gp2", "size_gib": 128}}}}',
    )
    parser.add_argument("--matrix", required=True, type=Path, help="the study's matrix.csv")
    parser.add_argument("--records", required=True, type=Path, help="folder of <cell>/repeat=<n>.json")
    parser.add_argument("--imported", type=Path, nargs="?", metavar="JSON", help="records of results from elsewhere")
    parser.add_argument("--out", required=True, type=Path, help="folder for the tables")
    arguments = parser.parse_args(argv)
    settings = arguments.config_study
    matrix = tables.read_matrix(arguments.matrix)
    found = series.read(matrix, arguments.records, arguments.run, arguments.imported, settings.get("stores", {}))
    for name, table in build(found, settings).items():
        tables.write(table, arguments.out / f"{name}.csv", digits=None if name == "samples" else 12)
    return 0


if __name__ == "__main__":
    run(main)
