"""The tables of the volumes study, as data frames, from the series of a run."""

import math
from collections.abc import Sequence

import pandas as pd

from scripts.statistics import histograms, resampling
from scripts.studies.volumes import changes, compare, credits, fio_samples, limits
from scripts.studies.volumes.fio_output import PERCENTILES
from scripts.studies.volumes.series import FACTORS, Series, histograms_of, percentiles, with_hosts_together

MIB = 2**20
# The percentiles of the curves: as many to a tenth of the tail as one sees.
CURVE = (
    *(1, 5, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99),
    *(99.2, 99.4, 99.5, 99.6, 99.7, 99.8, 99.9, 99.92, 99.94, 99.95, 99.96, 99.97, 99.98, 99.99),
)
# The columns of a sample that are there whatever was measured: the published ones.
SAMPLE = fio_samples.COLUMNS[:9]
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

    `settings` has limits, compare, equivalence_percent and seed; without anything to compare, stores are compared with
    the first.
    """
    seed, equivalence = settings["seed"], settings["equivalence_percent"]
    judged_limits = limits.read(settings["limits"])
    parts = {one.levels: _segments(one, equivalence, seed) for one in series}
    shown = with_hosts_together(series)
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
    # Rows have more than a table shows.
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


def _segments(series: Series, equivalence: float, seed: int) -> list[changes.Segment]:
    """The segments of each battery, one battery after the other; places are those in the series' jobs."""
    return [
        part._replace(first=part.first + int(jobs.index[0]), last=part.last + int(jobs.index[0]))
        for _, jobs in series.jobs.groupby("repeat", sort=False)
        for part in changes.segments(jobs[_level_of(series)].to_numpy(float), equivalence, seed)
    ]


def _level_of(series: Series) -> str:
    """What changes are looked for in: p99, or the mean where a job has no p99."""
    return "p99_ms" if series.jobs["p99_ms"].notna().all() else "mean_ms"


def _head(series: Series) -> dict:
    return {**series.head, "operation": series.operation}


def _cell(series: Series, quantiles: dict[float, histograms.Percentile], seed: int) -> dict:
    jobs, volume = series.jobs, credits.describe(series.volume)
    wrong = [battery for battery in series.batteries if not battery.ok]
    failed = sum(battery.status != "done" for battery in wrong)
    reasons = dict.fromkeys(" ".join(reason.split()) for battery in wrong for reason in battery.reasons)
    return {
        "cell": series.cell,
        **_head(series),
        "jobs": len(jobs),
        "n": len(series.good),
        "failed": failed,
        "invalid": len(wrong) - failed,
        "edited": sum(battery.edited for battery in wrong),
        "reasons": "; ".join(reasons),
        **(_summary(jobs, quantiles, seed) if len(jobs) else {}),
        **volume._asdict(),
        "ceiling_iops": volume.burst_iops,
        "note": _note(jobs, quantiles, volume.note),
    }


