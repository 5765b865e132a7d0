"""Write the requests of a program for continuous integration: a Markdown summary, and metrics to track."""

import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sbench.files import budget
from sbench.files.buckets import Requests
from sbench.files.budget import Budget, Limit
from sbench.files.count import Count, Query
from sbench.files.count_text import format_count
from sbench.pages import markup
from sbench.probe import sizes
from sbench.probe.program import Problem, escape_text, write_json, write_text

_JSON, _OPEN_METRICS = ".json", ".txt"


def append_summary(path: Path, title: str, count: Count, query: Query, limits: Sequence[Limit], top: int) -> None:
    """Append the report of a count to a Markdown file, with the limits of its budget.

    Args:
        path: the file; jobs of GitHub Actions append all summaries of a step to the same file.
        title: heading of the summary.
        count: the requests.
        query: the arguments of the count.
        limits: the limits of the budget with the measured numbers.
        top: the number of objects to list.
    """
    command, report = shlex.join(query.command), map(escape_text, format_count(count, query, top))
    parts = [
        markup.heading(2, escape_text(title)),
        markup.paragraph(markup.code(escape_text(command))),
        *(markup.paragraph(line) for line in _describe_outcome(count, limits)),
    ]
    blocks = [
        markup.render_markdown(*parts),
        *_format_limits(limits),
        markup.render_markdown("Report:", _quote_lines(report)),
    ]
    with path.open("a", encoding="utf-8") as file:
        file.write("\n\n".join(blocks) + "\n\n")


def _describe_outcome(count: Count, limits: Sequence[Limit]) -> Iterator[str]:
    if count.status:
        yield markup.bold(f"The program ended with status {count.status}.")
    if not limits:
        return
    if not count.requests.methods:
        yield markup.bold("The budget is not met: no request reached the server.")
    elif unmet := sum(not limit.is_met for limit in limits):
        yield markup.bold(f"{unmet:,} of {sizes.format_count(len(limits), 'limit')} not met.")
    else:
        yield f"The budget is met: {sizes.format_count(len(limits), 'limit')}."


def _format_limits(limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a table of the limits, and the requests of limits that are not met, in Markdown."""
    if not limits:
        return
    lines = ["| limit | allowed | measured | |", "|---|---:|---:|---|"]
    for limit in limits:
        outcome = "met" if limit.is_met else markup.bold("not met")
        cells = (escape_text(limit.name), str(limit.allowed), budget.format_measured(limit), outcome)
        lines.append(f"| {' | '.join(map(markup.render_markdown_cell, cells))} |")
    yield "\n".join(lines)
    # Limits often have the same requests, such as get and bytes.
    alike: dict[tuple, list[Limit]] = defaultdict(list)
    for limit in limits:
        if limit.rows and not limit.is_met:
            alike[tuple(map(id, limit.rows))].append(limit)
    for group in alike.values():
        words = f"Requests of {', '.join(escape_text(limit.name) for limit in group)}:"
        yield markup.render_markdown(words, _quote_lines(map(escape_text, budget.format_rows(group[0].rows))))


def _quote_lines(lines: Iterator[str]) -> str:
    return markup.verbatim("\n".join(lines))


def check_metrics_name(name: str) -> None:
    """Raise Problem if the name of a file of metrics does not determine its format."""
    if name and Path(name).suffix not in (_JSON, _OPEN_METRICS):
        raise Problem(f"--metrics must name a file that ends in {_JSON} or {_OPEN_METRICS} (got {name})")


def write_metrics(path: Path, count: Count, allowed: Budget) -> None:
    """Write the numbers of requests, bytes and connections as JSON or OpenMetrics.

    Metrics have the names of limits, and every count has all of them, so that other tools can compare counts. The
    numbers of a program that failed, or made no request, are not comparable, so they are not written.

    Args:
        path: the file, which determines the format by its ending (`check_metrics_name`).
        count: the requests.
        allowed: the budget; its limits of objects are metrics, too.
    """
    if count.status or not count.requests.methods:
        reason = "the program failed" if count.status else "there are no requests"
        print(f"{path} not written: {reason}", file=sys.stderr)
        return
    metrics = _measure_metrics(count.requests, allowed)
    if path.suffix == _JSON:
        write_json(
            path, [{"name": name, "unit": budget.get_unit(name), "value": value} for name, value in metrics.items()]
        )
    else:
        write_text(path, "\n".join([*_format_open_metrics(metrics), "# EOF"]) + "\n")


def _measure_metrics(requests: Requests, allowed: Budget) -> dict[str, int]:
    of_objects = {limit.name: limit.measured for limit in budget.measure_limits(allowed, requests)}
    return budget.count_totals(requests) | of_objects


def _format_open_metrics(metrics: Mapping[str, int]) -> Iterator[str]:
    """Yield the lines of a file in the format OpenMetrics, in which the metrics of a kind follow each other."""
    for kind in budget.NAMES:
        yield f"# TYPE sbench_{kind} gauge"
        for name, value in metrics.items():
            of_kind, _, key = name.partition(" of ")
            if of_kind == kind:
                label = f"{{object={json.dumps(key, ensure_ascii=False)}}}" if key else ""
                yield f"sbench_{kind}{label} {value}"
