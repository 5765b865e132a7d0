"""Levels of the factor `selection`: all of a dataset, a part, some of its chunks, or only the metadata of a file."""

import math
import re
from collections.abc import Iterator, Sequence

ALL, METADATA = "all", "metadata"
# As a place: walk the whole tree of a file.
WALK = "walk"
# First, behind last, and step of a dimension.
Span = tuple[int, int, int]
Place = tuple[Span, ...]


def find_mistake(level: str) -> str:
    """Return the mistake in a level of the factor `selection` that matches its pattern, "" if it is valid."""
    if level.startswith("["):
        try:
            _parse_spans(level, (1,) * len(level))
        except ValueError:
            return f"selection must be all, metadata, 1/10 or a numpy index such as [0:100, ...] (got {level})"
    return ""


def iter_places(level: str, shape: Sequence[int], chunks: Sequence[int] | None) -> Iterator[Place]:
    """Yield the places of a dataset, each a separate read; () is the whole dataset.

    Args:
        level: "all", "[0:100, ...]", cut to the dimensions of the dataset, or "1/10": every tenth chunk in row-major
            order, from the first.
        shape: shape of the dataset.
        chunks: shape of its chunks; None counts as a single chunk.
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
    """Return the indices of a chunk by its number, the last dimension fastest; memory may not hold all indices."""
    indices = []
    for count_of_axis in reversed(counts):
        number, index = divmod(number, count_of_axis)
        indices.append(index)
    return indices[::-1]


def convert_to_slices(place: Place) -> tuple[slice, ...]:
    """Convert a place to slices for numpy."""
    return tuple(slice(*span) for span in place)


def count_elements(place: Place, shape: Sequence[int]) -> int:
    """Return the number of elements of a dataset at a place."""
    return math.prod(len(range(*span)) for span in place) if place else math.prod(shape)


def is_chunk_touched(place: Place, offset: Sequence[int], chunk: Sequence[int]) -> bool:
    """Return whether a place needs the chunk at `offset`."""
    return all(
        begin < start + size
        and end > start
        and (step == 1 or any(start <= at < start + size for at in range(begin, end, step)))
        for (begin, end, step), start, size in zip(place, offset, chunk, strict=True)
    )


def _parse_spans(level: str, shape: Sequence[int]) -> Place:
    """Parse a level such as [0:100, ...] for a shape; raise a ValueError if it is invalid."""
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
