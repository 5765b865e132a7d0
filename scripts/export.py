"""Write all observations of a run as one table in long format, as Parquet and CSV."""

import argparse
from pathlib import Path

from sbench.probe.program import run_main, write_json
from sbench.runs import export


def main(argv: list[str] | None = None) -> int:
    """Write the table and its artefact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", required=True, type=Path, help="the folder of the run")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    given = parser.parse_args(argv)
    write_json(given.out, {"status": "done", "table": export.write_observations(given.results)})
    return 0


if __name__ == "__main__":
    run_main(main)
