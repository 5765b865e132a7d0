"""Measure one cell of the particles study once: load or reduce the chunks of a snapshot in repeated iterations.

scripts/step.py starts this program with the interpreter of the library under test; see sbench.probe.conversation.
"""

import argparse
import math
import pickle
import statistics
import time
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sbench import drivers
from sbench.probe import dask_workers, memory, page_cache, sizes, slowed
from sbench.probe.conversation import Step, run_measurement
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, read_json, run_main
from sbench.stores import store as stores
from sbench.studies.particles import methods, parquet_copy, snapshot_reading, snapshots, through_yt
from sbench.studies.particles.settings import Settings

# Tolerances for sums computed in a different order: relative to the sum, and to the largest value if terms cancel.
_SAME, _CANCELLED = 1e-9, 1e-12


def main(argv: list[str] | None = None) -> int:
    """Read a step from standard input, measure its cell, and return the exit status."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    return run_measurement(measure_cell)


def measure_cell(step: Step) -> dict:
    """Measure a cell, and return the part of its record that results from the measurement."""
    dask_workers.start_forkserver()
    settings, manifest = read_fields(Settings, step.job["settings"]), read_json(step.job["manifest"])
    cell = settings.cell
    threads, limit = int(cell.threads), _parse_memory_limit(cell.memory)
    workers, nodes = int(cell.workers), int(cell.nodes)
    processes = cell.pool == "processes"
    # Start a cluster for all methods, even methods that do not use it, as in the published study.
    started = dask_workers.start_cluster(workers, threads, processes, limit // workers, nodes, step.job["scratch"])
    with started as (cluster, cluster_start):
        measured = _Measured(step.job, settings, manifest, cluster)
        facts = cluster.run_on_each(drivers.get_driver(cell.driver).list_versions)
        with dask_workers.expect_no_losses(f"at most {cell.memory} together" if limit else ""):
            measured.prepare_method()
            step.open_window(sets_cache=True)
            for number in range(1, settings.iterations + 1):
                measured.run_iteration(number)
            step.close_window()
            empty = measured.measure_empty_iteration()
        files = cluster.list_loaded_libraries()
        if replaced := cluster.list_replaced():
            raise Problem(f"Dask replaced workers {replaced} during the measurement")
    return measured.build_record(facts, files, cluster_start, empty)


@dataclass
class _Iteration:
    number: int
    seconds: float
    accounts: list[dict]
    right: bool
    moved: int
    state: dict


class _Measured:
    """A measurement in progress: the method, its task, and the results of the iterations so far."""

    def __init__(self, job: dict, settings: Settings, manifest: dict, cluster: dask_workers.Workers) -> None:
        self._cell, self._cluster = settings.cell, cluster
        cell, layout = self._cell, manifest["layout"]
        self._rereads, self._store = int(cell.rereads), settings.store
        self._method = methods.METHODS[cell.method]
        if cell.selection not in manifest["expected"]:
            raise Problem(f"{job['manifest']}: the files lack Coordinates or BoxSize; set selection to all")
        self._expected = manifest["expected"][cell.selection]
        buffer = drivers.parse_page_buffer(cell.page_buffer)
        self._access = drivers.Access(cell.driver, buffer, settings.rdcc_nbytes, settings.store)
        self._scratch, self._location = Path(job["scratch"]), job["location"]
        self._manifest, self._entries = job["manifest"], manifest["files"]
        region = tuple(self._expected["region"]) if self._expected["region"] else None
        source = snapshot_reading.Source(self._access, layout["group"], layout["field"], region, cell.control)
        names = [entry["name"] for entry in manifest["files"]]
        pieces = list(snapshots.list_chunks([entry["particles"] for entry in manifest["files"]], int(cell.chunk)))
        self._distinct, self._stored = len(pieces), layout["stored_bytes"]
        chunks = [
            snapshot_reading.Chunk(
                number, 0 if self._method.pure else turn, drivers.build_address(job["location"], names[file]), *of
            )
            for turn in range(self._rereads)
            for number, (file, *of) in enumerate(pieces)
        ]
        edges = self._expected["edges"] if cell.operation == "histogram" else ()
        self._task = methods.Task(source, chunks, cell.operation, edges, cluster.client)
        self._files = list(map(Path, job["local_files"]))
        self._iterations: list[_Iteration] = []
        self._host: dict | None = None

    def prepare_method(self) -> None:
        """Prepare the measurement.

        Create the Parquet copy or yt's index, run the method without reading so that all imports are done, and measure
        the pickled size of a task.
        """
        self._expect_unchanged_files()
        began, self._prepared = time.perf_counter(), 0.0
        for needed, prepare in (
            (self._cell.driver == "parquet", self._convert_to_parquet),
            (self._method.yt, self._open_yt),
        ):
            if needed:
                prepare()
                self._prepared = time.perf_counter() - began
        self._task_bytes = len(pickle.dumps(self._method.arguments(self._task)[0])) if self._method.dask else 0
        self._method.run(
            replace(self._task, source=replace(self._task.source, empty=True), chunks=self._task.chunks[:1])
        )
        self._take_accounts()
        self._cores = self._cluster.count_usable_cores()
        if len(set(self._cluster.nodes)) > 1:
            self._host = self._cluster.prepare_nodes("any", self._files)["host"]
        memory.forget_peak()
        self._cluster.run_on_each(memory.forget_peak)

    def _expect_unchanged_files(self) -> None:
        """Raise a Problem if a local file is missing, or if its size differs from the manifest."""
        for entry in self._entries if "folder" in self._location else ():
            path = Path(drivers.build_address(self._location, entry["name"]))
            size = path.stat().st_size if path.exists() else 0
            if size != entry["bytes"]:
                raise Problem(
                    f"{path} changed: its size must be {entry['bytes']} bytes, as in the manifest (got {size});"
                    f" restore it, or remove {self._manifest} and run again"
                )

    def _convert_to_parquet(self) -> None:
        """Convert the files to Parquet, without repeated chunks, and make the task read the converted files."""
        source, chunks = self._task.source, self._task.chunks
        access = replace(self._access, driver="sec2")
        once = chunks[: self._distinct]
        self._files = parquet_copy.write_copies(once, f"{source.group}/{source.field}", access, self._scratch)
        self._stored = sum(copy.stat().st_size for copy in self._files)
        copy_of = dict(zip(dict.fromkeys(chunk.address for chunk in once), map(str, self._files), strict=True))
        chunks = [replace(chunk, address=copy_of[chunk.address]) for chunk in chunks]
        self._task = replace(self._task, chunks=chunks)

    def _open_yt(self) -> None:
        """Open the snapshot with yt in this process and all workers, and check that yt uses the same chunks."""
        chunks = self._task.chunks[: self._distinct]
        open_it = partial(
            through_yt.open_snapshot, chunks[0].address, str(self._scratch / "index"), self._task.source.control
        )
        open_it()
        through_yt.expect_same_chunks(through_yt.get_dataset(chunks[0].address), chunks)
        self._cluster.run_on_each(open_it)

    def run_iteration(self, number: int) -> None:
        """Run the method once on a cache in the requested state, then collect counters and check the result."""
        state = self._cluster.set_cache_states(self._cell.cache, self._files) if self._files else {}
        moved = self._count_moved_bytes()
        began = time.perf_counter()
        result = self._method.run(self._task)
        seconds = time.perf_counter() - began
        moved = self._count_moved_bytes() - moved
        if state:
            state["resident_after"] = self._cluster.measure_resident(self._files)
        right = self._is_right(result)
        del result
        self._iterations.append(_Iteration(number, seconds, self._take_accounts(), right, moved, state))

    def measure_empty_iteration(self) -> float:
        """Time an iteration that reads nothing. It measures the overhead of Dask and of counting reads."""
        began = time.perf_counter()
        source = replace(self._task.source, empty=True, region=(0.0, 0.0), control="")
        self._method.run(replace(self._task, source=source))
        seconds = time.perf_counter() - began
        self._take_accounts()
        return seconds

    def build_record(self, facts: list[dict], files: dict, cluster_start: float, empty: float) -> dict:
        """Build the part of the record that results from the measurement.

        With more than one iteration, the total time excludes the first.
        """
        later = self._iterations[1:] or self._iterations
        accounts = [account for one in self._iterations for account in one.accounts]
        return {
            "samples": [
                row | self._get_common_columns(empty) for one in self._iterations for row in _build_samples(one)
            ],
            "seconds": {
                "total": sum(one.seconds for one in later),
                "first": self._iterations[0].seconds,
                "chunk": statistics.median(row["seconds"] / len(row["chunks"]) for row in accounts if row["chunks"]),
                "null": self._measure_harness() * len(later),
                **({"prepare": self._prepared} if self._prepared else {}),
                "cluster_start": cluster_start,
            },
            "work": self._count_work(later),
            "effective": self._describe_effective(facts, accounts),
            "verified": "after every iteration",
            "cache": self._compute_cache_state(),
            "files": files,
            **({"host": self._host} if self._host else {}),
        }

    def _get_common_columns(self, empty: float) -> dict:
        return {"listed": len(self._task.chunks), "particles_listed": self._task.particles, "empty_s": empty}

    def _take_accounts(self) -> list[dict]:
        """Collect and reset the read counters of all worker processes, and then of this process.

        Workers that are threads of this process share its counters.
        """
        own = self._cell.pool == "processes"
        return [
            *(self._cluster.run_on_each(snapshot_reading.take_account) if own else ()),
            snapshot_reading.take_account(),
        ]

    def _count_moved_bytes(self) -> int:
        """Return how many bytes the workers have sent to other processes since they started."""
        return sum(self._cluster.run_on_each(_get_sent_bytes))

    def _measure_harness(self) -> float:
        """Measure how long it takes to count all reads of an iteration sequentially (METHOD 13)."""
        began = time.perf_counter()
        for chunk in self._task.chunks:
            snapshot_reading.record_reads([chunk.number], 0.0, 0, "")
        seconds = time.perf_counter() - began
        snapshot_reading.take_account()
        return seconds

    def _is_right(self, result: Any) -> bool:
        """Return whether a result matches the manifest, given how often each chunk was to be read (METHOD 9)."""
        expected, times = self._expected, self._rereads
        least = _CANCELLED * max(map(abs, expected["edges"]))

        def is_close(value: float, other: float, tolerance: float) -> bool:
            return math.isclose(value, other, rel_tol=_SAME, abs_tol=tolerance)

        match self._cell.operation:
            case "load":
                count = expected["count"]
                if self._method.by_name and len(result) == count:
                    result = through_yt.sort_by_file(result, self._task.chunks)
                parts = (result[turn * count : (turn + 1) * count] for turn in range(times))
                return len(result) == times * count and all(
                    f"{zlib.crc32(values):08x}" == expected["crc32"] for values in parts
                )
            case "sum":
                return is_close(result, times * expected["sum"], least * times * expected["count"])
            case "moments":
                mean, variance = map(float, result)
                spread = least * (math.sqrt(expected["variance"]) + least)
                return is_close(mean, expected["mean"], least) and is_close(variance, expected["variance"], spread)
            case _:
                return list(map(int, result)) == [times * count for count in expected["histogram"]]

    def _count_work(self, later: list[_Iteration]) -> dict:
        """Return the requested work, and the completed work as counted by the processes (METHOD 9).

        A method that runs equal tasks only once is required to read each distinct chunk once. `chunks_listed` is the
        number of listed chunks, including repetitions.
        """
        often = len(self._iterations)
        counted = [Counter(number for row in one.accounts for number in row["chunks"]) for one in self._iterations]
        turns = 1 if self._method.pure else self._rereads
        as_asked = all(count == dict.fromkeys(range(self._distinct), turns) for count in counted)
        read = {one.number: sum(row["bytes"] for row in one.accounts) for one in self._iterations}
        each = 8 if not self._task.source.region else 20
        return {
            "tasks_asked": often * turns * self._distinct,
            "tasks_done": sum(sum(count.values()) for count in counted),
            "chunks_listed": often * len(self._task.chunks),
            "chunks_twice": 0 if as_asked else sum(1 for count in counted for many in count.values() if many != turns),
            "logical_bytes_asked": often * each * self._task.particles * turns // self._rereads,
            "logical_bytes": sum(read.values()),
            "stored_bytes": self._stored * sum(sum(count.values()) for count in counted) // self._distinct,
            "timed_bytes": sum(read[one.number] for one in later),
            "checksum_asked": self._expected["crc32"],
            "checksum": self._expected["crc32"] if all(one.right for one in self._iterations) else "wrong",
            **slowed.report_waited(
                self._cell.control, sum(max(row["waited"] for row in one.accounts) for one in later)
            ),
        }

    def _describe_effective(self, facts: list[dict], accounts: list[dict]) -> dict:
        """Return the library versions and effective settings, which must be the same in all processes (METHOD 10, 12).

        Raises:
            Problem: processes have different libraries or opened files with different settings.
        """
        if any(fact != facts[0] for fact in facts):
            raise Problem("workers run different libraries")
        opened = [row["effective"] for row in accounts if row["effective"]]
        if any(one != opened[0] for one in opened):
            raise Problem("processes opened the files with different settings")
        client = accounts[-1]
        others = [row for row in accounts if row["process"] != client["process"]]
        readers = {row["process"] for row in accounts if row["chunks"]}
        count = int(self._cell.workers)
        own = self._cell.pool == "processes" and self._method.dask
        return {
            **facts[0],
            **(opened[0] if opened else {}),
            "rdcc_nbytes_asked": self._access.rdcc_nbytes,
            "workers_asked": count,
            "workers": len(self._cluster.addresses),
            "threads": min(self._cluster.threads),
            "readers": len(readers),
            "idle_workers": count - len(readers) if own else 0,
            "ran_on": self._cluster.nodes,
            "usable_cores": self._cores,
            "oversubscribed": count * int(self._cell.threads) > self._cores,
            "chunks": len(self._task.chunks),
            "distinct_chunks": self._distinct,
            "task_bytes": self._task_bytes,
            "read_bytes": self._stored,
            "moved_bytes": statistics.median(one.moved for one in self._iterations),
            "client_peak_bytes": client["peak_bytes"],
            "worker_peak_bytes": max((row["peak_bytes"] for row in others), default=client["peak_bytes"]),
        }

    def _compute_cache_state(self) -> dict:
        """Return the page cache state of the iteration that deviates most from the requested state."""
        wanted = self._cell.cache
        before, after = (
            [one.state[key] for one in self._iterations if one.state.get(key) is not None]
            for key in ("resident_before", "resident_after")
        )
        worst = page_cache.find_furthest(wanted, before)
        seen = "elsewhere" if stores.get_store(self._store).elsewhere else page_cache.get_verified_state(worst)
        state = {"asked": wanted, "state": seen, "resident_before": worst}
        return state | {"resident_after": statistics.fmean(after) if after else None}


def _build_samples(iteration: _Iteration) -> list[dict]:
    """Build a row of samples for each process that read chunks in an iteration. All rows have the total duration."""
    return [
        {
            "iteration": iteration.number,
            "number": number,
            "iteration_s": iteration.seconds,
            "chunks": len(row["chunks"]),
            "read_s": row["seconds"],
            "longest_s": row["longest"],
            "bytes": row["bytes"],
            "worker-pid": row["pid"],
        }
        for number, row in enumerate((row for row in iteration.accounts if row["chunks"]), 1)
    ]


def _get_sent_bytes(dask_worker: Any) -> int:
    return dask_worker.transfer_outgoing_bytes_total


def _parse_memory_limit(level: str) -> int:
    return 0 if level == "none" else sizes.parse_size(level)


if __name__ == "__main__":
    run_main(main)
