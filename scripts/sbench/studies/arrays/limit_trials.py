"""Send HSDS requests around its size limit and inject faults, and record the outcomes."""

import contextlib
import resource
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sbench import drivers
from sbench.probe import memory, provenance, sizes
from sbench.probe.conversation import Step
from sbench.probe.program import Problem, read_json
from sbench.studies.arrays import clients, hsds, operations, service, values
from sbench.studies.arrays.backends import Target
from sbench.studies.arrays.pieces import ITEM, MOST, Piece
from sbench.studies.arrays.service import Service
from sbench.studies.arrays.settings import Settings

# Request sizes, in multiples of the limit. Requests consist of whole rows and are smaller than their multiple.
TIMES = (0.5, 1, 2, MOST)
# Request sizes for JSON and for variable-length strings, in multiples of the limit.
FEW, MANY = 0.1, 2
# The size in bytes that the service assumes for each variable-length string.
GUESSED = 512
# Seconds that a slowed store takes to read all chunks of an array one after the other.
SLOW_S = 2.0
# A client's read timeout and the time at which a node is killed, as fractions of SLOW_S.
PATIENCE, KILLED = 0.75, 0.8
_STOPPED_S, _WAIT_S = 1.0, 30.0
_TASKS, _REQUESTS = 4, 24
# Retry requests to an unresponsive data node once; by default, retries take 13 s per chunk.
_SOON = (("dn_max_retries", 1),)
# Limits of a data node's additional memory, in multiples of the request size.
ROOM = (0.5, 1, 2, 4)
WRONG = "wrong values"
# Make the C library return large buffers to the kernel immediately (mallopt(3)), so that each request's memory shows.
_GIVES_BACK = dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**17))
_STATUS = {413: "refused (413)", 503: "busy (503)"}


class Answer(NamedTuple):
    """The result of a completed request.

    Attributes:
        right: whether the values are correct.
        first_s: time to first byte in seconds; None if unknown.
        last_s: time to last byte in seconds.
    """

    right: bool
    first_s: float | None
    last_s: float


def measure_trials(step: Step, settings: Settings) -> dict:
    """Run the trials of a cell and return the measured part of its record."""
    job, cell = step.job, settings.cell
    with operations.make_record_folder(job, settings):
        trials = Trials(settings, operations.build_target(job, settings), operations.get_record_folder(job, settings))
        try:
            in_force = trials.write_array()
            step.open_window()
            rows = list(trials.run_limit_trials() if cell.operation == "limits" else trials.run_fault_trials())
            step.close_window()
        finally:
            hsds.BACKEND.remove_array(trials.target)
    crc = read_json(job["manifest"])["crc32"]
    wrong = any(row["outcome"] == WRONG for row in rows)
    total = sum(row["trial_s"] for row in rows)
    return {
        "samples": [{"number": number, "total_s": total, **row} for number, row in enumerate(rows, 1)],
        "seconds": {"total": total, "null": 0.0},
        "work": {"checksum_asked": crc, "checksum": WRONG if wrong else crc},
        "effective": {**drivers.get_driver("sec2").list_versions(), **in_force, "clients": 1, "clients_asked": 1},
        "verified": "after each trial",
        "cache": {"asked": cell.cache, "state": "any", "resident_before": None},
        "modules": provenance.list_package_modules("studies/arrays"),
    }


