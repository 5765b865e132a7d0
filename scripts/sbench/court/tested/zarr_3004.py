"""zarr-python#3004: chunks of a shard are read concurrently, and close ones in one request."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

_CLAIMED = 4
# Many chunks per shard, of 1.5 MiB each.
_REGION = {"shape": (8192, 24576), "shards": (8192, 12288), "chunks": (1024, 1536)}
# As in the test of zarr-python, where a value has 4 bytes.
_TEST = {"shape": (16, 64, 4), "shards": (8, 32, 4), "chunks": (2, 4, 4)}
_SELECTIONS = {
    "region": (slice(2048, 6144), slice(6144, 18432)),
    "test": (0, slice(22, 42)),
}


def make_data(folder: Path) -> None:
    """Write an array with many chunks per shard, and the array of zarr-python's test for the change."""
    from sbench.court.shapes.grid import write_grid

    write_grid(folder / "region", **_REGION)
    write_grid(folder / "test", **_TEST)


def prepare(options: dict) -> Callable[[], dict]:
    """Open an array over HTTP, and return a function that reads a selection of it."""
    import obstore
    import zarr

    http = obstore.store.HTTPStore.from_url(build_url(options["array"], "http"), client_options={"allow_http": True})
    array = zarr.open_array(zarr.storage.ObjectStore(http, read_only=True), mode="r")
    selection = _SELECTIONS[options["array"]]
    return lambda: {"checksum": compute_checksum(array[selection].tobytes())}


def judge(runs: "Runs") -> "Judgement":
    """Compare the times for the region over each network, and the GETs of the test."""
    gets = {arm: runs.read_count(arm, "get") for arm in runs.claim.arms}
    shown = "; ".join(
        f"{gets[f'3.2.1, {name}']:.0f} and {gets[f'3.3.0, {name}']:.0f} GETs for the {name}" for name in _SELECTIONS
    )
    judgement = runs.judge_speedup(_CLAIMED)
    reason = f"{judgement.reason}; 3.2.1 and 3.3.0 send {shown}"
    if 2 * gets["3.3.0, test"] > gets["3.2.1, test"]:
        return runs.decide(False, judgement.measured, reason)
    return judgement._replace(reason=reason)
