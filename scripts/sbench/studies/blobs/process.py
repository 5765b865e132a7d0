"""Read an MPI process's share of the objects between barriers, verify it, and send the results to the parent process.

Rank 0 receives the job as a line of JSON on standard input and writes events as lines of JSON to standard output:
`started`; `ready`, when the timed reads can begin; `read`, after them; `done`, with their results; `ceiling`, with the
rates of the bare client, which measures the store's highest rate; and `ended`, after MPI_Finalize.
"""

import mmap
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from mpi4py import MPI

from sbench.probe import host, memory, page_cache, provenance, sizes, slowed, software
from sbench.probe.conversation import Step
from sbench.probe.fields import read_fields
from sbench.probe.program import Problem, read_json
from sbench.stores import bare
from sbench.stores import store as stores
from sbench.stores.reading import Access, Changed, Reader
from sbench.studies.blobs import verify
from sbench.studies.blobs.ceiling import BareClient, list_shares
from sbench.studies.blobs.delivery import DELIVERIES, Check, Independent, wait_for_request
from sbench.studies.blobs.mpi import compute_span, expect_same_software
from sbench.studies.blobs.patterns import Plan
from sbench.studies.blobs.settings import Settings

_FIRST_BROADCAST = 2**20
# Translation table that changes every byte.
_ANOTHER = bytes([*range(1, 256), 0])


def serve_parent(comm: MPI.Comm) -> None:
    """Receive a cell from the parent process of rank 0, measure it, and report the progress as events."""
    parent = Step() if comm.rank == 0 else None

    def send_event(event: str, *, wait: bool = False, **facts: object) -> None:
        """Send an event to the parent process. If `wait` is true, block all MPI processes until it replies."""
        if parent:
            parent.send_message({"event": event, **facts})
        if wait:
            if parent:
                parent.receive_message()
            wait_for_request(comm.Ibarrier())

    job = comm.bcast(parent.job if parent else None)
    job["manifest"] = comm.bcast(read_json(job["manifest"]) if parent else None)
    settings = read_fields(Settings, job["settings"])
    if comm.size != int(processes := settings.cell.processes):
        raise Problem(
            f"MPI must start {processes} processes (got {comm.size});"
            " does the launcher belong to the MPI library (library under mpi)?"
        )
    process = Process(comm, job, settings)
    facts, versions_of = comm.gather(process.describe_process()), comm.gather(process.list_versions())
    if parent:
        expect_same_software([one["host"] for one in facts], versions_of)
    send_event("started", facts=facts)
    process.prepare_reading()
    send_event("ready", wait=True)
    process.run_iterations()
    send_event("read", wait=True)
    outcome = process.gather_outcome()
    modules = comm.gather(provenance.list_loaded_modules())
    if parent:
        outcome["modules"] = sorted({name for names in modules for name in names})
        outcome["files"] = software.list_loaded_libraries()
    send_event("done", outcome=outcome)
    rounds, problem = process.measure_ceiling()
    send_event("ceiling", samples=rounds, problem=problem)
    MPI.Finalize()
    send_event("ended")


