"""Divide objects among the MPI processes of a pattern, and into operations (METHOD 9, 12).

Objects consist of the blocks of `sbench.probe.content`. Sections are whole blocks, ceil-divided, so that a process may
get an empty section. Operations split longer sections, into whole blocks unless an operation is smaller than a block.

Interleaved pieces are at most a chunk, but at least a block, and small enough to give a process eight pieces. A
scatter divides each operation into sections, not the whole object.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sbench.probe import sizes
from sbench.studies.blobs.settings import Levels


@dataclass(frozen=True)
class Pattern:
    """The share of each process in the objects, and the way in which it gets the bytes.

    Attributes:
        gives: "whole" (an object), "section" (contiguous) or "pieces" (interleaved).
        by: "each" (a process reads its share), "broadcast" or "scatter" (rank 0 reads for all), "mpi-io" or
            "collective" (the MPI library reads, for independently or for all together; files only).
        one_each: whether each process has a separate object.
        title: title of the report's table of sizes.
        explained: legend of the picture in the report.
    """

    gives: str
    by: str = "each"
    one_each: bool = False
    title: str = ""
    explained: str = ""

    @property
    def has_single_reader(self) -> bool:
        """Return whether rank 0 reads for all."""
        return self.by in ("broadcast", "scatter")

    @property
    def mpi_io(self) -> bool:
        """Return whether the MPI library reads."""
        return self.by in ("mpi-io", "collective")

    @property
    def is_split(self) -> bool:
        """Return whether each process reads a part of an object, either of a shared or of a separate object."""
        return self.by == "each" and self.gives != "whole"

    @property
    def is_read_once(self) -> bool:
        """Return whether the processes together request the object's bytes once, instead of each process all bytes."""
        return self.by != "each" or self.is_split


# In the order of the report's pages.
PATTERNS = {
    "single-file": Pattern(
        "whole",
        title="Each process reads the whole of the same object (single file, multiple readers)",
        explained="every process reads the whole of the same object (SFMR)",
    ),
    "multiple-files": Pattern(
        "whole",
        one_each=True,
        title="Each process reads the whole of a different object (multiple files, multiple readers)",
        explained="rank i reads the whole of object i (MFMR)",
    ),
    "broadcast": Pattern(
        "whole",
        "broadcast",
        title="One process reads the whole object and broadcasts it",
        explained="rank 0 reads the whole object, MPI_Bcast sends it to every process; compare single-file",
    ),
    "sections": Pattern(
        "section",
        title="Each process reads a contiguous section",
        explained="every process reads a contiguous section of the same object",
    ),
    "sections-interleaved": Pattern(
        "pieces",
        title="Each process reads every P-th piece",
        explained="every process reads every P-th piece of the same object",
    ),
    "scatter": Pattern(
        "section",
        "scatter",
        title="One process reads the whole object and scatters its sections",
        explained="rank 0 reads the whole object, MPI_Scatterv sends each process its section; compare sections",
    ),
    "mpi-io": Pattern(
        "section",
        "mpi-io",
        title="Contiguous sections through MPI-IO, independently",
        explained="sections through MPI_File_read_at, independently",
    ),
    "mpi-io-interleaved": Pattern(
        "pieces",
        "mpi-io",
        title="Interleaved pieces through MPI-IO, independently",
        explained="interleaved pieces through an MPI file view, independently",
    ),
    "mpi-io-collective": Pattern(
        "section",
        "collective",
        title="Contiguous sections through MPI-IO, collectively",
        explained="sections through MPI_File_read_at_all: the MPI library assigns the reads",
    ),
    "mpi-io-collective-interleaved": Pattern(
        "pieces",
        "collective",
        title="Interleaved pieces through MPI-IO, collectively",
        explained="interleaved pieces through a file view, collectively: the MPI library assigns the reads",
    ),
}
FROM_ONE = tuple(name for name, pattern in PATTERNS.items() if pattern.has_single_reader)
# Patterns that give each process a whole object; the others give it a section.
WHOLE = tuple(name for name, pattern in PATTERNS.items() if pattern.gives == "whole")
# Bytes of the smallest operation.
PAGE = 4096
_PIECES = 8


@dataclass(frozen=True)
class Operation:
    """The bytes that a process requests at once.

    Attributes:
        object: number of the object.
        extents: (offset, length) in the object, consecutive in the process's buffer.
    """

    object: int
    extents: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        """Return the bytes of all extents."""
        return sum(length for _, length in self.extents)


