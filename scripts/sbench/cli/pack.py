"""Write an archive that runs where there is no network, compiler, root or git."""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the options of the command."""
    parser.add_config()
    parser.add_path(
        "--out", default="", metavar="ARCHIVE", help="the archive to write (default: named after the commit)"
    )


def start(given: argparse.Namespace) -> int:
    """Write the archive."""
    from sbench.measure import pack

    return pack.pack(given.config, given.out)
