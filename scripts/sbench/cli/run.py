"""Measure a configuration, and make its pages: reports/<run>/index.html.

Prints the plan and its estimated duration first, and asks for confirmation if they exceed the limits of the
configuration. Continues an earlier run of the same configuration by measuring only missing records. If the
configuration sets most_repeats, measuring continues until all comparisons are decided, no comparison can be decided any
more, or --budget is spent.
"""

import argparse

from sbench.cli import options


def add_options(parser: options.Parser) -> None:
    """Add the subcommand's options to the parser."""
    add = parser.add_argument
    parser.add_config()
    add("--quick", action="store_true", help="config/quick.yaml: an answer in 2 to 4 minutes, no library compiled")
    options.add_run_options(parser)
    add("--budget", default="", metavar="TIME", help="begin no further round after this time per study, such as 10m")
    add("--cores", help="cores that Snakemake may use (default: all)")
    add("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_rest("options of Snakemake")


def start(given: argparse.Namespace) -> int:
    """Replace this process with Snakemake."""
    # Imported first: if it lacks a package, the error names the optional dependencies that a run needs.
    from sbench.measure import start as starting
    from sbench.measure.run_plan import make_plan

    config = "config/quick.yaml" if given.quick else given.config
    plan = make_plan(config, given.name, given.study, given.only, given.again, budget=given.budget)
    return starting.start_run(plan, given.cores, given.yes, given.after)
