"""The study's reading loop against a bare h5py loop over the same files."""

from collections.abc import Iterator
from pathlib import Path

import h5py

from scripts.benchmarks.common import Row, Say, compared, in_turn, make_data, timed
from scripts.lib import cache, hdf5, shot_reader

ROUNDS = 30
LIMIT = 1.03
_RDCC_NBYTES = 8 << 20


def rows(folder: Path, say: Say) -> Iterator[Row]:
    """Read whole shots in turn with both loops: in this process, from a warm page cache, without checksums."""
    say("making data")
    manifest = make_data(folder, layout="single-shot", shots=3)
    files: dict[str, list[str]] = {}
    for signals in manifest["objects"].values():
        for entry in signals.values():
            files.setdefault(str(folder / entry["file"]), []).extend(path for path, _, _ in entry["datasets"])
    cache.load(files)
    access = hdf5.Access("sec2", hdf5.UNSET, _RDCC_NBYTES)
    batch = shot_reader.Batch(1, "all", tuple((name, tuple(paths)) for name, paths in files.items()), 1, access, False)
    taken = in_turn(ROUNDS, timed(lambda: shot_reader.read(batch)), timed(lambda: _bare(files)), say)
    datasets = sum(map(len, files.values()))
    note = f"{len(files)} files, {datasets} data sets"
    yield compared("reading loop, from disk, warm", taken[0], "bare h5py loop", taken[1], LIMIT, note)


def _bare(files: dict[str, list[str]]) -> None:
    for address, paths in files.items():
        with h5py.File(address, "r", rdcc_nbytes=_RDCC_NBYTES) as file:
            for path in paths:
                file[path][()]
