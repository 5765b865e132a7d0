"""Write the requests of a program as an offline HTML page: for each object, byte positions over time."""

import html
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sbench.files import ranges
from sbench.files.buckets import get_method, is_failed
from sbench.files.count import Count, Query
from sbench.files.count_text import format_count
from sbench.probe import sizes
from sbench.probe.program import write_text

_WIDTH, _HEIGHT, _THINNEST = 1000, 260, 2.0
# Objects and requests that are drawn, the largest and the first ones.
_OBJECTS, _REQUESTS = 12, 10_000
# Colours that colour-blind readers can tell apart (Okabe and Ito), by kind of request.
_COLOURS = {"new bytes": "#0072b2", "bytes fetched before": "#e69f00", "failed": "#d55e00"}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; padding: 0.75rem }
h2 { font-size: 1.1rem; overflow-wrap: anywhere; margin: 2rem 0 0.25rem }
p { margin: 0.25rem 0 } svg { width: 100%; height: auto; border: 1px solid #bbb }
table { border-collapse: collapse } td, th { padding: 0.1rem 0.75rem 0.1rem 0; text-align: right }
td:last-child, th:last-child { text-align: left; overflow-wrap: anywhere }
.key { display: inline-block; width: 0.8em; height: 0.8em; margin: 0 0.3em 0 0.9em }
@media print { h2 { break-after: avoid } svg { break-inside: avoid } }
"""


def write_page(count: Count, query: Query, top: int, path: Path) -> None:
    """Write the page of a count."""
    write_text(path, "\n".join(_format_page(count, query, top)) + "\n")


def _format_page(count: Count, query: Query, top: int) -> Iterator[str]:
    command = shlex.join(word.encode(errors="surrogateescape").decode(errors="replace") for word in query.command)
    title = f"Requests of {command}"
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><h1>Requests to S3</h1><pre>{html.escape(command)}</pre>"
    # The table of the text is a table of the page.
    lines = [line for line in format_count(count, query, 0) if not line.startswith("…")]
    yield from (f"<p>{html.escape(line)}</p>" for line in lines)
    rows = ranges.group_by_object(row for row in count.requests.passed["exchanges"] if "/" in row["path"].strip("/"))
    by_size = sorted(count.requests.objects.items(), key=lambda item: (-item[1].sent, -item[1].requests))
    read = [(name, totals) for name, totals in by_size if totals.requests]
    if read:
        key = "".join(
            f'<span class="key" style="background:{colour}"></span>{name}' for name, colour in _COLOURS.items()
        )
        yield f"<p>Each bar is a request, from its start to its last byte.{key}</p>"
    for name, totals in read[:_OBJECTS]:
        yield from _draw_object(name, totals, rows[f"/{name}"])
    if len(read) > 1:
        yield from _format_table(read[: max(top, _OBJECTS)])
    yield "</body></html>"


def _draw_object(name: str, totals: ranges.Totals, rows: Sequence[Mapping]) -> Iterator[str]:
    """Draw the GET requests for an object; byte positions increase upwards."""
    spans = [(row, ranges.find_range(row) if ranges.is_read(row) else None) for row in rows if get_method(row) == "GET"]
    largest = max((span[1] for _, span in spans if span), default=0)
    begun, ended = min(row["begin"] for row, _ in spans), max(row["end"] or row["begin"] for row, _ in spans)
    duration = max(ended - begun, 1e-9)
    yield f"<h2>{html.escape(name)}</h2>"
    distinct = f"{sizes.format_size(totals.sent)} in {sizes.format_count(totals.requests, 'GET')}"
    yield (
        f"<p>{distinct}; bytes 0 to {sizes.format_size(largest)} from bottom to top, {begun:.3g} to {ended:.3g} s from"
        " left to right</p>"
    )
    label = html.escape(f"Byte positions of {name} over time")
    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
    repeated = iter(ranges.find_repeated([span for _, span in spans if span]))
    for row, span in spans[:_REQUESTS]:
        kind = "failed" if is_failed(row) else "new bytes"
        kind = "bytes fetched before" if span and next(repeated) else kind
        low, high = span or (0, 0)
        left = _WIDTH * (row["begin"] - begun) / duration
        width = max(_THINNEST, _WIDTH * ((row["end"] or row["begin"]) - row["begin"]) / duration)
        height = max(_THINNEST, _HEIGHT * (high - low) / max(largest, 1))
        bottom = _HEIGHT * (1 - low / max(largest, 1))
        words = f"{row['method']} {low:,} to {high:,}, {row['status']}, {1000 * (row['end'] - row['begin']):.3g} ms"
        yield (
            f'<rect x="{min(left, _WIDTH - _THINNEST):.1f}" y="{max(0, bottom - height):.1f}" width="{width:.1f}"'
            f' height="{height:.1f}" fill="{_COLOURS[kind]}" fill-opacity="0.7"><title>{html.escape(words)}</title>'
            "</rect>"
        )
    yield "</svg>"
    if len(spans) > _REQUESTS:
        yield f"<p>The first {_REQUESTS:,} of {len(spans):,} requests are drawn.</p>"


def _format_table(read: Sequence[tuple[str, ranges.Totals]]) -> Iterator[str]:
    yield "<h2>Objects</h2><table><tr><th>GETs</th><th>sent</th><th>distinct</th><th>merged</th><th>object</th></tr>"
    for name, totals in read:
        cells = (
            f"{totals.requests:,}",
            sizes.format_size(totals.sent),
            sizes.format_size(totals.distinct),
            f"{totals.runs:,}",
            name,
        )
        yield f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</table>"
