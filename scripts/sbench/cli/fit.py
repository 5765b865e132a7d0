"""Decide whether a volume meets a latency limit: meets, misses or undecided.

Runs fio on the volume with the I/O pattern of the application that the limit belongs to. Prints the verdict, its reason
and the next step. Exits with status 0 if the volume meets the limit, 1 if it misses it, and 3 if undecided.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_path("folder", help="a folder on the volume, such as /var/lib/etcd")
    add = parser.add_argument
    add("--limit", default="etcd", help="a limit of config/facts/limits.yaml (default: %(default)s)")
    add("--pause", default="180", metavar="SECONDS", help="seconds between two batteries (default: %(default)s)")
    add("--quick", action="store_true", help="a single job of 10 s, for installers")
    add("--json", action="store_true", help="print a JSON object at the end, and progress to standard error")


def start(given: argparse.Namespace) -> int:
    """Run the measurements, and print the verdict."""
    from sbench.studies.volumes import fit

    return fit.print_verdict(given.limit, given.folder, given.pause, given.quick, given.json)
