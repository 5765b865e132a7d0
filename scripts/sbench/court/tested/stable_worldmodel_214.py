"""stable-worldmodel#214: 3,163.5 samples/s from Lance in S3, and 27.1 from HDF5."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    import numpy as np

    from sbench.court.judging import Judgement, Runs

_EPISODES, _STEPS, _SIDE = 8, 100, 224
# Of the benchmark of the claim: rows of a sample, and samples of a batch. A row of each `_SKIP` is used.
_SPAN, _SKIP, _BATCH = 20, 5, 64
# Batches that a worker of eight reads first.
_BATCHES = (0, 8)
_CLIPS = _STEPS - _SPAN + 1
_CLAIMED = 3163.5 / 27.1
# HDF5 is as good as Lance if it needs at most this many times the requests, and the bytes.
_MOST = 2
Rows = Mapping[str, "np.ndarray"]


def make_data(folder: Path) -> None:
    """Write the same rows as HDF5 in two layouts, and as Lance."""
    from sbench.court.shapes import samples

    rows, encoded = samples.make_rows(_EPISODES, _STEPS, _SIDE)
    samples.write_episodes(folder / "episodes.h5", rows, _STEPS)
    samples.write_contiguous(folder / "contiguous.h5", rows, encoded)
    samples.write_lance(folder / "rows.lance", rows, encoded)


def prepare(options: dict) -> Callable[[], dict]:
    """Open a dataset, and return a function that reads two batches of samples."""
    read_rows = (_open_lance if options["format"] == "lance" else _open_hdf5)(options)
    read_batch = _read_whole if options["by_batch"] else _read_each

    def read() -> dict:
        parts = []
        for batch in _BATCHES:
            for rows in read_batch(read_rows, _list_starts(batch)):
                parts += [rows["pixels"].tobytes(), rows["action"].tobytes(), rows["proprio"].tobytes()]
        return {"checksum": compute_checksum(*parts)}

    return read


def _list_starts(batch: int) -> list[int]:
    """List the first rows of the samples of a batch; a sample begins in each row that enough rows follow."""
    clips = range(batch * _BATCH, (batch + 1) * _BATCH)
    return [clip // _CLIPS * _STEPS + clip % _CLIPS for clip in clips]


def _read_each(read_rows: Callable, starts: list[int]) -> Iterator[Rows]:
    """Read the rows of each sample separately."""
    for start in starts:
        yield _select(read_rows([start + step for step in range(_SPAN)]), 0)


def _read_whole(read_rows: Callable, starts: list[int]) -> Iterator[Rows]:
    """Read all rows of a batch together, and take samples from them."""
    wanted = sorted({start + step for start in starts for step in range(_SPAN)})
    rows, places = read_rows(wanted), {row: place for place, row in enumerate(wanted)}
    for start in starts:
        yield _select(rows, places[start])


def _select(rows: Rows, place: int) -> Rows:
    """Return a sample: every row of the actions, and each fifth of other columns."""
    return {name: values[place : place + _SPAN : 1 if name == "action" else _SKIP] for name, values in rows.items()}


def _open_hdf5(options: dict) -> Callable[[list[int]], Rows]:
    import h5py
    import s3fs

    opened = s3fs.S3FileSystem().open(build_url(options["file"]), "rb", **options.get("open", {}))
    file = h5py.File(opened, "r")
    columns = {name: file[name] for name in file}
    if options.get("in_memory"):
        columns |= {name: columns[name][:] for name in ("action", "proprio")}

    def read_span(start: int, end: int) -> Rows:
        if "jpeg" not in columns:
            return {name: values[start:end] for name, values in columns.items()}
        offsets = columns["offsets"][start : end + 1]
        raw = columns["jpeg"][offsets[0] : offsets[-1]]
        ends = offsets - offsets[0]
        frames = [raw[begin:end].tobytes() for begin, end in itertools.pairwise(ends)]
        return {"pixels": _decode(frames)} | {name: columns[name][start:end] for name in ("action", "proprio")}

    return lambda wanted: _join([read_span(*span) for span in _list_spans(wanted)])


def _open_lance(_: dict) -> Callable[[list[int]], Rows]:
    import lance

    dataset = lance.dataset(build_url("rows.lance"), storage_options={"allow_http": "true"})

    def read(wanted: list[int]) -> Rows:
        table = dataset.take(wanted, columns=["pixels", "action", "proprio"]).combine_chunks()
        small = {
            name: table[name].combine_chunks().flatten().to_numpy().reshape(len(wanted), -1)
            for name in ("action", "proprio")
        }
        return {"pixels": _decode(table["pixels"].to_pylist())} | small

    return read


def _decode(frames: list[bytes]) -> "np.ndarray":
    import numpy as np

    from sbench.court.shapes import samples

    return np.stack([samples.decode_frame(frame) for frame in frames])


def _list_spans(wanted: list[int]) -> list[tuple[int, int]]:
    """Return the spans of consecutive rows in a sorted list, each with its first row and the row after its last."""
    present = set(wanted)
    starts = [row for row in wanted if row - 1 not in present]
    ends = [row + 1 for row in wanted if row + 1 not in present]
    return list(zip(starts, ends, strict=True))


def _join(parts: list[Rows]) -> Rows:
    import numpy as np

    return {name: np.concatenate([part[name] for part in parts]) for name in ("pixels", "action", "proprio")}


def judge(runs: "Runs") -> "Judgement":
    """Compare HDF5 with Lance by requests and bytes: the direction, the number, and other layouts and reads."""
    from sbench.court.judging import AGREES

    lance, base = runs.claim.contrast
    # Requests in flight differ between runs, and so may their number: medians decide.
    used = {
        arm: tuple(runs.read_median(arm, name) / runs.read_median(lance, name) for name in ("requests", "bytes"))
        for arm, part in runs.claim.arms.items()
        if part["options"]["format"] == "hdf5"
    }
    best = min(used, key=lambda arm: max(used[arm]))
    (requests, size), (least, smallest) = used[base], used[best]
    reason = (
        f"for the same samples, {base} reads {size:.3g} times the bytes of Lance with {requests:.3g} times the"
        f" requests, and {best} reads {smallest:.3g} times the bytes with {least:.3g} times the requests"
    )
    if max(used[base]) <= _MOST:
        return runs.decide(False, size, reason)
    if not _CLAIMED / AGREES <= size <= _CLAIMED * AGREES:
        return runs.decide(False, size, f"the direction holds, and the number does not: {reason}")
    if max(used[best]) <= _MOST:
        region = "HDF5 has a chunk for each row, and is read sample by sample with the defaults of s3fs"
        return runs.limit(region, size, reason)
    return runs.decide(True, size, reason)
