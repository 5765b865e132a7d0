"""Make the pages of the published studies, with an audit of each: reports/published/index.html.

With the names of claims (config/claims), or --claims for all, measure published claims, judge them, and make pages:
reports/claims/index.html.

--audit applies the rules of docs/method.md to other CSV files. The study is detected from the column names.
"""

import argparse

from sbench.cli.options import Parser


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    add = parser.add_argument
    add("names", nargs="*", metavar="CLAIM", help="claims to measure, such as zarr-3199")
    add("--claims", action="store_true", help="measure all claims, and make an index of them")
    add("--json", action="store_true", help="print the verdicts of the claims as JSON")
    parser.add_path("--raw", default="", metavar="FOLDER", help="folder of the raw data (default: download them)")
    add("--partial", action="store_true", help="make pages from the available data only, in a separate folder")
    add("--cores", default="all", help="cores that Snakemake may use (default: %(default)s)")
    parser.add_path("--audit", nargs="+", default=[], metavar="CSV", help="audit these files instead of making pages")
    add("--study", default="", help="study whose columns the files have")
    add(
        "--columns",
        nargs="+",
        default=[],
        metavar="COLUMN=ROLE",
        help="roles of other columns: Latency=time_s",
    )


def start(given: argparse.Namespace) -> int:
    """Replace this process with Snakemake, test claims, or print the audit's findings for each rule."""
    if given.audit:
        from sbench.court import audit

        return audit.print_audit(given.audit, given.study, given.columns)
    if given.names or given.claims:
        from sbench.court import tested_claims

        return tested_claims.test_claims([] if given.claims else given.names, given.cores, given.json)
    from sbench.measure.start import make_published

    return make_published(given.raw, given.partial, given.cores)
