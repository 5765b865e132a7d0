"""Decide whether a volume keeps a latency limit: meets, misses or undecided.

Loads the volume with fio as the application of the limit does, until the verdict is decided. Prints the verdict, its
reason and the next step. Exits with 0 if the volume meets the limit, 1 if it misses the limit, and 3 if undecided.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.add_path("folder", help="a folder on the volume, such as /var/lib/etcd")
    add = parser.add_argument
    add("--limit", default="etcd", help="a limit of config/facts/limits.yaml (default: %(default)s)")
    add("--pause", default="180", metavar="SECONDS", help="seconds between two batteries (default: %(default)s)")
    add("--quick", action="store_true", help="a single job of 10 s, for installers")
    add("--json", action="store_true", help="print a JSON object at the end, and progress to standard error")


def start(given: argparse.Namespace) -> int:
    """Measure, and print the verdict."""
    from sbench.studies.volumes import fit

    return fit.print_verdict(given.limit, given.folder, given.pause, given.quick, given.json)
