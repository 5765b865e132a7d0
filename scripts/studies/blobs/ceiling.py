"""The store's own ceiling: as many bare requests in flight as the cell's processes have (METHOD 20)."""

import threading
import time
from collections.abc import Callable

from scripts.stores.bare import Getter
from scripts.studies.blobs.patterns import Operation, Plan

Share = list[tuple[int, int, int]]


def shares(plan: Plan) -> list[Share]:
    """Return what each thread gets: (object, offset, length), a part of a process's first operation.

    There are as many threads as the process has chunks under way at once.
    A contiguous operation is one request a thread; of an interleaved one each extent is.
    """
    first = [plan.fetched(rank)[:1] for rank in range(plan.processes)]
    return [share for one in first for operation in one for share in _cut(operation, plan.at_once) if share]


def _cut(operation: Operation, parts: int) -> list[Share]:
    """Cut an operation into parts of the same size, but for whole pages."""
    room = -(-operation.bytes // parts)
    room += -room % 4096
    cut: list[Share] = [[]]
    left = room
    for offset, length in operation.extents:
        while length:
            if not left:
                cut.append([])
                left = room
            count = min(length, left)
            cut[-1].append((operation.object, offset, count))
            offset, length, left = offset + count, length - count, left - count
    return cut


def measure(
    work: list[Share], names: list[str], connect: Callable[[], Getter], rounds: int, prepare: Callable[[], dict | None]
) -> list[dict]:
    """Return a sample a round; connections are there before the first, and stay for all.

    Args:
        work: what each thread reads.
        names: of the objects.
        connect: makes a thread's connection.
        rounds: how many.
        prepare: sets the state of the page cache before each round.
    """
    threads = [_Thread(share, names, connect) for share in work]
    try:
        return [_round(number, threads, prepare()) for number in range(1, rounds + 1)]
    finally:
        for thread in threads:
            thread.getter.close()


class _Thread:
    def __init__(self, share: Share, names: list[str], connect: Callable[[], Getter]) -> None:
        self.share, self._names, self.getter = share, names, connect()
        self.getter.connect(names[share[0][0]])
        self.ended, self.error = 0.0, None

    def run(self, together: threading.Barrier) -> None:
        together.wait()
        try:
            for number, offset, length in self.share:
                self.getter.get(self._names[number], offset, length)
        except Exception as error:
            self.error = error
        self.ended = time.perf_counter()


def _round(number: int, threads: list[_Thread], state: dict | None) -> dict:
    began = []
    together = threading.Barrier(len(threads), action=lambda: began.append(time.perf_counter()))
    running = [threading.Thread(target=thread.run, args=(together,)) for thread in threads]
    for one in running:
        one.start()
    for one in running:
        one.join()
    if errors := [thread.error for thread in threads if thread.error]:
        raise errors[0]
    return {
        "iteration": number,
        "phase": "ceiling",
        "latency_s": max(thread.ended for thread in threads) - began[0],
        "first_done_s": None,
        "bytes": sum(length for thread in threads for _, _, length in thread.share),
        "rank_s": "",
        "resident_before": state["resident_before"] if state else None,
        "retries": None,
    }
