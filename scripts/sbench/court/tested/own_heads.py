"""docs/recipes.md: with zarr, s3fs sends a HEAD before each GET of a chunk, and obstore sends none."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

_CHUNKS = (4, 40)


def make_data(folder: Path) -> None:
    """Write an array for each number of chunks."""
    import numpy as np
    import zarr

    for count in _CHUNKS:
        array = zarr.create_array(folder / str(count), shape=(count * 100,), chunks=(100,), dtype="i4")
        array[:] = np.arange(1, count * 100 + 1)


def prepare(options: dict) -> Callable[[], dict]:
    """Open an array with a client, and return a function that reads it."""
    import zarr
    from obstore.store import S3Store

    name = str(options["chunks"])
    if options["client"] == "s3fs":
        store = zarr.storage.FsspecStore.from_url(build_url(name), read_only=True)
    else:
        objects = S3Store(build_url("").split("/")[2], prefix=name, client_options={"allow_http": True})
        store = zarr.storage.ObjectStore(objects, read_only=True)
    array = zarr.open_array(store, mode="r", zarr_format=3)
    return lambda: {"checksum": compute_checksum(array[:].tobytes())}


def judge(runs: "Runs") -> "Judgement":
    """Compare the HEADs with the GETs, which are the chunks."""
    sent = {
        (client, count): tuple(runs.read_count(f"{client}, {count} chunks", name) for name in ("head", "get"))
        for client in ("s3fs", "obstore")
        for count in _CHUNKS
    }
    holds = all(
        gets == count and heads == (gets if client == "s3fs" else 0) for (client, count), (heads, gets) in sent.items()
    )
    heads, gets = sent["s3fs", _CHUNKS[-1]]
    shown = "; ".join(
        f"{client}, {count} chunks: {heads:.0f} HEADs and {gets:.0f} GETs"
        for (client, count), (heads, gets) in sent.items()
    )
    return runs.decide(holds, heads / gets, shown)
