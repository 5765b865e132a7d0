"""zarr-python#3199: xarray with zarr 3.0.9 sends twice as many GETs as with 3.0.8."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sbench.court.tested import build_url

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs


def prepare(options: dict) -> Callable[[], dict]:
    """Write a store in a Zarr format, and return a function that appends to it, as the second step of xarray's test."""
    import xarray as xr
    import zarr

    store = zarr.storage.FsspecStore.from_url(build_url(f"format-{options['format']}-{zarr.__version__}.zarr"))
    first, second = (xr.Dataset({"foo": ("x", [number])}, coords={"x": [number]}) for number in range(2))
    first.to_zarr(store, mode="w", zarr_format=options["format"])

    def append() -> dict:
        second.to_zarr(store, mode="a", append_dim="x")
        return {}

    return append


def judge(runs: "Runs") -> "Judgement":
    """Compare the GETs of both releases in each format."""
    gets = {arm: runs.read_count(arm, "get") for arm in runs.claim.arms}
    ratios = [gets[f"3.0.9, format {number}"] / gets[f"3.0.8, format {number}"] for number in (3, 2)]
    by_format = ratios[0] * gets["3.0.8, format 2"] / gets["3.0.8, format 3"]
    reason = (
        f"3.0.8 and 3.0.9 send {gets['3.0.8, format 3']:.0f} and {gets['3.0.9, format 3']:.0f} GETs in format 3, and"
        f" {gets['3.0.8, format 2']:.0f} and {gets['3.0.9, format 2']:.0f} in format 2, which is {by_format:.3g} times"
        " as many"
    )
    return runs.decide(all(map(runs.agrees, ratios)), ratios[0], reason)
