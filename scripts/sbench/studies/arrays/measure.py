"""Run one measurement of one cell of the arrays study: write or read an array.

scripts/step.py starts this program with the Python interpreter of the library under test; see sbench.probe.conversation
for the protocol between the two.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sbench import drivers
from sbench.probe import dask_workers, host, page_cache, provenance, sizes, slowed
from sbench.probe.conversation import Step, run_measurement
from sbench.probe.fields import read_fields
from sbench.probe.program import read_json, run_main
from sbench.stores import store as stores
from sbench.stores.hsds.store import NAMES
from sbench.studies.arrays import backends, clients, operations
from sbench.studies.arrays.pieces import TRIALS
from sbench.studies.arrays.settings import Settings


def main(argv: list[str] | None = None) -> int:
    """Read a step from standard input, measure its cell, and return the exit status."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    return run_measurement(measure_cell)


def measure_cell(step: Step) -> dict:
    """Measure a cell and return the part of its record that results from the measurement."""
    settings = read_fields(Settings, step.job["settings"])
    if settings.cell.operation in TRIALS:
        # Imported here because some libraries under test lack its dependencies.
        from sbench.studies.arrays import limit_trials

        return limit_trials.measure_trials(step, settings)
    count = int(settings.cell.clients)
    if count > 1:
        dask_workers.start_forkserver()
    with contextlib.ExitStack() as stack:
        measured = _Measured(stack, step.job, settings, _Team(stack, count))
        measured.prepare_operation()
        step.open_window(sets_cache=True)
        measured.run_operation()
        step.close_window()
        return measured.build_record()


class _Team:
    """The clients of a measurement: this process if there is only one client, else a Dask worker per client."""

    def __init__(self, stack: contextlib.ExitStack, count: int) -> None:
        self.start_s, self._workers = 0.0, None
        if count > 1:
            self._workers, self.start_s = stack.enter_context(dask_workers.start_cluster(count))

    def map(self, function: Callable, batches: Sequence) -> list:
        return self._workers.run_batches(function, batches) if self._workers else list(map(function, batches))

    def get_loaded_files(self) -> dict:
        """Return the shared libraries that the workers have loaded."""
        return self._workers.list_loaded_libraries() if self._workers else {}


