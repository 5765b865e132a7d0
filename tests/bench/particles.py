"""What loading particles costs: the study's loop against a bare one, Dask's tasks, and memory under its limit."""

from collections.abc import Iterator
from pathlib import Path

import h5py

from sbench import drivers
from sbench.probe import page_cache, sizes
from sbench.studies.particles import methods, reading, snapshots
from tests.bench.common import DISK, Row, Say, at_most, compared, in_turn, timed
from tests.bench.prepared import Cell, cells, interpreter

_LIMIT = 1.03
_RDCC_NBYTES = 8 << 20
_USUAL = {
    **{"library": ["hdf5-2.0.0"], "store": ["disk"], "operation": ["sum"], "workers": [2], "threads": [1]},
    **{"cache": ["any"]},
}
_CHUNK = 1000  # particles, so that a task costs more than its reading


def loop(folder: Path, say: Say, particles: str | int = "B", rounds: int = 30) -> Iterator[Row]:
    """Sum chunk by chunk with the study's loop, and with a bare loop of numpy and h5py over the same files.

    In turn, in this process, from a warm page cache.
    """
    (cell,) = _cells(folder, say, {"particles": [particles], "method": ["chunkwise"]})
    place, layout = Path(cell.provision["location"]["folder"]), cell.manifest["layout"]
    files = [place / entry["name"] for entry in cell.manifest["files"]]
    pieces = list(snapshots.chunks([entry["particles"] for entry in cell.manifest["files"]], snapshots.AT_MOST))
    page_cache.load(files)
    source = reading.Source(drivers.Access("sec2", drivers.UNSET, _RDCC_NBYTES), layout["group"], layout["field"])
    chunks = [reading.Chunk(at, 0, str(files[file]), *ends) for at, (file, *ends) in enumerate(pieces)]
    task = methods.Task(source, chunks, "sum", ())
    field = f"{layout['group']}/{layout['field']}"

    def bare() -> None:
        total = 0.0
        for file, start, end in pieces:
            with h5py.File(files[file], "r", rdcc_nbytes=_RDCC_NBYTES) as opened:
                total += opened[field][start:end].astype("float64").sum()

    ours, others = in_turn(rounds, timed(lambda: methods.METHODS["chunkwise"].run(task)), timed(bare), say)
    note = f"{len(pieces)} chunks of {len(files)} files"
    yield compared("sum chunk by chunk, from disk, warm", ours, "bare numpy and h5py loop", others, _LIMIT, note)


def tasks(folder: Path, say: Say, counts: tuple[int, ...] = (1_000, 64_000)) -> Iterator[Row]:
    """Let Dask do tasks that read nothing: what one costs, by the number of futures, and of an array's chunks."""
    chunks = 100
    levels = {"particles": [_CHUNK * chunks], "chunk": [_CHUNK]}
    rereads = [count // chunks for count in counts]
    # To put an array of many chunks together takes minutes before the first task.
    for method, times in (("futures", rereads), ("array", rereads[:1])):
        for cell in _cells(folder, say, levels | {"method": [method], "rereads": times}):
            sample = _measured(cell, say)["samples"][0]
            cost = sample["empty_s"] / sample["listed"]
            yield Row(f"Dask, {sample['listed']:,} tasks, {method}", f"{1000 * cost:.3f} ms per task")


def memory(folder: Path, say: Say, limit: str = "512MiB", times: int = 10) -> Iterator[Row]:
    """Reduce data of many times the memory limit: the most that the workers took together stays under it."""
    # Values take 8 bytes in memory; chunks are listed again until they are as much as was asked for.
    particles = 4_000_000
    rereads = -(-times * sizes.in_bytes(limit) // (8 * particles))
    levels = {"particles": [particles], "rereads": [rereads], "memory": [limit], "method": ["array", "futures"]}
    for cell in _cells(folder, say, levels):
        record = _measured(cell, say)
        peak = record["effective"]["worker_peak_bytes"] * record["effective"]["workers"]
        data = 8 * record["samples"][0]["particles_listed"] / sizes.in_bytes(limit)
        what = f"memory of workers, sum with {cell.levels['method']}, data {data:.0f} × the limit"
        yield at_most(what, peak / 2**20, sizes.in_bytes(limit) / 2**20, "MiB")


def _cells(folder: Path, say: Say, levels: dict) -> list[Cell]:
    return cells(folder, say, "particles", {"disk": DISK}, iterations=1, matrix=_USUAL | levels)


def _measured(cell: Cell, say: Say) -> dict:
    interpreter(cell.folder, cell.levels["library"], say)
    say(cell.name)
    return cell.measure()
