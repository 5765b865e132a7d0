"""The study's reading loop against a bare h5py loop over the same files."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py

from scripts.benchmarks.common import Row, Say, compared, in_turn, make_data, timed
from scripts.lib import cache
from scripts.studies.shots import drivers, reader

ROUNDS = 30
LIMIT = 1.03
_RDCC_NBYTES = 8 << 20


def rows(folder: Path, say: Say, rounds: int = ROUNDS) -> Iterator[Row]:
    """Read whole shots in turn with both loops: in this process, from a warm page cache, without checksums."""
    say("making data")
    manifest = make_data(folder, layout="single-shot", shots=2)
    files: dict[str, list[str]] = {}
    for signals in manifest["objects"].values():
        for entry in signals.values():
            files.setdefault(str(folder / entry["file"]), []).extend(path for path, _, _ in entry["datasets"])
    cache.load(files)
    access = drivers.Access("sec2", drivers.UNSET, _RDCC_NBYTES)
    batch = reader.Batch(1, "all", tuple((name, tuple(paths)) for name, paths in files.items()), 1, access, False)
    ways = [_Way(lambda: reader.read(batch)), _Way(lambda: _bare(files))]
    ours, bare = in_turn(rounds, *ways, say)
    note = f"{len(files)} files, {sum(map(len, files.values()))} datasets"
    what = "reading loop, from disk, warm"
    yield compared(what, ours, "bare h5py loop", bare, LIMIT, note)
    ours, bare = (way.cpu_seconds[1:] for way in ways)
    yield compared(f"{what}: processor time", ours, "bare h5py loop", bare, LIMIT, "hardly disturbed by other programs")


class _Way:
    """Reads, returns the seconds, and keeps the processor's; the first are those of a round that does not count."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = timed(work)
        self.cpu_seconds: list[float] = []

    def __call__(self) -> float:
        before = time.process_time()
        seconds = self._work()
        self.cpu_seconds.append(time.process_time() - before)
        return seconds


def _bare(files: dict[str, list[str]]) -> None:
    for address, paths in files.items():
        with h5py.File(address, "r", rdcc_nbytes=_RDCC_NBYTES) as file:
            for path in paths:
                file[path][()]
