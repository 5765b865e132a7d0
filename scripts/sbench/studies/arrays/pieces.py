"""Cut an array into the pieces of requests, and share them between clients."""

from collections.abc import Iterator
from dataclasses import dataclass

# Bytes of a value, and the factor for large numbers as text.
ITEM, TEXT = 8, 3
# Operations that are not timed but try requests of up to so many times the limit of a service.
TRIALS, MOST = ("limits", "faults"), 4


@dataclass(frozen=True)
class Shape:
    """The shape of an array and of its chunks."""

    rows: int
    columns: int
    chunk_rows: int
    chunk_columns: int

    @property
    def bytes(self) -> int:
        """Return the bytes of the values."""
        return ITEM * self.rows * self.columns

    @property
    def chunks(self) -> int:
        """Return the number of chunks; chunks at the ends may reach beyond the array."""
        return -(-self.rows // self.chunk_rows) * -(-self.columns // self.chunk_columns)

    @property
    def padded_bytes(self) -> int:
        """Return the bytes of all chunks, counted whole."""
        return ITEM * self.chunks * self.chunk_rows * self.chunk_columns


@dataclass(frozen=True)
class Piece:
    """Rows and columns to write or read at once, each as (first, behind last)."""

    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def slices(self) -> tuple[slice, slice]:
        """Return slices for numpy, h5py, h5pyd and Zarr."""
        return slice(*self.rows), slice(*self.columns)

    @property
    def bytes(self) -> int:
        """Return the bytes of the values."""
        return ITEM * (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0])


def parse_shape(shape: str, chunks: str) -> Shape:
    """Return the shape of two levels such as "12000x2200" and "1500x275"."""
    return Shape(*map(int, shape.split("x")), *map(int, chunks.split("x")))


def split_rows(shape: Shape, clients: int) -> list[tuple[int, int]]:
    """Return the rows of each client in whole chunks, so that no chunk has two writers; fewer clients if too few."""
    chunk_rows = -(-shape.rows // shape.chunk_rows)
    each = -(-chunk_rows // clients) * shape.chunk_rows
    return [(start, min(start + each, shape.rows)) for start in range(0, shape.rows, each)]


def iter_pieces(shape: Shape, band: tuple[int, int], access: str, limit: int) -> Iterator[Piece]:
    """Yield the pieces that a client reads or writes of its rows; the first is the largest.

    Args:
        shape: shape of the array.
        band: rows of the client.
        access: whole (all of them at once), rows, columns or blocks (as high, as wide, or both, as a chunk), or pieces
            (as many whole rows as make fewer bytes than `limit`).
        limit: limit of a request, in bytes.
    """
    first, end = band
    below = max(1, (limit - 1) // (ITEM * shape.columns))
    height = {"rows": shape.chunk_rows, "blocks": shape.chunk_rows, "pieces": below}.get(access, end - first)
    width = shape.chunk_columns if access in ("columns", "blocks") else shape.columns
    for row in range(first, end, height):
        for column in range(0, shape.columns, width):
            yield Piece((row, min(row + height, end)), (column, min(column + width, shape.columns)))
