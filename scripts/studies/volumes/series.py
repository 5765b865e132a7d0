"""Batteries of fio jobs as the analysis uses them: records read, jobs in time order, their histograms and times.

A series is what was measured at one (store, job, background, host): its batteries, one after the other, each of many
jobs. Latencies are in ms throughout.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from scripts.frame import records
from scripts.lib.program import Problem
from scripts.statistics import histograms
from scripts.studies.volumes import fio_facts, fio_options
from scripts.studies.volumes.fio import operation_of
from scripts.studies.volumes.fio_output import PERCENTILES

FACTORS = ("store", "job", "background", "host")
ALL_HOSTS = "all"
# The pause of the published batteries, for results that say nothing of theirs.
_USUAL_PAUSE_S = 10.0
_NS = 1e6
_OWN = tuple(f"p{p:g}_ms" for p in PERCENTILES)
_COLUMNS = (
    *("repeat", "number", "job_Id", "N", "mean_ms", "stddev_ms", "max_ms", *_OWN),
    *("ios", "bytes", "reads", "writes", "seconds", "start_s", "pause_s", "device_writes", "bins", "counted", "timed"),
)
Levels = tuple[str, str, str, str]


@dataclass(frozen=True)
class Battery:
    """One record: a battery of jobs on one host, failed and invalid ones included.

    `rows` are its samples as they are in the record; `histograms` are by job and operation, (bins, 2) of ms and count.
    """

    cell: str
    levels: Levels
    repeat: int
    status: str = "failed"
    ok: bool = False
    reasons: tuple[str, ...] = ()
    edited: bool = False
    rows: list[dict] = field(default_factory=list)
    histograms: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    pause_s: float = _USUAL_PAUSE_S
    started_utc: str = ""
    volume: dict = field(default_factory=dict)
    memory: str = ""


@dataclass(frozen=True)
class Series:
    """The batteries of one (store, job, background, host); `cell` is "" where several hosts are taken together."""

    cell: str
    levels: Levels
    batteries: tuple[Battery, ...]

    @property
    def head(self) -> dict[str, str]:
        """The levels by factor, which every table has."""
        return dict(zip(FACTORS, self.levels, strict=True))

    @property
    def good(self) -> list[Battery]:
        """The valid batteries, the only ones that figures and verdicts are made of."""
        return [battery for battery in self.batteries if battery.ok]

    @cached_property
    def operation(self) -> str:
        """The operation whose latency the series is about (`fio.operation_of`, of all jobs together)."""
        rows = pd.DataFrame([row for battery in self.good for row in battery.rows])
        names = ["sync_N", "sync_lat_mean_ms", "read_ios", "write_ios"]
        totals = rows.reindex(columns=names).astype(float).sum(min_count=1)
        return operation_of(totals.astype(object).where(totals.notna(), None).to_dict()) if len(rows) else ""

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """A row a job of the valid batteries, in time order.

        repeat, number, job_Id, N, mean_ms, stddev_ms, max_ms, p50_ms … p99.99_ms (its own percentiles), ios, bytes,
        reads, writes, seconds, start_s (since its battery began), pause_s (until the next job), device_writes, bins
        (histogram or None), and what had to be derived: `counted` and `timed` are False where N, or the times, are not
        of the measurement (`_derived`).
        """
        parts = [_jobs(battery, self.operation) for battery in self.good if battery.rows] if self.operation else []
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*_COLUMNS])

    @property
    def memory(self) -> str:
        """What kept the files in memory, such as tmpfs, where they lay on no device."""
        return next((battery.memory for battery in self.batteries if battery.memory), "")

    @property
    def volume(self) -> dict:
        """What is known of the volume: type, size_gib, iops, throughput_mib_s."""
        return next((battery.volume for battery in self.batteries if battery.volume), {})


def read(matrix: pd.DataFrame, kept: Iterable[records.Kept], imported: dict, stores: dict) -> list[Series]:
    """Return the series of a run: the matrix's, with or without records, then the imported ones.

    A record that cannot be used counts as failed. Twins of the matrix (controls) are left out. A volume that a record
    does not describe is the store's in `stores`.
    """
    of_cells: dict[str, list[Battery]] = defaultdict(list)
    for one in kept:
        battery = Battery(one.cell, _levels(one.levels), one.repeat, reasons=(one.problem,))
        of_cells[one.cell].append(_read(battery, one.record, str(one.path)) if one.record else battery)
    by_levels: dict[Levels, Series] = {}
    for row in matrix[matrix["twin_of"] == ""].to_dict("records"):
        levels = _levels(row)
        by_levels[levels] = Series(row["cell"], levels, tuple(of_cells[row["cell"]]))
    for battery in _batteries(imported):
        earlier = by_levels.get(battery.levels, Series(battery.cell, battery.levels, ()))
        taken = [one.repeat for one in earlier.batteries]
        battery = replace(battery, repeat=max(taken) + 1) if battery.repeat in taken else battery
        by_levels[battery.levels] = replace(earlier, batteries=(*earlier.batteries, battery))
    return [_with_volume(series, stores) for series in by_levels.values()]


def with_hosts_together(series: Sequence[Series]) -> list[Series]:
    """Return the series, and after the last host of a place that was measured on several those of all hosts as one."""
    places: dict[tuple, list[Series]] = defaultdict(list)
    for one in series:
        places[one.levels[:3]].append(one)
    shown = []
    for one in series:
        shown.append(one)
        hosts = places[one.levels[:3]]
        if one is hosts[-1] and sum(bool(host.good) for host in hosts) > 1:
            batteries = tuple(battery for host in hosts for battery in host.batteries)
            shown.append(Series("", (*one.levels[:3], ALL_HOSTS), batteries))
    return shown


def histograms_of(jobs: pd.DataFrame) -> list[np.ndarray] | None:
    """Return the jobs' histograms, or None where one has none: then nothing can be merged."""
    return list(jobs["bins"]) if len(jobs) and jobs["bins"].notna().all() else None


