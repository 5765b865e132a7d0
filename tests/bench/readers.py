"""The drivers of `shots` side by side by what they ask for, and what it takes to look at a thousand files."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pandas as pd

from tests.bench.common import S3, Row, Say, at_most, numbered, program, used
from tests.bench.prepared import Cell, cells, interpreter
from tests.bench.scale import PEAK_LIMIT_MB

# Level of `driver`, of `read_cache`, and the library that has it.
_ARMS = (
    ("ros3", "default", "readers"),
    ("ros3", "default", "hdf5-2.2.0"),
    ("ros3", "none", "hdf5-2.2.0"),
    ("s3fs", "default", "readers"),
    ("s3fs", "blockcache-4MiB", "readers"),
    ("remfile", "default", "readers"),
    ("h5coro", "default", "readers"),
    ("pyfive", "default", "readers"),
    ("h5netcdf", "default", "readers"),
    ("kerchunk", "default", "readers"),
    ("virtualizarr", "default", "readers"),
)
_USUAL = {
    **{"store": ["s3"], "layout": ["shot-major"], "access": ["shots"], "workers": [1]},
    **{"page_buffer": ["unset"], "cache": ["any"]},
}
_DATASETS = 100


def looking(folder: Path, say: Say, files: int = 1000, groups: int = 50_000, depth: int = 3_000) -> Iterator[Row]:
    """Look at many files, at one of very many datasets, and at one of groups within each other."""
    yield from _look_at_many(folder, say, files)
    with h5py.File(folder / "wide.h5", "w") as file:
        for number in range(groups):
            group = file.create_group(f"molecule-{number:08}")
            group["species"], group["charges"] = np.arange(8, dtype="i4"), np.zeros((8, 12), "f4")
    yield from _look(folder / "wide.h5", f"{2 * groups:,} datasets in {groups:,} groups", 20, say)
    with h5py.File(folder / "deep.h5", "w") as file:
        group = file
        for _ in range(depth):
            group = group.create_group("g")
    yield from _look(folder / "deep.h5", f"{depth:,} groups within each other", 5, say)


def _look_at_many(folder: Path, say: Say, files: int) -> Iterator[Row]:
    first = folder / "file-0000.h5"
    with h5py.File(first, "w") as file:
        for number in range(_DATASETS):
            data = np.arange(2000, dtype="f4").reshape(200, 10) + number
            file.create_dataset(f"/group-{number % 7}/data-{number:03}", data=data, chunks=(20, 10), compression="gzip")
    for number in range(1, files):
        shutil.copyfile(first, folder / f"file-{number:04}.h5")
    yield from _look(folder / "file-*.h5", f"{files} files of {_DATASETS} datasets", 10, say)


def _look(path: Path, what: str, limit_s: float, say: Say) -> Iterator[Row]:
    say(what)
    usage = used(program("sbench.cli", "look", str(path)))
    yield at_most(f"sbench look: {what}", usage.seconds, limit_s, "s", f"{usage.cpu_seconds:.1f} CPU s")
    yield at_most(f"sbench look: {what}, memory", usage.peak_bytes / 1e6, PEAK_LIMIT_MB, "MB")


def requests(folder: Path, say: Say, shots: int = 2, rounds: int = 2, arms: tuple = _ARMS) -> Iterator[Row]:
    """Count the requests and bytes of each driver on paged and unpaged files, at the server and before it."""
    for paged in (True, False):
        what = "paged" if paged else "unpaged"
        (folder / what).mkdir()
        for driver, read_cache, library in arms:
            levels = _USUAL | {"library": [library], "driver": [driver], "read_cache": [read_cache]}
            data = {"shots": shots, "signals": 16, "paged": paged, "page_size": 4 * 2**20}
            section = {"data": data, "read_shots": 0, "matrix": levels}
            say(f"{driver}, read cache {read_cache}, {library}, {what} files")
            interpreter(folder / what, library, say)
            (cell,) = cells(folder / what, say, "shots", {"s3": S3 | {"network": {}}}, **section)
            counts = [_counted(cell) for _ in numbered(rounds, say)]
            yield _row(f"{driver} ({read_cache}, {library}), {what}", counts)


def _counted(cell: Cell) -> tuple[int, int, int, int, int]:
    """Return requests and bytes at the server, those that passed the proxy, and the bytes that lie in the files."""
    record = cell.measure()
    at_server = record["requests"].values()
    exchanges = _exchanges(cell.folder)
    return (
        sum(method["count"] for method in at_server),
        sum(method["bytes_offered"] or 0 for method in at_server),
        len(exchanges),
        sum(exchanges),
        record["work"]["stored_bytes"],
    )


def _exchanges(folder: Path) -> list[int]:
    """Return the bytes of each answer that passed the proxy in the last record of a cell, and forget them."""
    path = folder / "requests.csv.gz"
    answers = pd.read_csv(path)["bytes"].fillna(0).astype(int)
    path.unlink()
    return answers.tolist()


def _row(what: str, counts: list[tuple[int, int, int, int, int]]) -> Row:
    count, offered, passed, delivered, stored = counts[0]
    same = "as often in each round" if len(set(counts)) == 1 else f"between rounds {sorted({one[0] for one in counts})}"
    figures = f"{count} requests, {offered / 2**20:.1f} MiB, {same}"
    seen = f"{passed} passed the proxy, {delivered / 2**20:.1f} MiB"
    amplified = f"{offered / stored:.2f} of the bytes in the file"
    return Row(what, figures, seen, amplified, "the same", (count, offered) == (passed, delivered))
