"""Check the tools, credentials, buckets, disks and page cache that a configuration needs, before anything is built.

Exits with 1 if a check fails.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.add_config()
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def start(given: argparse.Namespace) -> int:
    """Print a line for each check."""
    from sbench.measure import preflight

    return preflight.run_checks(given.config, given.json)
