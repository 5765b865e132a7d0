"""Synthetic records, which nothing measured: what tests and benchmarks of tables and report are made from."""

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design.records import compute_digest
from sbench.measure import gather as program
from sbench.probe.program import read_json

FACTORS = ("library", "store", "driver", "layout", "access", "workers", "page_buffer", "cache")
LEVELS = {
    "library": ("hdf5-1.14.6", "hdf5-2.0.0"),
    "store": ("s3",),
    "driver": ("ros3",),
    "layout": ("shot-major", "signal-major"),
    "access": ("shots", "signals"),
    "workers": ("1", "2", "4"),
    "page_buffer": ("0", "64MiB"),
    "cache": ("cold",),
}
COMPARE = [{"factor": "library", "baseline": "hdf5-1.14.6"}, {"factor": "page_buffer", "baseline": "0"}]
# Levels of a small run: two libraries, two page buffers.
FEW = {"layout": ("shot-major",), "access": ("shots",), "workers": ("1",)}
MIB = 2**20


def synthetic_cells(twins: int = 1, slowed: tuple[str, ...] = (), **levels: tuple[str, ...]) -> list[dict[str, str]]:
    """Return rows of a matrix: all combinations of `LEVELS` with some replaced, then twins of the first cells.

    `slowed` are the levels of slowed controls, all of them of the first cell.
    """
    combinations = itertools.product(*{**{factor: LEVELS[factor] for factor in FACTORS}, **levels}.values())
    cells = [_row(dict(zip(FACTORS, combination, strict=True), control="")) for combination in combinations]
    controls = [(cell, "twin") for cell in cells[:twins]] + [(cells[0], level) for level in slowed]
    return cells + [_row({**_levels(cell), "control": level}, cell["cell"]) for cell, level in controls]


def write_synthetic_run(
    folder: Path,
    cells: list[dict[str, str]],
    repeats: int = 6,
    samples: int = 4,
    seed: int = 1,
    noise: float = 0.03,
    drift: float = 0.08,
    ratio: Callable[[dict[str, str]], float] = lambda cell: 1.0,
    change: Callable[[dict], dict] = lambda record: record,
) -> Path:
    """Write `folder`/matrix.csv and `folder`/records/<cell>/repeat=<n>.json; return `folder`.

    Args:
        folder: where to write.
        cells: see `synthetic_cells`.
        repeats: blocks, each slower or faster as a whole by the drift.
        samples: tasks a record.
        seed: of drift and noise.
        noise: standard deviation of a record's ln(time).
        drift: standard deviation of a block's ln(time).
        ratio: a cell's time in units of the others'.
        change: what to do to a record before it is written, to plant a fault; None leaves it out.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(cells).to_csv(folder / "matrix.csv", index=False)
    for repeat, block in enumerate(random.normal(0, drift, repeats), 1):
        for cell in cells:
            scale = ratio(cell) * np.exp(block + random.normal(0, noise))
            record = change(build_record(cell, repeat, samples, float(scale), random))
            path = folder / "records" / cell["cell"] / f"repeat={repeat}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            if record is not None:
                path.write_text(sealed(record), encoding="utf-8")
    return folder


def sealed(record: dict) -> str:
    """Return a record, sound or not, as the workflow writes one: with its digest."""
    return json.dumps(record | {"digest": compute_digest(record)}, indent=1)


def failed(record: dict, *reasons: str) -> dict:
    """Return the record of a cell that failed, in the place of one that was measured."""
    kept = {key: record[key] for key in ("record", "run", "study", "name", "cell", "repeat")}
    return kept | {"status": "failed", "valid": False, "reasons": [*reasons]}


def gather(folder: Path, out: str = "out", **settings: object) -> list[pd.DataFrame]:
    """Run the program on a synthetic run; return samples, cells and verdicts, text columns as text."""
    merge(folder, out, "shots", compare=settings.pop("compare", COMPARE), **settings)
    texts = dict.fromkeys((*FACTORS, "control", "hdf5", "reasons", "note", "baseline", "contender"), str)
    missing = {"keep_default_na": False, "na_values": {"p": "", "ratio": ""}}
    return [
        pd.read_csv(folder / out / f"{name}.csv", dtype=texts, **missing) for name in ("samples", "cells", "verdicts")
    ]


def merge(folder: Path, out: str, study: str, imported: Path | None = None, **section: object) -> None:
    """Merge the records of a synthetic run into its tables, as the program does, in a folder beside them."""
    config = {"equivalence_percent": 5, "seed": 1, "stores": {}, **section, "studies": {study: section}}
    matrix, kept = program.read_study(folder, "synthetic", study)
    elsewhere = read_json(imported) if imported else {}
    program.write_tables(program.build_tables(config, study, matrix, kept, elsewhere), folder / out)


def facts(config: dict, study: str, results: Path, imported: Path | None = None) -> dict:
    """Return what the program says of a synthetic run beside its tables."""
    _, kept = program.read_study(results / study, config["run"], study)
    elsewhere = read_json(imported) if imported else {}
    return program.build_facts(config, study, results, kept, elsewhere)


def chosen(table: pd.DataFrame, **levels: object) -> pd.DataFrame:
    """Return the rows of a table at these levels."""
    return table[np.logical_and.reduce([table[name] == level for name, level in levels.items()])]


def at(record: dict, repeat: int, **levels: str) -> bool:
    """Return whether a record is this repeat of a cell at these levels."""
    return record["repeat"] == repeat and all(record["cell"][name] == level for name, level in levels.items())


def newer_is(ratio: float) -> Callable[[dict[str, str]], float]:
    """Return the `ratio` of `write_synthetic_run` for which only the newer library's times are multiplied."""
    return lambda cell: ratio if cell["library"] == "hdf5-2.0.0" else 1.0