def percentiles(jobs: pd.DataFrame, ps: Sequence[float], seed: int = 1) -> dict[float, histograms.Percentile]:
    """Return percentiles of jobs together, by p: merged from their bins, or bounds of their own where one has none.

    Without bins there are those that the samples have; a refused one is NaN with its reason.
    """
    if merged := histograms_of(jobs):
        return dict(zip(ps, histograms.percentiles(merged, ps, seed), strict=True))
    n = float(jobs["N"].astype(float).sum(skipna=False)) if len(jobs) else math.nan
    own = {p: jobs[f"p{p:g}_ms"] for p in ps if f"p{p:g}_ms" in jobs and jobs[f"p{p:g}_ms"].notna().any()}
    refused = {p: histograms.refusal(n, p) for p in own}
    return {
        p: histograms.Percentile(*[math.nan] * 3, n, refused[p])
        if refused[p]
        else histograms.bounds(values)._replace(n=n)
        for p, values in own.items()
    }


def _levels(row: Mapping[str, str]) -> Levels:
    return tuple(str(row.get(factor) or "") for factor in FACTORS)


def _batteries(imported: dict) -> Iterator[Battery]:
    if imported and imported.get("status") != "done":
        print(f"nothing was imported: {'; '.join(imported.get('reasons', []))}", file=sys.stderr)
    for number, record in enumerate(imported.get("records", []), 1):
        name = f"imported record {number}"
        try:
            records.expect_sound(record, name)
        except Problem as problem:
            yield _unreadable(Battery("", (name, "", "", ""), 1), str(problem))
        else:
            yield _read(Battery(record["name"], _levels(record["cell"]), record["repeat"]), record, name)


def _unreadable(battery: Battery, problem: str) -> Battery:
    print(f"left out: {problem}", file=sys.stderr)
    return replace(battery, reasons=(problem,))


def _read(battery: Battery, record: dict, where: str) -> Battery:
    """Return a battery with what its record says; one whose histograms cannot be used has failed."""
    done = record["status"] == "done"
    facts, settings = record.get("battery") or {}, record.get("settings") or {}
    pauses = [one["pause_s"] for one in (facts, settings) if one.get("pause_s") is not None]
    volume = record.get("volume")
    faults = records.faults(record)
    try:
        bins = _histograms(record.get("histograms") or {}) if done else {}
    except (AttributeError, IndexError, TypeError, ValueError):
        return _unreadable(battery, f"{where}: its histograms are not pairs of a latency and a count, both at least 0")
    return replace(
        battery,
        status=record["status"],
        ok=done and not faults,
        reasons=tuple(faults),
        edited=records.edited(record),
        rows=list(record.get("samples") or []) if done else [],
        histograms=bins,
        options={key: str(value) for key, value in (record.get("job_options") or {}).items()},
        pause_s=float([*pauses, _USUAL_PAUSE_S][0]),
        started_utc=str(record.get("started_utc") or facts.get("started_utc") or ""),
        volume=volume if isinstance(volume, dict) else {},
        memory=fio_facts.memory(facts),
    )


def _histograms(by_job: dict) -> dict[str, dict[str, np.ndarray]]:
    """Histograms in ms, those without operations left out."""
    arrays = {
        job: {name: np.asarray(bins, dtype=float) / (_NS, 1) for name, bins in operations.items() if bins}
        for job, operations in by_job.items()
    }
    bins = [one for operations in arrays.values() for one in operations.values()]
    if not all(one.shape[1] == 2 and (one >= 0).all() and np.isfinite(one).all() for one in bins):
        raise ValueError
    return {job: {name: one for name, one in kept.items() if one[:, 1].sum()} for job, kept in arrays.items()}


