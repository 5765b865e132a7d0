"""What the workflow's readers cost beside the bare call of the same client, beside fio, and in memory.

A bare call gets the same chunks, with as many requests in flight, into a buffer; the reader sees besides that the
object is still the same, and counts what the client tries again.
"""

import json
import mmap
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from sbench.probe import page_cache, sizes
from sbench.probe.program import Problem
from sbench.stores import store as stores
from sbench.stores.azure import client as azure
from sbench.stores.reading import Access
from sbench.stores.s3 import client as s3
from sbench.studies.blobs.patterns import PATTERNS
from tests.bench.common import DISK, S3, Row, Say, bandwidth, compared, in_turn, timed
from tests.bench.prepared import Cell, cells

_SIZE, _CHUNK, _BLOCK = 2**26, 2**22, 2**20
_CONCURRENCY = (1, 4)
_LEAST = 0.95
_STORES = {
    "disk": DISK,
    "s3": S3,
    "azure": {"kind": "azure-blob", "container": "bench", "server": "embedded"},
}
_LEVELS = {
    **{"pattern": ["sections"], "size": ["64MiB"], "processes": [1], "objects": ["shared"], "concurrency": [1]},
    **{"operation_size": ["1GiB"], "chunk_size": ["4MiB"], "cache": ["warm"]},
}


def rows(
    folder: Path, say: Say, file_size: str = "1GiB", patterns: Sequence[str] = tuple(PATTERNS), rounds: int = 16
) -> Iterator[Row]:
    """Compare readers of objects with the bare calls of their clients and with fio, and see what memory they take.

    64 MiB of every kind of store; 1 GiB of a file as fio reads it; four operations of every pattern.
    """
    for cell in _cells(folder / "stores", say, store=list(_STORES)):
        with cell.served() as location:
            for concurrency in _CONCURRENCY:
                yield _against_bare(cell, location, Access(_CHUNK, concurrency), rounds, say)
    (cell,) = _cells(folder / "fio", say, store=["disk"], size=[file_size])
    for state in ("warm", "cold"):
        yield _against_fio(cell, state, rounds, say)
    # Two processes and an object that is four times an operation.
    levels = {"size": ["64MiB"], "operation_size": ["16MiB"], "processes": [2]}
    others = [name for name in patterns if not name.startswith("mpi-io") and name != "multiple-files"]
    mpi_io = [name for name in patterns if name.startswith("mpi-io")]
    measured = _cells(folder / "memory", say, pattern=[*others, *mpi_io], store=["disk"], **levels)
    measured += _cells(folder / "memory in servers", say, pattern=others, store=["s3", "azure"], **levels)
    for cell in measured:
        what = f"memory of a process, {cell.levels['pattern']} from {cell.levels['store']}"
        say(what)
        yield _grown(what, cell.measure())


def large(folder: Path, say: Say, size: str = "4GiB") -> Iterator[Row]:
    """Read an object of 4 GiB in sections from both servers, which takes minutes and 10 GB of disk.

    By two processes that hold little of it, and once more to verify it.
    """
    levels = {"size": [size], "operation_size": ["32MiB"], "processes": [2], "concurrency": [2]}
    for cell in _cells(folder, say, store=["s3", "azure"], **levels):
        what = f"{size} in sections from {cell.store['kind']}, two processes"
        say(what)
        record = cell.measure()
        rate = bandwidth(record["work"]["logical_bytes"], record["seconds"]["total"])
        ceiling = next(row for row in record["samples"] if row["phase"] == "ceiling")
        bare = f"bare requests: {bandwidth(ceiling['bytes'], ceiling['latency_s'])}"
        yield Row(what, rate, bare, "", "valid", record["valid"])
        yield _grown(f"{what}: memory of a process", record)


def _cells(folder: Path, say: Say, **levels: list) -> list[Cell]:
    """Make the objects of a matrix of cells and put them into their stores; `levels` replace _LEVELS."""
    section = {"data": {"objects": 1}, "iterations": 1, "ceiling_rounds": 1}
    return cells(folder, say, "blobs", _STORES, **section, matrix={**_LEVELS, **levels})


