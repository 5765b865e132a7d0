"""Find the library release, or the commit of a clone, that changed the cost of reading over S3.

Without --script, HDF5 files are read. Requests and bytes are counted by the embedded server, so a single record per
release suffices. Seconds are compared over repeated blocks of records. Later calls reuse all records. Exits with status
3 if a difference in seconds is undecided.

With --script, any package of the registry can be bisected: the script runs with each release, and its requests to
buckets on this machine are counted.
"""

import argparse
from functools import partial

from sbench.cli.options import Parser
from sbench.probe.program import Problem


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
    add("--script", default="", metavar="FILE", help="a Python script that makes the requests")
    own = parser.add_argument_group("with --script")
    own.add_argument("--folders", nargs="+", default=[], metavar="FOLDER", help="folders to serve, each as a bucket")
    own.add_argument("--with", nargs="+", default=[], metavar="PACKAGE", help="packages that the script needs, too")
    own.add_argument("--python", default="", metavar="RELEASE", help="Python to use, such as 3.13 (default: this one)")
    own.add_argument("--most", type=int, default=0, metavar="N", help="releases to measure where none differ (24)")


def start(given: argparse.Namespace) -> int:
    """Run the measurements, and print the release or commit that changed the metric."""
    from sbench.files import bisect, script_bisection

    if given.script:
        return script_bisection.run_bisect(script_bisection.build_query(given), partial(print, flush=True))
    if given.folders or vars(given)["with"] or given.most or given.python:
        raise Problem("--folders, --with, --python and --most need --script")
    query = bisect.Query(given.library, given.first, given.last, given.metric, given.clone, given.files, given.name)
    return bisect.run_bisect(query, given.yes)