class Process:
    """Performs the reads of this MPI process, and collects their results."""

    def __init__(self, comm: MPI.Comm, job: dict, settings: Settings) -> None:
        """Plan the reads. No requests are sent to the store yet."""
        self._comm, self._job, self._settings = comm, job, settings
        self._cell, self._files = settings.cell, job["manifest"]["files"]
        self._plan = Plan(self._cell, job["manifest"]["layout"])
        self._neighbours = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._host = MPI.Get_processor_name()
        # Node names by rank; a machine may be several nodes.
        self._nodes = comm.allgather(host.get_node_name())
        self._store = stores.get_store(settings.store)
        self._reader = self._open_reader()
        self._changed: list[str] = []
        self._samples: list[dict] = []
        local = [Path(file) for file in job["local_files"]]
        # Some stores, such as Azurite, do not have a file per object, so use all of their files.
        self._local = local[: self._plan.objects] if self._store.file_per_object else local
        self._done = Counter()
        self._waits = slowed.Waits(self._cell.control)

    def _open_reader(self) -> Reader:
        chunk, concurrency = sizes.parse_size(self._cell.chunk_size), int(self._cell.concurrency)
        return self._store.build_reader(self._job["location"], Access(chunk, concurrency, self._cell.cache == "direct"))

    def describe_process(self) -> dict:
        """Return the host, node, usable cores, machine, MPI library and storage client of this process.

        Only one process per host reports the cores; at least one per host and node reports the machine.
        """
        file = next(iter(self._job["local_files"]), self._settings.store.get("path", "."))
        masks = self._neighbours.gather(os.sched_getaffinity(0))
        speaks = self._nodes.index(host.get_node_name()) == self._comm.rank
        return {
            "host": self._host,
            "node": host.get_node_name(),
            "cores": host.count_usable_cores(set().union(*masks)) if masks else 0,
            "machine": host.read_facts(file) if masks or speaks else None,
            "mpi": _get_mpi_library(),
            "client": f"MPI-IO of {_get_mpi_library()}" if self._plan.kind.mpi_io else self._reader.client,
        }

    def list_versions(self) -> dict[str, str]:
        """Return the versions of MPI, the storage client and Python distributions.

        If there are several nodes, the hashes of the loaded libraries are included.
        """
        hashes = software.compute_library_hashes() if len(set(self._nodes)) > 1 else {}
        return {"mpi": _get_mpi_library(), "client": self._reader.client} | software.list_distributions() | hashes

    def prepare_reading(self) -> None:
        """Time the first broadcast, allocate the buffer, identify the objects and time empty iterations."""
        self._expect_memory()
        first = bytearray(_FIRST_BROADCAST)
        self._comm.Barrier()
        began = time.perf_counter()
        self._comm.Bcast([first, MPI.BYTE])
        self._first_broadcast = time.perf_counter() - began
        del first
        names = [entry["name"] for entry in self._files]
        length = self._plan.compute_buffer_bytes(self._comm.rank)
        # Resident memory does not include the buffer yet, because its pages are allocated when they are first written.
        self._buffer = mmap.mmap(-1, max(1, length))
        view = memoryview(self._buffer)[:length]
        self._delivery = DELIVERIES[self._plan.kind.by](self._comm, self._plan, self._reader, names, view)
        self._identify_objects()
        # Close the connections used so far, so that every client starts its first iteration without a connection.
        self._reader.close()
        self._reader = self._delivery.reader = self._open_reader()
        self._null = self._measure_empty_iterations()
        memory.forget_peak()
        self._start = memory.read_resident_bytes()
        pages = memoryview(self._buffer)[:: mmap.PAGESIZE]
        pages[:] = bytes(len(pages))
        self._several = self._comm.allreduce(len(self._delivery.gets), MPI.MAX) > 1
        self._spot = verify.Verifier(self._files, self._plan.block)
        self._verify_s = 0.0

    def _identify_objects(self) -> None:
        """Fetch the identities of the objects.

        A size that differs from the manifest's, or identities that differ between processes, count as changes.
        """
        try:
            identities = self._delivery.identify_objects()
        except Changed as changed:
            identities, self._changed = {}, [str(changed)]
        everybody = self._comm.allgather(identities)
        for number, entry in enumerate(self._files):
            answers = {one[number] for one in everybody if number in one}
            if len(answers) > 1:
                self._changed.append(f"{entry['name']} was replaced at the start of the cell")
            for answer in answers:
                if answer.size != entry["bytes"]:
                    self._changed.append(
                        f"{entry['name']} must have {entry['bytes']} bytes, as in the manifest (got {answer.size})"
                    )
        self._merge_changes()

    def _merge_changes(self) -> None:
        """Exchange the changes that the processes have detected, so that all of them stop at the same point."""
        lines = {line for lines in self._comm.allgather(self._changed) for line in lines if line}
        self._changed = sorted(lines)

    def _expect_memory(self) -> None:
        """Raise a Problem if the buffers of all processes on this machine do not fit in its free memory."""
        buffers = self._neighbours.allgather(self._plan.compute_buffer_bytes(self._comm.rank))
        free = memory.compute_available_bytes() if self._neighbours.rank == 0 else 0
        needed = sum(buffers) + len(buffers) * memory.SPARE
        if self._neighbours.rank == 0 and needed > free:
            alike = "=" if len(set(buffers)) == 1 else "at most, together"
            raise Problem(
                f"{len(buffers)} processes × ({sizes.format_size(max(buffers))} + {sizes.format_size(memory.SPARE)})"
                f" {alike} {sizes.format_size(needed)} do not fit into the {sizes.format_size(free)} of free memory of"
                f" host {self._host}; choose a smaller operation_size, or fewer processes"
            )
        self._neighbours.Barrier()

    def run_iterations(self) -> None:
        """Run the requested number of iterations, and close the connections. Stop early if an object changes."""
        self._done.subtract(attempts=self._reader.attempts, retries=self._reader.retries)
        self._check_unchanged()
        self._merge_changes()
        for number in range(1, self._settings.iterations + 1):
            if self._changed:
                break
            before, waited, fetched = self._reader.retries, self._waits.seconds, self._delivery.fetched_s
            row = self._measure_read(self._read_slowed)
            row["read_s"] = self._delivery.fetched_s - fetched
            count = row["bytes"]
            self._check_unchanged()
            if not self._changed:
                self._check_last(count)
            row |= {"retries": self._reader.retries - before, "waited_s": self._waits.seconds - waited}
            wait_for_request(self._comm.Ibarrier())
            self._merge_changes()
            rows = self._comm.gather(row)
            if not self._changed:
                self._done.update(bytes=count, tasks=bool(count))
                self._samples += [_build_sample(number, rows)] if rows else []
        self._done.update(attempts=self._reader.attempts, retries=self._reader.retries)
        self._hints = self._delivery.get_hints()
        self._reader.close()

    def _measure_read(self, read: Callable[[], int]) -> dict:
        """Set the cache state, call `read` between barriers, and return the times and bytes of this process."""
        # One process per host sets the state of its page cache (METHOD 8).
        sets = self._local and not self._neighbours.rank
        state = page_cache.set_cache_state(self._cell.cache, self._local) if sets else None
        times, count = self._run_between_barriers(read)
        state = state and state | {"resident_after": page_cache.measure_resident(self._local)}
        return {"times": times, "bytes": count, "retries": 0, "waited_s": 0.0, "cache": state, "host": self._host}

    def _read_slowed(self) -> int:
        """Run an iteration and return its bytes. In a deliberately slowed control, also sleep (METHOD 6)."""
        began = time.perf_counter()
        count = self._run_iteration(self._delivery)
        self._waits.wait_after(time.perf_counter() - began)
        return count

    def _run_between_barriers(self, read: Callable[[], int]) -> tuple[tuple[float, float], int]:
        """Call `read` between barriers, and return its (start, end) times and the bytes that this process received."""
        wait_for_request(self._comm.Ibarrier())
        self._comm.Barrier()
        began = time.perf_counter()
        count = read()
        ended = time.perf_counter()
        wait_for_request(self._comm.Ibarrier())
        return (began, ended), count

    def _measure_empty_iterations(self) -> float:
        """Return the total seconds of empty iterations, which are the overhead of the harness (METHOD 13).

        Run as many as contribute to the total time of the measurement, which excludes the first iteration.
        """
        if self._changed:
            return 0.0
        empty, seconds = self._delivery.build_empty_copy(), 0.0
        for _ in range(max(1, self._settings.iterations - 1)):
            times, _ = self._run_between_barriers(lambda: self._run_iteration(empty))
            rows = self._comm.gather({"host": self._host, "times": times, "bytes": 0})
            seconds += compute_span(rows)[0] if rows else 0.0
        self._merge_changes()
        return seconds

    def _run_iteration(self, delivered: Independent, check: Check | None = None) -> int:
        try:
            return delivered.run_iteration(check)
        except Changed as changed:
            self._changed = [str(changed)]
            return 0

    def _check_unchanged(self) -> None:
        """Record whether an object has changed since it was identified. This is not timed."""
        if not self._changed:
            try:
                self._delivery.expect_unchanged()
            except Changed as changed:
                self._changed = [str(changed)]

    def _check_last(self, count: int) -> None:
        """Verify the buffer, which contains the last operation of the iteration.

        Then change a byte in each page, so that the next check fails if the next iteration does not fill the buffer.
        """
        if count:
            began = time.perf_counter()
            last = self._delivery.gets[-1]
            self._spot.check_blocks(last, self._delivery.view[: last.bytes])
            pages = memoryview(self._buffer)[:: mmap.PAGESIZE]
            pages[:] = bytes(pages).translate(_ANOTHER)
            self._verify_s += time.perf_counter() - began

    def gather_outcome(self) -> dict | None:
        """Verify all bytes, unless every iteration did, and gather the results. Return None in ranks other than 0."""
        verifier = self._verify_all() if self._several and not self._changed else self._spot
        distributed = self._measure_distribution()
        self._delivery.close()
        gathered = self._comm.gather(
            {
                "rank": {"start_bytes": self._start, "peak_bytes": memory.read_peak_bytes()},
                "operations": len(self._delivery.gets),
                "seconds": {"verify": self._verify_s, "null": self._null, "first_broadcast": self._first_broadcast},
                "totals": self._done + Counter(blocks_verified=verifier.right, blocks_wrong=verifier.wrong),
                "lines": verifier.lines,
            }
        )
        if not gathered:
            return None
        lines = {line for one in gathered for line in one["lines"]}
        totals = ("attempts", "retries", "blocks_verified", "blocks_wrong", "bytes", "tasks")
        return {
            "samples": self._samples,
            "distributed": distributed,
            "changed": self._changed,
            "verified": "in a separate pass" if self._several else "after every iteration",
            "checksum": verify.compute_checksum(lines) if lines else None,
            "ranks": [one["rank"] for one in gathered],
            "operations": max(one["operations"] for one in gathered),
            "seconds": {key: max(one["seconds"][key] for one in gathered) for key in gathered[0]["seconds"]},
            "mpi_io_hints": self._hints,
            **{key: sum(one["totals"][key] for one in gathered) for key in totals},
        }

    def _measure_distribution(self) -> list[dict]:
        """Time rounds that only distribute rank 0's buffer, if rank 0 reads for all processes.

        Their time is a lower bound for the part of an iteration that is not spent reading.

        Returns:
            The samples at rank 0; an empty list in other processes.
        """
        samples, rounds = [], self._settings.ceiling_rounds if self._plan.kind.has_single_reader else 0
        for number in range(1, rounds + 1 if not self._changed else 1):
            times, count = self._run_between_barriers(self._delivery.distribute_operations)
            row = {"times": times, "bytes": count, "retries": 0, "waited_s": 0.0, "cache": None, "host": self._host}
            rows = self._comm.gather(row)
            samples += [_build_sample(number, rows, "distribution")] if rows else []
        return samples

    def measure_ceiling(self) -> tuple[list[dict], str | None]:
        """Time rounds of reads by all processes with minimal client code (METHOD 20).

        Returns:
            The samples at rank 0, and a message if they are missing because the requests failed, or else None.
        """
        names, rounds = [entry["name"] for entry in self._files], self._settings.ceiling_rounds
        if self._changed or not rounds:
            return [], None
        # Free the buffer of the iterations before the bare client allocates its buffers.
        self._delivery = self._buffer = None
        addresses, self._refused = self._comm.bcast(None if self._comm.rank else self._get_addresses(names))
        connect = bare.build_connector(self._job["location"], addresses, self._cell.cache == "direct")
        client = BareClient(list_shares(self._plan, self._comm.rank), names, connect)
        samples = []
        self._call_bare_client(client.connect)
        for number in range(1, rounds + 1):
            rows = self._comm.gather(self._measure_read(lambda: self._call_bare_client(client.read_shares)))
            samples += [_build_sample(number, rows, "ceiling")] if rows else []
        client.close()
        problem = next(filter(None, self._comm.allgather(self._refused)), None)
        return [] if problem else samples, problem

    def _call_bare_client(self, ask: Callable[[], int | None]) -> int:
        """Call the bare client and return the number of bytes read. Return 0 if this or an earlier call failed."""
        if not self._refused:
            try:
                return ask() or 0
            except (Problem, OSError, RuntimeError, HTTPException) as error:
                self._refused = str(error)
        return 0

    def _get_addresses(self, names: list[str]) -> tuple[dict, str | None]:
        """Sign the URLs of the objects for bare requests.

        Returns:
            The URLs and None, or if signing is impossible, an empty dict and the reason.
        """
        try:
            return self._store.sign_addresses(self._job["location"], names[: self._plan.objects], os.environ), None
        except Problem as problem:
            return {}, str(problem)

    def _verify_all(self) -> verify.Verifier:
        """Read and verify all operations again, untimed, over new connections."""
        verifier = verify.Verifier(self._files, self._plan.block)
        verifier.wrong = self._spot.wrong
        began = time.perf_counter()
        self._delivery.reader = self._open_reader()
        self._run_iteration(self._delivery, verifier.check_blocks)
        self._delivery.reader.close()
        self._check_unchanged()
        self._verify_s += time.perf_counter() - began
        wait_for_request(self._comm.Ibarrier())
        self._merge_changes()
        return verifier


