"""Evaluate recorded requests: their byte ranges, repeated bytes, and neighbouring ranges that could be merged.

A request is a row with the fields `embedded.EXCHANGE`, as the emulated network records it. Byte ranges are half-open
intervals (begin, end).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

Range = tuple[int, int]
# RFC 9110, section 14.4: "bytes 0-99/1000".
_CONTENT_RANGE = re.compile(r"bytes (\d+)-")
# Query parameters of requests for the bytes of an object; others are for its tags, its parts and so on.
_OF_READS = ("partNumber", "versionId", "x-id")


class Totals(NamedTuple):
    """The totals of the successful reads of one object, or of all objects.

    Attributes:
        requests: number of GET requests that fetched bytes of objects.
        sent: these bytes.
        distinct: bytes that were sent at least once; without responses of several ranges, whose places are unknown.
        repeated: number of requests all of whose bytes an earlier request had fetched.
        runs: number of requests that would fetch the same bytes if neighbouring ranges were merged.
    """

    requests: int
    sent: int
    distinct: int
    repeated: int
    runs: int


def find_range(row: Mapping) -> Range | None:
    """Return the byte range that a GET request fetched, according to its response; None if the range is unknown.

    An aborted request fetched only the first bytes of its range.
    """
    if row["status"] == "200":
        return 0, row["bytes"]
    match = _CONTENT_RANGE.match(row["content_range"])
    return (int(match[1]), int(match[1]) + row["bytes"]) if match else None


def is_read(row: Mapping) -> bool:
    """Return whether a request fetched bytes of an object, and not, for example, its tags."""
    names = set(row["query"].split())
    is_plain = all(name in _OF_READS or name.startswith(("X-Amz-", "response-")) for name in names)
    return bool(row["method"] == "GET" and is_plain and row["bytes"] and row["status"].startswith("2"))


def merge_ranges(ranges: Iterable[Range], gap: int = 0) -> list[Range]:
    """Merge ranges that overlap, or whose distance is at most `gap` bytes, into a sorted list."""
    merged: list[Range] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1] + gap:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def find_repeated(ranges: Sequence[Range]) -> list[bool]:
    """Return, for each range of a sequence, whether earlier ones cover it completely; in O(n log n)."""
    places = {place: number for number, place in enumerate(sorted({place for span in ranges for place in span}))}
    # The bytes between neighbouring places are a piece. From each piece, a path leads to the next that is not covered.
    following = list(range(len(places)))

    def find_uncovered(piece: int) -> int:
        while following[piece] != piece:
            following[piece] = piece = following[following[piece]]
        return piece

    repeated = []
    for begin, end in ranges:
        piece = find_uncovered(places[begin])
        repeated.append(piece >= places[end])
        while piece < places[end]:
            following[piece] = piece + 1
            piece = find_uncovered(piece + 1)
    return repeated


def summarise_object(rows: Iterable[Mapping], gap: int) -> Totals:
    """Return the totals of the requests for one object.

    Args:
        rows: the requests, in the order in which they began.
        gap: largest distance in bytes between two ranges that one request could fetch.
    """
    reads = [row for row in rows if is_read(row)]
    ranges = [span for row in reads if (span := find_range(row))]
    distinct = sum(end - begin for begin, end in merge_ranges(ranges))
    unknown = len(reads) - len(ranges)
    sent = sum(row["bytes"] for row in reads)
    return Totals(len(reads), sent, distinct, sum(find_repeated(ranges)), len(merge_ranges(ranges, gap)) + unknown)


def group_by_object(rows: Iterable[Mapping]) -> dict[str, list[Mapping]]:
    """Group requests by path, in the order of their first requests."""
    groups: dict[str, list[Mapping]] = defaultdict(list)
    for row in rows:
        groups[row["path"]].append(row)
    return dict(groups)


def add_totals(parts: Iterable[Totals]) -> Totals:
    """Add the totals of several objects."""
    return Totals(*map(sum, zip(Totals(0, 0, 0, 0, 0), *parts, strict=True)))
