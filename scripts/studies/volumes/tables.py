"""The tables of the volumes study, as data frames, from the series of a run."""

import math
from collections.abc import Sequence

import pandas as pd

from scripts.statistics import histograms, resampling
from scripts.studies.volumes import changes, compare, credits, limits
from scripts.studies.volumes.series import FACTORS, PERCENTILES, Battery, Series, histograms_of, percentiles, together

MIB = 2**20
# The percentiles of the curves: as many to a tenth of the tail as one sees.
CURVE = (
    *(1, 5, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99),
    *(99.2, 99.4, 99.5, 99.6, 99.7, 99.8, 99.9, 99.92, 99.94, 99.95, 99.96, 99.97, 99.98, 99.99),
)
# The columns of a sample that are there whatever was measured: the published ones.
SAMPLE = (
    *("battery_id", "node_name", "layout", "job_Id", "sync_lat_max_ms", "sync_lat_mean_ms", "sync_lat_stddev_ms"),
    *("sync_lat_p99_ms", "sync_lat_p99.9_ms"),
)
COLUMNS = {
    "cells": (
        *("cell", *FACTORS, "operation", "jobs", "n", "failed", "invalid", "edited", "reasons", "N"),
        *(f"p{p:g}_ms{end}" for p in PERCENTILES for end in ("", "_low", "_high")),
        *("max_ms", "mean_ms", "mean_ms_low", "mean_ms_high", "stddev_ms", "iops", "mib_s"),
        *("device_writes_per_write", "interval", "volume_type", "size_gib", "baseline_iops", "ceiling_iops"),
        *("ceiling_mib_s", "note"),
    ),
    "verdicts": (
        *(*FACTORS, "operation", "limit", "metric", "limit_ms", "source", "segment", "repeat", "first_job"),
        *("last_job", "jobs", "jobs_over", "value_ms", "low_ms", "high_ms", "verdict", "kept_s", "reason"),
    ),
    "segments": (
        *(*FACTORS, "operation", "segment", "repeat", "first_job", "last_job", "first_number", "last_number"),
        *("jobs", "p99_ms", "jump", "jump_low", "jump_high", "note"),
    ),
    "percentiles": (*FACTORS, "operation", "percentile", "ms", "low", "high", "N"),
    "credits": (
        *(*FACTORS, "repeat", "number", "job_Id", "credits_start", "credits_end", "modelled_iops", "allowed_iops"),
        *("modelled_s", "ios_per_write", "ios_per_write_source"),
    ),
    "collapses": (
        *(*FACTORS, "repeat", "volume_type", "size_gib", "baseline_iops", "burst_iops", "credits", "ios_per_write"),
        *("ios_per_write_source", "predicted_job", "predicted_number", "observed_job", "observed_number", "text"),
    ),
}


def build(series: Sequence[Series], settings: dict) -> dict[str, pd.DataFrame]:
    """Return the tables by name: samples, cells, verdicts, segments, percentiles, comparisons, credits, collapses.

    Args:
        series: see `series.read`.
        settings: limits, compare, equivalence_percent and seed of the study; without anything to compare, stores are
            compared with the first.
    """
    seed, equivalence = settings["seed"], settings["equivalence_percent"]
    judged_limits = limits.read(settings["limits"])
    parts = {one.levels: _segments(one, equivalence, seed) for one in series}
    shown = _with_hosts_together(series)
    quantiles = {one.levels: percentiles(one.jobs, CURVE, seed) for one in shown}
    modelled = credits.histories(series, parts)
    rows = {
        "cells": [_cell(one, quantiles[one.levels], seed) for one in shown],
        "verdicts": [row for one in series for row in _verdicts(one, parts[one.levels], judged_limits, seed)],
        "segments": [row for one in series for row in _segment_rows(one, parts[one.levels])],
        "percentiles": [row for one in shown for row in _curve(one, quantiles[one.levels])],
        "credits": [row for one in modelled for row in _credit_rows(one)],
        "collapses": [_collapse(one) for one in modelled],
    }
    tables = {name: pd.DataFrame(table_rows, columns=[*COLUMNS[name]]) for name, table_rows in rows.items()}
    # Nobody has to know the names of imported volumes to see them compared.
    first = [{"factor": "store", "baseline": one.levels[0]} for one in series[:1]]
    compared = compare.comparisons(series, parts, settings["compare"] or first, equivalence, seed)
    return {"samples": samples(series), **tables, "comparisons": compared}


def samples(series: Sequence[Series]) -> pd.DataFrame:
    """Return samples.csv: each job as its record has it, then where and when it was measured and whether it counts."""
    rows = [
        {
            **row,
            "layout": row.get("layout") or one.levels[0],
            "cell": battery.cell,
            **one.head,
            "repeat": battery.repeat,
            "status": battery.status,
            "valid": battery.ok,
        }
        for one in series
        for battery in one.batteries
        for row in battery.rows
    ]
    return pd.DataFrame(rows, columns=None if rows else [*SAMPLE, "cell", *FACTORS, "repeat", "status", "valid"])


