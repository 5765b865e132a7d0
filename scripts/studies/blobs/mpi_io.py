"""Reads sections of one file through MPI-IO: each process by itself (Read_at) or all together (Read_at_all).

The file is opened once, by all processes together, before the first iteration. Interleaved pieces are one file view, so
that the library sees all of them; what it did with its hints is read back.
"""

from pathlib import Path

from mpi4py import MPI

from scripts.lib.program import Problem
from scripts.stores.posix import reader as posix
from scripts.stores.reading import Changed, Identity
from scripts.studies.blobs.delivery import Check, Independent
from scripts.studies.blobs.patterns import Operation, Plan


class MpiIo(Independent):
    """One operation after the other; in a collective read every process takes part in as many as anybody has."""

    def __init__(self, comm: MPI.Comm, plan: Plan, reader: posix.Reader, names: list[str], view: memoryview) -> None:
        """Take the posix reader for the file's place and identity, and nothing else of it."""
        super().__init__(comm, plan, reader, names, view)
        self._collective = plan.kind.by == "collective"
        self._rounds = comm.allreduce(len(self.gets), MPI.MAX)
        self._file: MPI.File | None = None
        self._path = reader.path(names[0])

    def numbers(self) -> set[int]:
        """Return the one file's number, since all processes open it."""
        return {0}

    def identify(self) -> dict[int, Identity]:
        """Find out what the file is, and open it together."""
        try:
            identities = super().identify()
        except Changed:
            identities = None
        # All processes open the file together, or none.
        if not self.comm.allreduce(identities is not None, MPI.LAND):
            raise Changed(f"{self._path} was replaced or changed as the cell began")
        try:
            self._file = MPI.File.Open(self.comm, str(self._path), MPI.MODE_RDONLY)
            self._show()
        except MPI.Exception as error:
            raise _problem(self._path, "opened", error) from error
        return identities

    def iterate(self, check: Check | None = None) -> int:
        """Read all operations; see `Independent.iterate`. Nobody leaves a collective read before the others."""
        same = self._same()
        done, cut, at = 0, False, self._begin
        for number in range(self._rounds if self._collective else len(self.gets)):
            one = self.gets[number] if number < len(self.gets) else Operation(0, ())
            cut |= self._read(at, self.view[: one.bytes]) < one.bytes
            at += one.bytes
            done += self._got(one, None if cut else check)
        if not (same and self._same()):
            raise Changed(f"{self._path} was replaced or changed while it was measured")
        if cut:
            raise Changed(f"{self._path} ended before all of it was read")
        return done

    def hints(self) -> dict[str, str]:
        """Return the hints that the library says it used."""
        if not self._file:
            return {}
        info = self._file.Get_info()
        try:
            return dict(info.items())
        finally:
            info.Free()

    def close(self) -> None:
        """Close the file together."""
        if self._file:
            self._file.Close()

    def _show(self) -> None:
        """Let this process see its own pieces and nothing else, if it has more than one; all do this together."""
        extents = [extent for one in self.gets for extent in one.extents]
        self._begin = extents[0][0] if extents else 0
        if self.plan.kind.gives != "pieces":
            return
        shown = MPI.BYTE
        if extents:
            self._begin = 0
            shown = MPI.BYTE.Create_hindexed([length for _, length in extents], [offset for offset, _ in extents])
            shown.Commit()
        self._file.Set_view(0, MPI.BYTE, shown)
        if extents:
            shown.Free()

    def _read(self, at: int, view: memoryview) -> int:
        """Read from a place of what this process sees; returns the bytes that came."""
        self.reader.attempts += 1
        status = MPI.Status()
        read = self._file.Read_at_all if self._collective else self._file.Read_at
        try:
            read(at, [view, MPI.BYTE], status)
        except MPI.Exception as error:
            raise _problem(self._path, "read", error) from error
        return status.Get_count(MPI.BYTE)

    def _same(self) -> bool:
        try:
            return self.reader.identify(self.names[0]) == self.identities[0]
        except Changed:
            return False


def _problem(path: Path, what: str, error: MPI.Exception) -> Problem:
    reason = error.Get_error_string().splitlines()[0].split(", error stack")[0]
    return Problem(f"{path} cannot be {what} through MPI-IO: {reason}")
