"""What a process reads of a snapshot, and its account of that: what was read, not what was asked (METHOD 9)."""

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


# Where the particles of a group are, (n, 3).
PLACES = "Coordinates"


@dataclass(frozen=True)
class Chunk:
    """Particles that one task reads: some of one file.

    Attributes:
        number: its place among the chunks of the snapshot, from 0.
        turn: how often they were listed before; where tasks are told apart by what they read, it is always 0.
        address: the file's path or URL.
        start, end: the first particle, and the one behind the last.
    """

    number: int
    turn: int
    address: str
    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """How chunks are read.

    Attributes:
        access: how files are opened.
        group, field: what is read of each particle.
        region: low and high end, in each dimension, of what is selected; None for everything.
        control: the cell's level of it: a slowed control waits after each read.
        empty: read nothing at all: what is left is what Dask and this account cost.
    """

    access: drivers.Access
    group: str
    field: str
    region: tuple[float, float] | None = None
    control: str = ""
    empty: bool = False


class _Account:
    """What this process has read since it was last asked; threads share it."""

    def __init__(self) -> None:
        self.lock, self.times_taken = threading.Lock(), 0
        self.reset_counts()

    def reset_counts(self) -> None:
        self.chunks: list[int] = []
        self.seconds, self.longest, self.bytes, self.waited = 0.0, 0.0, 0, 0.0


_account, _of_thread = _Account(), threading.local()
_effective: dict = {}


def read_chunk(source: Source, chunk: Chunk) -> "np.ndarray":
    """Return the values of a chunk's particles as float64: all, or of those that are selected.

    Raises:
        Problem: the file cannot be read, or lacks the field.
    """
    # Here, as the process that starts the workers imports this module, too.
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
    """Note how this process opens files, as it was read back (METHOD 10)."""
    _effective.update(effective)


def is_in_region(places: "np.ndarray", region: Sequence[float]) -> "np.ndarray":
    """Return which of the places, (n, 3), lie in the region: from its low end up to its high one in each dimension."""
    low, high = region
    return ((places >= low) & (places < high)).all(axis=1)


def record_reads(chunks: list[int], seconds: float, count: int, control: str) -> None:
    """Note that chunks were read in so many seconds: `count` bytes in memory; a slowed control waits for its share.

    A wait that took longer than asked shortens the next of the same thread, until the account is taken.
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
    """Return and forget what this process has read: numbers of chunks, seconds of all and of the longest, bytes."""
    with _account.lock:
        answer = {name: getattr(_account, name) for name in ("chunks", "seconds", "longest", "bytes", "waited")}
        _account.reset_counts()
        _account.times_taken += 1
    # Processes of several machines may have one number.
    answer |= {"pid": os.getpid(), "process": f"{host.get_node_name()} {os.getpid()}"}
    return answer | {"peak_bytes": memory.read_peak_bytes(), "effective": dict(_effective)}
