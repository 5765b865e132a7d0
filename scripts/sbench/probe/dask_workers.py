"""Start Dask workers that run tasks exactly as assigned, without retries, work stealing or profiling (METHOD 15)."""

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from sbench.probe import host, page_cache, slurm, software
from sbench.probe.processes import expect_shared_memory, find_free_port, run_process
from sbench.probe.program import Problem, build_command, find_refusal

_SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,
    # Tasks are bound to workers, so without this a task of a lost worker would wait indefinitely.
    "distributed.scheduler.no-workers-timeout": "1s",
    "distributed.scheduler.work-stealing": False,
    "distributed.worker.profile.enabled": False,
    "distributed.comm.retry.count": 0,
    "distributed.admin.log-format": "%(name)s: %(message)s",
}
# Environment variables that Dask sets when workers start. The fork server needs them earlier.
_ENVIRONMENT = {
    "MALLOC_TRIM_THRESHOLD_": "65536",
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
}
# Longest path of the temporary directory that leaves room for the fork server's socket, /pymp-…/listener-…: paths of
# Unix sockets have at most 107 bytes.
_FOLDER_BYTES = 70
# Shell command that runs a Dask worker and makes it listen on the address of the node's name.
_WORKER = 'exec "$@" --host "${SLURMD_NODENAME:-$(hostname)}"'
_POLL_S = 1
_executed = 0


class Workers:
    """The workers of a running Dask cluster, in a fixed order.

    Attributes:
        client: the Dask client.
        pids: process ID of each worker by address.
        addresses: addresses of the workers.
        threads: number of threads of each worker.
        nodes: node name of each worker; a machine may be several nodes.
    """

    def __init__(self, client: Any, count: int) -> None:
        """Wait until all `count` workers are connected, and store their addresses, process IDs and nodes."""
        client.wait_for_workers(count)
        self.client = client
        self.pids = dict(sorted(client.run(os.getpid).items()))
        self.addresses = list(self.pids)
        self.threads = list(client.nthreads().values())
        self.nodes = self.run_on_each(host.get_node_name)

    def run_batches(self, function: Callable, batches: Sequence[Any]) -> list[Any]:
        """Run `function` on each batch, with batch i on worker i, and return the results in that order.

        Identical batches are separate tasks (pure=False). Tasks are neither retried nor moved to another worker.

        Raises:
            Problem: a worker was lost, or `function` raised a Problem.
        """
        options = {"pure": False, "retries": 0, "allow_other_workers": False}
        futures = [
            self.client.submit(run_counted, function, batch, workers=[address], **options)
            for address, batch in zip(self.addresses, batches, strict=False)
        ]
        with expect_no_losses():
            return self.client.gather(futures)

    def run_on_each(self, function: Callable) -> list[Any]:
        """Run `function` once on every worker, without counting it as a task, and return the results."""
        answers = self.client.run(function)
        return [answers[address] for address in self.addresses if address in answers]

    def run_on_nodes(self, function: Callable, *arguments: object) -> list[Any]:
        """Run `function` once per node, in a worker on that node, and return the results.

        If all workers are on the same node, it runs in this process instead.
        """
        if len(set(self.nodes)) == 1:
            return [function(*arguments)]
        first = {node: address for node, address in reversed(list(zip(self.nodes, self.addresses, strict=True)))}
        answers = self.client.run(function, *arguments, workers=list(first.values()))
        return [answers[first[node]] for node in dict.fromkeys(self.nodes)]

    def list_loaded_libraries(self) -> dict[str, str]:
        """Return the shared libraries that the workers have loaded, see `software.list_loaded_libraries`.

        Raises:
            Problem: a library of the same name differs between nodes.
        """
        first, *others = self.run_on_nodes(software.compute_library_hashes) if len(set(self.nodes)) > 1 else [{}]
        for other in others:
            if differ := sorted(name for name in first.keys() & other.keys() if first[name] != other[name]):
                raise Problem(f"nodes have different {', '.join(differ)}; install the same version on all nodes")
        return {
            name: file for files in self.run_on_each(software.list_loaded_libraries) for name, file in files.items()
        }

    def set_cache_states(self, state: str, files: list[Path]) -> dict:
        """Set the page cache of each node to a state, and return the merged result (`page_cache.merge_states`)."""
        return page_cache.merge_states(self.run_on_nodes(page_cache.set_cache_state, state, files))

    def measure_resident(self, files: list[Path]) -> float | None:
        """Return the smallest resident fraction of the files' pages over all nodes, or None if unknown on any node."""
        fractions = self.run_on_nodes(page_cache.measure_resident, files)
        return None if None in fractions else min(fractions)

    def prepare_nodes(self, state: str, files: list[Path]) -> dict:
        """Before a measurement on several nodes, describe the nodes and set their page caches to a state.

        Returns:
            The record's entries "host" and "cache".
        """
        machines = self.run_on_nodes(host.read_facts, files[0] if files else ".")
        unknown = {"asked": state, "state": "elsewhere", "resident_before": None}
        return {"host": host.merge_facts(machines), "cache": self.set_cache_states(state, files) if files else unknown}

    def count_usable_cores(self) -> int:
        """Return the total number of cores that the workers may use on all nodes."""
        return sum(self.run_on_nodes(host.count_usable_cores))

    def list_replaced(self) -> list[int]:
        """Return the original process IDs of workers that no longer run in these processes."""
        return sorted(set(self.pids.values()) - set(self.client.run(os.getpid).values()))


