"""Take an interim look at a study's records, and order the blocks that are missing or that comparisons need."""

import argparse
import sys
from pathlib import Path

from sbench.design import blocks
from sbench.measure import rounds
from sbench.probe.program import parse_json_object, run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Write the result of the look, including the order of the next blocks if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True, type=parse_json_object, help="the resolved configuration, JSON")
    parser.add_argument("--study", required=True, help="name of the study")
    parser.add_argument("--number", required=True, type=int, help="number of the look in this call, from 1")
    parser.add_argument("--out", required=True, type=Path, help="the artefact, JSON")
    given = parser.parse_args(argv)
    look = rounds.take_look(given.config, given.study, given.out.parents[1], given.number)
    print(look["reasons"][0], file=sys.stderr)
    write_json(given.out, look | {"limits": blocks.get_limits(given.config, given.study)})
    return 0


if __name__ == "__main__":
    run_main(main)
