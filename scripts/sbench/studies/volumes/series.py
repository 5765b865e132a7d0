"""Group the batteries in records into series for the analysis: jobs in time order, with histograms and times.

A series consists of all batteries with the same (store, job, background, start_credits, host), in sequence. Each
battery has many jobs. All latencies are in ms.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.design import fingerprint, records, validity
from sbench.probe.program import Problem
from sbench.studies.volumes import fio_options
from sbench.studies.volumes.fio_output import PERCENTILES
from sbench.verdicts import histograms, stats

FACTORS = ("store", "job", "background", "start_credits", "host")
ALL_HOSTS = "all"
# Assumed for results that do not state their pause: the pause of the published batteries.
_USUAL_PAUSE_S = 10.0
_NS = 1e6
_OWN = tuple(f"p{p:g}_ms" for p in PERCENTILES)
_COLUMNS = (
    *("repeat", "number", "job_Id", "N", "mean_ms", "stddev_ms", "max_ms", *_OWN),
    *("ios", "bytes", "reads", "writes", "seconds", "start_s", "pause_s", "device_writes", "bins", "counted", "timed"),
)
Levels = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Battery:
    """The record of a battery.

    Attributes:
        cell: name of the cell.
        levels: level of each of `FACTORS`.
        repeat: number of the battery within its series.
        record: the record, or {} if it is unusable.
        reasons: reasons that exclude the battery from plots and verdicts.
        histograms: histograms by job id and operation: arrays of shape (bins, 2) with columns ms and count, or of shape
            (ranges, 3) with columns lowest ms, highest ms and count.
        software: fingerprint of the software (`design.fingerprint`).
    """

    cell: str
    levels: Levels
    repeat: int
    record: dict
    reasons: Sequence[str]
    histograms: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    software: str = ""

    @property
    def valid(self) -> bool:
        """Return whether the battery is finished and without faults, so that plots and verdicts use it."""
        return bool(self.record) and self.record["status"] == "done" and not self.reasons

    @property
    def rows(self) -> list[dict]:
        """Return the unmodified samples of the record, or an empty list if the battery is not finished."""
        return self.record["samples"] if self.record.get("status") == "done" else []


@dataclass(frozen=True)
class Series:
    """All batteries with the same (store, job, background, start_credits, host).

    Attributes:
        cell: name of the cell; an empty string if the series combines several hosts.
        levels: level of each of `FACTORS`.
        batteries: the batteries, valid or not.
        volume: type, size_gib, iops and throughput_mib_s of the volume as far as known.
    """

    cell: str
    levels: Levels
    batteries: tuple[Battery, ...]
    volume: dict = field(default_factory=dict)

    @property
    def head(self) -> dict[str, str]:
        """Return the level of each factor, keyed by factor. All tables begin with these columns."""
        return dict(zip(FACTORS, self.levels, strict=True))

    @property
    def valid(self) -> list[Battery]:
        """Return the valid batteries. Plots and verdicts use only these."""
        return [battery for battery in self.batteries if battery.valid]

    @property
    def loop(self) -> str:
        """Return "open" if latencies are measured from the time at which operations were due, otherwise "closed"."""
        return next((battery.record.get("loop") for battery in self.valid), None) or "closed"

    @cached_property
    def operation(self) -> str:
        """Return the operation whose latency is analysed (`choose_operation`); an empty string if there are no jobs."""
        rows = [row for battery in self.valid for row in battery.rows]
        return choose_operation(rows) if rows else ""

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """Return a DataFrame of the jobs of all valid batteries in time order, with `_COLUMNS`.

        p50_ms … p99.99_ms are percentiles of the job, start_s is relative to the start of its battery, pause_s is the
        pause after the job, and bins is its histogram or None. `counted` is False if N is derived from other values;
        `timed` is False if the run time or the start is.
        """
        parts = [_build_jobs(battery, self.operation) for battery in self.valid if battery.rows]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*_COLUMNS])


def choose_operation(rows: Sequence[dict]) -> str:
    """Choose the operation whose latency is analysed: sync if there are any, else the more frequent of the others."""
    names = ["sync_N", "sync_lat_mean_ms", "read_ios", "write_ios"]
    totals = pd.DataFrame(rows).reindex(columns=names).astype(float).sum()
    if totals["sync_N"] or totals["sync_lat_mean_ms"]:
        return "sync"
    return "read" if totals["read_ios"] > totals["write_ios"] else "write"


def get_started_utc(battery: Battery) -> str:
    """Return the start time of a battery; an empty string if unknown."""
    return str(battery.record.get("started_utc") or (battery.record.get("battery") or {}).get("started_utc") or "")


def build_series(matrix: pd.DataFrame, kept: Iterable[records.Kept], imported: dict, stores: dict) -> list[Series]:
    """Build all series of a run: first all of the matrix, even without records, and then imported ones.

    Unusable records count as failed batteries.

    Args:
        matrix: cells of the study; repeated cells (`twin_of`), which serve as controls, are left out.
        kept: stored records.
        imported: imported records.
        stores: stores of the configuration; they describe the volumes that no record describes.
    """
    cells = {row["cell"]: _get_levels(row) for row in matrix[matrix["twin_of"] == ""].to_dict("records")}
    batteries: dict[Levels, dict[int, Battery]] = {levels: {} for levels in cells.values()}
    names = {levels: cell for cell, levels in cells.items()}
    for battery in map(_build_battery, [*(one for one in kept if one.cell in cells), *_list_imported(imported)]):
        others = batteries.setdefault(battery.levels, {})
        repeat = max(others) + 1 if battery.repeat in others else battery.repeat
        others[repeat] = replace(battery, repeat=repeat)
        names.setdefault(battery.levels, battery.cell)
    series = []
    for levels, own in batteries.items():
        volumes = [*(one.record.get("volume") for one in own.values()), (stores.get(levels[0]) or {}).get("volume")]
        volume = next((volume for volume in volumes if volume and isinstance(volume, dict)), {})
        series.append(Series(names[levels], levels, tuple(own.values()), volume))
    return series


def split_by_credits(series: Sequence[Series], batteries: Iterable[dict]) -> list[Series]:
    """Split the series by the state of the burst credits at the start of each battery.

    `batteries` are the rows per battery from `credits.build_credit_tables`. A battery without a row keeps its level of
    start_credits.
    """
    states = {(*(row[factor] for factor in FACTORS), row["repeat"]): row["began"] for row in batteries}
    split = []
    for one in series:
        parts: dict[str, list[Battery]] = {}
        for battery in one.batteries:
            state = states.get((*one.levels, battery.repeat)) or one.head["start_credits"]
            parts.setdefault(state, []).append(battery)
        for state, own in (parts or {one.head["start_credits"]: []}).items():
            levels = (*one.levels[:3], state, one.levels[-1])
            split.append(replace(one, levels=levels, batteries=tuple(replace(each, levels=levels) for each in own)))
    return split


def add_all_hosts(series: Sequence[Series]) -> list[Series]:
    """For series that differ only in the host, add a series that combines all hosts, if several have valid batteries.

    The combined series follows the series of the last of these hosts.
    """
    shown = []
    for one in series:
        shown.append(one)
        hosts = [host for host in series if host.levels[:-1] == one.levels[:-1]]
        if one is hosts[-1] and sum(bool(host.valid) for host in hosts) > 1:
            batteries = tuple(battery for host in hosts for battery in host.batteries)
            volume = next((host.volume for host in hosts if host.volume), {})
            shown.append(Series("", (*one.levels[:-1], ALL_HOSTS), batteries, volume))
    return shown


def get_histograms(jobs: pd.DataFrame) -> list[np.ndarray] | None:
    """Return the histograms of all jobs, or None if any job lacks bins."""
    histograms_or_ranges = get_ranges(jobs) or []
    return histograms_or_ranges if {own.shape[1] for own in histograms_or_ranges} == {2} else None


def get_ranges(jobs: pd.DataFrame) -> list[np.ndarray] | None:
    """Return the bins or ranges of all jobs, or None if any job has neither."""
    return list(jobs["bins"]) if len(jobs) and jobs["bins"].notna().all() else None


def estimate_percentiles(jobs: pd.DataFrame, ps: Sequence[float], seed: int = 1) -> dict[float, histograms.Percentile]:
    """Estimate percentiles over all operations of several jobs.

    The estimates come from the merged bins if all jobs have bins, or else from bounds that follow from ranges. If any
    job lacks both, the interval is given by the percentiles of the jobs, or with few jobs by the next lower and higher
    percentiles. Without bins, the value is the median of the jobs' percentiles, unless the bounds determine it.

    Returns:
        The estimates by percentile; NaN with a reason if there are too few operations.
    """
    if merged := get_histograms(jobs):
        return dict(zip(ps, histograms.percentiles(merged, ps, seed), strict=True))
    if between := get_ranges(jobs):
        bounded = dict(zip(ps, histograms.bounded_percentiles(between, ps, seed), strict=True))
        medians = {p: jobs[f"p{p:g}_ms"].median(skipna=False) for p in PERCENTILES}
        return {
            p: one if one.reason or math.isfinite(one.value) else one._replace(value=medians.get(p, math.nan))
            for p, one in bounded.items()
        }
    n = float(jobs["N"].astype(float).sum(skipna=False)) if len(jobs) else math.nan
    estimates = {}
    for p in ps:
        own = jobs.get(f"p{p:g}_ms", pd.Series(dtype=float)).dropna()
        if len(own):
            refusal = histograms.describe_refusal(n, p)
            unknown = histograms.Percentile(*[math.nan] * 3, n, refusal)
            estimates[p] = (
                unknown if refusal else histograms.compute_bounds(own)._replace(n=n, **_compute_neighbour_ends(jobs, p))
            )
    return estimates


def _compute_neighbour_ends(jobs: pd.DataFrame, p: float) -> dict[str, float]:
    """Bound the p-th percentile of few jobs by their next lower and higher percentiles. Return {} if there are enough.

    The range of the jobs' p-th percentiles bounds the percentile of the measured operations only. It is too narrow to
    predict further jobs, and resampling needs more jobs.
    """
    if len(jobs) >= stats.MIN_BLOCKS:
        return {}
    below = [f"p{one:g}_ms" for one in sorted(PERCENTILES) if one < p]
    above = [*(f"p{one:g}_ms" for one in sorted(PERCENTILES) if one > p), "max_ms"]
    ends = {"low": jobs.get(below[-1]) if below else None, "high": jobs.get(above[0])}
    return {
        end: float((own.min if end == "low" else own.max)(skipna=False)) if own is not None else math.nan
        for end, own in ends.items()
    }


def _get_levels(row: Mapping[str, str]) -> Levels:
    return tuple(str(row.get(factor) or "") for factor in FACTORS)


def _list_imported(imported: dict) -> Iterator[records.Kept]:
    if imported and imported.get("status") != "done":
        print(f"import failed: {'; '.join(imported.get('reasons', []))}", file=sys.stderr)
    for number, record in enumerate(imported.get("records", []), 1):
        name = f"imported record {number}"
        try:
            records.expect_sound(record, name)
        except Problem as problem:
            print(f"left out: {problem}", file=sys.stderr)
            yield records.Kept("", {"store": name}, 1, Path(name), None, str(problem))
        else:
            yield records.Kept(record["name"], record["cell"], record["repeat"], Path(name), record)


def _build_battery(kept: records.Kept) -> Battery:
    """Convert a stored record to a battery. The battery counts as failed if the histograms are unusable."""
    place, record = (kept.cell, _get_levels(kept.levels), kept.repeat), kept.record
    if not record:
        return Battery(*place, {}, [kept.problem])
    try:
        bins = _convert_histograms(record.get("histograms") or {}) if record["status"] == "done" else {}
    except (AttributeError, IndexError, TypeError, ValueError):
        problem = f"{kept.path}: rows of histograms must have one latency or two, and a count, all at least 0"
        print(f"left out: {problem}", file=sys.stderr)
        return Battery(*place, {}, [problem])
    return Battery(*place, record, validity.list_faults(record), bins, fingerprint.read_fingerprint(kept))


def _convert_histograms(by_job: dict) -> dict[str, dict[str, np.ndarray]]:
    """Convert histograms from ns to ms, and drop empty ones.

    Raises:
        ValueError: a histogram has rows of the wrong length, or negative or infinite numbers.
    """
    kept: dict[str, dict[str, np.ndarray]] = {}
    for job, operations in by_job.items():
        for name, pairs in operations.items():
            bins = np.asarray(pairs or np.empty((0, 2)), dtype=float)
            bins = bins / (*[_NS] * (bins.shape[1] - 1), 1)
            if bins.shape[1] not in (2, 3) or not (np.isfinite(bins) & (bins >= 0)).all():
                raise ValueError
            if bins[:, -1].sum():
                kept.setdefault(job, {})[name] = bins
    return kept


def _build_jobs(battery: Battery, operation: str) -> pd.DataFrame:
    """Build the DataFrame of a battery's jobs with `_COLUMNS`.

    Missing values of a sample are filled from its histogram or derived from the job's options, and are otherwise NaN.
    """
    kind, derived = (
        "read" if operation == "read" else "write",
        _compute_from_options(battery.record.get("job_options") or {}),
    )
    latencies = ("mean_ms", "stddev_ms", "max_ms", *_OWN)
    sources = {
        **{"number": "number", "N": f"{operation}_N", **{name: f"{operation}_lat_{name}" for name in latencies}},
        **{"ios": f"{kind}_ios", "bytes": f"{kind}_bytes", "reads": "read_ios", "writes": "write_ios"},
        **{"seconds": "runtime_s", "start_s": "started_s", "device_writes": "device_write_ios"},
    }
    rows = [row for row in battery.rows if not row.get("error")]
    bins = [battery.histograms.get(str(row.get("job_Id")), {}).get(operation) for row in rows]
    jobs = pd.DataFrame(rows, columns=[*sources.values()]).astype(float).set_axis([*sources], axis=1)
    jobs[["N", "seconds"]] = jobs[["N", "seconds"]].replace(0, math.nan)
    # Fill missing values of a sample from its histogram.
    jobs = jobs.fillna(pd.DataFrame(map(_compute_job_figures, bins), jobs.index, ["N", *latencies]))
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
        counted=jobs["N"].notna(),
        timed=jobs["seconds"].notna() & jobs["start_s"].notna(),
    )
    jobs = jobs[jobs["mean_ms"].notna() | jobs["bins"].notna()].reset_index(drop=True)
    jobs["number"] = jobs["number"].fillna(pd.Series(np.arange(1.0, len(jobs) + 1))).astype(int)
    facts = [battery.record.get("battery") or {}, battery.record.get("settings") or {}]
    pause_s = next((float(one["pause_s"]) for one in facts if one.get("pause_s") is not None), _USUAL_PAUSE_S)
    jobs = jobs.sort_values("number", kind="stable", ignore_index=True)
    # If any start time is unknown, assume that the jobs ran one after another with the battery's pause between.
    seconds, start = jobs["seconds"].to_numpy(float), jobs["start_s"].to_numpy(float)
    if np.isnan(start).any():
        start = np.concatenate([[0.0], np.cumsum(seconds + pause_s)[:-1]])[: len(jobs)]
    pauses = np.append(np.fmax(start[1:] - (start + seconds)[:-1], 0), pause_s)[: len(jobs)]
    return jobs.assign(start_s=start, pause_s=pauses)[[*_COLUMNS]]


def _compute_job_figures(bins: np.ndarray | None) -> list[float]:
    """Compute N, mean, standard deviation, maximum and percentiles from the bins of a job; NaN without bins."""
    if bins is None or bins.shape[1] != 2:
        return [math.nan] * (4 + len(PERCENTILES))
    return [*histograms.compute_moments(bins), *(one.value for one in histograms.percentiles([bins], PERCENTILES))]


def _compute_from_options(options: Mapping[str, object]) -> dict:
    """Derive from a job's options its "operations", their size ("block") and whether they run "one at a time".

    A job that writes a file of `size` once performs size / bs operations. If they run one at a time, the run time is
    the sum of their latencies. Values that the options do not determine are left out.
    """
    options = {key: str(value) for key, value in options.items()}
    if "metric" in options:
        return {}
    try:
        block = fio_options.get_block_bytes(options)
    except (Problem, ValueError):
        return {}
    amount = fio_options.compute_asked_bytes(options)
    if not amount or options.get("fdatasync", options.get("fsync", "1")) not in ("0", "1"):
        return {"block": block}
    return {
        "block": block,
        "operations": amount[0] // block,
        "one at a time": fio_options.count_in_flight(options) == 1,
    }