@contextlib.contextmanager
def expect_no_losses(limit: str = "") -> Iterator[None]:
    """Raise a Problem if a worker is lost during a `with` block.

    Args:
        limit: memory limit of the workers for the message, or an empty string if there is none.
    """
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    try:
        yield
    except (FutureCancelledError, KilledWorker, NoValidWorkerError, NoWorkerError) as error:
        memory = f" (workers may use {limit})" if limit else ""
        remedy = "give workers more memory, or smaller chunks, and " if limit else ""
        words = f"a Dask worker was lost before it finished its task{memory}; {remedy}look into the log"
        raise Problem(words) from error


@contextlib.contextmanager
def _start_on_nodes(nodes: int, count: int, threads: int, folder: Path) -> Iterator[tuple[Workers, float]]:
    """Run a scheduler process on this node, and start workers on all nodes of the Slurm job with `srun`."""
    from distributed import Client

    start = time.perf_counter()
    # Write Dask's files to the step's directory instead of a default directory that others may use.
    file, env = folder / "scheduler.json", _build_environment(_SETTINGS | {"temporary-directory": folder})
    options = ("--scheduler-file", str(file), "--no-dashboard")
    of_worker = ("--nthreads", str(threads), "--nworkers", "1", "--no-nanny", "--memory-limit", "0")
    scheduler = build_command("distributed.cli.dask_scheduler", *options, "--host", host.get_node_name(), "--port", "0")
    workers = build_command("distributed.cli.dask_worker", *options, *of_worker)
    step = [*slurm.build_srun_command(nodes, count), "sh", "-c", _WORKER, "sh", *workers]
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(run_process(command, sys.stderr, env, stdin=subprocess.DEVNULL))
            for command in (scheduler, step)
        ]
        while not file.exists():
            _expect_alive(started)
            time.sleep(_POLL_S / 20)
        client = stack.enter_context(Client(scheduler_file=str(file)))
        while len(client.scheduler_info(n_workers=-1)["workers"]) < count:
            _expect_alive(started)
            with contextlib.suppress(TimeoutError):
                client.wait_for_workers(count, timeout=_POLL_S)
        yield Workers(client, count), time.perf_counter() - start


