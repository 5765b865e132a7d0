"""What reading shots costs: the study's loop against a bare h5py loop, and ROS3 against bare ranged GETs."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py

from sbench import drivers
from sbench.probe import page_cache
from sbench.probe.dask_workers import batches_of
from sbench.stores import bare
from sbench.stores import store as stores
from sbench.studies.blobs import ceiling
from sbench.studies.blobs.patterns import Operation
from sbench.studies.shots import tasks
from tests.bench.common import DISK, LIBRARIES, S3, Row, Say, compared, in_turn, timed
from tests.bench.prepared import Cell, cells, interpreter

_LIMIT = 1.03
_RDCC_NBYTES = 8 << 20
_LOCAL = {
    **{"library": ["hdf5-2.0.0"], "store": ["disk"], "driver": ["sec2"], "layout": ["single-shot"]},
    **{"access": ["shots"], "workers": [1], "page_buffer": ["unset"], "cache": ["warm"]},
}
_ROS3 = {
    **{"library": list(LIBRARIES), "store": ["s3"], "driver": ["ros3"], "layout": ["shot-major"]},
    **{"access": ["shots"], "page_buffer": ["0"], "cache": ["any"]},
}


def loop(folder: Path, say: Say, rounds: int = 30) -> Iterator[Row]:
    """Read shots with the study's loop, and with a bare h5py loop over the same files.

    In turn, in this process, from a warm page cache, without checksums.
    """
    (cell,) = cells(folder, say, "shots", {"disk": DISK}, data={"shots": 2}, matrix=_LOCAL)
    place, files = Path(cell.provision["location"]["folder"]), {}
    for signals in cell.manifest["objects"].values():
        for entry in signals.values():
            files.setdefault(str(place / entry["file"]), []).extend(path for path, _, _ in entry["datasets"])
    page_cache.load(files)
    access = drivers.Access("sec2", drivers.UNSET, _RDCC_NBYTES)
    whole = tuple((name, tuple((path, ()) for path in paths)) for name, paths in files.items())
    batch = tasks.Batch(1, "all", whole, 1, access, False)
    ours, bare_loop = in_turn(rounds, _spent(lambda: tasks.read(batch)), _spent(lambda: _bare_loop(files)), say)
    (seconds, cpu), (bare_seconds, bare_cpu) = zip(*ours, strict=True), zip(*bare_loop, strict=True)
    note = f"{len(files)} files, {sum(map(len, files.values()))} datasets"
    what = "reading loop, from disk, warm"
    yield compared(what, seconds, "bare h5py loop", bare_seconds, _LIMIT, note)
    note = "hardly disturbed by other programs"
    yield compared(f"{what}: processor time", cpu, "bare h5py loop", bare_cpu, _LIMIT, note)


def ros3(folder: Path, say: Say, shots: int = 4, rounds: int = 16, workers: tuple[int, ...] = (1, 2)) -> Iterator[Row]:
    """Read a file through ROS3, and with as many bare ranged GETs, by one and by two workers.

    The GETs have the mean size of those of ROS3, which signs each anew, looks for its metadata and inflates the data:
    that is what the ratio is about.
    """
    section = {"data": {"shots": shots, "page_size": 8_000_000}, "read_shots": shots}
    planned = cells(folder, say, "shots", {"s3": S3}, **section, matrix=_ROS3 | {"workers": [*workers]})
    with planned[0].served() as location:
        yield from (_against_gets(cell, location, rounds, say) for cell in planned)


def _against_gets(cell: Cell, location: dict, rounds: int, say: Say) -> Row:
    library, workers = cell.levels["library"], int(cell.levels["workers"])
    interpreter(cell.folder, library, say)
    label = f"ROS3 of {library}, {workers} worker{'s' if workers > 1 else ''}"
    say(label)
    get = cell.measure()["requests"]["GET"]
    count, size = get["count"], get["bytes_offered"]
    seconds, bare_seconds = in_turn(
        rounds,
        lambda: cell.measure()["seconds"]["total"],
        lambda: _bare_gets(cell, location, count, size // count, workers),
        lambda words: say(f"{label}: {words}"),
    )
    note = f"{count} GETs, {size / 2**20:.0f} MiB"
    return compared(label, seconds, "bare ranged GETs", bare_seconds, note=note)


def _spent(work: Callable[[], object]) -> Callable[[], tuple[float, float]]:
    """Return a function that does `work` and returns the seconds that it took, and those of the processor."""

    def seconds() -> tuple[float, float]:
        before = time.process_time()
        return timed(work)(), time.process_time() - before

    return seconds


def _bare_loop(files: dict[str, list[str]]) -> None:
    for address, paths in files.items():
        with h5py.File(address, "r", rdcc_nbytes=_RDCC_NBYTES) as file:
            for path in paths:
                file[path][()]


def _bare_gets(cell: Cell, location: dict, count: int, size: int, connections: int) -> float:
    """Return the seconds of requests of `size` bytes each, shared out over connections that are there before."""
    (entry,) = cell.manifest["files"]
    extents = [(number * size % max(1, entry["bytes"] - size), size) for number in range(count)]
    work = [Operation(0, tuple(share)) for share in batches_of(extents, connections)]
    connect = bare.of(location, stores.of(cell.store).addresses(location, [entry["name"]], os.environ))
    with contextlib.closing(ceiling.BareClient(work, [entry["name"]], connect)) as client:
        client.connect()
        return timed(client.read)()
