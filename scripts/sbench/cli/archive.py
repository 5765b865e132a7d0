"""Pack a run into a single archive with a hash of each record: results/<run>/<run>-<hash>.tar.xz.

The configuration of an archive can be written to a file, to measure the same elsewhere.
"""

import argparse
from pathlib import Path

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_path("run", nargs="?", default="", help="a run, or an archive (default: the run of config/config.yaml)")
    parser.add_argument("--cite", action="store_true", help="print a citation instead of packing")
    parser.add_argument(
        "--config", metavar="FILE", default="", help="write its configuration, for sbench run, instead of packing"
    )
    parser.add_argument("--by", default="", metavar="NAME", help="authors of the measurements for the citation")


def start(given: argparse.Namespace) -> int:
    """Write the archive or its configuration, or print the citation."""
    from sbench.runs import archive, cite

    if given.config:
        return archive.write_config(given.run, Path(given.config))
    return cite.print_citation(given.run, given.by) if given.cite else archive.pack_run(given.run)
