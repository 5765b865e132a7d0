"""NSIDC's report on ICESat-2: chunks ten times as large make reads ten times as fast, without any other change."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import compute_checksum, open_ros3

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

_CHUNKS = (10_000, 100_000)
_PAGE, _MIB = 8 * 2**20, 2**20
_LEAST, _MOST = 8, 12
_VERSIONS = ("1.14.6", "2.0.0", "2.2.0")
# The network for which times are estimated.
_LATENCY_MS, _RATE_MIB_S = 20, 50


def make_data(folder: Path) -> None:
    """Write the track with both chunk sizes, unpaged and paged."""
    from sbench.court.shapes.track import write_track

    for chunk in _CHUNKS:
        for layout, options in (("unpaged", {}), ("paged", {"fs_strategy": "page", "fs_page_size": _PAGE})):
            write_track(folder / f"{layout}-{chunk}.h5", values=3_000_000, chunk=chunk, filler=32 * _MIB, **options)


def prepare(options: dict) -> Callable[[], dict]:
    """Return a function that opens a file and reads its three variables."""
    from sbench.court.shapes.track import VARIABLES

    key = f"{options['layout']}-{options['chunk']}.h5"

    def read() -> dict:
        file = open_ros3(key, options["buffer_mib"] * _MIB, options["cache_mib"] * _MIB)
        values = [file[f"gt1l/heights/{name}"][()] for name in VARIABLES]
        file.close()
        return {"checksum": compute_checksum(*values)}

    return read


def judge(runs: "Runs") -> "Judgement":
    """Compare the requests for original and rechunked files with each version, and describe the other factors."""
    from sbench.court.judging import estimate_seconds
    from sbench.pages import prose

    requests = {arm: runs.read_count(arm) for arm in runs.claim.arms}
    seconds = {
        arm: estimate_seconds(
            {name: runs.read_median(arm, name) for name in ("requests", "in_flight", "bytes")}, _LATENCY_MS, _RATE_MIB_S
        )
        for arm in runs.claim.arms
    }
    gains = {
        version: requests[f"{version}, original, unpaged"] / requests[f"{version}, rechunked, unpaged"]
        for version in _VERSIONS
    }
    original, first = "1.14.6, original, unpaged", _VERSIONS[0]
    others = [
        f"{change} {requests[original] / requests[f'{first}, {arm}']:.3g}"
        for change, arm in (
            ("pages alone divide them by", "original, paged"),
            ("pages with a page buffer by", "original, paged with page buffer"),
            ("both and rechunking by", "rechunked, paged with page buffer"),
        )
    ]
    divided = [f"{gain:.3g} with HDF5 {version}" for version, gain in gains.items()]
    alone, together = (
        seconds[original] / seconds[f"{first}, rechunked, {layout}"] for layout in ("unpaged", "paged with page buffer")
    )
    reason = (
        f"rechunking divides the requests for the unpaged file by {prose.format_list(divided)}; with {first},"
        f" {prose.format_list(others)}; at {_LATENCY_MS} ms and {_RATE_MIB_S} MiB/s, rechunking alone would be"
        f" {alone:.2g} times as fast, and both with a page buffer {together:.2g} times"
    )
    fits = [version for version, gain in gains.items() if _LEAST <= gain <= _MOST]
    if fits and len(fits) < len(gains):
        return runs.limit(f"HDF5 is {prose.format_list(fits, 'or')}", gains[fits[0]], reason)
    return runs.decide(bool(fits), gains[first], reason)
