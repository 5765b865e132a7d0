"""Run and time one client's share of an operation, in the measuring process or in a Dask worker."""

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
    """The share of an operation that one client performs.

    Attributes:
        target: array to write or read.
        pieces: parts of the array, each written or read by a single call.
        first_row: row of the whole array at which `target` starts; not 0 if the client has a separate array.
        kind, seed: arguments for `values.make_values`.
        writes: whether the client writes rather than reads.
        new: whether the client creates the array before it writes.
        control: level of the factor `control`. A slowed control sleeps after each piece.
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
    """Prepare a client in this process: generate the values to write or expect, and import its backend.

    Args:
        task: the client's number and its work.
    """
    number, work = task
    _clients[number] = _Client(work)


def run_client(number: int) -> dict:
    """Run a client's work. Return its times in seconds, and how many pieces and bytes it wrote or read."""
    return _clients[number].run_work()


def do_nothing(number: int) -> None:
    """Do nothing, so that the overhead of the harness can be measured."""


def count_right_bytes(number: int) -> int:
    """Compare the pieces that a client read with the expected values, and discard them.

    Returns:
        The total size of the correct pieces in bytes.
    """
    client = _clients[number]
    results, client.results = client.results, []
    return sum(piece.bytes for piece, result in results if np.array_equal(result, client.get_values(piece)))
