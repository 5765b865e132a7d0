"""Read with minimal client code, without MPI or an SDK, to measure the store's highest rate (METHOD 20).

Each process has as many requests in flight as in the measured iterations.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sbench.stores.bare import Getter
from sbench.studies.blobs.patterns import Operation, Plan, split_extents


def list_shares(plan: Plan, rank: int) -> list[Operation]:
    """Divide the first operation of a process among threads. Shares are whole pages, except for the last.

    A thread reads a contiguous share by a single request, and an interleaved share by one request per extent.

    Returns:
        At most one share per chunk in flight; an empty list if the process reads nothing from the store.
    """
    work = []
    for first in plan.list_fetches(rank)[:1]:
        share = -(-first.bytes // plan.chunks_in_flight)
        work += split_extents(first.object, first.extents, share + -share % 4096)
    return work


class BareClient:
    """A minimal client with a connection per thread. The calling thread uses the first connection."""

    def __init__(self, work: list[Operation], names: list[str], connect: Callable[[], Getter]) -> None:
        """Create the connections without opening them.

        Args:
            work: the share of each thread.
            names: names of the objects, by number.
            connect: creates an unopened connection.
        """
        self._pairs, self._names = [(connect(), share) for share in work], names
        self._pool = ThreadPoolExecutor(max(1, len(work) - 1))

    def connect(self) -> None:
        """Start the threads and open the connections, which remain open until `close`.

        Raises:
            Problem, OSError, RuntimeError, HTTPException: a connection failed; `read_shares` raises the same
                exceptions for a failed request.
        """
        # The barrier ensures that each thread opens exactly one connection.
        together = threading.Barrier(max(1, len(self._pairs)))

        def open_connection(getter: Getter, share: Operation) -> None:
            together.wait()
            getter.connect(self._names[share.object])

        self._call_each(open_connection)

    def read_shares(self) -> int:
        """Read all shares once and discard the bytes. Return how many bytes were read."""

        def read_share(getter: Getter, share: Operation) -> None:
            for offset, length in share.extents:
                getter.read_range(self._names[share.object], offset, length)

        self._call_each(read_share)
        return sum(share.bytes for _, share in self._pairs)

    def close(self) -> None:
        """Stop the threads and close the connections."""
        self._pool.shutdown()
        for getter, _ in self._pairs:
            getter.close()

    def _call_each(self, do: Callable[[Getter, Operation], None]) -> None:
        others = [self._pool.submit(do, *pair) for pair in self._pairs[1:]]
        for pair in self._pairs[:1]:
            do(*pair)
        for other in others:
            other.result()
