"""Transfer the bytes of an iteration from the store into the buffers of all MPI processes.

When rank 0 reads for all ranks, the others wait without spinning, and enter the collective call only when it does.
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
    """Wait for an MPI request without busy-waiting, so that servers and slower processes can use the core.

    MPI's own wait functions spin. This function yields the core at first, and later sleeps `pause_s` between tests.
    """
    soon = time.perf_counter() + _SOON_S
    while not request.Test():
        # Most waits are shorter than a sleep, so only yield at first.
        if time.perf_counter() < soon:
            os.sched_yield()
        else:
            time.sleep(pause_s)


class Independent:
    """A transfer without communication: each process reads its own bytes."""

    def __init__(self, comm: MPI.Comm, plan: Plan, reader: Reader, names: list[str], view: memoryview) -> None:
        """Look up this process's operations in the plan.

        Args:
            comm: communicator of all processes.
            plan: operations of all processes.
            reader: reader of the store.
            names: names of the objects, by number.
            view: buffer of this process.
        """
        self.comm, self.plan, self.reader, self.names, self.view = comm, plan, reader, names, view
        self.gets, self.fetches = plan.list_operations(comm.rank), plan.list_fetches(comm.rank)
        # Seconds that rank 0 has spent reading from the store, if it reads for all ranks.
        self.fetched_s = 0.0
        self.identities: dict[int, Identity] = {}

    def identify_objects(self) -> dict[int, Identity]:
        """Fetch and remember the identity (such as the ETag) of each object that this process reads.

        Returns:
            The identities, keyed by object number.
        """
        self.identities = {
            number: self.reader.fetch_identity(self.names[number]) for number in self.list_object_numbers()
        }
        return self.identities

    def expect_unchanged(self) -> None:
        """Raise Changed if an object was replaced since `identify_objects`.

        Readers that detect a replaced object while they read it do not check again.
        """
        for number in self.list_object_numbers():
            self.reader.expect_unchanged(self.names[number], self.identities[number])

    def close(self) -> None:
        """Release resources that the processes share. All processes must call this."""

    def list_object_numbers(self) -> set[int]:
        """Return the numbers of the objects that this process reads."""
        return {one.object for one in self.fetches}

    def build_empty_copy(self) -> "Independent":
        """Return a copy whose operations transfer no bytes, to measure the overhead of the harness."""
        empty = copy.copy(self)
        empty.gets, empty.fetches = ([Operation(one.object, ()) for one in some] for some in (self.gets, self.fetches))
        return empty

    def run_iteration(self, check: Check | None = None) -> int:
        """Load all operations into the buffer, one after the other, and return the bytes that this process received.

        Args:
            check: called with each operation and its bytes, if given.

        Raises:
            Changed: an object changed; raised in all processes that cannot continue.
        """
        done = 0
        for number, one in enumerate(self.gets):
            self._load_operation(number, one)
            done += self._count_received(one, check)
        return done

    def get_hints(self) -> dict[str, str] | None:
        """Return the hints that MPI-IO used (METHOD 10), or None if the transfer does not use MPI-IO."""
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
    """A transfer in which rank 0 reads each operation and broadcasts it (MPI_Bcast) before it reads the next."""

    def _load_operation(self, number: int, operation: Operation) -> None:
        """Read an operation in rank 0 and distribute it. If the object changed, raise Changed in all processes."""
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
        """Distribute rank 0's buffer once per operation of an iteration, without reading from the store.

        Returns:
            The bytes that this process received.
        """
        for number, operation in enumerate(self.gets):
            self._distribute_operation(number, operation)
        return sum(operation.bytes for operation in self.gets)

    def _distribute_operation(self, number: int, operation: Operation) -> None:
        self.comm.Bcast([self.view[: operation.bytes], MPI.BYTE])


class Scatter(Broadcast):
    """A transfer in which rank 0 reads each operation and sends every process its section (MPI_Scatterv).

    Rank 0's section remains in place in its buffer.
    """

    def __init__(self, *arguments) -> None:
        """Compute the size of each process's section of each operation. For the arguments, see `Independent`."""
        super().__init__(*arguments)
        everybody = [self.plan.list_operations(rank) for rank in range(self.comm.size)]
        self._counts = [[one.bytes for one in together] for together in zip(*everybody, strict=True)]

    def build_empty_copy(self) -> "Scatter":
        """Return a copy whose operations and sections are empty; see `Independent.build_empty_copy`."""
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
    """A transfer by MPI-IO, with independent (MPI_File_read_at) or collective reads (MPI_File_read_at_all).

    The processes open the file collectively, once, before the first iteration. A process's interleaved pieces form a
    single file view, so that the MPI library knows all of them. In collective reads, every process makes as many calls
    as the process with the most operations.
    """

    def __init__(self, comm: MPI.Comm, plan: Plan, reader: posix.Reader, names: list[str], view: memoryview) -> None:
        """Prepare to read one file. `reader` only provides the file's path and identity, and counts requests."""
        super().__init__(comm, plan, reader, names, view)
        self._collective = plan.kind.by == "collective"
        self._rounds = comm.allreduce(len(self.gets), MPI.MAX)
        self._file: MPI.File | None = None
        self._path = reader.get_path(names[0])

    def list_object_numbers(self) -> set[int]:
        """Return the number of the only file, which all processes open."""
        return {0}

    def identify_objects(self) -> dict[int, Identity]:
        """Fetch the identity of the file, and open it collectively."""
        try:
            identities = super().identify_objects()
        except Changed:
            identities = None
        # Opening is collective: either all processes open the file or none does.
        if not self.comm.allreduce(identities is not None, MPI.LAND):
            raise Changed(f"{self._path} was replaced or changed at the start of the cell")
        try:
            self._file = MPI.File.Open(self.comm, str(self._path), MPI.MODE_RDONLY)
            self._set_view()
        except MPI.Exception as error:
            raise _build_problem(self._path, "opened", error) from error
        return identities

    def run_iteration(self, check: Check | None = None) -> int:
        """Read all operations, see `Independent.run_iteration`.

        If the file ends early, Changed is raised after the last operation, so that all collective calls complete.
        """
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
        """Return the hints that the MPI library reports, or an empty dict if the file was not opened."""
        if not self._file:
            return {}
        info = self._file.Get_info()
        hints = dict(info.items())
        info.Free()
        return hints

    def close(self) -> None:
        """Close the file collectively."""
        if self._file:
            self._file.Close()

    def _set_view(self) -> None:
        """Set the file view to this process's pieces if they are interleaved. All processes must call this."""
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
        """Read from an offset in the file view into `view`, and return the number of bytes read."""
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


# The class that implements each value of `Pattern.by`.
DELIVERIES = {
    "each": Independent,
    "broadcast": Broadcast,
    "scatter": Scatter,
    "mpi-io": MpiIo,
    "collective": MpiIo,
}
