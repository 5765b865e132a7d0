"""Build the tables (DataFrames) of the volumes study from the series of a run."""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from sbench.design import records
from sbench.measure import session_records
from sbench.probe.fields import read_fields
from sbench.studies.volumes import credits, fio, limits, promises, volume_ratios
from sbench.studies.volumes.fio_output import PERCENTILES
from sbench.studies.volumes.series import (
    FACTORS,
    Series,
    add_all_hosts,
    estimate_percentiles,
    get_histograms,
    split_by_credits,
)
from sbench.studies.volumes.settings import Judging
from sbench.verdicts import changes, histograms, sessions, stats

MIB = 2**20
# The percentiles of the curves, evenly dense in each decade of the tail.
CURVE = (
    *(1, 5, 10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 92, 94, 95, 96, 97, 98, 99),
    *(99.2, 99.4, 99.5, 99.6, 99.7, 99.8, 99.9, 99.92, 99.94, 99.95, 99.96, 99.97, 99.98, 99.99),
)
# The columns of the published data, which all samples have.
SAMPLE = fio.COLUMNS[:9]
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
        *("last_job", "jobs", "jobs_over", *limits.SHARES, "value_ms", "low_ms", "high_ms", "verdict", "kept_s"),
        "reason",
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
    "records": ("cell", *FACTORS, *sessions.COLUMNS, sessions.MACHINE),
    "collapses": (
        *(*FACTORS, "repeat", "volume_type", "size_gib", "baseline_iops", "burst_iops", "credits", "ios_per_write"),
        *("ios_per_write_source", "predicted_job", "predicted_number", "observed_job", "observed_number", "text"),
    ),
}


def build_tables(series: Sequence[Series], settings: dict) -> dict[str, pd.DataFrame]:
    """Build all tables, by name: the tables in `COLUMNS`, samples and comparisons.

    `settings` is the configuration, updated with the study's section.
    """
    given = read_fields(Judging, settings)
    seed, equivalence, judged_limits = given.seed, given.equivalence_percent, limits.resolve_limits(given.limits)
    parts = {one.levels: list_segments(one, equivalence, seed) for one in series}
    # Batteries that started with different credits are different experiments, so do not pool them.
    series = split_by_credits(series, credits.build_credit_tables(series, parts)[1])
    parts = {one.levels: list_segments(one, equivalence, seed) for one in series}
    rows: dict[str, list[dict]] = {name: [] for name in COLUMNS}
    for one in add_all_hosts(series):
        quantiles, head = estimate_percentiles(one.jobs, CURVE, seed), one.head | {"operation": one.operation}
        rows["cells"].append(head | _build_cell_row(one, quantiles, seed))
        rows["percentiles"] += [head | row for row in _build_curve_rows(one.jobs, quantiles)]
    for one in series:
        head = one.head | {"operation": one.operation}
        rows["verdicts"] += [head | row for row in limits.judge_limits(one, parts[one.levels], judged_limits, seed)]
        rows["records"] += list(_list_records(one, seed))
        rows["segments"] += [head | row for row in _build_segment_rows(one.jobs, parts[one.levels])]
    rows["credits"], rows["collapses"] = credits.build_credit_tables(series, parts)
    # Rows may have more entries than their table has columns.
    tables = {name: pd.DataFrame(table_rows, columns=[*COLUMNS[name]]) for name, table_rows in rows.items()}
    # Compare volumes even if `compare` is empty: users may not know the names of imported volumes.
    first = [{"factor": "store", "baseline": one.levels[0]} for one in series[:1]]
    compared = volume_ratios.compare_series(series, parts, given.compare or first, equivalence, seed)
    return {"samples": build_samples(series), **tables, "comparisons": compared}


def build_samples(series: Sequence[Series]) -> pd.DataFrame:
    """Build samples.csv: each job's sample as recorded, with its cell, factor levels, repeat, status and validity."""
    rows = [
        {**row, "layout": row.get("layout") or one.levels[0], "cell": battery.cell, **one.head}
        | {"repeat": battery.repeat, "status": "done", "valid": battery.valid}
        for one in series
        for battery in one.batteries
        for row in battery.rows
    ]
    return pd.DataFrame(rows, columns=None if rows else [*SAMPLE, "cell", *FACTORS, "repeat", "status", "valid"])


def _list_records(series: Series, seed: int) -> Iterator[dict]:
    """Yield a row with the p99 of each battery, by which runs are compared. Batteries are the repeats."""
    for battery in series.batteries:
        jobs = series.jobs[series.jobs["repeat"] == battery.repeat] if battery.valid else series.jobs[:0]
        p99 = estimate_percentiles(jobs, (99,), seed).get(99)
        yield {
            **{"cell": battery.cell, **series.head, "repeat": battery.repeat, "valid": battery.valid},
            **{"session": battery.record.get("session", ""), "figure": "p99", "unit": "ms"},
            **{"value": p99.value if p99 else math.nan, "code": session_records.get_code_hash(battery.record)},
            sessions.MACHINE: session_records.name_machine(battery.record.get("host") or {}),
        }