def _with_hosts_together(series: Sequence[Series]) -> list[Series]:
    """The series, and after the last host of a place those that take its hosts together."""
    joined = {one.levels[:3]: one for one in together(series)}
    last = {one.levels[:3]: place for place, one in enumerate(series)}
    shown = []
    for place, one in enumerate(series):
        shown.append(one)
        if one.levels[:3] in joined and last[one.levels[:3]] == place:
            shown.append(joined[one.levels[:3]])
    return shown


def _segments(series: Series, equivalence: float, seed: int) -> list[changes.Segment]:
    """The segments of each battery, one battery after the other; places are those in the series' jobs."""
    segments = []
    for _, jobs in series.jobs.groupby("repeat", sort=False):
        values = jobs[_level_of(series)].to_numpy(float)
        begin = int(jobs.index[0])
        segments += [
            part._replace(first=part.first + begin, last=part.last + begin)
            for part in changes.segments(values, equivalence, seed)
        ]
    return segments


def _level_of(series: Series) -> str:
    """What changes are looked for in: p99, or the mean where a job has no p99."""
    return "p99_ms" if series.jobs["p99_ms"].notna().all() else "mean_ms"


def _cell(series: Series, quantiles: dict[float, histograms.Percentile], seed: int) -> dict:
    jobs, volume = series.jobs, credits.describe(series.volume)
    wrong = [battery for battery in series.batteries if not battery.ok]
    failed = sum(battery.status != "done" for battery in wrong)
    row = {
        "cell": series.cell,
        **series.head,
        "operation": series.operation,
        "jobs": len(jobs),
        "n": len(series.good),
        "failed": failed,
        "invalid": len(wrong) - failed,
        "edited": sum(battery.edited for battery in wrong),
        "reasons": _reasons(wrong),
        "volume_type": volume.type,
        "size_gib": volume.size_gib,
        "baseline_iops": volume.baseline_iops,
        "ceiling_iops": volume.burst_iops,
        "ceiling_mib_s": volume.ceiling_mib_s,
    }
    return row | (_summary(jobs, quantiles, seed) if len(jobs) else {}) | {"note": _note(jobs, quantiles, volume.note)}


def _summary(jobs: pd.DataFrame, quantiles: dict[float, histograms.Percentile], seed: int) -> dict:
    numbers = jobs.drop(columns=["job_Id", "bins"]).astype(float)
    counted_all = numbers["N"].notna().all()
    weights = numbers["N"] if counted_all else pd.Series(1.0, index=jobs.index)
    mean = resampling.total_over_total(numbers["mean_ms"] * weights, weights, seed)
    row = {"N": int(weights.sum()) if counted_all else math.nan, "interval": _interval(jobs)}
    for p in PERCENTILES:
        estimate = quantiles.get(p, histograms.Percentile(*[math.nan] * 4))
        row |= {f"p{p:g}_ms": estimate.value, f"p{p:g}_ms_low": estimate.low, f"p{p:g}_ms_high": estimate.high}
    counted = numbers[numbers["device_writes"].notna()]
    return row | {
        "max_ms": numbers["max_ms"].max(),
        "mean_ms": mean.value,
        "mean_ms_low": mean.low,
        "mean_ms_high": mean.high,
        "stddev_ms": histograms.pooled_stddev(numbers["mean_ms"], numbers["stddev_ms"], numbers["N"]),
        "iops": resampling.total_over_total(numbers["ios"], numbers["seconds"]).value,
        "mib_s": resampling.total_over_total(numbers["bytes"] / MIB, numbers["seconds"]).value,
        "device_writes_per_write": resampling.total_over_total(counted["device_writes"], counted["writes"]).value,
    }


def _interval(jobs: pd.DataFrame) -> str:
    """How the percentiles' intervals were made."""
    if not histograms_of(jobs):
        return "bounds of the jobs"
    if len(jobs) >= resampling.LEAST:
        return "bins: bootstrap of jobs"
    return "bins: order statistics" + (" and range of the jobs" if len(jobs) > 1 else " of one job")


def _note(jobs: pd.DataFrame, quantiles: dict[float, histograms.Percentile], volume: str) -> str:
    notes = [volume]
    if len(jobs):
        if not histograms_of(jobs):
            notes.append("without bins there is no merged percentile: medians of the jobs' own, between their bounds")
        if jobs["N"].isna().any():
            notes.append("N is not known: the mean weighs all jobs alike")
        elif not jobs["counted"].all():
            notes.append("N, times and rates are derived from the job's options and mean latencies")
        if len(jobs) < resampling.LEAST:
            notes.append(f"{len(jobs)} jobs are too few to resample")
        notes += [quantiles[p].reason for p in PERCENTILES if p in quantiles]
    return "; ".join(filter(None, notes))


