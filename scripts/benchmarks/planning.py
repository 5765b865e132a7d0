"""What it takes Snakemake to plan a run: of 10,000 cells, and of one."""

import statistics
from collections.abc import Iterator
from pathlib import Path

import yaml

from scripts.benchmarks.common import LIBRARIES, Row, Say, copy_tree, snakemake, used

CELLS = 10_000
ROUNDS = 3
CPU_LIMIT_S = 15
PEAK_LIMIT_MB = 400
_WORKERS = 50


def rows(folder: Path, say: Say, cells: int = CELLS, rounds: int = ROUNDS) -> Iterator[Row]:
    """Dry runs of a configuration of so many cells, each once, in turn with one of a single cell."""
    tree = copy_tree(folder)
    taken = []
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        taken.append([used(snakemake(_config(folder, count), "--dry-run", "--quiet"), tree) for count in (cells, 1)])
    (cpu, one_cpu), (peak, one_peak) = (
        [statistics.median(getattr(pair[which], name) for pair in taken) for which in (0, 1)]
        for name in ("cpu_seconds", "peak_bytes")
    )
    what = f"plan of {cells:,} cells"
    yield Row(
        f"{what}, processor time",
        f"{cpu:.1f} s",
        f"plan of one cell: {one_cpu:.2f} s",
        f"{cpu / one_cpu:.1f}",
        f"≤ {CPU_LIMIT_S} s",
        cpu <= CPU_LIMIT_S,
    )
    yield Row(
        f"{what}, memory",
        f"{peak / 1e6:.0f} MB",
        f"plan of one cell: {one_peak / 1e6:.0f} MB",
        f"{peak / one_peak:.1f}",
        f"≤ {PEAK_LIMIT_MB} MB",
        peak <= PEAK_LIMIT_MB * 1e6,
    )


def _config(folder: Path, cells: int) -> Path:
    """Write a configuration of so many cells (a multiple of 50 unless there are fewer) that differ in three factors."""
    workers = min(cells, _WORKERS)
    matrix = {
        "library": list(LIBRARIES)[:1],
        "store": ["s3"],
        "driver": ["ros3"],
        "layout": ["shot-major"],
        "access": ["shots"],
        "workers": list(range(1, workers + 1)),
        "page_buffer": [f"{size}MiB" for size in range(1, cells // workers + 1)],
        "cache": ["cold"],
    }
    values = {
        "run": "bench",
        "repeats": 1,
        "libraries": {name: LIBRARIES[name] for name in matrix["library"]},
        "stores": {"s3": {"kind": "s3", "bucket": "bench", "server": "embedded"}},
        "studies": {"shots": {"control_cells": 0, "matrix": matrix}},
    }
    path = folder / f"{cells}.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path