def _summary(jobs: pd.DataFrame, quantiles: dict[float, histograms.Percentile], seed: int) -> dict:
    numbers = jobs.drop(columns=["job_Id", "bins"]).astype(float)
    counted_all = numbers["N"].notna().all()
    weights = numbers["N"] if counted_all else pd.Series(1.0, index=jobs.index)
    mean = resampling.total_over_total(numbers["mean_ms"] * weights, weights, seed)
    counted = numbers[numbers["device_writes"].notna()]
    rates = {
        "iops": (numbers["ios"], numbers["seconds"]),
        "mib_s": (numbers["bytes"] / MIB, numbers["seconds"]),
        "device_writes_per_write": (counted["device_writes"], counted["writes"]),
    }
    row = {"N": int(weights.sum()) if counted_all else math.nan, "interval": _interval(jobs)}
    estimates = {f"p{p:g}_ms": quantiles[p] for p in PERCENTILES if p in quantiles} | {"mean_ms": mean}
    for name, estimate in estimates.items():
        row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return row | {
        "max_ms": numbers["max_ms"].max(),
        "stddev_ms": histograms.pooled_stddev(numbers["mean_ms"], numbers["stddev_ms"], numbers["N"]),
        **{name: resampling.total_over_total(*amounts).value for name, amounts in rates.items()},
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


def _verdicts(
    series: Series, segments: list[changes.Segment], judged_limits: list[limits.Limit], seed: int
) -> list[dict]:
    # A limit of fsync says nothing about reads.
    own = [limit for limit in judged_limits if not limit.operation or series.operation in ("", limit.operation)]
    rows = limits.verdicts(series.jobs, segments, own, seed, series.memory)
    return [{**_head(series), **row} for row in rows]


def _segment_rows(series: Series, segments: list[changes.Segment]) -> list[dict]:
    rows = []
    mean = "" if _level_of(series) == "p99_ms" else "changes of the mean, as a job has no p99"
    for number, part in enumerate(segments, 1):
        jobs = series.jobs.iloc[part.first : part.last]
        first, last = jobs.iloc[0], jobs.iloc[-1]
        battery = int((series.jobs["repeat"] == first["repeat"]).sum())
        few = f"{battery} jobs are too few to look for changes" if battery < changes.MIN_SERIES else ""
        rows.append(
            {
                **_head(series),
                "segment": number,
                "repeat": first["repeat"],
                "first_job": first["job_Id"],
                "last_job": last["job_Id"],
                "first_number": first["number"],
                "last_number": last["number"],
                "jobs": len(jobs),
                "p99_ms": jobs["p99_ms"].median(),
                "jump": part.jump,
                "jump_low": part.low,
                "jump_high": part.high,
                "note": few or mean,
            }
        )
    return rows


def _curve(series: Series, quantiles: dict[float, histograms.Percentile]) -> list[dict]:
    """The percentiles that are not refused, then the largest latency as the 100th."""
    rows = [
        {**_head(series), "percentile": p, "ms": one.value, "low": one.low, "high": one.high, "N": one.n}
        for p, one in quantiles.items()
        if math.isfinite(one.value)
    ]
    n = next((row["N"] for row in rows), math.nan)
    largest = series.jobs["max_ms"].max() if len(series.jobs) else math.nan
    return rows + ([{**_head(series), "percentile": 100, "ms": largest, "N": n}] if math.isfinite(largest) else [])


def _credit_rows(history: credits.History) -> list[dict]:
    each = {"ios_per_write": history.each.value, "ios_per_write_source": history.each.source}
    jobs = zip(history.jobs.to_dict("records"), history.spent, strict=False)
    return [{**history.series.head, **job, **spent._asdict(), **each} for job, spent in jobs]


def _collapse(history: credits.History) -> dict:
    row = {**history.series.head, "repeat": history.jobs["repeat"].iloc[0], **history.volume._asdict()}
    if history.spent:
        row |= {"ios_per_write": history.each.value}
    row["ios_per_write_source"] = history.each.source if history.spent else ""
    for name, place in (("predicted", history.predicted), ("observed", history.observed)):
        job = {"job_Id": "", "number": None} if place is None else history.jobs.iloc[place]
        row |= {f"{name}_job": job["job_Id"], f"{name}_number": job["number"]}
    return row | {"text": _collapse_text(history, row)}


def _collapse_text(history: credits.History, row: dict) -> str:
    volume = history.volume
    name = volume.volume_type if math.isnan(volume.size_gib) else f"{volume.size_gib:g} GiB {volume.volume_type}"
    seen = f"a collapse was seen at job {row['observed_number']}" if row["observed_job"] else "no collapse was seen"
    if math.isnan(volume.credits):
        ending = volume.note or f"a {name} volume has no credits that could run out"
        return f"{ending}; {seen}"
    if not history.spent:
        unknown = "the volume's size" if math.isnan(volume.baseline_iops) else "what the jobs asked for, or when,"
        return f"the credits of a {name} volume cannot be modelled, as {unknown} is not known; {seen}"
    left = history.spent[-1].credits_end / 1e6
    ending = (
        f"run out in job {row['predicted_number']}"
        if row["predicted_job"]
        else f"last longer than these jobs ({left:.1f} million are left)"
    )
    start = "what the battery before has left" if history.carried else "a full bucket"
    each = f"{history.each.value:.2f} device I/Os per write: {history.each.source}"
    return f"by the model the credits of a {name} volume {ending}; {seen} (from {start}; {each})"
