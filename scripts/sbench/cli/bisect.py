"""Find the library release, or the commit of a clone, that changed the cost of reading HDF5 files over S3.

Requests and bytes are counted by the embedded server, so a single record per release suffices. Seconds are compared
over repeated blocks of records. Later calls reuse all records. Exits with status 3 if a difference in seconds is
undecided.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    add = parser.add_argument
    parser.add_path("library", help="hdf5, h5py, s3fs or another package of a driver, or the folder of a clone")
    parser.add_path("first", help="a release, a wheel, or a branch, tag or commit of the clone")
    parser.add_path("last", help="a later one")
    add("--metric", default="requests", help="requests, bytes or seconds (default: %(default)s)")
    parser.add_path("--clone", default="", metavar="FOLDER", help="clone of HDF5 or of the package")
    parser.add_path("--files", nargs="+", default=[], metavar="FILE", help="your HDF5 files instead of generated files")
    add("--name", default="", metavar="RUN", help="name of the run (default: bisect-<library>-<first>-<last>)")
    add("--yes", action="store_true", help="do not ask for confirmation")


def start(given: argparse.Namespace) -> int:
    """Run the measurements, and print the release or commit that changed the metric."""
    from sbench.files import bisect
    from sbench.files.bisect import Query

    query = Query(given.library, given.first, given.last, given.metric, given.clone, given.files, given.name)
    return bisect.run_bisect(query, given.yes)
