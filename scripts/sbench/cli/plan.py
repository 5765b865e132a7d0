"""List the cells of a configuration, the combinations left out, and the estimated cost, without measuring."""

import argparse

from sbench.cli import options


def add_options(parser: options.Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_config()
    options.add_run_options(parser)
    parser.add_path("--imports", nargs="+", default=[], metavar="FILE", help="plan results of fio from other machines")
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def start(given: argparse.Namespace) -> int:
    """Print the plan of the configuration."""
    from sbench.measure import run_plan

    plan = run_plan.make_plan(
        given.config, given.name, given.study, given.only, given.again, given.imports, simulates=True
    )
    return run_plan.print_plan(plan, given.json)
