"""List failures and missing records; exit with status 1 if another run can replace them."""

import argparse
from pathlib import Path

from sbench.measure import failures
from sbench.probe.program import parse_json_object, run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Check all artefacts of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=parse_json_object, help="the resolved configuration, JSON")
    parser.add_argument("--reports", required=True, type=Path, help="the run's folder in reports/")
    parser.add_argument("--log", required=True, type=Path, help="the file that gets a copy of the messages")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, written if nothing failed, JSON")
    given = parser.parse_args(argv)
    if not failures.report_failures(given.config, given.reports, given.log):
        return 1
    write_json(given.out, {"status": "done"})
    return 0


if __name__ == "__main__":
    run_main(main)
