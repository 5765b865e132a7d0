"""Dask workers that do exactly what they are told: nothing is retried, stolen or profiled (METHOD 15)."""

import contextlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from typing import Any

from scripts.lib.program import Problem

_SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,
    # Each task is bound to its worker: one whose worker is gone would wait for ever.
    "distributed.scheduler.no-workers-timeout": "1s",
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.profile.enabled": False,
    "distributed.comm.retry.count": 0,
    "distributed.admin.log-format": "%(name)s: %(message)s",
}
# What Dask tells its workers as they start; the process that they are forked from has to hear it before.
_ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}
# Among temporary files lies the socket of that process, /pymp-…/listener-…, and a socket's name has 107 bytes at most.
_FOLDER_BYTES = 70
_executed = 0


class Workers:
    """A running cluster: `addresses` in a fixed order, process ids, numbers of threads, and the `client` of them."""

    def __init__(self, client: Any, count: int) -> None:
        """Wait until all `count` workers are there and remember who they are."""
        client.wait_for_workers(count)
        self.client = client
        self.pids = dict(sorted(client.run(os.getpid).items()))
        self.addresses = list(self.pids)
        self.threads = list(client.nthreads().values())

    def map(self, function: Callable, batches: Sequence[Any]) -> list[Any]:
        """Run `function` on each batch, batch i on worker i, and return the results in that order.

        Identical batches are different tasks (pure=False), nothing is retried, nothing moves to another worker.

        Raises:
            Problem: a worker was lost, or `function` raised it.
        """
        options = {"pure": False, "retries": 0, "allow_other_workers": False}
        futures = [
            self.client.submit(counted, function, batch, workers=[address], **options)
            for address, batch in zip(self.addresses, batches, strict=False)
        ]
        with losses():
            return self.client.gather(futures)

    def each(self, function: Callable) -> list[Any]:
        """Run `function` once on every worker, outside the counted tasks."""
        answers = self.client.run(function)
        return [answers[address] for address in self.addresses if address in answers]

    def replaced(self) -> list[int]:
        """Return the process ids of the workers that are no longer those that began."""
        return sorted(set(self.pids.values()) - set(self.client.run(os.getpid).values()))


@contextlib.contextmanager
def losses(limit: str = "") -> Iterator[None]:
    """Say in one line that a worker was lost within a `with` block, and which limit of memory the workers have.

    Raises:
        Problem: one was.
    """
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    try:
        yield
    except (FutureCancelledError, KilledWorker, NoValidWorkerError, NoWorkerError) as error:
        why = f"; workers may take {limit}: give them more memory, or smaller chunks" if limit else ""
        words = f"a Dask worker was lost before its task was done{why}; its words are in the log"
        raise Problem(words) from error


def begin() -> None:
    """Start the process that workers are forked from, which imports Dask while this one still does.

    Nothing of HDF5 is in it: ROS3 has threads, which a fork does not take along.
    """
    if _method() == "forkserver":
        os.environ.update(_ENVIRONMENT)
        forkserver.set_forkserver_preload(["distributed"])
        forkserver.ensure_running()


def _method() -> str:
    return "forkserver" if len(os.fsencode(tempfile.gettempdir())) <= _FOLDER_BYTES else "spawn"


@contextlib.contextmanager
def cluster(
    count: int, threads: int = 1, processes: bool = True, memory_bytes: int = 0
) -> Iterator[tuple[Workers, float]]:
    """Start `count` workers on the loopback for the length of a `with` block.

    Args:
        count: how many.
        threads: of each.
        processes: whether each is a process of its own; else all are threads of this one.
        memory_bytes: at which Dask ends a process of its own, after spilling and pausing at shares of it; 0: never.

    Yields:
        The workers, and the seconds that it took to start them.
    """
    import dask
    from distributed import Client, LocalCluster

    start = time.perf_counter()
    with (
        dask.config.set(_SETTINGS | {"distributed.worker.multiprocessing-method": _method()}),
        LocalCluster(
            n_workers=count,
            threads_per_worker=threads,
            processes=processes,
            # Workers that are threads of this process talk through no socket.
            host="127.0.0.1" if processes else None,
            dashboard_address=None,
            memory_limit=memory_bytes,
            silence_logs=logging.ERROR,
        ) as local,
        Client(local) as client,
    ):
        workers = Workers(client, count)
        yield workers, time.perf_counter() - start


def counted(function: Callable, batch: Any) -> Any:
    """Run one task and count it in the process that runs it."""
    global _executed
    result = function(batch)
    _executed += 1
    return result


def executed() -> int:
    """Return how many tasks this process has executed."""
    return _executed


def batches_of(items: Sequence[Any], workers: int) -> list[Sequence[Any]]:
    """Cut `items` into at most `workers` batches of ceil(items / workers); the last may be shorter (METHOD 12).

    Fewer batches than workers come out where the sizes do not divide: 500 items for 48 workers make 46 batches.
    """
    size = -(-len(items) // workers)
    return [items[first : first + size] for first in range(0, len(items), size)] if items else []
