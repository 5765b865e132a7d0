"""Records of the volumes study that nothing measured, and the published ones as records, for tests of its tables."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tests.helpers.records import merge, sealed

JOB = "etcd-published"
OPTIONS = {"rw": "write", "ioengine": "sync", "fdatasync": "1", "size": "200m", "bs": "2300"}
WRITES = 91_180  # 200 MiB in blocks of 2,300 bytes
FACTORS = ("store", "job", "background", "host", "control")
TABLES = ("samples", "cells", "verdicts", "segments", "percentiles", "comparisons", "credits", "collapses", "records")
STEADY = np.ones(10)
LAYOUTS = {"gp2x1": "gp2", "gp2x2": "gp2", "gp3x1": "gp3", "gp3x2": "gp3"}
NUMBERS = ("N", "p50_ms", "p99_ms", "p99.9_ms", "low_ms", "high_ms", "kept_s", "jump", "ratio", "ratio_low")


def job_id(number: int) -> str:
    """Return a1 … a5, b1 … z5, aa1 … of the 1st, 2nd … job."""
    letters, fives = "", (number - 1) // 5
    while fives >= 0:
        letters, fives = chr(ord("a") + fives % 26) + letters, fives // 26 - 1
    return f"{letters}{(number - 1) % 5 + 1}"


def nth(values: np.ndarray, p: float) -> float:
    """Return the p-th percentile of values as fio counts: the ceil(p N)-th, its rank in whole numbers."""
    ordered = np.sort(np.ravel(values))
    return float(ordered[-(-len(ordered) * round(100 * p) // 10_000) - 1])


def fio_bins(latencies_ns: np.ndarray) -> np.ndarray:
    """Return latencies as (bins, 2) of ns and count, as fio keeps them: 64 bins an octave, each named by its middle."""
    latencies = np.asarray(latencies_ns, dtype=np.int64)
    width = 2 ** np.maximum(np.floor(np.log2(np.maximum(latencies, 1))).astype(np.int64) - 6, 0)
    values, counts = np.unique(latencies // width * width + width // 2, return_counts=True)
    return np.column_stack([values, counts])


def sample(latencies_ns: np.ndarray, number: int = 1, started_s: float | None = 0.0, **others: object) -> dict:
    """Return a job's row: of writes that were forced to the disk one after the other, in just that time."""
    ms = np.asarray(latencies_ns) / 1e6
    seconds = float(ms.sum() / 1e3)
    return {
        "battery_id": "b1_t1",
        "node_name": "node",
        "layout": None,
        "job_Id": job_id(number),
        "sync_lat_max_ms": float(ms.max()),
        "sync_lat_mean_ms": float(ms.mean()),
        "sync_lat_stddev_ms": float(ms.std(ddof=1)),
        "sync_lat_p99_ms": nth(ms, 99),
        "sync_lat_p99.9_ms": nth(ms, 99.9),
        "sync_lat_p50_ms": float(np.median(ms)),
        "sync_lat_p99.99_ms": nth(ms, 99.99),
        "sync_N": len(ms),
        "read_ios": 0,
        "write_ios": len(ms),
        "read_bytes": 0,
        "write_bytes": len(ms) * 2300,
        "runtime_s": seconds,
        "number": number,
        "started_s": started_s,
        "device_write_ios": None,
        "error": 0,
        **others,
    }


def name_of(cell: dict[str, str]) -> str:
    """Return the name of a cell by its levels."""
    return "_".join(filter(None, cell.values()))


def record(store: str, samples: Sequence[dict], histograms: dict | None = None, **others: object) -> dict:
    """Return a battery's record; `others` replace or add keys, levels of its cell by `cell`."""
    cell = {"store": store, "job": JOB, "background": "none", "host": "", "control": ""} | others.pop("cell", {})
    return {
        "record": 1,
        "status": "done",
        "run": "synthetic",
        "study": "volumes",
        "name": name_of(cell),
        "cell": cell,
        "repeat": 1,
        "started_utc": "2026-11-20T08:00:00Z",
        "fio": "fio-3.33",
        "job_options": OPTIONS,
        "battery": {"pause_s": 10},
        "volume": {},
        "seconds": {"total": 1.0},
        "work": {},
        "host": {},
        "provenance": {"code_sha256": "c0de"},
        "samples": list(samples),
        "histograms": histograms or {},
        "valid": True,
        "reasons": [],
        **others,
    }


