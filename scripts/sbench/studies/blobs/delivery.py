"""Deliver the bytes of an iteration from the store into the buffers of all MPI processes.

While rank 0 reads, the other ranks wait without spinning; they enter the collective call when rank 0 is about to.
"""

import copy
import os
import time
from collections.abc import Callable
from pathlib import Path

from mpi4py import MPI

from sbench.probe.program import Problem
from sbench.stores.posix import reader as posix
from sbench.stores.reading import Changed, Identity, Reader
from sbench.studies.blobs.patterns import Operation, Plan

Check = Callable[[Operation, memoryview], None]
_SOON_S = 2e-4


def wait_for_request(request, pause_s: float = 5e-5) -> None:
    """Wait for an MPI request; unlike the waits of MPI, leave the core to a server or a slower process."""
    soon = time.perf_counter() + _SOON_S
    while not request.Test():
        # A sleep takes longer than most waits, so let other processes run first.
        if time.perf_counter() < soon:
            os.sched_yield()
        else:
            time.sleep(pause_s)


class Independent:
    """A delivery without communication: each process reads its bytes by itself."""

    def __init__(self, comm: MPI.Comm, plan: Plan, reader: Reader, names: list[str], view: memoryview) -> None:
        """Keep the arguments for all iterations; `view` is the process's buffer."""
        self.comm, self.plan, self.reader, self.names, self.view = comm, plan, reader, names, view
        self.gets, self.fetches = plan.list_operations(comm.rank), plan.list_fetches(comm.rank)
        # Seconds that rank 0 has read if it reads for all.
        self.fetched_s = 0.0
        self.identities: dict[int, Identity] = {}

    def identify_objects(self) -> dict[int, Identity]:
        """Fetch the identities of the objects that this process reads, by number, and keep them for all iterations."""
        self.identities = {
            number: self.reader.fetch_identity(self.names[number]) for number in self.list_object_numbers()
        }
        return self.identities

    def expect_unchanged(self) -> None:
        """Raise Changed if an object was replaced since `identify_objects`, unless reading it shows the change."""
        for number in self.list_object_numbers():
            self.reader.expect_unchanged(self.names[number], self.identities[number])

    def close(self) -> None:
        """Release the resources that all processes share; all of them have to call this."""

    def list_object_numbers(self) -> set[int]:
        """Return the numbers of the objects that this process reads."""
        return {one.object for one in self.fetches}

    def build_empty_copy(self) -> "Independent":
        """Return a copy of this delivery whose operations are empty: it takes only the time of the harness."""
        empty = copy.copy(self)
        empty.gets, empty.fetches = ([Operation(one.object, ()) for one in some] for some in (self.gets, self.fetches))
        return empty

    def run_iteration(self, check: Check | None = None) -> int:
        """Load all operations into the buffer in turn; return the bytes that this process received.

        Raises:
            Changed: an object changed; raised in all processes that cannot continue.
        """
        done = 0
        for number, one in enumerate(self.gets):
            self._load_operation(number, one)
            done += self._count_received(one, check)
        return done

    def get_hints(self) -> dict[str, str] | None:
        """Return the hints that MPI-IO used, None without MPI-IO (METHOD 10)."""
        return None

    def _load_operation(self, number: int, operation: Operation) -> None:
        self._fetch_operation(operation)

    def _fetch_operation(self, operation: Operation) -> None:
        name, identity = self.names[operation.object], self.identities[operation.object]
        self.reader.read(name, operation.extents, self.view[: operation.bytes], identity)

    def _count_received(self, operation: Operation, check: Check | None) -> int:
        if check:
            check(operation, self.view[: operation.bytes])
        return operation.bytes


class Broadcast(Independent):
    """A delivery by rank 0, which reads an operation and broadcasts it (MPI_Bcast) before it reads the next."""

    def _load_operation(self, number: int, operation: Operation) -> None:
        """Let rank 0 read an operation and distribute it; raise Changed in all processes if the object changed."""
        token = bytearray(b"\1")
        began = time.perf_counter()
        if self.comm.rank:
            wait_for_request(self.comm.Irecv([token, MPI.BYTE], 0))
            if not token[0]:
                raise Changed("")
        else:
            try:
                self._fetch_operation(self.fetches[number])
            except Changed:
                token[0] = 0
                raise
            finally:
                self.fetched_s += time.perf_counter() - began
                for rank in range(1, self.comm.size):
                    self.comm.Send([token, MPI.BYTE], rank)
        self._distribute_operation(number, operation)

    def distribute_operations(self) -> int:
        """Distribute rank 0's buffer as an iteration does after reading; return the bytes this process receives."""
        for number, operation in enumerate(self.gets):
            self._distribute_operation(number, operation)
        return sum(operation.bytes for operation in self.gets)

    def _distribute_operation(self, number: int, operation: Operation) -> None:
        self.comm.Bcast([self.view[: operation.bytes], MPI.BYTE])