def list_segments(series: Series, equivalence: float = 5, seed: int = 1) -> list[changes.Segment]:
    """Find the segments of each battery. Their job indices count through all batteries of the series."""
    return [
        part._replace(first=part.first + int(jobs.index[0]), last=part.last + int(jobs.index[0]))
        for _, jobs in series.jobs.groupby("repeat", sort=False)
        for part in changes.find_segments(
            series.jobs.loc[jobs.index, _choose_level_column(series.jobs)], equivalence, seed
        )
    ]


def _choose_level_column(jobs: pd.DataFrame) -> str:
    """Choose the column in which level changes are detected: p99, or the mean if any job lacks a p99."""
    return "p99_ms" if jobs["p99_ms"].notna().all() else "mean_ms"


def _build_cell_row(series: Series, quantiles: dict[float, histograms.Percentile], seed: int) -> dict:
    jobs, volume = series.jobs, promises.compute_promises(series.volume)
    wrong = [battery for battery in series.batteries if not battery.valid]
    failed = sum(battery.record.get("status") != "done" for battery in wrong)
    reasons = dict.fromkeys(" ".join(reason.split()) for battery in wrong for reason in battery.reasons)
    row = {
        **{"cell": series.cell, "jobs": len(jobs), "n": len(series.valid), "reasons": "; ".join(reasons)},
        **{"failed": failed, "invalid": len(wrong) - failed},
        "edited": sum(records.is_edited(battery.record) for battery in wrong),
        **{**volume._asdict(), "ceiling_iops": volume.burst_iops},
    }
    return row | (_compute_summary(jobs, quantiles, seed, volume.note) if len(jobs) else {})


def _compute_summary(jobs: pd.DataFrame, quantiles: dict[float, histograms.Percentile], seed: int, note: str) -> dict:
    numbers = jobs.drop(columns=["job_Id", "bins"]).astype(float)
    all_counted, merged, many = numbers["N"].notna().all(), get_histograms(jobs), len(jobs) >= stats.MIN_BLOCKS
    weights = numbers["N"] if all_counted else pd.Series(1.0, index=jobs.index)
    mean = stats.estimate_total_ratio(numbers["mean_ms"] * weights, weights, seed)
    counted = numbers[numbers["device_writes"].notna()]
    rates = {
        "iops": (numbers["ios"], numbers["seconds"]),
        "mib_s": (numbers["bytes"] / MIB, numbers["seconds"]),
        "device_writes_per_write": (counted["device_writes"], counted["writes"]),
    }
    few = "order statistics and range of the jobs" if len(jobs) > 1 else "order statistics of one job"
    row = {"N": int(weights.sum()) if all_counted else math.nan}
    row["interval"] = f"bins: {'bootstrap of jobs' if many else few}" if merged else "bounds of the jobs"
    own = {p: quantiles[p] for p in PERCENTILES if p in quantiles}
    for name, estimate in {**{f"p{p:g}_ms": one for p, one in own.items()}, "mean_ms": mean}.items():
        row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    derived = all_counted and not jobs["counted"].all()
    notes = {
        note: True,
        "without histograms: medians of the jobs' percentiles, with bounds": not merged,
        "N is unknown: all jobs have the same weight in the mean": not all_counted,
        "N, times and rates follow from job options and mean latencies": derived,
        f"{len(jobs)} job{'s are' if len(jobs) > 1 else ' is'} too few to resample": not many,
        **{one.reason: True for one in own.values()},
    }
    return row | {
        "max_ms": numbers["max_ms"].max(),
        "stddev_ms": histograms.compute_pooled_stddev(numbers["mean_ms"], numbers["stddev_ms"], numbers["N"]),
        **{name: stats.estimate_total_ratio(*amounts).value for name, amounts in rates.items()},
        "note": "; ".join(text for text, holds in notes.items() if text and holds),
    }


def _build_segment_rows(jobs: pd.DataFrame, segments: Sequence[changes.Segment]) -> list[dict]:
    rows, sizes = [], jobs["repeat"].value_counts()
    mean = "" if _choose_level_column(jobs) == "p99_ms" else "changes of the mean, as a job lacks its p99"
    for number, part in enumerate(segments, 1):
        own = jobs.iloc[part.first : part.last]
        repeat = own["repeat"].iloc[0]
        few = f"{sizes[repeat]} jobs are too few to look for changes" if sizes[repeat] < changes.MIN_SERIES else ""
        row = {"segment": number, "repeat": repeat, "jobs": len(own), "p99_ms": own["p99_ms"].median()}
        row |= {"jump": part.jump, "jump_low": part.low, "jump_high": part.high, "note": few or mean}
        for end, job in (("first", own.iloc[0]), ("last", own.iloc[-1])):
            row |= {f"{end}_job": job["job_Id"], f"{end}_number": job["number"]}
        rows.append(row)
    return rows


def _build_curve_rows(jobs: pd.DataFrame, quantiles: dict[float, histograms.Percentile]) -> list[dict]:
    """Build a row for each percentile that can be estimated, and one for the maximum, the 100th percentile."""
    rows = [
        {"percentile": p, "ms": one.value, "low": one.low, "high": one.high, "N": one.n}
        for p, one in quantiles.items()
        if math.isfinite(one.value)
    ]
    if len(jobs) and math.isfinite(largest := jobs["max_ms"].max()):
        rows.append({"percentile": 100, "ms": largest, "N": rows[0]["N"] if rows else math.nan})
    return rows