def latencies(number: int, median: float = 1.0, operations: int = 2_000) -> np.ndarray:
    """Return lognormal latencies in ns around a median in ms, drawn with the job's number."""
    return 1e6 * median * np.random.default_rng(number).lognormal(0, 0.5, operations)


def battery(store: str, medians_ms: Sequence[float], seed: int = 1, operations: int = 2_000, **others: object) -> dict:
    """Return a record of a battery with bins: lognormal latencies around a median a job, 10 s apart."""
    random = np.random.default_rng([seed, len(medians_ms)])
    samples, histograms, started = [], {}, 0.0
    for number, median in enumerate(medians_ms, 1):
        latencies = 1e6 * median * random.lognormal(0, 0.5, operations)
        samples.append(sample(latencies, number, started))
        histograms[job_id(number)] = {"sync": fio_bins(latencies).tolist()}
        started += samples[-1]["runtime_s"] + 10
    return record(store, samples, histograms, **others)


def published_records(folder: Path, volumes: bool = True) -> list[dict]:
    """Return the published batteries as imported records: five columns of latencies, no N, no times, no bins."""
    rows = pd.read_csv(folder / "fio-ebs" / "all_metrics_long.csv")
    return [
        record(
            str(layout),
            jobs.to_dict("records"),
            cell={"background": "unknown", "host": jobs["node_name"].iloc[0]},
            battery={},
            started_utc=None,
            volume={"type": LAYOUTS[str(layout)], "size_gib": 128} if volumes else {},
        )
        for layout, jobs in rows.groupby("layout", sort=False)
    ]


def write_run(
    folder: Path, measured: Sequence[dict | None] = (), imported: Sequence[dict] | None = None, **left_out: object
) -> Path:
    """Write matrix.csv, the records in their folders, and imported.json if there are imports; return `folder`.

    A record of status "absent" stands for a cell that was not measured.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cells: dict[str, dict] = {}
    for one in measured:
        name = name_of(one["cell"])
        cells[name] = {"cell": name, **one["cell"], "omitted": "", "twin_of": ""}
        if one["status"] != "absent":
            path = folder / "records" / name / f"repeat={one['repeat']}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(sealed(one), encoding="utf-8")
    pd.DataFrame(cells.values(), columns=["cell", *FACTORS, "omitted", "twin_of"]).to_csv(
        folder / "matrix.csv", index=False
    )
    if imported is not None:
        artefact = {"status": "done", "records": list(imported), "left_out": [], **left_out}
        (folder / "imported.json").write_text(json.dumps(artefact), encoding="utf-8")
    return folder


def gather(folder: Path, out: str = "out", **settings: object) -> dict[str, pd.DataFrame]:
    """Run the program on a run; return its tables by name, texts as texts and empty where there is nothing."""
    imported = folder / "imported.json"
    asked = {"limits": ["etcd", "openshift"], "compare": [], **settings}
    merge(folder, out, "volumes", imported if imported.is_file() else None, **asked)
    return {name: read(folder / out / f"{name}.csv") for name in TABLES}


def read(path: Path) -> pd.DataFrame:
    """Return a table with its factors and words as text."""
    words = (*FACTORS[:-1], "start_credits", "segment", "reasons", "note", "reason", "verdict", "text")
    table = pd.read_csv(path, dtype=dict.fromkeys(words, str))
    texts = table.select_dtypes(exclude="number").columns
    return table.assign(**{name: table[name].astype(object).where(table[name].notna(), "") for name in texts})


def chosen(table: pd.DataFrame, **levels: object) -> pd.DataFrame:
    """Return the rows of a table at these levels."""
    return table[np.logical_and.reduce([table[name] == level for name, level in levels.items()])]


def changed(found: dict, change: Callable[[dict], None]) -> dict:
    """Return a record after `change` was done to it."""
    change(found)
    return found
