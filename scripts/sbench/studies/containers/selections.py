"""Convert the levels of `access` to the parts of the array to read, and count the chunks that a part touches."""

import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

ITEM = 4
WALK = "walk"
ACCESSES = r"map|series|box|all|walk|(rows|windows)-[1-9][0-9]{0,5}(-batch[1-9][0-9]{0,4})?(-sorted)?"
# Rows of a window, and the fraction of each axis that a box has.
WINDOW, BOX = 16, 4
_DRAWN = re.compile(r"(rows|windows)-(\d+)(?:-batch(\d+))?(-sorted)?")

# The part of an array that a call reads, for each axis: a slice, or a list of rows on the first axis.
Index = tuple[slice | list[int], slice, slice]


@dataclass(frozen=True)
class Grid:
    """The shapes of an array with three axes, of its chunks and of its shards.

    Attributes:
        shape: times, rows and columns of the array.
        chunks: shape of its chunks.
        shards: shape of its shards; () if each chunk is an object or a part of a file.
    """

    shape: tuple[int, int, int]
    chunks: tuple[int, int, int]
    shards: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of all values in bytes."""
        return math.prod(self.shape) * ITEM

    @property
    def chunk_bytes(self) -> int:
        """The size of the values of a chunk in bytes."""
        return math.prod(self.chunks) * ITEM

    def count_chunks(self) -> int:
        """Return the number of chunks."""
        return math.prod(-(-size // step) for size, step in zip(self.shape, self.chunks, strict=True))

    def list_touched(self, index: Index) -> set[tuple[int, ...]]:
        """Return the positions of the chunks that contain values of a part."""
        axes = [
            sorted({row // step for row in ([*range(size)[part]] if isinstance(part, slice) else part)})
            for part, size, step in zip(index, self.shape, self.chunks, strict=True)
        ]
        return {(first, second, third) for first in axes[0] for second in axes[1] for third in axes[2]}


def parse_sides(level: str) -> tuple[int, int, int]:
    """Convert a level such as "365x180x360" to a shape."""
    first, second, third = map(int, level.split("x"))
    return first, second, third


def format_sides(shape: Sequence[int]) -> str:
    """Format a shape as a level, such as "365x180x360"."""
    return "x".join(map(str, shape))


def list_parts(access: str, shape: tuple[int, int, int], seed: int) -> list[Index]:
    """Return the parts that an access reads, one per call; an empty list for the metadata walk.

    Positions and the order of rows are random, and depend on the seed, the access and the shape alone, so that all
    cells and repeats read the same parts.
    """
    draw, whole = random.Random(f"{seed} {access} {shape}"), slice(None)
    if access == WALK:
        return []
    if access == "all":
        return [(whole, whole, whole)]
    if access == "map":
        time = draw.randrange(shape[0])
        return [(slice(time, time + 1), whole, whole)]
    if access == "series":
        row, column = draw.randrange(shape[1]), draw.randrange(shape[2])
        return [(whole, slice(row, row + 1), slice(column, column + 1))]
    if access == "box":
        return [tuple(_draw_slice(draw, size, max(1, size // BOX)) for size in shape)]
    kind, number, batch, is_sorted = _DRAWN.fullmatch(access).groups()
    return list(_draw_rows(draw, shape[0], int(number), int(batch or 1), 1 if kind == "rows" else WINDOW, is_sorted))


def count_drawn(access: str) -> int:
    """Return how many rows an access needs at least, so that all rows or windows are different."""
    drawn = _DRAWN.fullmatch(access)
    return (int(drawn[2]) + (WINDOW - 1) * (drawn[1] == "windows")) if drawn else 1


def count_values(parts: Sequence[Index], shape: tuple[int, int, int]) -> int:
    """Return the number of values in all parts."""
    return sum(
        math.prod(
            len(range(size)[part]) if isinstance(part, slice) else len(part)
            for part, size in zip(index, shape, strict=True)
        )
        for index in parts
    )


def split_rows(index: Index, rows: int, each: int) -> Iterator[tuple[int, slice]]:
    """Split the rows of a part into runs of consecutive rows in the same file.

    Args:
        index: the part.
        rows: number of rows of the array.
        each: number of rows of a file.

    Yields:
        The number of the file, and the rows in this file, in the order of the part.
    """
    numbers = range(rows)[index[0]] if isinstance(index[0], slice) else index[0]
    runs = itertools.groupby(enumerate(numbers), key=lambda item: (item[1] // each, item[1] - item[0]))
    for (file, _), run in runs:
        held = [number for _, number in run]
        yield file, slice(held[0] - file * each, held[-1] + 1 - file * each)


def _draw_slice(draw: random.Random, size: int, width: int) -> slice:
    begin = draw.randrange(size - width + 1)
    return slice(begin, begin + width)


def _draw_rows(
    draw: random.Random, size: int, number: int, batch: int, width: int, is_sorted: str | None
) -> Iterator[Index]:
    starts, whole = draw.sample(range(size - width + 1), number), slice(None)
    if is_sorted:
        starts.sort()
    for first in range(0, number, batch):
        rows = starts[first : first + batch]
        if batch == 1:
            yield slice(rows[0], rows[0] + width), whole, whole
        else:
            yield [row + step for row in rows for step in range(width)], whole, whole
