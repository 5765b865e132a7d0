"""Check the tools, credentials, buckets, disks and page cache that a configuration needs, before building anything.

Exits with status 1 if a check fails.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_config()
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def start(given: argparse.Namespace) -> int:
    """Run the checks, and print a line per check."""
    from sbench.measure import preflight

    return preflight.run_checks(given.config, given.json)