class _Measured:
    """A measurement of one operation: it starts the service, runs the operation and collects the results."""

    def __init__(self, stack: contextlib.ExitStack, job: dict, settings: Settings, team: _Team) -> None:
        self._job, self._settings, self._cell, self._team = job, settings, settings.cell, team
        self._manifest, self._writes = read_json(job["manifest"]), self._cell.operation == "write"
        self._target, self._backend = operations.build_target(job, settings), backends.get_backend(self._cell.backend)
        # The HDF5 backend reads the generated file. The other backends must write the array before they can read it.
        self._ahead = not self._writes and self._cell.backend != "library"
        self._folder = stack.enter_context(operations.make_record_folder(job, settings))
        # Runs after the service has ended, so that no node can store objects afterwards.
        stack.push(self._remove_array)
        self._services, self._service = stack.enter_context(contextlib.ExitStack()), None

    def prepare_operation(self) -> None:
        """Start the service, and measure the overhead of the harness with calls that do nothing.

        Before a read, write the array unless the generated file is read; if the cell is warm, also read it once.
        The service is restarted after the write, because its nodes cache written values in memory.
        """
        began = time.perf_counter()
        if not self._target.place.keys() & {"folder", "endpoint"}:
            # Remove objects left over from an earlier attempt that was killed.
            self._remove_array(None)
        self._start_service(is_timed=not self._ahead)
        if self._ahead:
            self._team.map(clients.create_client, [(0, operations.plan_write_ahead(self._settings, self._target))])
            self._team.map(clients.run_client, [0])
            self._backend.wait_until_stored(self._target)
            self._start_service()
        self._plan_works(self._writes)
        if self._ahead and self._cell.cache == "warm":
            self._read_untimed()
        self._prepared = time.perf_counter() - began
        began = time.perf_counter()
        self._team.map(clients.do_nothing, self._numbers)
        self._null = time.perf_counter() - began

    def run_operation(self) -> None:
        """Run and time the operation. A write ends when all values are acknowledged and durably stored."""
        files = [] if self._writes else self._list_files()
        self._state = self._set_cache(files)
        waits, meter = slowed.Waits(self._cell.control), self._service and self._service.start_meter()
        began = time.perf_counter()
        if self._writes and not self._works[0].new:
            with self._backend.open_for_writing(self._target, new=True):
                pass
        self._accounts = self._team.map(clients.run_client, self._numbers)
        self._acknowledged = time.perf_counter() - began
        if self._writes:
            for target in self._list_targets():
                self._backend.wait_until_stored(target)
            waits.wait_after(time.perf_counter() - began - self._acknowledged)
        self._total = time.perf_counter() - began
        self._waited = waits.seconds + max(account["waited_s"] for account in self._accounts)
        self._nodes = meter.close() if meter else {}
        self._state["resident_after"] = page_cache.measure_resident(files)

    def build_record(self) -> dict:
        """Return the measured part of the record. After a write, first read the values back with a new service."""
        counted = (
            [self._backend.count_stored(target) for target in self._list_targets()]
            if self._writes or self._ahead
            else []
        )
        tasks = sum(len(work.pieces) for work in self._works)
        if self._writes:
            self._start_service()
            self._plan_works(writes=False)
        correct = self._read_untimed() if self._writes else self._count_right_bytes()
        effective = self._read_effective()
        first = [account["first_byte_s"] for account in self._accounts if account["first_byte_s"] is not None]
        acknowledged = self._acknowledged if self._writes else None
        alike = {"total_s": self._total, "acknowledged_s": acknowledged}
        return {
            "samples": [{"number": number, **alike, **account} for number, account in enumerate(self._accounts, 1)],
            "seconds": {
                "total": self._total,
                "open": max(account["open_s"] for account in self._accounts),
                "acknowledged": acknowledged,
                **({"first_byte": max(first)} if first else {}),
                "null": self._null,
                **({"cluster_start": self._team.start_s} if self._team.start_s else {}),
            },
            "work": self._build_work(tasks, correct, counted),
            "effective": effective,
            "verified": "after the operation",
            "cache": self._state,
            "files": self._team.get_loaded_files(),
            # List all modules, so that the source is the same for all backends, whichever a process has imported.
            "modules": provenance.list_package_modules("studies/arrays"),
        }

    def _remove_array(self, failure: type[BaseException] | None, *_: object) -> None:
        """Remove the written array from its store. After a failure, ignore further errors."""
        if self._ahead or self._writes:
            with contextlib.suppress(Exception) if failure else contextlib.nullcontext():
                self._backend.remove_array(self._target)

    def _plan_works(self, writes: bool) -> None:
        self._works = operations.plan_works(self._settings, self._target, writes)
        self._numbers = range(len(self._works))
        self._team.map(clients.create_client, list(enumerate(self._works)))

    def _read_untimed(self) -> int:
        self._team.map(clients.run_client, self._numbers)
        return self._count_right_bytes()

    def _count_right_bytes(self) -> int:
        return sum(self._team.map(clients.count_right_bytes, self._numbers))

    def _list_targets(self) -> list[backends.Target]:
        """Return a list of the array that the clients share, or of their separate arrays."""
        return [work.target for work in self._works[: 1 if self._backend.shared else None]]

    def _list_files(self) -> list[Path]:
        if not self._ahead:
            return list(map(Path, self._job["local_files"]))
        held = self._target.place.get("folder") or self._job["served_folder"]
        return [path for path in Path(held).rglob("*") if path.is_file()] if held else []

    def _start_service(self, is_timed: bool = True) -> None:
        """Start or restart HSDS if it is the backend. For an external service, only set the credentials.

        A service whose writes are not timed stores them at once.
        """
        if self._cell.backend != "hsds":
            return
        if not stores.get_store(self._target.store).takes_files:
            self._target = replace(self._target, secrets=tuple(os.environ[name] for name in NAMES))
            return
        # Imported here because libraries without HSDS lack its dependencies.
        from sbench.studies.arrays import service

        self._services.close()
        cell, place = self._cell, self._target.place
        limit, streaming = sizes.parse_size(cell.request_limit), cell.streaming == "on"
        more = () if is_timed else service.STORE_AT_ONCE
        wanted = service.Settings(int(cell.nodes), limit, streaming, self._target.in_flight, more)
        where = service.get_storage_variables(place, self._target.store)
        self._service = self._services.enter_context(service.run_service(wanted, where, self._folder))
        secrets = service.USER, self._service.password
        self._target = replace(self._target, place={**place, "endpoint": self._service.endpoint}, secrets=secrets)

    def _set_cache(self, files: list[Path]) -> dict:
        """Bring the page cache to the cell's state, and report the state; writes always report "any"."""
        state = page_cache.set_cache_state(self._cell.cache, files)
        if self._writes:
            return state | {"state": "any"}
        return state | ({"state": "elsewhere"} if stores.get_store(self._target.store).elsewhere else {})

    def _build_work(self, tasks: int, correct: int, counted: list[tuple[int, int]]) -> dict:
        """Return the requested and completed work (METHOD 9), and how many objects and bytes store the array."""
        shape, crc = self._target.shape, self._manifest["crc32"]
        held = counted or [(1, self._manifest["layout"]["stored_bytes"])]
        return {
            "tasks_asked": tasks,
            "tasks_done": sum(account["pieces"] for account in self._accounts),
            "logical_bytes_asked": shape.bytes,
            "logical_bytes": sum(account["bytes"] for account in self._accounts),
            "padded_bytes": shape.padded_bytes,
            "stored_objects": sum(count for count, _ in held),
            "stored_bytes": sum(size for _, size in held),
            "checksum_asked": crc,
            "checksum": crc if correct == shape.bytes else "wrong",
            **slowed.report_waited(self._cell.control, self._waited),
        }

    def _read_effective(self) -> dict:
        """Return the settings in force, as read back, and the CPU time and memory of the nodes (METHOD 10, 14)."""
        nodes = {name: taken for name, taken in self._nodes.items() if name != "machine"}
        cpu = {name: taken["user_s"] + taken["system_s"] for name, taken in nodes.items()}
        peaks = {name: taken["peak_bytes"] for name, taken in nodes.items()}
        data = [name for name in nodes if name != "sn"]
        of_service = {
            "service_node_cpu_s": cpu.get("sn"),
            "service_node_peak_bytes": peaks.get("sn"),
            "data_node_cpu_s": max((cpu[name] for name in data), default=None),
            "data_nodes_cpu_s": sum(cpu[name] for name in data),
            "data_node_peak_bytes": max((peaks[name] for name in data), default=None),
            "ready_s": self._service and self._service.ready_s,
        }
        return {
            **drivers.get_driver("sec2").list_versions(),
            **self._backend.read_settings(self._works[0].target),
            **(of_service if nodes else {}),
            "clients": len({account["worker-pid"] for account in self._accounts}),
            "clients_asked": int(self._cell.clients),
            "usable_cores": host.count_usable_cores(),
            "prepare_s": self._prepared,
        }


if __name__ == "__main__":
    run_main(main)
