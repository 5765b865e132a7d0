"""Measure a configuration, and make its pages: reports/<run>/index.html.

Prints the plan and its estimated duration first, and asks for confirmation if they exceed the limits of the
configuration. Continues an earlier run of the same configuration by measuring only missing records. If the
configuration sets most_repeats, measuring continues until all comparisons are decided, no comparison can be decided any
more, or --budget is spent.
"""

import argparse
import sys

from sbench.cli import options
from sbench.probe.program import Problem


def add_options(parser: options.Parser) -> None:
    """Add the subcommand's options to the parser."""
    add = parser.add_argument
    parser.add_config()
    add("--quick", action="store_true", help="config/quick.yaml: an answer in 2 to 4 minutes, no library compiled")
    options.add_run_options(parser)
    add("--budget", default="", metavar="TIME", help="begin no further round after this time per study, such as 10m")
    add("--cores", help="cores that Snakemake may use (default: all)")
    add(
        "--session",
        metavar="INDEX",
        help="measure as RUN-session-INDEX; an integer of at least 0, as job arrays give it (docs/hpc.md)",
    )
    parser.add_path(
        "--to", metavar="FOLDER", help="then send the session's archive to this folder, or s3://bucket/prefix"
    )
    add("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_rest("options of Snakemake")


def start(given: argparse.Namespace) -> int:
    """Replace this process with Snakemake; with --to, run Snakemake and send the archive."""
    # Imported first: if it lacks a package, the error names the optional dependencies that a run needs.
    from sbench.measure import start as starting
    from sbench.measure.run_plan import make_plan

    if given.to and given.session is None:
        raise Problem("--to needs --session INDEX, a different one for each machine")
    if given.to and given.after:
        raise Problem("--to sends a whole run of this machine; leave out the arguments after --")
    config = "config/quick.yaml" if given.quick else given.config
    choice = (given.name, given.study, given.only, given.again)
    plan = make_plan(config, *choice, budget=given.budget, session=given.session)
    if not given.to:
        return starting.start_run(plan, given.cores, given.yes, given.after)
    from sbench.runs import delivery

    destination, run = delivery.open_destination(given.to), plan.config["run"]
    if present := destination.find_archive(run):
        print(f"{present} has arrived before; move it away to measure this session again")
        return 0
    if status := starting.start_run(plan, given.cores, given.yes, given.after, waits=True):
        print(f"{run} is not finished, so nothing was sent; the same command continues it", file=sys.stderr)
        return status
    print(f"sent: {destination.send_run(run, plan.config['studies'])}")
    return 0
