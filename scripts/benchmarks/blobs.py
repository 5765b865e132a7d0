"""What the workflow's readers cost beside the bare call of the same client, beside fio, and in memory.

A bare call gets the same chunks, as many at once, into a buffer; the reader sees besides that the object is still the
same, and counts what the client tries again.
"""

import json
import math
import mmap
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from scripts.benchmarks.blob_cells import Cell, cells
from scripts.benchmarks.common import Row, Say, in_turn, timed
from scripts.lib import sizes
from scripts.lib.program import Problem
from scripts.statistics import stats
from scripts.stores import store as stores
from scripts.stores.azure import client as azure
from scripts.stores.reading import Access
from scripts.stores.s3 import client as s3
from scripts.studies.blobs import caches
from scripts.studies.blobs.patterns import PATTERNS

ROUNDS = 16
_SIZE, _CHUNK = 2**26, 2**22
_CONCURRENCY = (1, 4)
_BLOCK = 2**20
_LEAST = 0.95
_OPERATION = "16MiB"

Read = Callable[[], object]


def rows(
    folder: Path, say: Say, file_size: str = "1GiB", patterns: Sequence[str] = tuple(PATTERNS), rounds: int = ROUNDS
) -> Iterator[Row]:
    """Read 64 MiB of every kind of store both ways; 1 GiB of a file as fio does; four operations of every pattern."""
    for cell in cells(folder / "stores", say, store=["disk", "s3", "azure"], size=[_text(_SIZE)]):
        with cell.served() as location:
            for concurrency in _CONCURRENCY:
                yield _against_bare(cell, location, Access(_CHUNK, concurrency), rounds, say)
    (cell,) = cells(folder / "fio", say, store=["disk"], size=[file_size])
    for state in ("warm", "cold"):
        yield _against_fio(cell, state, rounds, say)
    yield from _memory(folder / "memory", patterns, say)


def bandwidths(what: str, ours: Sequence[float], name: str, others: Sequence[float], size: int) -> Row:
    """Return the row of two ways to read `size` bytes: bandwidths by medians of seconds, and the ratio by rounds."""
    logs = np.log(np.asarray(others) / np.asarray(ours))
    low, high = (float(np.exp(edge[0])) for edge in stats.bootstrap_interval(logs[:, None]))
    ratio = float(np.exp(np.median(logs)))
    interval = "" if math.isnan(low) else f" ({low:.3f} … {high:.3f})"
    rates = [f"{size / 2**20 / float(np.median(seconds)):,.0f} MiB/s" for seconds in (ours, others)]
    return Row(what, rates[0], f"{name}: {rates[1]}", f"{ratio:.3f}{interval}", f"≥ {_LEAST:g}", ratio >= _LEAST)


def _against_bare(cell: Cell, location: dict, access: Access, rounds: int, say: Say) -> Row:
    """Compare the reader of a store with its client's bare call, by one process in turn."""
    (entry,) = cell.manifest["files"]
    # One buffer for both: how fast it is filled depends on where its pages lie.
    view = _touched(_SIZE)
    bare, name = {"posix": _preadv, "s3": _get_object, "azure-blob": _download_blob}[cell.store["kind"]](
        cell, location, access, view
    )
    reader = stores.of(cell.store).reader(location, access)
    identity = reader.identify(entry["name"])
    ours = timed(lambda: reader.read(entry["name"], [(0, _SIZE)], view, identity))
    what = f"{cell.store['kind']}: reader, chunks of {sizes.text(access.chunk_bytes)}, {access.concurrency} at once"
    taken = in_turn(rounds, ours, timed(bare), lambda words: say(f"{what}: {words}"))
    reader.close()
    return bandwidths(what, taken[0], name, taken[1], _SIZE)


def _preadv(cell: Cell, location: dict, access: Access, view: memoryview) -> tuple[Read, str]:
    file = os.open(Path(location["folder"], cell.manifest["files"][0]["name"]), os.O_RDONLY)
    chunks = [(offset, view[offset : offset + access.chunk_bytes]) for offset in range(0, _SIZE, access.chunk_bytes)]
    return _together(access, chunks, lambda offset, part: os.preadv(file, [part], offset)), "a loop of os.preadv"


