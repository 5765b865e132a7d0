"""Run and measure one client's part of an operation, in the measuring process or in a Dask worker."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sbench.probe.slowed import Waits
from sbench.studies.arrays import backends, values
from sbench.studies.arrays.pieces import Piece


@dataclass(frozen=True)
class Work:
    """The work of a client.

    Attributes:
        target: array to write or read.
        pieces: parts, each written or read at once.
        first_row: row of the whole array at the start of `target`, which may be a separate array of the client.
        kind, seed: arguments of `values.make_values`.
        writes: whether it writes; else it reads.
        new: whether it creates the array before it writes.
        control: level of `control`; a slowed control waits after each piece.
    """

    target: backends.Target
    pieces: Sequence[Piece]
    first_row: int
    kind: str
    seed: int
    writes: bool
    new: bool = False
    control: str = ""


class _Client:
    def __init__(self, work: Work) -> None:
        self.work, self.results = work, []
        self._first = min(piece.rows[0] for piece in work.pieces)
        rows = slice(work.first_row + self._first, work.first_row + max(piece.rows[1] for piece in work.pieces))
        self._values = values.make_values(work.kind, work.target.shape.columns, rows, work.seed)
        self._backend = backends.get_backend(work.target.backend)

    def get_values(self, piece: Piece) -> np.ndarray:
        rows = slice(piece.rows[0] - self._first, piece.rows[1] - self._first)
        return self._values[rows, slice(*piece.columns)]

    def run_work(self) -> dict:
        work, waits = self.work, Waits(self.work.control)
        opening = (
            self._backend.open_for_writing(work.target, work.new)
            if work.writes
            else self._backend.open_for_reading(work.target)
        )
        first, longest, began = None, 0.0, time.perf_counter()
        with opening as do:
            opened = time.perf_counter() - began
            for piece in work.pieces:
                start = time.perf_counter()
                if work.writes:
                    do(piece, self.get_values(piece))
                else:
                    result, first_byte = do(piece)
                    self.results.append((piece, result))
                    first = first if first is not None or first_byte is None else start - began + first_byte
                seconds = time.perf_counter() - start
                longest = max(longest, seconds)
                waits.wait_after(seconds)
        seconds = time.perf_counter() - began
        times = {"open_s": opened, "first_byte_s": first, "longest_s": longest, "client_s": seconds}
        amounts = {"pieces": len(work.pieces), "bytes": sum(piece.bytes for piece in work.pieces)}
        return {**times, **amounts, "worker-pid": os.getpid(), "waited_s": waits.seconds}


_clients: dict[int, _Client] = {}


def create_client(task: tuple[int, Work]) -> None:
    """Make the values that a client of this process writes or expects, and import its backend."""
    number, work = task
    _clients[number] = _Client(work)


def run_client(number: int) -> dict:
    """Do a client's work, which is timed, and return seconds, pieces and bytes."""
    return _clients[number].run_work()


def do_nothing(number: int) -> None:
    """Do nothing, to measure the cost of the harness."""


def count_right_bytes(number: int) -> int:
    """Return the number of correct bytes that a client has read, and forget them."""
    client = _clients[number]
    results, client.results = client.results, []
    return sum(piece.bytes for piece, result in results if np.array_equal(result, client.get_values(piece)))
