"""Compare runs, archives, baselines, published studies, or results of other tools: the second side against the first.

Name the two sides as RUN RUN, or as RUN… --with RUN… if a side consists of several runs. Instead of runs, both sides
may be result files of hyperfine, pytest-benchmark, asv, pyperf, google-benchmark or fio (JSON), or a CSV with the
columns arm, block and value. A CSV, or a file of hyperfine, may contain both sides. Exits with status 3 if a --fail-on
rule holds.

With --history, there are no sides: all sessions are shown in the order of their times.

With --gather, the arms of one configuration are compared over all hosts that measured it: name the folder or the
bucket with the archives of their sessions. Exits with status 1 if an archive was refused.
"""

import argparse

from sbench.cli.options import Parser
from sbench.probe.program import Problem

_DETECT_PERCENT = 10


def add_options(parser: Parser) -> None:
    """Add the subcommand's options to the parser."""
    several = {"nargs": "*", "metavar": "RUN", "default": []}
    add = parser.add_argument
    parser.add_path("sides", **several, help="runs, archives, baselines, published/<study>, or files of other tools")
    parser.add_path("--with", dest="other", **several, help="the other side of the comparison")
    add(
        "--history",
        action="store_true",
        help="show all sessions of one configuration over time, with the sessions at which times changed",
    )
    parser.add_path(
        "--gather", metavar="PLACE", help="compare over the hosts of the archives in a folder or s3://bucket/prefix"
    )
    add("--paired", action="store_true", help="pair the sessions of both sides in the order of their times")
    add(
        "--fail-on",
        default="",
        metavar="RULES",
        help="exit with 3 if a rule holds, such as 'slower > 10 %%, more requests'",
    )
    parser.add_path("--keep", metavar="JSON", help="write the first side to this file as a baseline")
    add("--json", action="store_true", help="print a JSON object")
    tools = parser.add_argument_group("only for results of other tools")
    tools.add_argument(
        "--detect",
        type=float,
        default=_DETECT_PERCENT,
        metavar="PERCENT",
        help="difference that undecided benchmarks should detect (default: %(default)s)",
    )
    tools.add_argument("--summary", default="", metavar="FILE", help="also append a Markdown summary to a file")
    tools.add_argument("--metrics", default="", metavar="FILE", help="also write JSON for github-action-benchmark")


def start(given: argparse.Namespace) -> int:
    """Compare the two sides, and print the outcome; for runs, write results/compare and reports/compare."""
    from sbench.runs import tool_files

    base, other = given.sides, given.other
    if given.history:
        return _report_history(given)
    if given.gather:
        return _compare_hosts(given)
    if any(map(tool_files.is_tool_file, [*base, *other])):
        return _compare_tools(given)
    if given.summary or given.metrics or given.detect != _DETECT_PERCENT:
        raise Problem("--summary, --metrics and --detect are for results of other tools; runs have reports/compare")
    from sbench.runs import compare

    if len(base) == 2 and not (other or given.keep):
        base, other = base[:1], base[1:]
    if not (base and (other or given.keep)):
        raise Problem("name two sides: sbench compare RUN RUN, or sbench compare RUN… --with RUN…")
    return compare.compare_runs(base, other, given.paired, given.fail_on, given.keep, given.json)


def _report_history(given: argparse.Namespace) -> int:
    unused = {"--with": given.other, "--paired": given.paired, "--fail-on": given.fail_on, "--keep": given.keep}
    unused |= {"--summary": given.summary, "--metrics": given.metrics, "--detect": given.detect != _DETECT_PERCENT}
    if wrong := [option for option, value in unused.items() if value]:
        raise Problem(f"--history takes runs, archives and baselines, and --json; it does not take {wrong[0]}")
    if not given.sides:
        raise Problem("name the sessions: sbench compare --history RUN…")
    from sbench.runs import history

    return history.report_history(given.sides, given.json)


def _compare_hosts(given: argparse.Namespace) -> int:
    unused = ("sides", "other", "paired", "keep", "summary", "metrics")
    if any(getattr(given, name) for name in unused) or given.detect != _DETECT_PERCENT:
        raise Problem("--gather compares the arms within archives; use it only with --fail-on and --json")
    from sbench.runs import compare_hosts

    return compare_hosts.compare_hosts(given.gather, given.fail_on, given.json)


def _compare_tools(given: argparse.Namespace) -> int:
    from sbench.files.count import locate_output
    from sbench.runs import compare_tools, tool_files

    base, other = given.sides, given.other
    if runs := [source for source in (*base, *other) if not tool_files.is_tool_file(source)]:
        file = next(source for source in (*base, *other) if source not in runs)
        raise Problem(f"{runs[0]} is not a result file of another tool, but {file} is; name two sides of the same kind")
    if given.paired or given.keep:
        raise Problem("--paired and --keep are for runs; pair results of other tools in a CSV with a column block")
    if len(base) == 2 and not other:
        base, other = base[:1], base[1:]
    if not base or (len(base) > 1 and not other):
        raise Problem("name two sides: sbench compare FILE FILE, or sbench compare FILE… --with FILE…")
    summary, metrics = (locate_output(path, given) for path in (given.summary, given.metrics))
    output = compare_tools.Output(given.json, summary, metrics)
    return compare_tools.compare_files(base, other, given.fail_on, given.detect, output)
