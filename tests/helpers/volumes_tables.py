"""Tables of a `volumes` run that was never measured: what the report is shown in its tests."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

FACTORS = ("store", "job", "background", "host")
JOB = "etcd-published"
OPTIONS = {"rw": "write", "ioengine": "sync", "fdatasync": "1", "size": "200m", "bs": "2300"}
LIMITS = (("etcd", 10.0, "etcd FAQ v3.6"), ("openshift", 20.0, "OpenShift documentation"))
WRITES = 91_180
BINS = "bins: bootstrap of jobs"
METRICS = ("p50", "p99", "p99.9", "p99.99", "max", "mean", "stddev")
# Of p99: what the other percentiles and moments are in these tables.
SHAPE = {"p50": 0.4, "p99": 1.0, "p99.9": 2.4, "p99.99": 5.0, "max": 30.0, "mean": 0.42, "stddev": 0.25}
GRID = (0, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99)


@dataclass(frozen=True)
class Battery:
    """One series: p99 (ms) before and from the job `falls` on, of all jobs then, and what else makes it what it is."""

    store: str
    p99: float
    background: str = "none"
    host: str = ""
    jobs: int = 50
    falls: int = 0
    later: float = 0.0
    whole: float = 18.2
    volume: str = ""
    bins: bool = True
    state: str = "done"
    verdict: str = ""

    @property
    def levels(self) -> dict:
        """The factors' levels."""
        return {"store": self.store, "job": JOB, "background": self.background, "host": self.host}

    def levels_of_p99(self) -> np.ndarray:
        """The p99 around which each job lies, ms."""
        numbers = np.arange(1, self.jobs + 1)
        return np.where(self.falls and numbers >= self.falls, self.later, self.p99)


GP2 = Battery("gp2", 2.4, host="ip-10-0-0-1", falls=33, later=18.5, volume="gp2")
BATTERIES = (
    GP2,
    Battery("gp3", 4.1, host="ip-10-0-0-2", volume="gp3"),
    Battery("gp3", 4.3, host="ip-10-0-0-3", volume="gp3"),
    Battery("disk", 5.2, jobs=20),
    Battery("disk", 10.1, background="same", jobs=20, verdict="undecided"),
    Battery("old", 12.0, host="node-7", jobs=20, bins=False),
    Battery("lost", 1.0, state="failed"),
    Battery("worn", 7.0, jobs=20, state="invalid"),
)


def job_id(number: int) -> str:
    """Return a1 … a5, b1 … z5, aa1 …."""
    letters, place = "", (number - 1) // 5
    while True:
        letters = chr(ord("a") + place % 26) + letters
        place = place // 26 - 1
        if place < 0:
            return f"{letters}{(number - 1) % 5 + 1}"


def many(series: int, jobs: int) -> list[Battery]:
    """Return as many volumes, the fifth part of which fall."""
    return [
        Battery(f"volume{number:02}", 2.0 + number / 10, host=f"node-{number}", jobs=jobs, volume="gp2")
        if number % 5
        else Battery(
            f"volume{number:02}", 2.0, host=f"node-{number}", jobs=jobs, falls=jobs // 2, later=17.0, volume="gp2"
        )
        for number in range(series)
    ]


