"""Find the fastest way to read HDF5 files: compare drivers, caches, copies in other layouts, and other containers.

Predicts the requests and bytes of each option, measures the best options against the unmodified files, and ends with
three lines: how to repack or convert the files, how to open them, and the benefits and costs.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    parser.add_path("files", nargs="+", metavar="FILE", help="files, folders, patterns, or s3://bucket/prefix/*.h5")
    add = parser.add_argument
    add(
        "--access",
        action="append",
        default=[],
        help="files (default) or datasets (across all files), then all of each (default), metadata, [0:100, ...]"
        " or 1/10 of chunks; with --containers: map, series at point, all or a part. Separate several by semicolons,"
        " with shares, as in 'files [:, 0] 70 %%; all 30 %%', or repeat the option",
    )
    add("--share", default="", metavar="PERCENT", help="shares of repeated --access, such as 70,30 (default: equal)")
    add(
        "--containers",
        default="",
        metavar="LIST",
        help="weigh conversions: all, or some of hdf5, hdf5-repacked, kerchunk-json, kerchunk-parquet,"
        " icechunk-virtual, icechunk, zarr, zarr-shards, separated by commas",
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
    from sbench.files import advise, advise_containers, patterns
    from sbench.files.advise import Query

    rest = (given.datasets, given.latency, given.rate, given.store, given.scratch, given.name)
    if given.containers:
        containers = advise_containers.parse_containers(given.containers)
        accesses = patterns.parse_patterns(given.access or list(patterns.NAMED), given.share)
        query = Query(given.files, "", *rest)
        return advise_containers.print_advice(query, containers, accesses, given.repeats, given.json)
    query = Query(given.files, patterns.join_accesses(given.access, given.share), *rest)
    return advise.print_advice(query, given.repeats, given.json)