class Plan:
    """The operations of all processes in an iteration.

    Attributes:
        kind: the pattern.
        processes: number of MPI processes.
        objects: number of objects that they read.
        size: bytes of an object.
        block: bytes of a block of an object.
        operation_bytes: bytes of the largest operation: whole blocks, or pages if a block does not fit.
    """

    def __init__(self, cell: Levels, layout: dict) -> None:
        """Divide the objects of a manifest's `layout` by the levels of a cell."""
        self.kind, self.processes = PATTERNS[cell.pattern], int(cell.processes)
        self.size, self.block = layout["size_bytes"], layout["block_bytes"]
        self._one_each = cell.objects == "own" or self.kind.one_each
        self.objects = self.processes if self._one_each else 1
        self._chunk_bytes, self._concurrency = sizes.parse_size(cell.chunk_size), int(cell.concurrency)
        most = sizes.parse_size(cell.operation_size)
        self.operation_bytes = most - most % (self.block if most >= self.block else PAGE)

    @property
    def chunks_in_flight(self) -> int:
        """Return the maximum of chunks in flight per process: the requested number, if an operation has as many."""
        counts = (sum(-(-length // self._chunk_bytes) for _, length in one.extents) for one in self._iter_all_fetches())
        return min(self._concurrency, max(counts, default=1))

    @property
    def largest_request(self) -> int:
        """Return the bytes of the largest chunk."""
        lengths = (length for one in self._iter_all_fetches() for _, length in one.extents)
        return min(self._chunk_bytes, max(lengths, default=0))

    def list_operations(self, rank: int) -> list[Operation]:
        """Return the operations that a process receives; in a scatter they may be empty."""
        if self.kind.by == "scatter":
            return [
                Operation(0, tuple(self._compute_section(rank, *piece.extents[0]))) for piece in self.list_fetches(0)
            ]
        return list(split_extents(rank if self._one_each else 0, self._list_extents(rank), self.operation_bytes))

    def list_fetches(self, rank: int) -> list[Operation]:
        """Return the operations that a process requests from the store."""
        if not self.kind.has_single_reader:
            return self.list_operations(rank)
        return [] if rank else list(split_extents(0, [(0, self.size)], self.operation_bytes))

    def _iter_all_fetches(self) -> Iterator[Operation]:
        return (one for rank in range(self.processes) for one in self.list_fetches(rank))

    def compute_buffer_bytes(self, rank: int) -> int:
        """Return the bytes of a process's largest operation."""
        return max((one.bytes for one in [*self.list_operations(rank), *self.list_fetches(rank)]), default=0)

    def count_delivered_bytes(self, rank: int) -> int:
        """Return the bytes that a process receives in an iteration."""
        return sum(one.bytes for one in self.list_operations(rank))

    def iter_blocks(self, rank: int) -> Iterator[tuple[int, int]]:
        """Yield (object, block) of all blocks that a process receives."""
        for one in self.list_operations(rank):
            for offset, length in one.extents:
                for block in range(-(-offset // self.block), -(-(offset + length) // self.block)):
                    yield one.object, block

    def _list_extents(self, rank: int) -> list[tuple[int, int]]:
        if self.kind.gives == "whole":
            return [(0, self.size)]
        if self.kind.gives == "section":
            return self._compute_section(rank, 0, self.size)
        blocks = -(-self.size // self.block)
        piece = self.block * max(1, min(self._chunk_bytes // self.block, -(-blocks // self.processes) // _PIECES))
        starts = range(rank * piece, self.size, self.processes * piece)
        return [(start, min(piece, self.size - start)) for start in starts]

    def _compute_section(self, rank: int, start: int, length: int) -> list[tuple[int, int]]:
        """Return the section of a process in `length` bytes from `start` on, [] if no block remains for it."""
        blocks = -(-length // self.block)
        share = -(-blocks // self.processes) * self.block
        count = min(share, length - rank * share)
        return [(start + rank * share, count)] if count > 0 else []


def split_extents(number: int, extents: Iterable[tuple[int, int]], limit: int) -> Iterator[Operation]:
    """Split extents of the object `number` into operations of `limit` bytes; the last may have fewer."""
    parts: list[tuple[int, int]] = []
    room = limit
    for offset, length in extents:
        while length:
            count = min(length, room)
            parts.append((offset, count))
            offset, length, room = offset + count, length - count, room - count
            if not room:
                yield Operation(number, tuple(parts))
                parts, room = [], limit
    if parts:
        yield Operation(number, tuple(parts))