def _with_volume(series: Series, stores: dict) -> Series:
    volume = (stores.get(series.levels[0]) or {}).get("volume")
    if series.volume or not isinstance(volume, dict):
        return series
    return replace(series, batteries=tuple(replace(one, volume=volume) for one in series.batteries))


def _jobs(battery: Battery, operation: str) -> pd.DataFrame:
    """A battery's jobs; NaN where neither the sample, nor its histogram, nor the options tell."""
    kind, derived = "read" if operation == "read" else "write", _derived(battery.options)
    sources = {
        **{"number": "number", "N": f"{operation}_N"},
        **{f"{name}_ms": f"{operation}_lat_{name}_ms" for name in ("mean", "stddev", "max")},
        **{name: f"{operation}_lat_{name}" for name in _OWN},
        **{"ios": f"{kind}_ios", "bytes": f"{kind}_bytes", "reads": "read_ios", "writes": "write_ios"},
        **{"seconds": "runtime_s", "start_s": "started_s", "device_writes": "device_write_ios"},
    }
    rows = [row for row in battery.rows if not row.get("error")]
    bins = [battery.histograms.get(str(row.get("job_Id")), {}).get(operation) for row in rows]
    jobs = pd.DataFrame(rows, columns=[*sources.values()]).astype(float).set_axis([*sources], axis=1)
    jobs[["N", "seconds"]] = jobs[["N", "seconds"]].replace(0, math.nan)
    jobs = jobs.fillna(pd.DataFrame([_of_bins(one) for one in bins], index=jobs.index))
    counted, measured = jobs["N"].notna(), jobs["seconds"].notna()
    n = jobs["N"].fillna(derived.get("operations", math.nan))
    ios = jobs["ios"].fillna(n)
    jobs = jobs.assign(
        job_Id=[str(row.get("job_Id")) for row in rows],
        repeat=battery.repeat,
        N=n,
        ios=ios,
        bytes=jobs["bytes"].fillna(ios * derived.get("block", math.nan)),
        reads=jobs["reads"].fillna(ios if kind == "read" else 0),
        writes=jobs["writes"].fillna(ios if kind == "write" else 0),
        seconds=jobs["seconds"].fillna(n * jobs["mean_ms"] / 1000 if derived.get("one at a time") else math.nan),
        bins=pd.Series(bins, index=jobs.index, dtype=object),
        counted=counted,
        timed=measured & jobs["start_s"].notna(),
    )
    jobs = jobs[jobs["mean_ms"].notna()].reset_index(drop=True)
    jobs["number"] = jobs["number"].fillna(pd.Series(np.arange(1.0, len(jobs) + 1))).astype(int)
    return _timed(jobs.sort_values("number", kind="stable", ignore_index=True), battery.pause_s)[[*_COLUMNS]]


def _of_bins(bins: np.ndarray | None) -> dict[str, float]:
    """What a histogram says of its job's operations."""
    if bins is None:
        return {}
    whole, own = histograms.moments(bins), histograms.percentiles([bins], PERCENTILES)
    row = {"N": whole.n, "mean_ms": whole.mean, "stddev_ms": whole.stddev, "max_ms": whole.largest}
    return row | {name: one.value for name, one in zip(_OWN, own, strict=True)}


def _derived(options: dict[str, str]) -> dict:
    """What options alone tell of a job: operations and their size, and whether only one is under way at a time.

    A job that writes a file of `size` once, block after block, does size / bs operations; where one is under way at a
    time it takes as long as all their latencies together, but for the time between them.
    """
    try:
        block, size = fio_options.block_bytes(options), fio_options.total_bytes(options)
    except (Problem, ValueError):
        return {}
    if fio_options.runtime_s(options) or options.get("loops", "1") != "1":
        return {"block": block}
    alone = all(options.get(name, "1") == "1" for name in ("numjobs", "iodepth"))
    each = options.get("fdatasync", options.get("fsync", "1")) in ("0", "1")
    return {"block": block, "one at a time": alone and each, **({"operations": size // block} if each else {})}


def _timed(jobs: pd.DataFrame, pause_s: float) -> pd.DataFrame:
    """Fill in when jobs began and how long the pauses after them were: as measured, else one after the other."""
    seconds, start = jobs["seconds"].to_numpy(float), jobs["start_s"].to_numpy(float)
    if np.isnan(start).any():
        start = np.concatenate([[0.0], np.cumsum(seconds + pause_s)[:-1]])[: len(jobs)]
    pauses = np.append(np.fmax(start[1:] - (start + seconds)[:-1], 0), pause_s)[: len(jobs)]
    return jobs.assign(start_s=start, pause_s=pauses)