def _expect_alive(started: Sequence[subprocess.Popen]) -> None:
    for what, process in zip(("Dask's scheduler", "srun"), started, strict=True):
        if process.poll() is not None:
            raise Problem(f"{what} ended with status {process.returncode} before all Dask workers had started")


def _build_environment(settings: dict[str, object]) -> dict[str, str]:
    """Return the environment variables for Dask's commands, including those that contain Dask settings."""
    names = {name: f"DASK_{name.upper().replace('.', '__').replace('-', '_')}" for name in settings}
    return os.environ | _ENVIRONMENT | {names[name]: str(value) for name, value in settings.items()}


def start_forkserver() -> None:
    """Start the fork server for the workers, so that it imports Dask while this process continues.

    The fork server must not load HDF5, because HDF5's ROS3 driver starts threads, which do not survive a fork.
    """
    if _choose_method() == "forkserver":
        os.environ.update(_ENVIRONMENT)
        forkserver.set_forkserver_preload(["distributed"])
        forkserver.ensure_running()


def _choose_method() -> str:
    return "forkserver" if len(os.fsencode(tempfile.gettempdir())) <= _FOLDER_BYTES else "spawn"


def start_cluster(
    count: int, threads: int = 1, processes: bool = True, memory_bytes: int = 0, nodes: int = 1, folder: str = "."
) -> contextlib.AbstractContextManager[tuple["Workers", float]]:
    """Run Dask workers during a `with` block, on the loopback interface or on several nodes of a Slurm job.

    Args:
        count: number of workers.
        threads: threads per worker.
        processes: whether each worker is a process; otherwise all workers are threads of this process.
        memory_bytes: memory limit at which Dask terminates a worker process; it spills to disk and pauses the worker
            at fractions of the limit. 0 means no limit.
        nodes: number of nodes, among which the workers are divided evenly. If there are several, each worker is a
            process without a memory limit.
        folder: directory for files that all nodes must be able to access.

    Returns:
        A context manager that yields the workers and the seconds that starting them took.

    Raises:
        Problem: on entering the block, if this machine lacks a loopback interface or shared memory; or, for several
            nodes, if this is not a Slurm job, or `srun` or the scheduler ended before all workers had connected.
    """
    if nodes > 1:
        return _start_on_nodes(nodes, count, threads, Path(folder))
    return _start_locally(count, threads, processes, memory_bytes)


@contextlib.contextmanager
def _start_locally(count: int, threads: int, processes: bool, memory_bytes: int) -> Iterator[tuple[Workers, float]]:
    if processes:
        expect_shared_memory()
        find_free_port()
    import dask
    from distributed import Client, LocalCluster

    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            dask.config.set(_SETTINGS | {"distributed.worker.multiprocessing-method": _choose_method()})
        )
        try:
            local = LocalCluster(
                n_workers=count,
                threads_per_worker=threads,
                processes=processes,
                # Workers that are threads of this process need no socket.
                host="127.0.0.1" if processes else None,
                dashboard_address=None,
                memory_limit=memory_bytes,
                silence_logs=logging.ERROR,
            )
        except RuntimeError as error:
            if find_refusal(error):
                raise
            raise Problem("a Dask worker ended during its start; look into the log") from error
        client = stack.enter_context(Client(stack.enter_context(local)))
        workers = Workers(client, count)
        yield workers, time.perf_counter() - start


def run_counted(function: Callable, batch: Any) -> Any:
    """Run a task, and increment this process's count of tasks."""
    global _executed
    result = function(batch)
    _executed += 1
    return result


def count_executed() -> int:
    """Return the number of tasks that this process has executed."""
    return _executed


def split_into_batches(items: Sequence[Any], workers: int) -> list[Sequence[Any]]:
    """Split `items` into batches of ceil(items / workers); the last may be smaller (METHOD 12).

    There may be fewer batches than workers: 500 items for 48 workers make 46 batches.
    """
    size = -(-len(items) // workers)
    return [items[first : first + size] for first in range(0, len(items), size)] if items else []
