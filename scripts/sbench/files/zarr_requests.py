"""Forecast the requests with which clients of Zarr read parts of an array over S3."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sbench.drivers.requests import merge_ranges
from sbench.files.ranges import Range
from sbench.files.zarr_arrays import Array
from sbench.files.zarr_layouts import Layout, Position
from sbench.probe.zarr_shards import list_present

# From 3.3 on, zarr merges the ranges of a shard with at most this gap into requests of at most this size, in bytes:
# array.sharding_coalesce_max_gap_bytes and array.sharding_coalesce_max_bytes of its configuration.
_GAP, _MOST_MERGED = 2**20, 16 * 2**20
# Maximum number of objects to look up for an access; of shards whose index to read, and size of these indexes in bytes.
_MOST_OBJECTS, _MOST_INDEXES, _MOST_INDEX_BYTES = 100_000, 200, 4 * 2**20

Span = tuple[int, int, int]


class Requests(NamedTuple):
    """The requests for the chunks that an access touches.

    Attributes:
        gets: number of GETs before zarr 3.3.
        merged: number of GETs from zarr 3.3 on.
        heads: number of HEADs that zarr's FsspecStore sends in addition, one before each GET of a whole object.
        is_exact: whether `merged` and `gaps` are exact; otherwise they are lower bounds.
        gaps: number of bytes between chunks that merged requests fetch in addition.
    """

    gets: int = 0
    merged: int = 0
    heads: int = 0
    is_exact: bool = True
    gaps: int = 0

    def add(self, other: "Requests") -> "Requests":
        """Return the sum of both."""
        return Requests(
            self.gets + other.gets,
            self.merged + other.merged,
            self.heads + other.heads,
            self.is_exact and other.is_exact,
            self.gaps + other.gaps,
        )


def forecast_requests(array: Array, spans: Sequence[Span]) -> Requests:
    """Return the requests with which Zarr reads a part, one (begin, end, step) per axis.

    A chunk is an object, which takes a GET. Of a shard, a GET fetches the index and another one each chunk; if all
    chunks of a shard are read, a single GET fetches them. An object that `Array.layout` excludes takes none.
    """
    layout = array.layout or Layout()
    axes = _group_by_object(array, spans)
    objects = math.prod(map(len, axes))
    most = _MOST_OBJECTS if layout.sizes is not None else 0
    if layout.index and layout.read_index:
        most = min(_MOST_INDEXES, _MOST_INDEX_BYTES // layout.index.bytes)
    if objects > most:
        return _count_by_shape(array, axes)
    total = Requests()
    for position, inside in _iter_objects(axes):
        if layout.sizes is None or position in layout.sizes:
            total = total.add(_count_of_object(array, layout, position, inside))
    return total


def _group_by_object(array: Array, spans: Sequence[Span]) -> list[dict[int, list[int]]]:
    """Return, for each axis, the numbers of the touched chunks within each touched object."""
    axes = []
    for span, chunk, outer in zip(spans, array.chunks, array.shards or array.chunks, strict=True):
        touched: dict[int, list[int]] = {}
        for number in _list_touched(span, chunk):
            touched.setdefault(number // (outer // chunk), []).append(number % (outer // chunk))
        axes.append(touched)
    return axes


def _iter_objects(axes: Sequence[dict[int, list[int]]]) -> Iterator[tuple[Position, list[list[int]]]]:
    for place in itertools.product(*(axis.items() for axis in axes)):
        yield tuple(number for number, _ in place), [inside for _, inside in place]


def _count_by_shape(array: Array, axes: Sequence[dict[int, list[int]]]) -> Requests:
    """Count the requests if each object takes requests, without looking up single objects."""
    objects = math.prod(map(len, axes))
    if not array.shards:
        return Requests(objects, objects, objects)
    in_shard = [shard // chunk for shard, chunk in zip(array.shards, array.chunks, strict=True)]
    whole = math.prod(
        sum(len(inside) == size for inside in axis.values()) for axis, size in zip(axes, in_shard, strict=True)
    )
    chunks = math.prod(sum(map(len, axis.values())) for axis in axes)
    partial = objects - whole
    return Requests(
        partial + chunks - whole * math.prod(in_shard) + whole, 2 * partial + whole, whole, is_exact=not partial
    )


def _count_of_object(array: Array, layout: Layout, position: Position, inside: Sequence[list[int]]) -> Requests:
    size = layout.sizes[position] if layout.sizes else 0
    in_shard = [outer // chunk for outer, chunk in zip(array.shards or array.chunks, array.chunks, strict=True)]
    if all(len(numbers) == count for numbers, count in zip(inside, in_shard, strict=True)):
        parts = layout.count_parts(size)
        return Requests(parts, parts, 1)
    if not (layout.index and layout.read_index):
        chunks = math.prod(map(len, inside))
        return Requests(1 + chunks, 2, is_exact=False)
    ranges = layout.read_ranges(position)
    if ranges is None:
        return Requests(1, 1)
    touched = list_present(ranges[np.ix_(*inside)])
    index = layout.count_parts(layout.index.bytes)
    gets = sum(layout.count_parts(end - begin) for begin, end in touched)
    groups = merge_ranges(touched, _GAP, _MOST_MERGED)
    merged = sum(layout.count_parts(end - begin) for begin, end in groups)
    return Requests(index + gets, index + merged, gaps=_count_bytes(groups) - _count_bytes(touched))


def _count_bytes(ranges: Sequence[Range]) -> int:
    return sum(end - begin for begin, end in ranges)


def _list_touched(span: Span, size: int) -> Sequence[int]:
    """Return the numbers of the chunks of an axis that contain indices of a span."""
    begin, end, step = span
    if step <= size:
        last = range(begin, end, step)[-1] if begin < end else begin - 1
        return range(begin // size, last // size + 1) if begin < end else ()
    return [index // size for index in range(begin, end, step)]
