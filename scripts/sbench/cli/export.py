"""Write all observations of a run as one long table, and the tables of its pages for papers: results/<run>/export/."""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.add_argument("run", nargs="?", default="", help="name of a run (default: that of config/config.yaml)")


def start(given: argparse.Namespace) -> int:
    """Write the tables."""
    from sbench.runs import export

    return export.export_run(given.run)