class Trials:
    """Run trial requests against one HSDS array, the `target`. Each trial yields one row of the record's samples."""

    def __init__(self, settings: Settings, target: Target, folder: Path) -> None:
        """Generate the array's values. The service stores its files in the directory `folder`."""
        self._settings, self.target, self._folder = settings, target, folder
        cell, shape = settings.cell, target.shape
        self._limit, self._streaming = sizes.parse_size(cell.request_limit), cell.streaming == "on"
        self._service = service.Settings(int(cell.nodes), self._limit, self._streaming)
        self._values = values.make_values(cell.values, shape.columns, slice(0, shape.rows), settings.data.seed)

    def write_array(self) -> dict:
        """Write the array in requests below the size limit, and return the settings that HSDS reports."""
        with self._run_service(replace(self._service, more=service.STORE_AT_ONCE)) as (_, target):
            clients.create_client((0, operations.plan_write_ahead(self._settings, target)))
            clients.run_client(0)
            hsds.BACKEND.wait_until_stored(target)
            return hsds.BACKEND.read_settings(target)

    def run_limit_trials(self) -> Iterator[dict]:
        """Send requests below and above the size limit. Yield each outcome, with the growth of the nodes' memory."""
        with self._run_service(self._service) as (running, target):
            plain = replace(target, protocol="client")
            for times in TIMES:
                piece = self._build_piece(times)
                yield self._run_trial(running, "binary read", times, piece, partial(self._get_binary, target, piece))
                yield self._run_trial(running, "binary write", times, piece, partial(self._put_binary, target, piece))
                yield self._run_trial(running, "h5pyd read", times, piece, partial(self._read_piece, plain, piece))
            for times in (FEW, MANY):
                piece = self._build_piece(times)
                yield self._run_trial(running, "JSON read", times, piece, partial(self._get_json, target, piece))
            yield from self._run_string_trials(running, target)

    def run_fault_trials(self) -> Iterator[dict]:
        """Send requests while faults are injected, and yield each outcome.

        The faults are clients that stop reading, short timeouts, killed nodes, memory limits and too many requests.
        """
        whole = self._build_piece(MOST)
        times = MOST
        # Without streaming, raise the limit so that the service does not refuse the request.
        roomy = self._service if self._streaming else replace(self._service, request_limit=2 * times * self._limit)
        with self._run_service(roomy) as (running, target):
            yield self._run_trial(
                running,
                "client stops reading",
                times,
                whole,
                partial(self._get_binary, target, whole, between=_stop_reading),
            )
        delay = SLOW_S / self.target.shape.chunks
        slow = replace(roomy, in_flight=1, more=(("posix_delay", delay), *_SOON))
        with self._run_service(slow) as (running, target):
            patience = PATIENCE * SLOW_S
            yield self._run_trial(
                running,
                "client wants bytes in less time than all take",
                times,
                whole,
                partial(self._get_binary, target, whole, patience),
            )
        with self._run_service(slow) as (running, target):
            kill = running.nodes["dn1"].kill
            get = partial(self._get_binary, target, whole, between=kill)
            yield self._run_trial(running, "data node killed in a binary read", times, whole, get)
        with self._run_service(slow) as (running, target), _call_later(running.nodes["dn1"].kill):
            read = partial(self._read_piece, replace(target, protocol="client"), whole)
            yield self._run_trial(running, "data node killed in an h5pyd read", times, whole, read)
        for room in ROOM:
            with self._run_service(replace(roomy, more=_SOON)) as (running, target):
                _set_memory_limit(running, int(room * whole.bytes))
                what = f"data node may take {room:g} × the request"
                yield self._run_trial(running, what, times, whole, partial(self._get_binary, target, whole))
        with self._run_service(replace(roomy, more=(("max_task_count", _TASKS),))) as (running, target):
            yield self._run_busy_trial(running, target)

    @contextlib.contextmanager
    def _run_service(self, settings: service.Settings) -> Iterator[tuple[Service, Target]]:
        """Run a service on the array's store, and yield it with a target for direct REST requests."""
        place = self.target.place
        where = service.get_storage_variables(place, self.target.store) | _GIVES_BACK
        with service.run_service(settings, where, self._folder, together=False) as running:
            secrets = service.USER, running.password
            here = {**place, "endpoint": running.endpoint}
            yield running, replace(self.target, place=here, protocol="binary", secrets=secrets)
            # Kill the nodes: the array is already stored, and a shutdown would store values that trials wrote.
            for node in running.nodes.values():
                node.kill()

    def _build_piece(self, times: float) -> Piece:
        """Return as many whole rows as fit in fewer bytes than `times` × the size limit, but at least one row."""
        columns = self.target.shape.columns
        rows = int((times * self._limit - 1) // (ITEM * columns))
        return Piece((0, max(1, rows)), (0, columns))

    def _run_trial(self, running: Service, what: str, times: float, piece: Piece, do: Callable[[], Answer]) -> dict:
        """Send a request and return a row of samples: outcome, times in seconds, and memory growth in bytes."""
        grown = running.start_growth_meter()
        outcome, first, seconds = _wait_for_outcome(do)
        growth = grown()
        data = [size for name, size in growth.items() if name != "sn"]
        return {
            **{"phase": what, "times_limit": times, "request_bytes": piece.bytes, "outcome": outcome},
            **{"trial_s": seconds, "first_byte_s": first},
            **{"service_node_bytes": growth["sn"], "data_node_bytes": max(data)},
        }

    def _get_binary(
        self, target: Target, piece: Piece, timeout_s: float = _WAIT_S, between: Callable[[], None] = lambda: None
    ) -> Answer:
        with hsds.Rest(target, timeout_s) as rest:
            rest.resolve_dataset()
            began = time.perf_counter()
            result, first = rest.get_binary(piece, between)
        return self._build_answer(began, result, piece, first)

    def _put_binary(self, target: Target, piece: Piece) -> Answer:
        """Write values that differ from the stored ones, and make later reads expect them."""
        other = self._values[piece.slices] + self._values.dtype.type(1)
        with hsds.Rest(target, _WAIT_S) as rest:
            rest.resolve_dataset()
            began = time.perf_counter()
            rest.put_binary(piece, other)
        seconds = time.perf_counter() - began
        self._values[piece.slices] = other
        return Answer(True, None, seconds)

    def _get_json(self, target: Target, piece: Piece) -> Answer:
        with hsds.Rest(target, _WAIT_S) as rest:
            rest.resolve_dataset()
            began = time.perf_counter()
            result, _ = rest.get_json(piece)
        return self._build_answer(began, result, piece)

    def _read_piece(self, target: Target, piece: Piece) -> Answer:
        with hsds.BACKEND.open_for_reading(target) as read:
            began = time.perf_counter()
            result, _ = read(piece)
            return self._build_answer(began, result, piece)

    def _build_answer(self, began: float, result: np.ndarray, piece: Piece, first: float | None = None) -> Answer:
        seconds = time.perf_counter() - began
        return Answer(np.array_equal(result, self._values[piece.slices]), first, seconds)

    def _run_string_trials(self, running: Service, target: Target) -> Iterator[dict]:
        """Read and write variable-length strings in binary requests above the size limit, and yield each outcome."""
        count = -(-MANY * self._limit // GUESSED)
        piece = Piece((0, count), (0, GUESSED // ITEM))
        with hsds.Rest(target, _WAIT_S) as rest:
            path = rest.create_strings(count)

            def send_request(method: str, **options: object) -> Answer:
                began = time.perf_counter()
                rest.send_request(method, path, {}, **options)
                return Answer(True, None, time.perf_counter() - began)

            get = partial(send_request, "GET", headers={"Accept": hsds.BINARY})
            many = bytes(MANY * self._limit)
            put = partial(send_request, "PUT", data=many, headers={"Content-Type": hsds.BINARY})
            yield self._run_trial(running, "binary read of strings", MANY, piece, get)
            yield self._run_trial(running, "binary write of strings", MANY, piece, put)

    def _run_busy_trial(self, running: Service, target: Target) -> dict:
        """Send many small requests concurrently and report how many the service rejected as busy (503)."""
        piece = Piece((0, 1), (0, self.target.shape.columns))
        with hsds.Rest(target, _WAIT_S) as rest:
            rest.resolve_dataset()
            ask = partial(rest.get_binary, piece)
            grown, began = running.start_growth_meter(), time.perf_counter()
            with ThreadPoolExecutor(_REQUESTS) as pool:
                outcomes = list(
                    pool.map(lambda _: _run_request(lambda: Answer(bool(ask()), None, 0.0))[0], range(_REQUESTS))
                )
        growth = grown()
        busy = outcomes.count(_STATUS[503])
        return {
            **{"phase": f"{_REQUESTS} requests in flight, {_TASKS} tasks", "request_bytes": piece.bytes},
            **{"outcome": f"{busy} busy (503)", "trial_s": time.perf_counter() - began},
            **{"service_node_bytes": growth["sn"], "times_limit": None, "first_byte_s": None},
        }


def _wait_for_outcome(do: Callable[[], Answer]) -> tuple[str, float | None, float]:
    """Return the result of `_run_request`, or the outcome "no end within …" after `_WAIT_S` seconds.

    A request that hangs is left to its thread, and fails once its service is killed.
    """
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(_run_request, do).result(_WAIT_S)
    except TimeoutError:
        return f"no end within {_WAIT_S:g} s", None, _WAIT_S
    finally:
        pool.shutdown(wait=False)


def _run_request(do: Callable[[], Answer]) -> tuple[str, float | None, float]:
    """Send a request. Return its outcome, and the time to first byte (None if unknown) and last byte in seconds."""
    began = time.perf_counter()
    try:
        answer = do()
        return "answered" if answer.right else WRONG, answer.first_s, answer.last_s
    except hsds.Refused as refused:
        outcome = _STATUS.get(refused.status, f"status {refused.status}")
    except Problem as problem:
        outcome = "timed out" if "Timeout" in str(problem) else "broke off"
    return outcome, None, time.perf_counter() - began


def _stop_reading() -> None:
    time.sleep(_STOPPED_S)


def _set_memory_limit(running: Service, room: int) -> None:
    """Let each data node allocate at most `room` bytes more than it uses now (prlimit(2), RLIMIT_DATA)."""
    for name, process in running.nodes.items():
        if name != "sn":
            limit = memory.read_data_bytes(process.pid) + room
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


@contextlib.contextmanager
def _call_later(do: Callable[[], None]) -> Iterator[None]:
    """Call `do` from a timer during a `with` block, at a time when a read from the slowed store is in progress."""
    timer = threading.Timer(KILLED * SLOW_S, do)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
