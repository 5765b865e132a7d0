"""xarray#11216: a block cache for HDF5 files that xarray opens by URL."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import build_url, compute_checksum

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

# Time of `open_datatree` before the change divided by that after it.
_CLAIMED = 51.9 / 3.5
_TREE = {"groups": 5, "datasets": 4, "attributes": 8}
_FILLER = 16 * 2**20
_PAGE = 4 * 2**20


def make_data(folder: Path) -> None:
    """Write a file with its metadata far apart, the same file with pages of 4 MiB, and a small file."""
    from sbench.court.shapes.tree import write_tree

    write_tree(folder / "tree.h5", **_TREE, filler=_FILLER)
    write_tree(folder / "paged.h5", **_TREE, filler=_FILLER, fs_strategy="page", fs_page_size=_PAGE)
    write_tree(folder / "small.h5", groups=1, datasets=1, attributes=1)


def prepare(options: dict) -> Callable[[], dict]:
    """Open a small file, and return a function that opens the groups of a file by its URL."""
    import xarray as xr

    def open_tree(name: str) -> dict:
        tree = xr.open_datatree(build_url(name), engine="h5netcdf", phony_dims="access")
        values = [f"{node.path} {sorted(node.data_vars)} {node.attrs}".encode() for node in tree.subtree]
        return {"checksum": compute_checksum(*values)}

    open_tree("small.h5")
    return lambda: open_tree(options["file"])


def judge(runs: "Runs") -> "Judgement":
    """Compare the times of both releases over a round trip as within a region, and describe other conditions."""
    from sbench.court.judging import describe_networks
    from sbench.pages import prose

    judgement, others = runs.judge_speedup(_CLAIMED, places=[0]), range(1, len(runs.claim.networks))
    new, old = ({name: runs.read_count(arm, name) for name in ("get", "bytes")} for arm in runs.claim.contrast)
    slower = [prose.format_ratio(1 / ratio) for ratio in runs.compare_times()["ratio"][1:]]
    paged = [
        runs.read_median("2026.2.0, paged file", "seconds", place)
        / runs.read_median("2026.4.0, paged file", "seconds", place)
        for place in range(len(runs.claim.networks))
    ]
    reason = (
        f"{judgement.reason}, with {new['get']:.0f} GETs of {new['bytes'] / 2**20:.0f} MiB instead of"
        f" {old['get']:.0f} of {old['bytes'] / 2**20:.0f} MiB, if {describe_networks(runs.claim, [0])}, as within a"
        f" region; beyond the conditions of the claim, it is {prose.format_list(slower)} times as fast if"
        f" {describe_networks(runs.claim, others)}, and {prose.format_ratio(min(paged))} to"
        f" {prose.format_ratio(max(paged))} times for the paged file"
    )
    return judgement._replace(reason=reason)
