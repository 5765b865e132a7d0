"""What reading shots costs: the study's loop against a bare h5py loop."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py

from scripts.benchmarks.common import Row, Say, compared, in_turn, timed
from scripts.benchmarks.prepared import cells
from scripts.lib import cache
from scripts.studies.shots import drivers, reader

_LIMIT = 1.03
_RDCC_NBYTES = 8 << 20
_LOCAL = {
    **{"library": ["hdf5-2.0.0"], "store": ["disk"], "driver": ["sec2"], "layout": ["single-shot"]},
    **{"access": ["shots"], "workers": [1], "page_buffer": ["unset"], "cache": ["warm"]},
}


def rows(folder: Path, say: Say, rounds: int = 30) -> Iterator[Row]:
    """Read shots with the study's loop, and with a bare h5py loop over the same files.

    In turn, in this process, from a warm page cache, without checksums.
    """
    section = {"data": {"shots": 2}, "control_cells": 0}
    (cell,) = cells(folder, say, "shots", {"disk": {"kind": "posix"}}, **section, matrix=_LOCAL)
    place, files = Path(cell.provision["location"]["folder"]), {}
    for signals in cell.manifest["objects"].values():
        for entry in signals.values():
            files.setdefault(str(place / entry["file"]), []).extend(path for path, _, _ in entry["datasets"])
    cache.load(files)
    access = drivers.Access("sec2", drivers.UNSET, _RDCC_NBYTES)
    batch = reader.Batch(1, "all", tuple((name, tuple(paths)) for name, paths in files.items()), 1, access, False)
    ours, bare_loop = in_turn(rounds, _spent(lambda: reader.read(batch)), _spent(lambda: _bare_loop(files)), say)
    (seconds, cpu), (bare_seconds, bare_cpu) = zip(*ours, strict=True), zip(*bare_loop, strict=True)
    note = f"{len(files)} files, {sum(map(len, files.values()))} datasets"
    what = "reading loop, from disk, warm"
    yield compared(what, seconds, "bare h5py loop", bare_seconds, _LIMIT, note)
    note = "hardly disturbed by other programs"
    yield compared(f"{what}: processor time", cpu, "bare h5py loop", bare_cpu, _LIMIT, note)


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