def _build_sample(number: int, rows: list[dict], phase: str = "read") -> dict:
    latency, first_done = compute_span(rows)
    states = [{**row["cache"], "host": row["host"]} for row in rows if row["cache"]]
    before, after = (
        [state[key] for state in states if state[key] is not None] for key in ("resident_before", "resident_after")
    )
    return {
        "iteration": number,
        "phase": phase,
        "latency_s": latency,
        "first_done_s": first_done,
        "bytes": sum(row["bytes"] for row in rows),
        # Seconds that rank 0 spent reading, if it reads for all processes.
        "read_s": rows[0].get("read_s") or None,
        "rank_s": " ".join(f"{ended - began:.6f}" for began, ended in (row["times"] for row in rows)),
        "resident_before": page_cache.find_furthest(states[0]["asked"], before) if states else None,
        "retries": sum(row["retries"] for row in rows),
        # Processes sleep in parallel: the slowest reader sleeps longest and determines the end of the iteration.
        "waited_s": max(row["waited_s"] for row in rows),
        "resident_after": min(after, default=None),
        "not_as_asked": [
            line
            for one in states
            if (line := page_cache.describe_mismatch(one, f" of {one['host']}", f" before iteration {number}"))
        ],
    }


def _get_mpi_library() -> str:
    """Return the name and version of the MPI library, such as "MPICH 5.0.2"."""
    line = MPI.Get_library_version().splitlines()[0]
    match = re.match(r"(.+?) Version:\s+(\S+)", line)
    return " ".join(match.groups()) if match else line.split(",")[0].strip()
