"""Read chunks of a snapshot, and keep an account of the actual instead of the requested reads (METHOD 9)."""

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


# Positions of the particles of a group, (n, 3).
PLACES = "Coordinates"


@dataclass(frozen=True)
class Chunk:
    """Particles of a file that a task reads.

    Attributes:
        number: position among the chunks of the snapshot, from 0.
        turn: number of earlier listings; always 0 for a method that runs equal tasks once.
        address: path or URL of the file.
        start, end: first particle, and last particle + 1.
    """

    number: int
    turn: int
    address: str
    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """Settings of the reads of chunks.

    Attributes:
        access: settings of opening files.
        group, field: field that is read for each particle.
        region: low and high end of the selection in each dimension; None for everything.
        control: level of the cell: a planted slowdown waits after each read.
        empty: whether to read nothing, which leaves the cost of Dask and of this account.
    """

    access: drivers.Access
    group: str
    field: str
    region: tuple[float, float] | None = None
    control: str = ""
    empty: bool = False


class _Account:
    """The reads of this process since the last `take_account`; threads share it."""

    def __init__(self) -> None:
        self.lock, self.times_taken = threading.Lock(), 0
        self.reset_counts()

    def reset_counts(self) -> None:
        self.chunks: list[int] = []
        self.seconds, self.longest, self.bytes, self.waited = 0.0, 0.0, 0, 0.0


_account, _of_thread = _Account(), threading.local()
_effective: dict = {}


def read_chunk(source: Source, chunk: Chunk) -> "np.ndarray":
    """Return the values of a chunk's particles as float64, or of its particles in the source's region.

    Raises:
        Problem: the file cannot be read, or lacks the field.
    """
    # Imported here, because the process that starts the workers imports this module, too.
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
    """Record the settings with which this process opens files, as read back (METHOD 10)."""
    _effective.update(effective)


def is_in_region(places: "np.ndarray", region: Sequence[float]) -> "np.ndarray":
    """Return a mask of the places, (n, 3), in the region: at least its low and below its high end in each dimension."""
    low, high = region
    return ((places >= low) & (places < high)).all(axis=1)


def record_reads(chunks: list[int], seconds: float, count: int, control: str) -> None:
    """Record a read of chunks, `count` bytes in memory, and wait for a planted slowdown's share of its seconds.

    A wait that takes too long shortens the next wait of the same thread, until `take_account`.
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
    """Return and reset the account of this process: numbers of chunks, total and longest seconds, bytes."""
    with _account.lock:
        answer = {name: getattr(_account, name) for name in ("chunks", "seconds", "longest", "bytes", "waited")}
        _account.reset_counts()
        _account.times_taken += 1
    # Processes of different machines may have the same pid.
    answer |= {"pid": os.getpid(), "process": f"{host.get_node_name()} {os.getpid()}"}
    return answer | {"peak_bytes": memory.read_peak_bytes(), "effective": dict(_effective)}
