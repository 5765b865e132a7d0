"""Measure a configuration, and make its pages: reports/<run>/index.html.

Continues an earlier run of the same configuration: measures only missing records. With most_repeats in the
configuration, it goes on until the comparisons are decided or cannot be, or --budget is spent. Prints the plan and its
duration first, and asks if they exceed the limits of the configuration.
"""

import argparse

from sbench.cli import options


def add_options(parser: options.Parser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    parser.add_config()
    add("--quick", action="store_true", help="config/quick.yaml: an answer in 2 to 4 minutes, no library compiled")
    options.add_run_options(parser)
    add("--budget", default="", metavar="TIME", help="begin no further round after this time per study, such as 10m")
    add("--cores", help="cores that Snakemake may use (default: all)")
    add("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_rest("options of Snakemake")


def start(given: argparse.Namespace) -> int:
    """Replace this process by Snakemake."""
    from sbench.measure import launch

    config = "config/quick.yaml" if given.quick else given.config
    plan = launch.make_plan(config, given.name, given.study, given.only, given.again, budget=given.budget)
    return launch.start_run(plan, given.cores, given.yes, given.after)
