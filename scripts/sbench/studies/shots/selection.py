"""Parse and apply levels of the factor `selection`: a whole dataset, a part, some of its chunks, or only metadata.

A place is a part of a dataset that a single read returns: a span for each dimension, or () for the whole dataset.
"""

import math
import re
from collections.abc import Iterator, Sequence

ALL, METADATA = "all", "metadata"
# In place of a part of a dataset: list all groups and datasets of a file.
WALK = "walk"
# Start, exclusive end and step along a dimension.
Span = tuple[int, int, int]
Place = tuple[Span, ...]


def find_mistake(level: str) -> str:
    """Return an error message if a level of the factor `selection` is invalid, otherwise an empty string.

    The level must match the pattern in the schema.
    """
    if level.startswith("["):
        try:
            _parse_spans(level, (1,) * len(level))
        except ValueError:
            return f"selection must be all, metadata, 1/10 or a numpy index such as [0:100, ...] (got {level})"
    return ""


def iter_places(level: str, shape: Sequence[int], chunks: Sequence[int] | None) -> Iterator[Place]:
    """Yield the parts of a dataset that are read, one per read. () means the whole dataset.

    Args:
        level: "all"; an index such as "[0:100, ...]", truncated to the dimensions of the dataset; or "1/10" for every
            tenth chunk in row-major order, starting with the first.
        shape: shape of the dataset.
        chunks: shape of its chunks. With None, the dataset counts as a single chunk.
    """
    if level == ALL or not shape:
        yield ()
    elif level.startswith("["):
        spans = _parse_spans(level, shape)
        if all(begin < end for begin, end, _ in spans):
            yield spans
    else:
        sizes = [size or 1 for size in chunks or shape]
        counts = [-(-length // size) for length, size in zip(shape, sizes, strict=True)]
        for number in range(0, math.prod(counts), int(level.partition("/")[2])):
            corner = [index * size for index, size in zip(_compute_indices(number, counts), sizes, strict=True)]
            ends = (min(start + size, length) for start, size, length in zip(corner, sizes, shape, strict=True))
            yield tuple((start, end, 1) for start, end in zip(corner, ends, strict=True))


def _compute_indices(number: int, counts: Sequence[int]) -> list[int]:
    """Convert a chunk's row-major number to indices. Unlike with numpy.unravel_index, the grid may be of any size."""
    indices = []
    for count_of_axis in reversed(counts):
        number, index = divmod(number, count_of_axis)
        indices.append(index)
    return indices[::-1]


def convert_to_slices(place: Place) -> tuple[slice, ...]:
    """Convert a place to slices with which an array can be indexed."""
    return tuple(slice(*span) for span in place)


def count_elements(place: Place, shape: Sequence[int]) -> int:
    """Return the number of elements in a place of a dataset with this shape."""
    return math.prod(len(range(*span)) for span in place) if place else math.prod(shape)


def is_chunk_touched(place: Place, offset: Sequence[int], chunk: Sequence[int]) -> bool:
    """Return whether a place contains elements of the chunk at `offset`."""
    return all(
        begin < start + size
        and end > start
        and (step == 1 or any(start <= at < start + size for at in range(begin, end, step)))
        for (begin, end, step), start, size in zip(place, offset, chunk, strict=True)
    )


def _parse_spans(level: str, shape: Sequence[int]) -> Place:
    """Parse a level such as [0:100, ...] for a dataset of this shape; raise ValueError if it is invalid."""
    parts = [part.strip() for part in level.strip("[] ").split(",")]
    if parts.count("...") > 1:
        raise ValueError(level)
    if "..." in parts:
        at = parts.index("...")
        behind = parts[at + 1 :]
        parts = parts[:at] + [":"] * max(0, len(shape) - at - len(behind)) + behind
    parts = (parts + [":"] * len(shape))[: len(shape)]
    return tuple(_parse_span(part, length) for part, length in zip(parts, shape, strict=True))


def _parse_span(part: str, length: int) -> Span:
    if re.fullmatch(r"-?\d+", part):
        index = int(part) + (length if part.startswith("-") else 0)
        return index, min(index + 1, length), 1
    numbers = [int(number) if number else None for number in part.split(":")]
    begin, end, step = slice(*numbers).indices(length) if len(numbers) in (2, 3) else (0, 0, 0)
    if step < 1:
        raise ValueError(part)
    return begin, end, step
