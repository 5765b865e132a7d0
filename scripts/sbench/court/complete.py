"""Check that all raw files of the published studies are available before any page is generated."""

import argparse
from pathlib import Path

from sbench.probe.program import Problem, read_json, run_main, write_json


def main(argv: list[str] | None = None) -> int:
    """Write the list of missing raw files to `--out`; raise Problem if there are any and `--partial` is not given."""
    parser = argparse.ArgumentParser(prog="module.py sbench.court.complete", description=__doc__)
    parser.add_argument("--facts", nargs="+", required=True, type=Path, help="facts of the published studies")
    parser.add_argument("--partial", action="store_true", help="make pages from the available files")
    parser.add_argument("--out", type=Path, required=True, help="JSON of the missing files, by study")
    given = parser.parse_args(argv)
    facts = [read_json(path) for path in given.facts]
    absent = {one["study"]: one["absent"] for one in facts if one.get("absent")}
    if absent and not given.partial:
        study, lines = next(iter(absent.items()))
        more = sum(map(len, absent.values())) - 1
        others = f" (and {more} more)" * bool(more)
        raise Problem(
            f"{study}: {lines[0]}{others}; name a folder of the raw data (--raw), or make pages from the available"
            " files in reports/published-partial (--partial)"
        )
    write_json(given.out, absent)
    return 0


if __name__ == "__main__":
    run_main(main)