def _against_bare(cell: Cell, location: dict, access: Access, rounds: int, say: Say) -> Row:
    """Compare the reader of a store with its client's bare call, by one process in turn."""
    name = cell.manifest["files"][0]["name"]
    # One buffer for both: how fast it is filled depends on where its pages lie.
    view = _touched(_SIZE)
    kind = cell.store["kind"]
    bare_of, title = {
        "posix": (_preadv, "a loop of os.preadv"),
        "s3": (_get_object, "get_object of boto3"),
        "azure-blob": (_download_blob, "download_blob of the SDK"),
    }[kind]
    bare = bare_of(cell.store, location, name, access, view)
    reader = stores.of(cell.store).reader(location, access)
    identity = reader.identify(name)
    ours = timed(lambda: reader.read(name, [(0, _SIZE)], view, identity))
    what = f"{kind}: reader, chunks of {sizes.text(access.chunk_bytes)}, {access.concurrency} in flight"
    taken = in_turn(rounds, ours, timed(bare), lambda words: say(f"{what}: {words}"))
    reader.close()
    return compared(what, taken[0], title, taken[1], _LEAST, size=_SIZE)


def _preadv(store: dict, location: dict, name: str, access: Access, view: memoryview) -> Callable[[], object]:
    file = os.open(Path(location["folder"], name), os.O_RDONLY)
    return _together(access, lambda first, end: os.preadv(file, [view[first:end]], first))


def _get_object(store: dict, location: dict, name: str, access: Access, view: memoryview) -> Callable[[], object]:
    client = s3.client(store, max_pool_connections=access.concurrency)
    wanted = {"Bucket": store["bucket"], "Key": f"{location['key']}/{name}"}

    def get(first: int, end: int) -> None:
        view[first:end] = client.get_object(**wanted, Range=f"bytes={first}-{end - 1}")["Body"].read()

    return _together(access, get)


def _download_blob(store: dict, location: dict, name: str, access: Access, _: memoryview) -> Callable[[], object]:
    chunk = {"max_single_get_size": access.chunk_bytes, "max_chunk_get_size": access.chunk_bytes}
    client = azure.holder(store, **chunk)
    return lambda: client.download_blob(f"{location['key']}/{name}", max_concurrency=access.concurrency).readall()


def _together(access: Access, get: Callable[[int, int], object]) -> Callable[[], object]:
    """Return what gets all chunks, from first byte to end, with as many requests in flight as a cell asks for."""
    chunks = [(first, first + access.chunk_bytes) for first in range(0, _SIZE, access.chunk_bytes)]
    if access.concurrency == 1:
        return lambda: [get(*chunk) for chunk in chunks]
    pool = ThreadPoolExecutor(access.concurrency)
    return lambda: list(pool.map(lambda chunk: get(*chunk), chunks))


def _touched(size: int) -> memoryview:
    buffer = mmap.mmap(-1, size)
    np.frombuffer(buffer, np.uint8)[:: mmap.PAGESIZE] = 0
    return memoryview(buffer)


def _against_fio(cell: Cell, state: str, rounds: int, say: Say) -> Row:
    """Compare the reader with fio on the same file, blocks of the same size into a buffer of one block."""
    (entry,) = cell.manifest["files"]
    path, size = Path(cell.provision["local_files"][0]), entry["bytes"]
    reader = stores.of(cell.store).reader(cell.provision["location"], Access(_BLOCK, 1))
    identity, view = reader.identify(entry["name"]), _touched(_BLOCK)

    def read() -> None:
        for offset in range(0, size, _BLOCK):
            reader.read(entry["name"], [(offset, _BLOCK)], view, identity)

    def prepared(way: Callable[[], float]) -> Callable[[], float]:
        def seconds() -> float:
            if page_cache.prepare(state, [path])["state"] not in (state, "unverified"):
                raise Problem(f"{path} could not be made {state}")
            return way()

        return seconds

    what = f"posix: reader, {state}, blocks of {sizes.text(_BLOCK)}"
    ways = prepared(timed(read)), prepared(lambda: _fio(path))
    taken = in_turn(rounds, *ways, lambda words: say(f"{what}: {words}"))
    reader.close()
    return compared(what, taken[0], "fio, psync", taken[1], _LEAST, size=size)


def _fio(path: Path) -> float:
    """Return the seconds that fio says it took to read a file once."""
    command = ["fio", "--name=read", f"--filename={path}", "--rw=read", f"--bs={_BLOCK}", "--ioengine=psync"]
    options = ["--invalidate=0", "--readonly", "--thread", "--output-format=json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(f"fio ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    return json.loads(done.stdout)["jobs"][0]["read"]["runtime"] / 1000


def _grown(what: str, record: dict) -> Row:
    """Return the row of the most that a process of a record grew by."""
    memory, effective = record["memory"], record["effective"]
    object_size, operation = (sizes.text(effective[name]) for name in ("object_bytes", "operation_bytes"))
    within = memory["growth_bytes"] <= memory["allowed_bytes"] and record["valid"]
    figure, limit = f"grew by {sizes.text(memory['growth_bytes'])}", f"≤ {sizes.text(memory['allowed_bytes'])}"
    return Row(what, figure, f"object of {object_size}, operations of {operation}", "", limit, within)