def build(folder: Path, batteries: tuple[Battery, ...] | list[Battery] = BATTERIES, seed: int = 1) -> Path:
    """Write the study's tables and facts.json; return the folder that holds them."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    samples = {battery: _samples(battery, random) for battery in batteries if battery.state != "failed"}
    good = [battery for battery in batteries if battery.state == "done"]
    tables = {
        "samples": pd.concat(samples.values()),
        "cells": pd.DataFrame([_cell(battery, samples.get(battery)) for battery in batteries] + _all_hosts(batteries)),
        "verdicts": pd.DataFrame([row for battery in good for row in _verdicts(battery, samples[battery])]),
        "segments": pd.DataFrame([row for battery in good for row in _segments(battery)]),
        "percentiles": pd.DataFrame([row for battery in good if battery.bins for row in _percentiles(battery)]),
        "comparisons": pd.DataFrame(_comparisons(batteries)),
        "credits": pd.DataFrame([row for battery in good if battery.volume == "gp2" for row in _credits(battery)]),
        "collapses": pd.DataFrame([_collapse(battery) for battery in good if battery.volume == "gp2"]),
        "matrix": pd.DataFrame([_omitted()]),
    }
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False)
    (folder / "facts.json").write_text(json.dumps(facts(batteries), indent=1), encoding="utf-8")
    return folder


def facts(batteries: tuple[Battery, ...] | list[Battery] = BATTERIES) -> dict:
    """Return what the workflow tells the report beside the tables."""
    return {
        "run": "laptop",
        "study": "volumes",
        "question": "Does the volume keep fdatasync's p99 below the application's limit, and for how long?",
        "equivalence_percent": 5,
        "machine": {"cpu": "AMD EPYC 7B13", "cores": 2, "ram_bytes": 24 * 2**30, "kernel": "6.1.0-18-amd64"},
        "stores": {"disk": {"kind": "posix", "path": "/mnt/disk"}},
        "settings": {"jobs": 20, "pause_s": 10, "limits": ["etcd", "openshift"]},
        "limits": ["disk: a local file system; caches of the hypervisor and the device are not controlled"],
        "jobs": {JOB: {"text": "; etcd's write-ahead log\n[fio_io]\nrw=write\nfdatasync=1\nsize=200m\nbs=2300\n"}},
        "left_out": [{"file": "b2_t9/notes.json", "reason": "it is <no> output of fio: it has no jobs"}],
        "failed_attempts": [{"attempt": "1", "what": "disk/repeat=1.json", "reasons": ["fio ended with status 1"]}],
        "batteries": [_battery(number, battery) for number, battery in enumerate(batteries, 1)],
    }


def _battery(number: int, battery: Battery) -> dict:
    start = pd.Timestamp("2026-11-20T08:00:00Z") + pd.Timedelta(hours=3 * number)
    return {
        **battery.levels,
        "position": None if battery.host else number,
        "started_utc": f"{start:%Y-%m-%dT%H:%M:%SZ}",
        "ended_utc": f"{start + pd.Timedelta(minutes=2 * battery.jobs):%Y-%m-%dT%H:%M:%SZ}",
        "pause_s": 10,
        "fio": "fio-3.33",
        "kernel": "6.1.0-18-amd64",
        "cpu": "AMD EPYC 7B13",
        "device": "nvme1n1",
        "mount": {"source": "/dev/nvme1n1", "type": "ext4", "options": "rw,relatime"},
        "options": OPTIONS,
        "volume": {"type": battery.volume, "size_gib": 128} if battery.volume else {},
        "status": "failed" if battery.state == "failed" else "done",
        "reasons": ["fio: No space left on device"] if battery.state == "failed" else [],
    }


def _samples(battery: Battery, random: np.random.Generator) -> pd.DataFrame:
    p99 = battery.levels_of_p99() * np.exp(random.normal(0, 0.04, battery.jobs))
    # An operation takes its write and its sync; a job as many of them as its size has blocks.
    seconds = WRITES * (SHAPE["mean"] * p99 + 0.02) / 1e3
    rows = pd.DataFrame(
        {"battery_id": f"b2_{battery.store}", "node_name": battery.host or "bench", "layout": battery.store},
        index=range(battery.jobs),
    )
    rows["job_Id"] = [job_id(number) for number in range(1, battery.jobs + 1)]
    for metric in METRICS:
        rows[f"sync_lat_{metric}_ms"] = p99 * SHAPE[metric] * np.exp(random.normal(0, 0.03, battery.jobs))
    rows["sync_lat_p99_ms"], rows["sync_N"] = p99, WRITES
    rows["number"] = range(1, battery.jobs + 1)
    rows["started_s"] = np.concatenate([[0], np.cumsum(seconds[:-1] + 10)])
    rows["runtime_s"], rows["write_iops"], rows["read_iops"] = seconds, WRITES / seconds, 0.0
    rows["write_mib_s"], rows["read_mib_s"] = WRITES * 2300 / 2**20 / seconds, 0.0
    rows["load1_before"] = np.round(0.4 + 0.1 * p99 + random.uniform(0, 0.3, battery.jobs), 2)
    rows["steal_percent"] = np.round(random.uniform(0, 2, battery.jobs), 2)
    rows["device_write_ios"] = 2.1 * WRITES if not battery.host else np.nan
    rows["device_read_ios"] = 0.0 if not battery.host else np.nan
    return rows.assign(
        cell=f"{battery.store}_{battery.background}",
        **battery.levels,
        repeat=1,
        status="done",
        valid=battery.state == "done",
    )


def _cell(battery: Battery, samples: pd.DataFrame | None) -> dict:
    done = battery.state == "done"
    row = {"cell": f"{battery.store}_{battery.background}", **battery.levels, "operation": "sync"}
    row |= {"n": int(done), "failed": int(battery.state == "failed"), "invalid": int(battery.state == "invalid")}
    reasons = {"failed": "fio: No space left on device", "invalid": "19 of 20 jobs done"}
    row["reasons"] = reasons.get(battery.state, "")
    if not done:
        return row
    row |= {"jobs": battery.jobs, "N": WRITES * battery.jobs, "volume_type": battery.volume}
    row |= {
        "size_gib": 128 if battery.volume else np.nan,
        "interval": "bins: bootstrap of jobs" if battery.bins else "bounds of the jobs",
    }
    row["baseline_iops"] = {"gp2": 384, "gp3": 3000}.get(battery.volume, np.nan)
    row["ceiling_iops"] = {"gp2": 3000, "gp3": 3000}.get(battery.volume, np.nan)
    row["ceiling_mib_s"] = {"gp2": 128, "gp3": 125}.get(battery.volume, np.nan)
    p99 = battery.levels_of_p99().mean()
    for metric in METRICS[:4] if battery.bins else ():
        row |= dict(
            zip((f"{metric}_ms{end}" for end in ("", "_low", "_high")), _around(p99 * SHAPE[metric]), strict=True)
        )
    row |= dict(zip(("mean_ms", "mean_ms_low", "mean_ms_high"), _around(p99 * SHAPE["mean"]), strict=True))
    row |= {"max_ms": samples["sync_lat_max_ms"].max(), "stddev_ms": p99 * SHAPE["stddev"]}
    return row | {
        "iops": WRITES * battery.jobs / samples["runtime_s"].sum(),
        "mib_s": WRITES * battery.jobs * 2300 / 2**20 / samples["runtime_s"].sum(),
        "device_writes_per_write": np.nan if battery.host else 2.1,
        "note": "" if battery.bins else "without histograms",
    }


def _all_hosts(batteries) -> list[dict]:
    rows = [battery for battery in batteries if battery.store == "gp3" and battery.host]
    if len(rows) < 2:
        return []
    row = {"cell": "", **rows[0].levels, "host": "all", "operation": "sync", "n": 2, "failed": 0, "invalid": 0}
    row |= {
        "jobs": 100,
        "N": 2 * 50 * WRITES,
        "interval": "bins: bootstrap of jobs",
        "volume_type": "gp3",
        "size_gib": 128,
    }
    return [row | dict(zip(("p99_ms", "p99_ms_low", "p99_ms_high"), _around(4.2), strict=True))]


def _around(value: float, percent: float = 1.0) -> tuple[float, float, float]:
    return value, value * (1 - percent / 100), value * (1 + percent / 100)


# Of operations and of time at or above a limit, in percent.
OVER = {"operations_over_percent": 0.0123, "time_over_percent": 9.07}
OVER |= {"time_over_percent_low": 8.66, "time_over_percent_high": 9.51}


def _verdicts(battery: Battery, samples: pd.DataFrame) -> list[dict]:
    """A row a limit and segment; p99 of a whole series lies between its segments'."""
    rows = []
    parts = {"all": (1, battery.jobs, battery.whole if battery.falls else battery.p99)}
    if battery.falls:
        parts |= {"1": (1, battery.falls - 1, battery.p99), "2": (battery.falls, battery.jobs, battery.later)}
    else:
        parts |= {"1": (1, battery.jobs, battery.p99)}
    for name, height, source in LIMITS:
        judged = {}
        for segment, (first, last, value) in parts.items():
            undecided = battery.verdict == "undecided" and name == "etcd"
            own = samples.iloc[first - 1 : last]
            bounds = (own["sync_lat_p99_ms"].min(), own["sync_lat_p99_ms"].max())
            low, high = (9.7, 10.4) if undecided else _around(value)[1:] if battery.bins else bounds
            verdict = "undecided" if undecided else "meets" if value < height else "misses"
            judged[segment] = {
                **battery.levels,
                "operation": "sync",
                "limit": name,
                "metric": "p99",
                "limit_ms": height,
                "source": source,
                "segment": segment,
                "first_job": job_id(first),
                "last_job": job_id(last),
                "jobs": last - first + 1,
                **(OVER if battery.bins else {}),
                "jobs_over": int((own["sync_lat_p99_ms"] >= height).sum()),
                "value_ms": value,
                "low_ms": low,
                "high_ms": high,
                "verdict": verdict,
                "reason": "the limit lies within the interval" if undecided else "",
            }
        failing = next((one for key, one in judged.items() if key != "all" and one["verdict"] != "meets"), None)
        number = battery.falls if failing and failing["segment"] == "2" else 1
        kept = samples["started_s"].iloc[number - 1] if failing else np.nan
        rows += [one | {"kept_s": kept} for one in judged.values()]
    return rows