def _get_object(cell: Cell, location: dict, access: Access, view: memoryview) -> tuple[Read, str]:
    client = s3.cell_client(cell.store, max_pool_connections=access.concurrency)
    wanted = {"Bucket": cell.store["bucket"], "Key": f"{location['key']}/{cell.manifest['files'][0]['name']}"}

    def get(first: int, last: int) -> None:
        view[first : last + 1] = client.get_object(**wanted, Range=f"bytes={first}-{last}")["Body"].read()

    chunks = [(offset, offset + access.chunk_bytes - 1) for offset in range(0, _SIZE, access.chunk_bytes)]
    return _together(access, chunks, get), "get_object of boto3"


def _download_blob(cell: Cell, location: dict, access: Access, _: memoryview) -> tuple[Read, str]:
    chunk = {"max_single_get_size": access.chunk_bytes, "max_chunk_get_size": access.chunk_bytes}
    client = azure.holder(cell.store, **chunk)
    name = f"{location['key']}/{cell.manifest['files'][0]['name']}"
    return lambda: client.download_blob(name, max_concurrency=access.concurrency).readall(), "download_blob of the SDK"


def _together(access: Access, pieces: list[tuple], get: Callable[..., object]) -> Read:
    if access.concurrency == 1:
        return lambda: [get(*piece) for piece in pieces]
    pool = ThreadPoolExecutor(access.concurrency)
    return lambda: list(pool.map(lambda piece: get(*piece), pieces))


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
            if caches.ready(state, [path])["state"] not in (state, "unverified"):
                raise Problem(f"{path} could not be made {state}")
            return way()

        return seconds

    what = f"posix: reader, {state}, blocks of {sizes.text(_BLOCK)}"
    ways = prepared(timed(read)), prepared(lambda: _fio(path))
    taken = in_turn(rounds, *ways, lambda words: say(f"{what}: {words}"))
    reader.close()
    return bandwidths(what, taken[0], "fio, psync", taken[1], size)


def _fio(path: Path) -> float:
    """Return the seconds that fio says it took to read a file once."""
    command = ["fio", "--name=read", f"--filename={path}", "--rw=read", f"--bs={_BLOCK}", "--ioengine=psync"]
    options = ["--invalidate=0", "--readonly", "--thread", "--output-format=json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem(f"fio ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    return json.loads(done.stdout)["jobs"][0]["read"]["runtime"] / 1000


def _memory(folder: Path, patterns: Sequence[str], say: Say) -> Iterator[Row]:
    """Measure cells of two processes whose object is four times an operation."""
    levels = {"size": [_text(4 * sizes.in_bytes(_OPERATION))], "operation_size": [_OPERATION], "processes": [2]}
    mpi_io = [name for name in patterns if name.startswith("mpi-io")]
    others = [name for name in patterns if name not in (*mpi_io, "multiple-files")]
    chosen = cells(folder, say, pattern=[*others, *mpi_io], store=["disk"], **levels)
    chosen += cells(folder / "servers", say, pattern=others, store=["s3", "azure"], **levels)
    for cell in chosen:
        what = f"memory of a process, {cell.levels['pattern']} from {cell.levels['store']}"
        say(what)
        yield grown(what, cell.measure())


def grown(what: str, record: dict) -> Row:
    """Return the row of the most that a process of a record grew by."""
    memory, effective = record["memory"], record["effective"]
    sizes_text = (
        f"object of {sizes.text(effective['object_bytes'])}, operations of {sizes.text(effective['operation_bytes'])}"
    )
    within = memory["growth_bytes"] <= memory["allowed_bytes"] and record["valid"]
    return Row(
        what,
        f"grew by {sizes.text(memory['growth_bytes'])}",
        sizes_text,
        "",
        f"≤ {sizes.text(memory['allowed_bytes'])}",
        within,
    )


def _text(size: int) -> str:
    return sizes.text(size).replace(" ", "")
