"""Evaluate recorded requests: their byte ranges, repeated bytes, and neighbouring ranges that could be merged.

A request is a row with the fields `embedded.EXCHANGE`, as the emulated network records it. Byte ranges are half-open
intervals (begin, end).
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

Range = tuple[int, int]
# RFC 9110, section 14.1.1: "bytes=0-99", "bytes=100-" or, for the last 8 bytes, "bytes=-8".
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class Totals(NamedTuple):
    """The totals of the successful GET requests for one object, or for all objects.

    Attributes:
        requests: number of GET requests with a body.
        sent: bytes in their bodies.
        distinct: bytes of the objects that were sent at least once.
        repeated: number of requests all of whose bytes an earlier request had fetched.
        runs: number of requests that would fetch the same bytes if neighbouring ranges were merged.
    """

    requests: int
    sent: int
    distinct: int
    repeated: int
    runs: int


def find_range(row: Mapping, size: int | None) -> Range | None:
    """Return the byte range that a GET request fetched; None if it fetched nothing, or if the range is unknown.

    Args:
        row: the request. An aborted request fetched only the first bytes of its range.
        size: size of the object in bytes, if known.
    """
    if row["method"] != "GET" or not row["status"].startswith("2") or not row["bytes"]:
        return None
    match = _RANGE.fullmatch(row["range"])
    if not match or (match[1] == "" and size is None):
        return None if row["range"] else (0, row["bytes"])
    begin = int(match[1]) if match[1] else max(0, size - int(match[2] or 0))
    return begin, begin + row["bytes"]


def merge_ranges(ranges: Iterable[Range], gap: int = 0) -> list[Range]:
    """Merge ranges that overlap, or whose distance is at most `gap` bytes, into a sorted list."""
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1] + gap:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def count_repeated(ranges: Iterable[Range]) -> int:
    """Count the ranges that earlier ranges of the sequence cover completely."""
    begins: list[int] = []
    ends: list[int] = []
    repeated = 0
    for begin, end in ranges:
        # The covered intervals are sorted and disjoint. Those from `first` to `last` overlap or touch the range.
        first, last = bisect_left(ends, begin), bisect_right(begins, end)
        repeated += last > first and begins[first] <= begin and end <= ends[first]
        if last > first:
            begin, end = min(begin, begins[first]), max(end, ends[last - 1])
        begins[first:last], ends[first:last] = [begin], [end]
    return repeated


def summarise_object(rows: Iterable[Mapping], size: int | None, gap: int) -> Totals:
    """Return the totals of the requests for one object.

    Args:
        rows: the requests, in the order in which they began.
        size: size of the object in bytes, if known.
        gap: largest distance in bytes between two ranges that one request could fetch.
    """
    ranges = [span for row in rows if (span := find_range(row, size))]
    distinct = sum(end - begin for begin, end in merge_ranges(ranges))
    sent = sum(end - begin for begin, end in ranges)
    return Totals(len(ranges), sent, distinct, count_repeated(ranges), len(merge_ranges(ranges, gap)))


def group_by_object(rows: Iterable[Mapping]) -> dict[str, list[Mapping]]:
    """Group requests by path, in the order of their first requests."""
    groups: dict[str, list[Mapping]] = defaultdict(list)
    for row in rows:
        groups[row["path"]].append(row)
    return dict(groups)


def add_totals(parts: Iterable[Totals]) -> Totals:
    """Add the totals of several objects."""
    return Totals(*map(sum, zip(Totals(0, 0, 0, 0, 0), *parts, strict=True)))
