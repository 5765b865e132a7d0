"""Read with bare requests, as many in flight per process as in the iterations, without MPI and SDK (METHOD 20)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sbench.stores.bare import Getter
from sbench.studies.blobs.patterns import Operation, Plan, split_extents


def list_shares(plan: Plan, rank: int) -> list[Operation]:
    """Return the share of each thread in the first operation of a process: whole pages, except in the last share.

    There are at most as many shares as chunks in flight, and [] if the process requests nothing from the store.
    A thread requests a contiguous share at once, and an interleaved share by extents.
    """
    work = []
    for first in plan.list_fetches(rank)[:1]:
        share = -(-first.bytes // plan.chunks_in_flight)
        work += split_extents(first.object, first.extents, share + -share % 4096)
    return work


class BareClient:
    """The connections of a process, each with a thread; the calling thread serves the first connection."""

    def __init__(self, work: list[Operation], names: list[str], connect: Callable[[], Getter]) -> None:
        """Make a connection for each thread's share of the objects in `names`; do not open it yet."""
        self._pairs, self._names = [(connect(), share) for share in work], names
        self._pool = ThreadPoolExecutor(max(1, len(work) - 1))

    def connect(self) -> None:
        """Open the connections, which stay, and start the threads.

        Raises:
            Problem, OSError, RuntimeError, HTTPException: a connection, or in `read_shares` a request, failed.
        """
        # The barrier keeps a thread from taking two connections.
        together = threading.Barrier(max(1, len(self._pairs)))

        def open_connection(getter: Getter, share: Operation) -> None:
            together.wait()
            getter.connect(self._names[share.object])

        self._call_each(open_connection)

    def read_shares(self) -> int:
        """Read all shares once, drop the bytes and return their number."""

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
