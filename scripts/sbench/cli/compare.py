"""Compare runs, archives, baselines or published studies: the second side relative to the first.

Name the two sides as RUN RUN, or as RUN… --with RUN… if a side consists of several runs. Exits with status 3 if a
--fail-on rule holds.
"""

import argparse

from sbench.cli.options import Parser
from sbench.probe.program import Problem


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    several = {"nargs": "*", "metavar": "RUN", "default": []}
    add = parser.add_argument
    parser.add_path("sides", **several, help="names of runs, archives, baselines, or published/<study>")
    parser.add_path("--with", dest="other", **several, help="the other side of the comparison")
    add("--paired", action="store_true", help="pair the sessions of both sides in the order of their times")
    add(
        "--fail-on",
        default="",
        metavar="RULES",
        help="exit with 3 if a rule holds, such as 'slower > 10 %%, more requests'",
    )
    parser.add_path("--keep", metavar="JSON", help="write the first side to this file as a baseline")
    add("--json", action="store_true", help="print a JSON object")


def start(given: argparse.Namespace) -> int:
    """Compare the two sides, write results/compare and reports/compare, and print the outcome."""
    from sbench.runs import compare

    base, other = given.sides, given.other
    if len(base) == 2 and not (other or given.keep):
        base, other = base[:1], base[1:]
    if not (base and (other or given.keep)):
        raise Problem("name two sides: sbench compare RUN RUN, or sbench compare RUN… --with RUN…")
    return compare.compare_runs(base, other, given.paired, given.fail_on, given.keep, given.json)
