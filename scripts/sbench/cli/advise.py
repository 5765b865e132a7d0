"""Find the fastest way to read HDF5 files: compare drivers, caches, and copies in other layouts.

Predicts the requests and bytes of each option, measures the best options against the unmodified files, and ends with
three lines: how to repack the files, how to open them, and the benefits and costs.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_path("files", nargs="+", metavar="FILE", help="files, folders, patterns, or s3://bucket/prefix/*.h5")
    add = parser.add_argument
    add(
        "--access",
        default="",
        help="files (default) or datasets (across all files), then all of each (default), metadata, [0:100, ...]"
        " or 1/10 of the chunks; separate several by semicolons, with shares, as in 'files [:, 0] 70 %%; all 30 %%'",
    )
    add("--datasets", nargs="+", default=[], metavar="PATTERN", help='as "/gt*/**" "!/gt*/quality/**"; all by default')
    add("--latency", type=int, metavar="MS", help="round trip of the store: read through an embedded S3 server over it")
    add("--rate", type=int, metavar="MIB/S", help="bandwidth of a connection to the store")
    add("--store", default="", help="bucket to read from, s3://bucket/prefix; trial files are uploaded there")
    parser.add_path("--scratch", default="", help="folder for copies (default: results/<run>/scratch)")
    add("--repeats", type=int, default=6, metavar="N", help="repeats of each way (default: %(default)s)")
    add("--name", default="", metavar="RUN", help="name of the run (default: advise- and a hash of the question)")
    add("--json", action="store_true", help="print a JSON object at the end, and progress to standard error")


def start(given: argparse.Namespace) -> int:
    """Run the measurements, and print the advice."""
    from sbench.files import advise
    from sbench.files.advise import Query

    query = Query(
        *(given.files, given.access, given.datasets, given.latency, given.rate, given.store, given.scratch, given.name)
    )
    return advise.print_advice(query, given.repeats, given.json)
