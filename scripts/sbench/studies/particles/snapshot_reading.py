"""Read chunks of a snapshot, and count the reads that were actually performed (METHOD 9)."""

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbench import drivers
from sbench.probe import host, memory
from sbench.probe.program import Problem
from sbench.probe.slowed import Waits

if TYPE_CHECKING:
    import numpy as np


# Dataset with the positions of a group's particles, of shape (n, 3).
PLACES = "Coordinates"


@dataclass(frozen=True)
class Chunk:
    """A range of particles in a file that is read by one task.

    Attributes:
        number: index among the chunks of the snapshot, from 0.
        turn: index among repeated reads of the same chunk, from 0; always 0 for methods that run equal tasks only
            once.
        address: path or URL of the file.
        start: index of the first particle.
        end: index after the last particle.
    """

    number: int
    turn: int
    address: str
    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """Settings for reading chunks.

    Attributes:
        access: settings for opening files.
        group: HDF5 group of the particles.
        field: dataset in `group` to read.
        region: lower and upper bound of the selection, the same in each dimension; None selects all particles.
        control: the cell's level of the factor `control`; a deliberate slowdown waits after each read.
        empty: whether to read nothing, which leaves only the cost of Dask and of counting reads.
    """

    access: drivers.Access
    group: str
    field: str
    region: tuple[float, float] | None = None
    control: str = ""
    empty: bool = False


class _Account:
    """Counters of this process's reads since the last call of `take_account`. All threads share them."""

    def __init__(self) -> None:
        self.lock, self.times_taken = threading.Lock(), 0
        self.reset_counts()

    def reset_counts(self) -> None:
        self.chunks: list[int] = []
        self.seconds, self.longest, self.bytes, self.waited = 0.0, 0.0, 0, 0.0


_account, _of_thread = _Account(), threading.local()
_effective: dict = {}


def read_chunk(source: Source, chunk: Chunk) -> "np.ndarray":
    """Read the values of a chunk's particles as float64. If the source has a region, skip particles outside it.

    Raises:
        Problem: the file cannot be read, or lacks the field.
    """
    # Imported late, because the process that forks the workers imports this module, too.
    import numpy as np

    began, count = time.perf_counter(), 0
    values = np.empty(0)
    try:
        if not source.empty:
            file = drivers.get_driver(source.access.driver).open(chunk.address, source.access)
            with contextlib.closing(file):
                rows = slice(chunk.start, chunk.end)
                values = file.read(f"{source.group}/{source.field}", rows).astype("float64")
                count = values.nbytes
                if source.region:
                    places = file.read(f"{source.group}/{PLACES}", rows)
                    values = values[is_in_region(places, source.region)]
                    count += places.nbytes
                if not _effective:
                    record_effective(file.read_settings())
    except (OSError, KeyError) as error:
        raise Problem(f"{chunk.address} cannot be read: {' '.join(map(str, error.args))}") from error
    record_reads([chunk.number], time.perf_counter() - began, count, source.control)
    return values


def record_effective(effective: dict) -> None:
    """Store the settings in force in this process, as read back from the library (METHOD 10)."""
    _effective.update(effective)


def is_in_region(places: "np.ndarray", region: Sequence[float]) -> "np.ndarray":
    """Return a mask of the positions, of shape (n, 3), that are in the region [low, high) in each dimension."""
    low, high = region
    return ((places >= low) & (places < high)).all(axis=1)


def record_reads(chunks: list[int], seconds: float, count: int, control: str) -> None:
    """Count a read, and wait if the cell has a deliberate slowdown.

    The wait is a share of the read's duration. A wait that took too long shortens the next wait of the same thread,
    until `take_account` is called.

    Args:
        chunks: numbers of the chunks that were read.
        seconds: duration of the read.
        count: bytes of the values in memory.
        control: the cell's level of the factor `control`.
    """
    own = (_account.times_taken, control)
    if getattr(_of_thread, "own", None) != own:
        _of_thread.own, _of_thread.waits = own, Waits(control)
    waits = _of_thread.waits
    before = waits.seconds
    waits.wait_after(seconds)
    waited = waits.seconds - before
    with _account.lock:
        _account.chunks += chunks
        _account.seconds += seconds + waited
        _account.longest = max(_account.longest, seconds)
        _account.bytes += count
        _account.waited += waited


def take_account() -> dict:
    """Return this process's read counters, peak memory and effective settings, and reset the counters."""
    with _account.lock:
        answer = {name: getattr(_account, name) for name in ("chunks", "seconds", "longest", "bytes", "waited")}
        _account.reset_counts()
        _account.times_taken += 1
    # Processes on different machines may have the same process id.
    answer |= {"pid": os.getpid(), "process": f"{host.get_node_name()} {os.getpid()}"}
    return answer | {"peak_bytes": memory.read_peak_bytes(), "effective": dict(_effective)}
