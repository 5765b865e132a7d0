"""Divide the rows of an array among clients, and split them into pieces that are written or read by one call each."""

from collections.abc import Iterator
from dataclasses import dataclass

# Bytes per value, and how many times larger large numbers are as text (JSON) than as binary data.
ITEM, TEXT = 8, 3
# Operations that test a service's limits instead of its speed, with requests of up to MOST times the size limit.
TRIALS, MOST = ("limits", "faults"), 4


@dataclass(frozen=True)
class Shape:
    """The shape of a 2-D array and its chunks."""

    rows: int
    columns: int
    chunk_rows: int
    chunk_columns: int

    @property
    def bytes(self) -> int:
        """Return the size of the values in bytes, without padding."""
        return ITEM * self.rows * self.columns

    @property
    def chunks(self) -> int:
        """Return the number of chunks, including those at the edges that extend beyond the array."""
        return -(-self.rows // self.chunk_rows) * -(-self.columns // self.chunk_columns)

    @property
    def padded_bytes(self) -> int:
        """Return the total size of all chunks in bytes, including the padding of chunks at the edges."""
        return ITEM * self.chunks * self.chunk_rows * self.chunk_columns


@dataclass(frozen=True)
class Piece:
    """Rows and columns to write or read by one call, each as a half-open range (start, stop)."""

    rows: tuple[int, int]
    columns: tuple[int, int]

    @property
    def slices(self) -> tuple[slice, slice]:
        """Return the piece as a pair of slices that can index a numpy, h5py, h5pyd or Zarr array."""
        return slice(*self.rows), slice(*self.columns)

    @property
    def bytes(self) -> int:
        """Return the size of the piece in bytes."""
        return ITEM * (self.rows[1] - self.rows[0]) * (self.columns[1] - self.columns[0])


def parse_shape(shape: str, chunks: str) -> Shape:
    """Parse the shape of an array and of its chunks, such as "12000x2200" and "1500x275"."""
    return Shape(*map(int, shape.split("x")), *map(int, chunks.split("x")))


def split_rows(shape: Shape, clients: int) -> list[tuple[int, int]]:
    """Divide the rows among clients at chunk boundaries, so that no two clients write to the same chunk.

    Returns:
        The (start, stop) rows of each client; fewer than `clients` if there are too few rows of chunks.
    """
    chunk_rows = -(-shape.rows // shape.chunk_rows)
    each = -(-chunk_rows // clients) * shape.chunk_rows
    return [(start, min(start + each, shape.rows)) for start in range(0, shape.rows, each)]


def iter_pieces(shape: Shape, band: tuple[int, int], access: str, limit: int) -> Iterator[Piece]:
    """Split a client's rows into the pieces that it reads or writes. The first piece is the largest.

    Args:
        shape: shape of the array.
        band: (start, stop) rows of the client.
        access: "whole" (all of the client's rows in a single piece), "rows" (full rows, as high as a chunk),
            "columns" (as wide as a chunk), "blocks" (as high and as wide as a chunk), or "pieces" (as many full
            rows as fit in fewer bytes than `limit`).
        limit: request size limit of the service, in bytes.
    """
    first, end = band
    below = max(1, (limit - 1) // (ITEM * shape.columns))
    height = {"rows": shape.chunk_rows, "blocks": shape.chunk_rows, "pieces": below}.get(access, end - first)
    width = shape.chunk_columns if access in ("columns", "blocks") else shape.columns
    for row in range(first, end, height):
        for column in range(0, shape.columns, width):
            yield Piece((row, min(row + height, end)), (column, min(column + width, shape.columns)))
