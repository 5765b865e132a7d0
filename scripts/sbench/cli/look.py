"""List the contents of HDF5 files and Zarr stores, and the consequences for reading them over a network.

Takes only seconds. Accepts files, folders, patterns, objects in a bucket (s3://bucket/prefix/*.h5), kerchunk
references, and Icechunk repositories.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_path("files", nargs="+", metavar="FILE", help="files, folders, patterns, or s3://bucket/prefix/*.h5")
    add = parser.add_argument
    add("--access", default="", help="access, as for sbench advise (default: all of each file)")
    add("--datasets", nargs="+", default=[], metavar="PATTERN", help='datasets to read (default: "/**")')
    add("--json", action="store_true", help="print a JSON object")


def start(given: argparse.Namespace) -> int:
    """Print the contents of the files."""
    from sbench.files import look

    return look.print_contents(given.files, given.access, given.datasets, given.json)
