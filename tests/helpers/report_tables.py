"""Tables of a `shots` run that was never measured: what the report is shown in its tests."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.pages.results import Results
from sbench.probe.slowed import SHARES
from sbench.studies.shots.report import results

FACTORS = ("library", "store", "driver", "layout", "access", "workers", "page_buffer", "cache", "control")
LIBRARIES = ("hdf5-1.14.6", "hdf5-2.0.0")
MIB = 2**20
PB = {"0": 0, "64MiB": 64 * MIB, "unset": 64 * MIB}
SIGNALS = ("ip", "btor", "ne_profile", "te_profile")

S3 = {
    "library": LIBRARIES,
    "store": ("s3",),
    "driver": ("ros3",),
    "layout": ("shot-major", "signal-major"),
    "access": ("shots", "signals"),
    "workers": ("1",),
    "page_buffer": ("0", "64MiB"),
    "cache": ("cold",),
}
DISK = {
    "library": LIBRARIES,
    "store": ("disk",),
    "driver": ("sec2",),
    "layout": ("single-shot",),
    "access": ("shots",),
    "workers": ("1", "2"),
    "page_buffer": ("unset",),
    "cache": ("warm",),
}
MANY = S3 | {
    "store": ("s3", "s3-far"),
    "layout": ("single-shot", "shot-major", "signal-major"),
    "workers": ("1", "2", "4", "8", "16", "24", "32", "48", "64"),
    "page_buffer": ("0", "64MiB", "unset"),
}
COMPARE = (("library", "hdf5-1.14.6"), ("page_buffer", "0"), ("layout", "shot-major"))


def default_cells() -> list[dict]:
    """Return the levels of the default matrix, its two twins and the first of their cells slowed last."""
    cells = [_named(dict(zip(m, level, strict=True))) for m in (S3, DISK) for level in itertools.product(*m.values())]
    controls = ((cells[1], "twin"), (cells[-1], "twin"), *((cells[1], level) for level in SHARES))
    return cells + [_named({**{f: cell[f] for f in S3}, "control": level}, cell["cell"]) for cell, level in controls]


def many_cells(records: int, repeats: int) -> list[dict]:
    """Return as many cells as make `records` records."""
    slowest = dict(reversed(MANY.items()))
    cells = [_named(dict(zip(slowest, level, strict=True))) for level in itertools.product(*slowest.values())]
    return cells[: records // repeats]


def build(folder: Path, cells: list[dict] | None = None, repeats: int = 6, tasks: int = 4, seed: int = 1) -> Path:
    """Write the five tables and facts.json; return the folder that holds them."""
    random = np.random.default_rng(seed)
    cells = cells or default_cells()
    folder.mkdir(parents=True, exist_ok=True)
    drift = np.exp(random.normal(0, 0.05, repeats))
    samples, summaries, totals = [], [], {}
    invalid = next(c["cell"] for c in cells if c["store"] == "disk") if len(cells) < 30 else ""
    # What is drawn for them changes no figure of the others.
    of_slowed = np.random.default_rng(seed + 1)
    for cell in cells:
        drawn = of_slowed if cell["control"] in SHARES else random
        rows, summary, total = _measure(
            cell, drift, drawn, tasks, failed=cell is cells[3], invalid=cell["cell"] == invalid
        )
        samples += rows
        summaries.append(summary)
        totals[cell["cell"]] = total
    pd.DataFrame(samples).to_csv(folder / "samples.csv", index=False)
    pd.DataFrame(summaries).to_csv(folder / "cells.csv", index=False)
    matrix = [{"cell": c["cell"], **{f: c[f] for f in FACTORS}, "omitted": "", "twin_of": c["twin_of"]} for c in cells]
    for library in LIBRARIES:
        levels = {"library": library, "store": "disk", "driver": "ros3", "layout": "single-shot", "access": "shots"}
        levels |= {"workers": "1", "page_buffer": "unset", "cache": "warm"}
        matrix.append(
            {"cell": "", **levels, "control": "", "omitted": "driver ros3 does not read a posix store", "twin_of": ""}
        )
    pd.DataFrame(matrix).to_csv(folder / "matrix.csv", index=False)
    verdicts(cells, totals, repeats, {invalid}, random).to_csv(folder / "verdicts.csv", index=False)
    (folder / "facts.json").write_text(json.dumps(facts(), indent=1), encoding="utf-8")
    return folder


def facts() -> dict:
    """Return what the workflow tells the report beside the tables."""
    library = {"environment": 1, "status": "done", "kind": "source", "h5py": "3.16.0", "ros3": True}
    return {
        "run": "laptop",
        "name": "shots-0123456789",
        "question": "Does HDF5 2.0.0's ROS3 driver read shot files faster or slower than 1.14.6's?",
        "machine": {
            "cpu": "AMD EPYC 7B13",
            "cores": 2,
            "ram_bytes": 24 * 2**30,
            "kernel": "6.1.0-18-amd64",
            "filesystem": "ext4",
            "mount_options": "rw,relatime",
            "clock_source": "tsc",
        },
        "libraries": {
            name: {**library, "library": name, "hdf5": name.removeprefix("hdf5-"), "build": {"seconds": 210.5}}
            for name in LIBRARIES
        },
        "stores": {
            "disk": {"kind": "posix"},
            "s3": {"kind": "s3", "server": "embedded", "network": {"latency_ms": 20, "per_connection_mib_s": 50}},
        },
        "settings": {"repeats": 6, "equivalence_percent": 5, "data": {"shots": 12, "signals": 61, "read_signals": 4}},
        "limits": [
            "s3: an S3 server on the loopback of the same machine, sharing its cores with the readers; an emulated "
            "network: 20 ms, 50 MiB/s per connection; no TLS; not a verdict on AWS or another service"
        ],
        "on_purpose": [
            "Libraries hdf5-1.14.6 and hdf5-2.0.0 differ on purpose in libhdf5 1.14.6 (tarball, libcurl-7.88.1) and "
            "2.0.0 (tarball, awscrt-0.38.0)"
        ],
        "controls": {
            "runs": 3,
            "slow10": [3, 3],
            "slow5": [1, 3],
            "alarms": [0, 6],
            "reached": {"slow10": 0.0957, "slow5": 0.0481},
        },
        "failed_attempts": [
            {"cell": "hdf5-2.0.0_s3_ros3", "repeat": 2, "reasons": ["server ended <early> in mid-cell"]}
        ],
    }


def _named(levels: dict, twin_of: str = "") -> dict:
    levels = {"control": "", **levels}
    name = "_".join(levels[f] for f in FACTORS if levels[f]).replace("_64MiB", "_pb64MiB")
    return {"cell": name, **levels, "twin_of": twin_of}


def _seconds(cell: dict) -> tuple[float, float, float]:
    """Seconds to open once, to read the first dataset, to read the rest."""
    new = cell["library"] == "hdf5-2.0.0"
    if cell["store"] == "disk":
        return 0.002, 0.004, 0.4 / int(cell["workers"]) ** 0.9
    opening = 0.17 if new else 0.085
    along = (cell["layout"], cell["access"]) in (("shot-major", "shots"), ("signal-major", "signals"))
    rest = {("0", True): 4.0, ("0", False): 4.2}.get((cell["page_buffer"], along), 0.9 if along else 7.0)
    workers = int(cell["workers"])
    return opening, 0.06, rest * (0.98 if new else 1.0) * (1 / workers + 0.01 * workers)


def _measure(cell: dict, drift, random, tasks: int, failed: bool, invalid: bool) -> tuple[list, dict, list]:
    opening, first, rest = _seconds(cell)
    workers, buffer = int(cell["workers"]), PB[cell["page_buffer"]]
    slower = 1 + SHARES.get(cell["control"], 0)
    rows, totals = [], []
    for repeat, shift in enumerate(drift, 1):
        if failed and repeat == 4:
            totals.append(np.nan)
            continue
        noise = np.exp(random.normal(0, 0.02, (tasks, 3))) * shift
        total = float((opening + first + rest) * slower * shift * np.exp(random.normal(0, 0.015)))
        totals.append(total)
        for task, (a, b, c) in enumerate(noise, 1):
            spent = opening * a + first * b + rest * c * workers / tasks
            rows.append(
                {
                    "worker#": task,
                    "obj-id": SIGNALS[task % 4] if cell["access"] == "signals" else 1160825000 + task,
                    "open+read-data-time": spent,
                    "wrkr-num-objs": 3,
                    "mean-obj-time": spent / 3,
                    "num-dsets": 24,
                    "mean-dset-time": spent / 24,
                    "pb-size": {"0": 0, "64MiB": 64 * MIB, "unset": -1}[cell["page_buffer"]],
                    "num-workers": workers,
                    "obj-type": cell["access"],
                    "tot-num-obj": 12,
                    "total-runtime": total,
                    "cell": cell["cell"],
                    **{factor: cell[factor] for factor in FACTORS},
                    "repeat": repeat,
                    "status": "done",
                    "valid": not invalid,
                    "open-time": opening * a,
                    "opens": 1,
                    "first-dset-time": first * b,
                    "rest-time": rest * c * workers / tasks,
                    "bytes": 24 * MIB,
                    "worker-pid": 1000 + task,
                }
            )
    kept = [] if invalid else [total for total in totals if np.isfinite(total)]
    return rows, _summary(cell, kept, len(drift), (opening, first, rest), tasks, buffer, failed, invalid), totals


def _summary(cell, kept, repeats, seconds, tasks, buffer, failed, invalid) -> dict:
    s3 = cell["store"] != "disk"
    logical = 24 * MIB * tasks
    across = (cell["layout"], cell["access"]) in (("shot-major", "signals"), ("signal-major", "shots"))
    offered = logical * (2.5 if across and buffer else 0.4) if s3 else np.nan
    summary = {"cell": cell["cell"], **{factor: cell[factor] for factor in FACTORS}}
    summary |= {"n": len(kept), "failed": int(failed), "invalid": repeats if invalid else 0}
    for name, value in zip(("open", "first", "rest"), seconds, strict=True):
        summary |= {f"{name}_s": value, f"{name}_s_low": value * 0.97, f"{name}_s_high": value * 1.03} if kept else {}
    if kept:
        summary |= {"total_s": np.median(kept), "total_s_low": min(kept), "total_s_high": max(kept)}
        summary |= {"throughput_mib_s": logical / MIB / np.mean(kept)}
    return summary | {
        "plan_s": 0.004,
        "null_s": 0.012,
        "cluster_start_s": 0.41,
        "verify_s": 0.01,
        "logical_bytes": logical,
        "tasks": tasks,
        "requests": {"0": 223, "64MiB": 22, "unset": 22}[cell["page_buffer"]] if s3 else np.nan,
        "gets": {"0": 223, "64MiB": 22, "unset": 22}[cell["page_buffer"]] if s3 else np.nan,
        "puts": 0 if s3 else np.nan,
        "lists": 0 if s3 else np.nan,
        "requests_spread": (2 if cell["library"] == "hdf5-2.0.0" and across else 0) if s3 else np.nan,
        "bytes_offered": offered,
        "bytes_delivered": offered,
        "amplification": offered / logical,
        "page_buffer_bytes": buffer,
        "hdf5": cell["library"].removeprefix("hdf5-"),
        "h5py": "3.16.0",
        "oversubscribed": int(cell["workers"]) > 2,
        "idle_workers": 0,
        "resident_before": 0.0 if cell["cache"] == "cold" else 1.0,
        "resident_after": 0.9,
        "cache_state": cell["cache"],
        "reasons": "repeat 4: worker 1 was killed (signal 9)"
        if failed
        else ("the file's page size is 4096, not 8000000 as its label says" if invalid else ""),
    }


def verdicts(cells: list[dict], totals: dict, repeats: int, invalid: set, random) -> pd.DataFrame:
    """Return a row a comparison and metric, by the rule of the analysis but with a plain interval."""
    rows = []
    index = {tuple(cell[f] for f in FACTORS): cell for cell in cells}
    for factor, baseline in COMPARE:
        for cell in cells:
            if cell["control"] or cell[factor] == baseline:
                continue
            other = index.get(tuple({**cell, factor: baseline}[f] for f in FACTORS))
            if other is None:
                continue
            rows += _compare(
                factor, other, cell, totals, repeats, bool(invalid & {cell["cell"], other["cell"]}), random
            )
    names = {cell["cell"]: cell for cell in cells}
    for cell in cells:
        if cell["twin_of"]:
            own = _compare("control", names[cell["twin_of"]], cell, totals, repeats, False, random)
            rows += [row | {"control": cell["control"]} for row in own][: 1 if cell["control"] in SHARES else None]
    return pd.DataFrame(rows)


def _compare(factor, base, cell, totals, repeats, not_comparable, random) -> list[dict]:
    rows = []
    for metric in ("total", "open", "first", "rest"):
        if metric == "total":
            pairs = np.array([totals[base["cell"]], totals[cell["cell"]]])
        else:
            which = ("open", "first", "rest").index(metric)
            pairs = np.array([[_seconds(c)[which]] * repeats for c in (base, cell)]) * np.exp(
                random.normal(0, 0.01, (2, repeats))
            )
        pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
        ratios = np.sort(pairs[1] / pairs[0])
        low, high, middle = ratios[0], ratios[-1], np.median(ratios)
        note, p = "", 2 / 2 ** len(ratios)
        if not_comparable:
            verdict, note = "not comparable", "an arm is invalid"
        elif len(ratios) < 6:
            verdict, note, p = "too few repeats", f"{len(ratios)} complete blocks, 6 are needed", np.nan
        elif low >= 0.95 and high <= 1.05:
            verdict = "same"
        elif low > 1 or high < 1:
            verdict = "slower" if low > 1 else "faster"
        else:
            verdict = "no evidence"
        context = {f: "" if f == factor else cell[f] for f in FACTORS}
        role = "control" if factor == "control" else ("decides" if metric == "total" else "secondary")
        rows.append(
            {
                "factor": factor,
                "baseline": base["cell"] if factor == "control" else base[factor],
                "contender": cell["cell"] if factor == "control" else cell[factor],
                **context,
                "metric": metric,
                "role": role,
                "blocks": len(ratios),
                "baseline_s": np.median(pairs[0]),
                "contender_s": np.median(pairs[1]),
                "ratio": middle,
                "ratio_low": low,
                "ratio_high": high,
                "p": p,
                "verdict": verdict,
                "detectable_ratio": max(high / low, 1.02) if verdict == "no evidence" else np.nan,
                "note": note,
            }
        )
    return rows


def changed(folder: Path, source: Path, table: str, change: Callable) -> Results:
    """Return the results of a copy of the tables in which one was changed."""
    copy = shutil.copytree(source, folder / "changed")
    frame = pd.read_csv(copy / table, dtype=str, keep_default_na=False)
    change(frame).to_csv(copy / table, index=False)
    return results.load_results(copy, copy / "facts.json")
