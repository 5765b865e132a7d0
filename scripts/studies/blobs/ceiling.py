"""The store's own ceiling: as many bare requests in flight as the cell's processes have (METHOD 20)."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scripts.stores.bare import Getter
from scripts.studies.blobs.patterns import Operation, Plan, split


def shares(plan: Plan) -> list[Operation]:
    """Return what each thread gets: a part of a process's first operation, whole pages but for the last.

    There are as many threads as the process has chunks under way at once.
    A contiguous operation is one request a thread; of an interleaved one each extent is.
    """
    work = []
    for rank in range(plan.processes):
        for first in plan.fetched(rank)[:1]:
            share = -(-first.bytes // plan.at_once)
            work += split(first.object, first.extents, share + -share % 4096)
    return work


def measure(
    work: list[Operation],
    names: list[str],
    connect: Callable[[], Getter],
    rounds: int,
    prepare: Callable[[], dict | None],
) -> list[dict]:
    """Return a sample a round; connections are there before the first, and stay for all.

    Args:
        work: what each thread reads.
        names: of the objects.
        connect: makes a thread's connection.
        rounds: how many.
        prepare: sets the state of the page cache before each round.
    """
    getters = [connect() for _ in work]
    try:
        for getter, share in zip(getters, work, strict=True):
            getter.connect(names[share.object])
        return [_round(number, work, names, getters, prepare()) for number in range(1, rounds + 1)]
    finally:
        for getter in getters:
            getter.close()


def _round(number: int, work: list[Operation], names: list[str], getters: list[Getter], state: dict | None) -> dict:
    began = []
    together = threading.Barrier(len(work), action=lambda: began.append(time.perf_counter()))

    def read(getter: Getter, share: Operation) -> float:
        together.wait()
        for offset, length in share.extents:
            getter.get(names[share.object], offset, length)
        return time.perf_counter()

    with ThreadPoolExecutor(len(work)) as pool:
        ended = list(pool.map(read, getters, work))
    return {
        "iteration": number,
        "phase": "ceiling",
        "latency_s": max(ended) - began[0],
        "first_done_s": None,
        "bytes": sum(share.bytes for share in work),
        "rank_s": "",
        "resident_before": state["resident_before"] if state else None,
        "retries": None,
    }
