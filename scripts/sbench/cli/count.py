"""Count the S3 requests of any program: serve folders as buckets, run the program, and report its requests.

The program finds the server by environment variables, such as AWS_ENDPOINT_URL. Its output and exit status are passed
through; the report follows on standard error, with the cost of the requests at list prices.
"""

import argparse
import sys
from pathlib import Path

from sbench.cli.options import Parser

_UNMET_STATUS = 3


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    add = parser.add_argument
    add("folders", nargs="*", metavar="FOLDER", help="folders to serve, each as a bucket of its name")
    add("--bucket", action="append", default=[], metavar="NAME=FOLDER", help="a folder with a name for its bucket")
    add("--in-place", action="store_true", help="let uploads change the folders (default: a scratch copy)")
    add("--anonymous", action="store_true", help="let requests without credentials read, such as those of curl")
    add("--tls", action="store_true", help="serve https, with a certificate that most clients trust (docs/count.md)")
    add("--latency", type=int, default=0, metavar="MS", help="emulate this round-trip time in ms")
    add("--rate", type=float, default=0, metavar="MIB_S", help="emulate this rate of each connection in MiB/s")
    add("--top", type=int, default=10, metavar="N", help="objects to list (default: %(default)s)")
    add("--require", action="store_true", help=f"exit with status {_UNMET_STATUS} if there are no requests")
    add("--budget", default="", metavar="FILE", help="limits; exit with status 3 if one is not met")
    add("--json", default="", metavar="FILE", help="also write the counts to a JSON file")
    add("--html", default="", metavar="FILE", help="also write a page with the byte positions over time")
    add("--summary", default="", metavar="FILE", help="also append a Markdown summary to a file")
    add("--title", default="Requests to S3", help="heading of the summary (default: %(default)s)")
    add("--metrics", default="", metavar="FILE", help="also write metrics: .json for GitHub, .txt for GitLab")
    parser.add_rest("the program and its arguments")


def start(given: argparse.Namespace) -> int:
    """Run the program, print the report, and return the program's exit status."""
    from sbench.design import prices
    from sbench.files import budget, count, count_ci, count_page, count_text

    query = count.build_query(given)
    # A wrong list of prices must not lose the counts.
    prices.read_prices()
    count_ci.check_metrics_name(given.metrics)
    files = (given.json, given.html, given.summary, given.metrics)
    path, page, summary, metrics = (count.locate_output(name, given) for name in files)
    allowed = budget.read_budget(Path(given.called_from, given.budget)) if given.budget else {}
    made = count.count_requests(query)
    count_text.report(made, query, given.top, path)
    limits = budget.measure_limits(allowed, made.requests)
    excesses = [limit for limit in limits if not limit.is_met]
    if excesses:
        print(*budget.format_excesses(excesses), sep="\n", file=sys.stderr)
    if page:
        count_page.write_page(made, query, given.top, page)
    if summary:
        count_ci.append_summary(summary, given.title, made, query, limits, given.top)
    if metrics:
        count_ci.write_metrics(metrics, made, allowed)
    is_unmet = excesses or ((given.require or limits) and not made.requests.methods)
    return made.status or (_UNMET_STATUS if is_unmet else 0)
