"""HDF5 pull request 6478: the block cache of ROS3 reduces requests for files that are not paged."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbench.court.tested import open_ros3, walk_file

if TYPE_CHECKING:
    from sbench.court.judging import Judgement, Runs

_MIB = 2**20
_GROUPS, _DATASETS, _ATTRIBUTES = 120, 15, 4
_TASKS = ("walk", "walk in two passes", "small read")
_SMALL = "BEAM0060/variable_007"
# The network for which times are estimated.
_LATENCY_MS, _RATE_MIB_S = 20, 50


def make_data(folder: Path) -> None:
    """Write the tree unpaged, and with pages."""
    from sbench.court.shapes.tree import write_tree

    for layout, options in (("unpaged", {}), ("paged", {"fs_strategy": "page", "fs_page_size": 4 * _MIB})):
        write_tree(folder / f"{layout}.h5", _GROUPS, _DATASETS, _ATTRIBUTES, filler=16 * _MIB // 10, **options)


def prepare(options: dict) -> Callable[[], dict]:
    """Return a function that opens a file, and walks it in one or two passes, or reads a small dataset."""

    def read() -> dict:
        size = options["buffer_mib"] * _MIB if "buffer_mib" in options else -1
        file = open_ros3(f"{options['layout']}.h5", size)
        passes = options.get("passes")
        numbers = {"checksum": walk_file(file, passes)} if passes else {"values": file[_SMALL][()].size}
        file.close()
        return numbers

    return read


def judge(runs: "Runs") -> "Judgement":
    """Compare the requests of both releases for each task, and estimate their times."""
    from sbench.court.judging import estimate_seconds
    from sbench.pages import prose
    from sbench.probe import sizes

    gains, faster, parts = {}, {}, []
    for task in _TASKS:
        old, new = (
            {name: runs.read_count(f"{version}, {task}", name) for name in ("requests", "bytes")} | {"in_flight": 1}
            for version in ("2.0.0", "2.2.0")
        )
        gains[task] = old["requests"] / new["requests"]
        faster[task] = estimate_seconds(old, _LATENCY_MS, _RATE_MIB_S) / estimate_seconds(new, _LATENCY_MS, _RATE_MIB_S)
        parts.append(
            f"{old['requests']:,.0f} and {new['requests']:,.0f} requests for {sizes.format_size(old['bytes'])} and"
            f" {sizes.format_size(new['bytes'])} for the {task} ({faster[task]:.2g} times as fast)"
        )
    before, paged = runs.read_count("1.14.6, walk"), runs.read_count("2.2.0, walk, paged")
    reason = (
        f"2.0.0 and 2.2.0 send {prose.format_list(parts)}, with times estimated for {_LATENCY_MS} ms and"
        f" {_RATE_MIB_S} MiB/s; 1.14.6 sends {before:,.0f} for the walk, and 2.2.0 sends {paged:,.0f} if the"
        " file is paged and has a page buffer"
    )
    if not all(map(runs.agrees, gains.values())):
        return runs.decide(False, gains["walk"], reason)
    fits = [task for task in _TASKS if faster[task] > 1]
    if fits and len(fits) < len(_TASKS):
        return runs.limit(
            f"the task is {prose.format_list([f'a {task}' for task in fits], 'or')}", gains[fits[0]], reason
        )
    return runs.decide(bool(fits), gains["walk"], reason)
