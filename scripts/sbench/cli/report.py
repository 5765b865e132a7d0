"""Make the pages of an archive without network access: reports/<run>/index.html."""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_path("archive", help="an archive of sbench archive, <run>-<hash>.tar.xz")
    parser.add_argument("--name", default="", metavar="RUN", help="folder of the pages (default: the name of the run)")


def start(given: argparse.Namespace) -> int:
    """Make the pages, and print the path of the report."""
    from pathlib import Path

    from sbench.runs import archive

    print(f"report: {archive.make_pages(Path(given.archive), given.name)}")
    return 0
