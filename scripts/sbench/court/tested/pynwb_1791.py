"""pynwb#1791: ROS3 performs comparably to remfile when it reads the metadata of an NWB file."""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, open_ros3, walk_file

if TYPE_CHECKING:
    import h5py

    from sbench.court.judging import Judgement, Runs

_KEY = "tree.h5"
_LEAST, _MOST = 0.5, 2
_VERSIONS = ("1.14.6", "2.0.0", "2.2.0")
# The network for which times are estimated.
_LATENCY_MS, _RATE_MIB_S = 20, 50


def make_data(folder: Path) -> None:
    """Write the tree."""
    from sbench.court.shapes.tree import write_tree

    write_tree(folder / _KEY, groups=50, datasets=6, attributes=4, filler=2 * 2**20)


def prepare(options: dict) -> Callable[[], dict]:
    """Import the reader, and return a function that opens the file and walks it."""
    opened = {"remfile": _prepare_remfile, "fsspec": _prepare_fsspec, "ros3": lambda _: lambda _: open_ros3(_KEY)}
    open_file = opened[options["reader"]](options)

    def walk() -> dict:
        with contextlib.ExitStack() as stack:
            return {"checksum": walk_file(stack.enter_context(open_file(stack)))}

    return walk


def _prepare_remfile(_: dict) -> Callable[[contextlib.ExitStack], "h5py.File"]:
    import h5py
    import remfile

    return lambda _: h5py.File(remfile.File(build_url(_KEY, "http")))


def _prepare_fsspec(options: dict) -> Callable[[contextlib.ExitStack], "h5py.File"]:
    import fsspec
    import h5py
    from fsspec.implementations.cached import CachingFileSystem

    files = fsspec.filesystem("http")
    if options.get("disk"):
        files = CachingFileSystem(fs=files, cache_storage=tempfile.mkdtemp())
    return lambda stack: h5py.File(stack.enter_context(files.open(build_url(_KEY, "http"), "rb")))


def judge(runs: "Runs") -> "Judgement":
    """Compare the estimated time of ROS3 with HDF5 1.14, the series of the claim, with that of remfile."""
    from sbench.court.judging import estimate_seconds
    from sbench.pages import prose
    from sbench.probe import sizes

    rows = {
        arm: {"requests": runs.read_count(arm), "bytes": runs.read_median(arm, "bytes"), "in_flight": 1}
        for arm in runs.claim.arms
    }
    seconds = {arm: estimate_seconds(row, _LATENCY_MS, _RATE_MIB_S) for arm, row in rows.items()}
    ratios = {version: seconds[f"ROS3 of HDF5 {version}"] / seconds["remfile"] for version in _VERSIONS}
    counts = [
        f"{row['requests']:,.0f} for {sizes.format_size(row['bytes'])} with {arm}"
        for arm, row in rows.items()
        if not arm.startswith("fsspec")
    ]
    first, *later = [f"{ratio:.3g} times as long with HDF5 {version}" for version, ratio in ratios.items()]
    reason = (
        f"the walk needs these requests: {prose.format_list(counts)}; at {_LATENCY_MS} ms and {_RATE_MIB_S} MiB/s, ROS3"
        f" would take {first}, whose series was current then, and {prose.format_list(later)}, compared with remfile"
    )
    decisive = ratios[_VERSIONS[0]]
    return runs.decide(_LEAST <= decisive <= _MOST, decisive, reason)