def _reasons(wrong: Sequence[Battery]) -> str:
    """Why batteries failed or are invalid."""
    return "; ".join(dict.fromkeys(" ".join(reason.split()) for battery in wrong for reason in battery.reasons))


def _verdicts(
    series: Series, segments: list[changes.Segment], judged_limits: list[limits.Limit], seed: int
) -> list[dict]:
    # A limit of fsync says nothing about reads.
    own = [limit for limit in judged_limits if not limit.operation or series.operation in ("", limit.operation)]
    rows = limits.verdicts(series.jobs, segments, own, seed, series.memory)
    return [{**series.head, "operation": series.operation, **row} for row in rows]


def _segment_rows(series: Series, segments: list[changes.Segment]) -> list[dict]:
    rows = []
    for number, part in enumerate(segments, 1):
        jobs = series.jobs.iloc[part.first : part.last]
        row = {
            "segment": number,
            "repeat": jobs["repeat"].iloc[0],
            "jobs": len(jobs),
            "p99_ms": jobs["p99_ms"].median(),
        }
        row |= {f"{end}_job": jobs["job_Id"].iloc[place] for end, place in (("first", 0), ("last", -1))}
        row |= {f"{end}_number": jobs["number"].iloc[place] for end, place in (("first", 0), ("last", -1))}
        row |= {"jump": part.jump, "jump_low": part.low, "jump_high": part.high}
        battery = int((series.jobs["repeat"] == row["repeat"]).sum())
        few = f"{battery} jobs are too few to look for changes" if battery < changes.MIN_SERIES else ""
        mean = "" if _level_of(series) == "p99_ms" else "changes of the mean, as a job has no p99"
        rows.append({**series.head, "operation": series.operation, **row, "note": few or mean})
    return rows


def _curve(series: Series, quantiles: dict[float, histograms.Percentile]) -> list[dict]:
    """The percentiles that are not refused, then the largest latency as the 100th."""
    head = {**series.head, "operation": series.operation}
    rows = [
        {**head, "percentile": p, "ms": estimate.value, "low": estimate.low, "high": estimate.high, "N": estimate.n}
        for p, estimate in quantiles.items()
        if math.isfinite(estimate.value)
    ]
    n = next((row["N"] for row in rows), math.nan)
    largest = series.jobs["max_ms"].max() if len(series.jobs) else math.nan
    return rows + ([{**head, "percentile": 100, "ms": largest, "N": n}] if math.isfinite(largest) else [])


def _credit_rows(history: credits.History) -> list[dict]:
    rows = zip(history.jobs.to_dict("records"), history.spent, strict=False)
    return [
        {
            **history.series.head,
            "repeat": job["repeat"],
            "number": job["number"],
            "job_Id": job["job_Id"],
            "credits_start": spent.start,
            "credits_end": spent.end,
            "modelled_iops": spent.iops,
            "allowed_iops": spent.allowed,
            "modelled_s": spent.seconds,
            "ios_per_write": history.each.value,
            "ios_per_write_source": history.each.source,
        }
        for job, spent in rows
    ]


def _collapse(history: credits.History) -> dict:
    volume, modelled = history.volume, bool(history.spent)
    row = {
        **history.series.head,
        "repeat": history.jobs["repeat"].iloc[0],
        "volume_type": volume.type,
        "size_gib": volume.size_gib,
        "baseline_iops": volume.baseline_iops,
        "burst_iops": volume.burst_iops,
        "credits": volume.credits,
        "ios_per_write": history.each.value if modelled else math.nan,
        "ios_per_write_source": history.each.source if modelled else "",
    }
    for name, place in (("predicted", history.predicted), ("observed", history.observed)):
        job = None if place is None else history.jobs.iloc[place]
        row |= {f"{name}_job": "" if job is None else job["job_Id"]}
        row |= {f"{name}_number": None if job is None else job["number"]}
    return row | {"text": _collapse_text(history, row)}


def _collapse_text(history: credits.History, row: dict) -> str:
    volume = history.volume
    name = volume.type if math.isnan(volume.size_gib) else f"{volume.size_gib:g} GiB {volume.type}"
    seen = f"a collapse was seen at job {row['observed_number']}" if row["observed_job"] else "no collapse was seen"
    if math.isnan(volume.credits):
        ending = volume.note or f"a {name} volume has no credits that could run out"
        return f"{ending}; {seen}"
    if not history.spent:
        unknown = "the volume's size" if math.isnan(volume.baseline_iops) else "what the jobs asked for, or when,"
        return f"the credits of a {name} volume cannot be modelled, as {unknown} is not known; {seen}"
    left = history.spent[-1].end / 1e6
    ending = (
        f"run out in job {row['predicted_number']}"
        if row["predicted_job"]
        else f"last longer than these jobs ({left:.1f} million are left)"
    )
    start = "what the battery before has left" if history.carried else "a full bucket"
    each = f"{history.each.value:.2f} device I/Os per write: {history.each.source}"
    return f"by the model the credits of a {name} volume {ending}; {seen} (from {start}; {each})"
