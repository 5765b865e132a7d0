"""Collect the records of a study into its tables and the facts for its report."""

import argparse
from pathlib import Path

from sbench.measure import gather
from sbench.probe.program import parse_json_object, read_json, run_main


def main(argv: list[str] | None = None) -> int:
    """Write the study's tables and facts.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=parse_json_object, help="the resolved configuration, JSON")
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--results", required=True, type=Path, help="the run's folder in results/")
    parser.add_argument("--imported", type=Path, nargs="?", metavar="JSON", help="artefact of results from elsewhere")
    given = parser.parse_args(argv)
    imported = read_json(given.imported) if given.imported else {}
    gather.write_results(given.config, given.study, given.results, imported)
    return 0


if __name__ == "__main__":
    run_main(main)