def _levels(cell: dict[str, str]) -> dict[str, str]:
    return {factor: cell[factor] for factor in FACTORS}


def _row(levels: dict[str, str], twin_of: str = "") -> dict[str, str]:
    name = "_".join(level for level in levels.values() if level)
    return {
        "cell": f"{name}-{hashlib.sha256(name.encode()).hexdigest()[:10]}",
        **levels,
        "omitted": "",
        "twin_of": twin_of,
    }


def build_record(cell: dict[str, str], repeat: int, samples: int, scale: float, random: np.random.Generator) -> dict:
    """Build the record of a cell whose times are `scale` times the usual."""
    workers = int(cell["workers"])
    opening, first, rest = (scale * random.normal(mean, mean / 50, samples) for mean in (0.08, 0.05, 0.4))
    total = scale * 0.53 * samples / workers
    logical = 3 * MIB * samples
    buffer = {"0": 0, "unset": 0}.get(cell["page_buffer"], 64 * MIB)
    methods = {"GET": {"count": 5 * samples, "bytes_offered": logical // 2, "bytes_delivered": logical // 2}}
    return {
        "record": 1,
        "status": "done",
        "run": "synthetic",
        "study": "shots",
        "name": cell["cell"],
        "cell": {factor: cell[factor] for factor in (*FACTORS, "control")},
        "repeat": repeat,
        "effective": {
            "hdf5": cell["library"].removeprefix("hdf5-"),
            "h5py": "3.16.0",
            "page_buffer_bytes": buffer,
            "workers": workers,
            "idle_workers": 0,
            "oversubscribed": workers > 2,
        },
        "cache": {"asked": cell["cache"], "state": cell["cache"], "resident_before": 0.0, "resident_after": 0.5},
        "work": {"tasks_asked": samples, "tasks_done": samples, "datasets": 4 * samples, "logical_bytes": logical},
        "requests": methods if cell["store"] == "s3" else {},
        "seconds": {
            "cluster_start": 0.4,
            "plan": 0.004,
            "null": 0.012,
            "open": float(np.median(opening)),
            "first": float(first[0]),
            "rest": float(rest.sum()),
            "verify": 0.001,
            "total": total,
        },
        "samples": [
            _sample(cell, task, opening[task], first[task], rest[task], total, samples) for task in range(samples)
        ],
        "host": {},
        "provenance": {"code_sha256": "c0de", "data_sha256": "da7a"},
        "valid": True,
        "reasons": [],
    }


def _sample(
    cell: dict[str, str], task: int, opening: float, first: float, rest: float, total: float, tasks: int
) -> dict:
    spent = float(opening + first + rest)
    return {
        "worker#": task,
        "obj-id": f"{1160825001 + task}" if cell["access"] == "shots" else f"signal_{task}",
        "open+read-data-time": spent,
        "wrkr-num-objs": 1,
        "mean-obj-time": spent,
        "num-dsets": 4,
        "mean-dset-time": spent / 4,
        "pb-size": {"0": 0, "unset": -1}.get(cell["page_buffer"], 64 * MIB),
        "num-workers": int(cell["workers"]),
        "obj-type": cell["access"],
        "tot-num-obj": tasks,
        "total-runtime": total,
        "open-time": float(opening),
        "opens": 1,
        "first-dset-time": float(first),
        "rest-time": float(rest),
        "bytes": 3 * MIB,
        "worker-pid": 1000 + task,
    }