class Scatter(Broadcast):
    """A delivery by rank 0: MPI_Scatterv sends each process its section of an operation; rank 0's remains in place."""

    def __init__(self, *arguments) -> None:
        """See `Independent`."""
        super().__init__(*arguments)
        everybody = [self.plan.list_operations(rank) for rank in range(self.comm.size)]
        self._counts = [[one.bytes for one in together] for together in zip(*everybody, strict=True)]

    def build_empty_copy(self) -> "Scatter":
        """See `Independent`."""
        empty = super().build_empty_copy()
        empty._counts = [[0] * len(counts) for counts in self._counts]
        return empty

    def _distribute_operation(self, number: int, operation: Operation) -> None:
        if self.comm.rank:
            self.comm.Scatterv(None, [self.view[: operation.bytes], MPI.BYTE])
            return
        counts = self._counts[number]
        starts = [sum(counts[:rank]) for rank in range(len(counts))]
        whole = self.view[: self.fetches[number].bytes]
        self.comm.Scatterv([whole, counts, starts, MPI.BYTE], MPI.IN_PLACE)


class MpiIo(Independent):
    """A delivery by the MPI library: for each process by itself (Read_at), or for all together (Read_at_all).

    All processes open the file together, once, before the first iteration. Interleaved pieces form a single file view,
    so that the library sees all of them; `get_hints` reads the hints back. In a collective read every process makes as
    many calls as the process with the most operations.
    """

    def __init__(self, comm: MPI.Comm, plan: Plan, reader: posix.Reader, names: list[str], view: memoryview) -> None:
        """Keep the arguments; use the posix reader only for the file's path and identity and the count of requests."""
        super().__init__(comm, plan, reader, names, view)
        self._collective = plan.kind.by == "collective"
        self._rounds = comm.allreduce(len(self.gets), MPI.MAX)
        self._file: MPI.File | None = None
        self._path = reader.get_path(names[0])

    def list_object_numbers(self) -> set[int]:
        """Return the number of the file, since all processes open it."""
        return {0}

    def identify_objects(self) -> dict[int, Identity]:
        """Identify the file and open it in all processes together."""
        try:
            identities = super().identify_objects()
        except Changed:
            identities = None
        # Either all processes open the file, or no process does.
        if not self.comm.allreduce(identities is not None, MPI.LAND):
            raise Changed(f"{self._path} was replaced or changed at the start of the cell")
        try:
            self._file = MPI.File.Open(self.comm, str(self._path), MPI.MODE_RDONLY)
            self._set_view()
        except MPI.Exception as error:
            raise _build_problem(self._path, "opened", error) from error
        return identities

    def run_iteration(self, check: Check | None = None) -> int:
        """Read all operations, see `Independent.run_iteration`; processes leave collective reads only together."""
        done, cut, at = 0, False, self._begin
        for number in range(self._rounds if self._collective else len(self.gets)):
            one = self.gets[number] if number < len(self.gets) else Operation(0, ())
            cut |= self._read_bytes(at, self.view[: one.bytes]) < one.bytes
            at += one.bytes
            done += self._count_received(one, None if cut else check)
        if cut:
            raise Changed(f"{self._path} ended before the end of the read")
        return done

    def get_hints(self) -> dict[str, str]:
        """Return the hints that the library reports."""
        if not self._file:
            return {}
        info = self._file.Get_info()
        hints = dict(info.items())
        info.Free()
        return hints

    def close(self) -> None:
        """Close the file in all processes together."""
        if self._file:
            self._file.Close()

    def _set_view(self) -> None:
        """Restrict the file view to this process's pieces if the pattern interleaves; all processes do it together."""
        extents = [extent for one in self.gets for extent in one.extents]
        self._begin = extents[0][0] if extents else 0
        if self.plan.kind.gives != "pieces":
            return
        if not extents:
            self._file.Set_view(0, MPI.BYTE, MPI.BYTE)
            return
        self._begin = 0
        shown = MPI.BYTE.Create_hindexed([length for _, length in extents], [offset for offset, _ in extents])
        shown.Commit()
        self._file.Set_view(0, MPI.BYTE, shown)
        shown.Free()

    def _read_bytes(self, at: int, view: memoryview) -> int:
        """Read from an offset of the file view; return the number of bytes read."""
        self.reader.attempts += 1
        status = MPI.Status()
        read = self._file.Read_at_all if self._collective else self._file.Read_at
        try:
            read(at, [view, MPI.BYTE], status)
        except MPI.Exception as error:
            raise _build_problem(self._path, "read", error) from error
        return status.Get_count(MPI.BYTE)


def _build_problem(path: Path, what: str, error: MPI.Exception) -> Problem:
    reason = error.Get_error_string().splitlines()[0].split(", error stack")[0]
    return Problem(f"{path} cannot be {what} through MPI-IO: {reason}")


# By `Pattern.by`.
DELIVERIES = {
    "each": Independent,
    "broadcast": Broadcast,
    "scatter": Scatter,
    "mpi-io": MpiIo,
    "collective": MpiIo,
}
