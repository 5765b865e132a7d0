"""h5coro's README: no need to re-chunk, since h5coro sends as many requests for small chunks as for large ones."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.shapes import track
from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    import numpy as np

    from sbench.court.judging import Judgement, Runs

_VALUES, _CHUNKS = 8_000_000, {"10k": 10_000, "100k": 100_000, "1M": 1_000_000}
_ORDERS = ("in turn", "one by one")
_NAME = "/gt1l/heights/h_ph"
# One percent of the values, within a chunk of each size.
_SLICE = (int(_VALUES * 0.45), int(_VALUES * 0.46))
# The largest ratio of requests, chunks of 10,000 values to larger ones, without a need to re-chunk.
_NEED = 1.5
# The smallest ratio of requests, h5py to h5coro, that counts as a drastic reduction.
_DRASTIC = 2


def make_data(folder: Path) -> None:
    """Write the same values in files that differ in chunk size and order."""
    for chunk, values in _CHUNKS.items():
        for order in _ORDERS:
            track.write_track(folder / _name_key(chunk, order), _VALUES, values, in_turn=order == _ORDERS[0])


def prepare(options: dict) -> Callable[[], dict]:
    """Return a function that reads all values of a variable, or a slice of them."""
    key = _name_key(options["chunk"], options.get("order", _ORDERS[0]))
    begin, end = _SLICE if options.get("slice") else (0, _VALUES)
    read = {"h5coro": _prepare_h5coro, "h5py": _prepare_h5py, "kerchunk": _prepare_kerchunk}[options["reader"]]
    select = read(build_url(key), options)

    def read_values() -> dict:
        # All arms read the slice, so that their checksums can be compared.
        values = select(begin, end)[_SLICE[0] - begin :][: _SLICE[1] - _SLICE[0]]
        return {"checksum": compute_checksum(values.tobytes())}

    return read_values


def judge(runs: "Runs") -> "Judgement":
    """Compare h5coro's requests for small and large chunks in both orders, and with the requests of h5py."""
    counts = {arm: runs.read_count(arm) for arm in runs.claim.arms}
    ratios = {
        order: max(counts[f"h5coro, 10k, {order}"] / counts[f"h5coro, {chunk}, {order}"] for chunk in ("100k", "1M"))
        for order in _ORDERS
    }
    worst = max(ratios.values())
    reduction = counts["h5py without cache, 10k"] / counts["h5coro, 10k, in turn"]
    slices = [counts[f"h5coro, {chunk}, slice"] for chunk in _CHUNKS]
    pairs = {
        name: f"{counts[f'{reader}, 10k{order}']:.0f} and {counts[f'{reader}, 1M{order}']:.0f}"
        for name, reader, order in (
            ("in turn", "h5coro", ", in turn"),
            ("one by one", "h5coro", ", one by one"),
            ("uncached", "h5py without cache", ""),
            ("cached", "h5py over s3fs", ""),
            ("slice", "h5coro", ", slice"),
        )
    }
    reason = (
        f"for a variable in chunks of 10,000 and of 1,000,000 values, h5coro sends {pairs['in turn']} requests if the"
        f" chunks of all variables lie in turn, and {pairs['one by one']} if the variables lie one by one; h5py sends"
        f" {pairs['uncached']} without a cache, and {pairs['cached']} with the default cache of s3fs; for 1 % of the"
        f" values, h5coro sends {pairs['slice']}"
    )
    fits = [order for order in _ORDERS if ratios[order] <= _NEED]
    if reduction < _DRASTIC or slices[0] > slices[-1] or not fits:
        return runs.decide(False, worst, reason)
    if len(fits) < len(_ORDERS):
        return runs.limit(f"the chunks of the variables lie {fits[0]}", worst, reason)
    return runs.decide(True, worst, reason)


def _name_key(chunk: str, order: str) -> str:
    return f"{chunk}-{order.replace(' ', '-')}.h5"


def _prepare_h5coro(url: str, options: dict) -> "Callable[[int, int], np.ndarray]":
    from h5coro.h5coro import H5Coro
    from h5coro.s3driver import S3Driver

    def select(begin: int, end: int) -> "np.ndarray":
        wanted = {"dataset": _NAME, "hyperslice": [(begin, end)]}
        promise = H5Coro(url.removeprefix("s3://"), S3Driver).readDatasets([wanted], block=True)
        return promise[_NAME]

    return select


def _prepare_h5py(url: str, options: dict) -> "Callable[[int, int], np.ndarray]":
    import h5py
    import s3fs

    system = s3fs.S3FileSystem()

    def select(begin: int, end: int) -> "np.ndarray":
        with system.open(url, cache_type=options["cache"]) as source, h5py.File(source) as file:
            return file[_NAME][begin:end]

    return select


def _prepare_kerchunk(url: str, options: dict) -> "Callable[[int, int], np.ndarray]":
    """Make references to the chunks of a file, which are not counted, as in the claim's benchmark."""
    import fsspec
    import s3fs
    import zarr
    from kerchunk.hdf import SingleHdf5ToZarr

    with s3fs.S3FileSystem().open(url) as source:
        references = SingleHdf5ToZarr(source, url, inline_threshold=0).translate()
    system = fsspec.filesystem(
        "reference", fo=references, remote_protocol="s3", remote_options={"asynchronous": True}, asynchronous=True
    )

    def select(begin: int, end: int) -> "np.ndarray":
        return zarr.open_group(zarr.storage.FsspecStore(system, read_only=True), mode="r")[_NAME][begin:end]

    return select