def _segments(battery: Battery) -> list[dict]:
    parts = [(1, battery.jobs, battery.p99, np.nan)]
    if battery.falls:
        jump = battery.later / battery.p99
        parts = [(1, battery.falls - 1, battery.p99, np.nan), (battery.falls, battery.jobs, battery.later, jump)]
    return [
        {
            **battery.levels,
            "segment": str(segment),
            "repeat": 1,
            "first_job": job_id(first),
            "last_job": job_id(last),
            "first_number": first,
            "last_number": last,
            "jobs": last - first + 1,
            "p99_ms": value,
            "jump": jump,
            "jump_low": jump * 0.97,
            "jump_high": jump * 1.03,
        }
        for segment, (first, last, value, jump) in enumerate(parts, 1)
    ]


def _percentiles(battery: Battery) -> list[dict]:
    p99 = battery.levels_of_p99().mean()
    known = {0: 0.2, 50: SHAPE["p50"], 90: 0.7, 99: 1.0, 99.9: SHAPE["p99.9"], 99.99: SHAPE["p99.99"]}
    heights = np.interp(GRID, list(known), [p99 * part for part in known.values()])
    return [
        {
            **battery.levels,
            "operation": "sync",
            "percentile": percentile,
            "ms": value,
            "low": low,
            "high": high,
            "N": WRITES * battery.jobs,
        }
        for percentile, (value, low, high) in zip(GRID, map(_around, heights), strict=True)
    ]


