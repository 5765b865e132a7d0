"""Export all observations of a run as one long table, and the report tables for papers, to results/<run>/export/."""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_argument("run", nargs="?", default="", help="name of a run (default: that of config/config.yaml)")


def start(given: argparse.Namespace) -> int:
    """Write the tables, and return the exit status."""
    from sbench.runs import export

    return export.export_run(given.run)
