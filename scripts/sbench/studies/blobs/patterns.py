"""Access patterns, which divide objects among MPI processes and into operations (METHOD 9, 12).

Objects consist of checksummed blocks (`sbench.probe.content`). Sections consist of whole blocks; their number is
rounded up, so that the last processes may get an empty section. Sections are split into operations, of whole blocks
unless an operation is smaller than a block.

Interleaved pieces are at most a chunk but at least a block, and small enough that each process gets eight if possible.
A scatter divides each operation into sections instead of the whole object.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sbench.probe import sizes
from sbench.studies.blobs.settings import Levels


@dataclass(frozen=True)
class Pattern:
    """An access pattern, which defines the bytes that each process receives, and which process reads them.

    Attributes:
        gives: share of a process: "whole" (an object), "section" (contiguous) or "pieces" (interleaved).
        by: who reads: "each" (each process reads its share), "broadcast" or "scatter" (rank 0 reads for all
            processes), "mpi-io" or "collective" (the MPI library, by independent or collective reads; files only).
        one_each: whether each process has a separate object.
        title: title of the report's table of sizes.
        explained: legend of the diagram in the report.
    """

    gives: str
    by: str = "each"
    one_each: bool = False
    title: str = ""
    explained: str = ""

    @property
    def has_single_reader(self) -> bool:
        """Return whether rank 0 reads for all processes."""
        return self.by in ("broadcast", "scatter")

    @property
    def mpi_io(self) -> bool:
        """Return whether the MPI library reads (MPI-IO)."""
        return self.by in ("mpi-io", "collective")

    @property
    def is_split(self) -> bool:
        """Return whether each process reads only a part of an object, and reads this part itself."""
        return self.by == "each" and self.gives != "whole"

    @property
    def is_read_once(self) -> bool:
        """Return whether only one process requests each byte of the object, rather than all processes."""
        return self.by != "each" or self.is_split


# By name, in the order of the report.
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
# Patterns that give each process a whole object; the others give it a part.
WHOLE = tuple(name for name, pattern in PATTERNS.items() if pattern.gives == "whole")
# Size of the smallest operation in bytes.
PAGE = 4096
# Number of interleaved pieces per process.
_PIECES = 8


@dataclass(frozen=True)
class Operation:
    """The byte ranges that a process loads by one call.

    Attributes:
        object: number of the object.
        extents: byte ranges in the object, as (offset, length), which are contiguous in the process's buffer.
    """

    object: int
    extents: tuple[tuple[int, int], ...]

    @property
    def bytes(self) -> int:
        """Return the total size of the byte ranges in bytes."""
        return sum(length for _, length in self.extents)


class Plan:
    """The operations of all processes in an iteration.

    Attributes:
        kind: the pattern.
        processes: number of MPI processes.
        objects: number of objects that they read.
        size: size of an object in bytes.
        block: size of an object's blocks in bytes.
        operation_bytes: maximum size of an operation in bytes, a multiple of the block size, or of the page size if
            operations are smaller than a block.
    """

    def __init__(self, cell: Levels, layout: dict) -> None:
        """Divide the objects among the processes.

        Args:
            cell: levels of the cell.
            layout: sizes of the objects and their blocks, from the manifest.
        """
        self.kind, self.processes = PATTERNS[cell.pattern], int(cell.processes)
        self.size, self.block = layout["size_bytes"], layout["block_bytes"]
        self._one_each = cell.objects == "own" or self.kind.one_each
        self.objects = self.processes if self._one_each else 1
        self._chunk_bytes, self._concurrency = sizes.parse_size(cell.chunk_size), int(cell.concurrency)
        most = sizes.parse_size(cell.operation_size)
        self.operation_bytes = most - most % (self.block if most >= self.block else PAGE)

    @property
    def chunks_in_flight(self) -> int:
        """Return the maximum number of chunks in flight: as requested, or fewer if all operations have fewer chunks."""
        counts = (sum(-(-length // self._chunk_bytes) for _, length in one.extents) for one in self._iter_all_fetches())
        return min(self._concurrency, max(counts, default=1))

    @property
    def largest_request(self) -> int:
        """Return the size of the largest chunk in bytes."""
        lengths = (length for one in self._iter_all_fetches() for _, length in one.extents)
        return min(self._chunk_bytes, max(lengths, default=0))

    def list_operations(self, rank: int) -> list[Operation]:
        """Return the operations whose bytes a process receives. With the pattern scatter, some may be empty."""
        if self.kind.by == "scatter":
            return [
                Operation(0, tuple(self._compute_section(rank, *piece.extents[0]))) for piece in self.list_fetches(0)
            ]
        return list(split_extents(rank if self._one_each else 0, self._list_extents(rank), self.operation_bytes))

    def list_fetches(self, rank: int) -> list[Operation]:
        """Return the operations that a process itself reads from the store."""
        if not self.kind.has_single_reader:
            return self.list_operations(rank)
        return [] if rank else list(split_extents(0, [(0, self.size)], self.operation_bytes))

    def _iter_all_fetches(self) -> Iterator[Operation]:
        return (one for rank in range(self.processes) for one in self.list_fetches(rank))

    def compute_buffer_bytes(self, rank: int) -> int:
        """Return the size of a process's largest operation in bytes."""
        return max((one.bytes for one in [*self.list_operations(rank), *self.list_fetches(rank)]), default=0)

    def count_delivered_bytes(self, rank: int) -> int:
        """Return the number of bytes that a process receives in an iteration."""
        return sum(one.bytes for one in self.list_operations(rank))

    def iter_blocks(self, rank: int) -> Iterator[tuple[int, int]]:
        """Yield (object number, block number) for all blocks that start in the bytes that a process receives."""
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
        """Return a process's section of the `length` bytes from `start`.

        Returns:
            A list with one (offset, length), or an empty list if there are fewer blocks than processes need.
        """
        blocks = -(-length // self.block)
        share = -(-blocks // self.processes) * self.block
        count = min(share, length - rank * share)
        return [(start + rank * share, count)] if count > 0 else []


def split_extents(number: int, extents: Iterable[tuple[int, int]], limit: int) -> Iterator[Operation]:
    """Split byte ranges of the object `number` into operations of `limit` bytes; the last may be smaller."""
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