def _comparisons(batteries) -> list[dict]:
    rows = []
    stores = {battery.store for battery in batteries if battery.state == "done"}
    common = {"method": "ratio of medians of jobs, bootstrap over jobs", "job": JOB, "host": ""}
    if {"gp2", "gp3"} <= stores:
        for phase, p99, iops in (("before the first change", 1.75, 0.6), ("after the last change", 0.23, 4.3)):
            for metric, ratio in (("p99", p99), ("p50", (1 + p99) / 2), ("iops", iops)):
                rows.append(
                    common
                    | {"factor": "store", "baseline": "gp2", "contender": "gp3", "store": "", "background": "none"}
                    | {"metric": metric, "phase": phase, "ratio": ratio}
                    | {"ratio_low": ratio - 0.03, "ratio_high": ratio + 0.03, "n_baseline": 32, "n_contender": 50}
                    | {"verdict": "slower" if phase.startswith("before") else "faster"}
                )
    if "disk" in stores:
        for metric, ratio, verdict in (("p99", 1.94, "slower"), ("mean", 1.03, "no evidence")):
            rows.append(
                common
                | {"factor": "background", "baseline": "none", "contender": "same", "store": "disk", "background": ""}
                | {"metric": metric, "phase": "all", "ratio": ratio, "ratio_low": ratio - 0.08}
                | {"ratio_high": ratio + 0.09, "n_baseline": 20, "n_contender": 20, "verdict": verdict}
            )
        rows.append(
            common
            | {"factor": "store", "baseline": "gp2", "contender": "disk", "store": "", "background": "none"}
            | {"metric": "p99", "phase": "all", "ratio": 1.02, "ratio_low": 0.91, "ratio_high": 1.14}
            | {"n_baseline": 50, "n_contender": 20, "verdict": "no evidence"}
        )
    return rows


def _credits(battery: Battery) -> list[dict]:
    left, rows = 5.4e6, []
    for number in range(1, battery.jobs + 1):
        start, left = left, max(0.0, left - 5.4e6 / 32.5)
        rows.append(
            {
                **battery.levels,
                "number": number,
                "job_Id": job_id(number),
                "credits_start": start,
                "credits_end": left,
                "modelled_iops": 2600,
                "allowed_iops": 3000 if left else 384,
                "ios_per_write": 2.4,
                "ios_per_write_source": "assumed",
            }
        )
    return rows


def _collapse(battery: Battery) -> dict:
    predicted = 33 if battery.jobs >= 33 else np.nan
    observed = battery.falls or np.nan
    return {
        **battery.levels,
        "volume_type": "gp2",
        "size_gib": 128,
        "baseline_iops": 384,
        "burst_iops": 3000,
        "credits": 5.4e6,
        "ios_per_write": 2.4,
        "ios_per_write_source": "assumed",
        "predicted_job": "" if np.isnan(predicted) else job_id(predicted),
        "predicted_number": predicted,
        "observed_job": "" if np.isnan(observed) else job_id(observed),
        "observed_number": observed,
        "text": f"the model predicts that the burst credits of a 128 GiB gp2 volume run out in job {predicted:.0f}; "
        f"latency rose at job {observed:.0f} (from a full bucket; 2.40 device I/Os per write: assumed)",
    }


def _omitted() -> dict:
    levels = {"store": "s3", "job": JOB, "background": "none", "host": "", "control": ""}
    return {"cell": "", **levels, "omitted": "fio cannot write to a store of kind s3", "twin_of": ""}
