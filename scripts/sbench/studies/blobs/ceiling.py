"""The bare client: in each process as many requests in flight as it has, without MPI and SDK (METHOD 20)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sbench.stores.bare import Getter
from sbench.studies.blobs.patterns import Operation, Plan, split_extents


def list_shares(plan: Plan, rank: int) -> list[Operation]:
    """Return what each thread of a process reads: a part of its first operation, whole pages but for the last.

    There are as many threads as the process has chunks under way at once; [] where it asks the store for nothing.
    A contiguous operation is one request a thread; of an interleaved one each extent is.
    """
    work = []
    for first in plan.list_fetches(rank)[:1]:
        share = -(-first.bytes // plan.chunks_in_flight)
        work += split_extents(first.object, first.extents, share + -share % 4096)
    return work


class BareClient:
    """The connections of one process, each with a thread; the calling thread is one of them."""

    def __init__(self, work: list[Operation], names: list[str], connect: Callable[[], Getter]) -> None:
        """Take what each thread reads, the names of the objects, and what makes a connection; ask for nothing yet."""
        self._pairs, self._names = [(connect(), share) for share in work], names
        self._pool = ThreadPoolExecutor(max(1, len(work) - 1))

    def connect(self) -> None:
        """Open the connections, which stay, and start the threads.

        Raises:
            Problem, OSError, RuntimeError, HTTPException: it cannot be done, or in `read_shares` a request failed.
        """
        # Each thread waits for the last, so that there is one for each connection.
        together = threading.Barrier(max(1, len(self._pairs)))

        def open_connection(getter: Getter, share: Operation) -> None:
            together.wait()
            getter.connect(self._names[share.object])

        self._call_each(open_connection)

    def read_shares(self) -> int:
        """Read everything once and drop it; returns the bytes."""

        def read_share(getter: Getter, share: Operation) -> None:
            for offset, length in share.extents:
                getter.read_range(self._names[share.object], offset, length)

        self._call_each(read_share)
        return sum(share.bytes for _, share in self._pairs)

    def close(self) -> None:
        """Let go of threads and connections."""
        self._pool.shutdown()
        for getter, _ in self._pairs:
            getter.close()

    def _call_each(self, do: Callable[[Getter, Operation], None]) -> None:
        others = [self._pool.submit(do, *pair) for pair in self._pairs[1:]]
        for pair in self._pairs[:1]:
            do(*pair)
        for other in others:
            other.result()
