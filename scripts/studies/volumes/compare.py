"""Volumes against one another, and with a second job against without: differences in percent with intervals.

What is compared are two batteries, not repeated blocks (METHOD 17 does not apply): one battery a volume, one after the
other, so that a difference between volumes and one between two hours, hosts or volumes of a type cannot be told apart.
An interval here speaks of these batteries, with jobs as the unit; the jobs of both are resampled independently.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from scripts.lib.program import Problem
from scripts.statistics import histograms, resampling
from scripts.studies.volumes.changes import Segment
from scripts.studies.volumes.fio_output import PERCENTILES
from scripts.studies.volumes.series import ALL_HOSTS, FACTORS, Levels, Series, histograms_of

TOO_FEW_JOBS, TOO_FEW_BATTERIES = "too few jobs", "too few batteries"
_LEAST_BATTERIES = 2
METRICS = ("p50", "p99", "p99.9", "mean", "iops")
COLUMNS = (
    *("factor", "baseline", "contender", *FACTORS, "operation", "metric", "phase", "percent", "low", "high"),
    *("baseline_value", "contender_value", "n_baseline", "n_contender", "verdict", "method"),
)
_JOBS = "bootstrap of the jobs of one battery a side: the volume, the host and the hour cannot be told apart"
_MERGED = f"ratio of merged percentiles, {_JOBS}"
_MEDIANS = f"ratio of the medians of the jobs' percentiles, as there are no bins to merge, {_JOBS}"
_TOTALS = f"ratio of totals over totals, {_JOBS}"
_METHODS = {"mean": _TOTALS, "iops": _TOTALS}
Arms = tuple[list[Series], list[Series]]


def comparisons(
    series: Sequence[Series],
    segments: dict[tuple, list[Segment]],
    compare: Sequence[dict],
    equivalence_percent: float = 5,
    seed: int = 1,
) -> pd.DataFrame:
    """Return a row a comparison, phase and metric, in the order of `compare` (factor, baseline), then of the series.

    The arms of a comparison are the jobs at the baseline's and at another level of a factor, at the same levels of the
    others but the host: a volume's hosts are taken together. Phases: all jobs; those before the first change of either
    arm; those from the last change of either on. `percent` is 100 (contender / baseline - 1).

    A percentile here is a bin of fio's, so that intervals of ratios of percentiles are widened by a bin (1.6 %).

    Verdicts: `same` if the interval lies inside ±`equivalence_percent` (taken as 1 / 1.05 … 1.05), else `higher` or
    `lower` if it excludes 0, else `no evidence`; `too few jobs` below 6 in an arm, and `too few batteries` where an arm
    has one alone: its jobs are no repeats of it (METHOD 18). Phases stand only where each has 6 jobs in both arms.

    Raises:
        Problem: `compare` names something that is no factor.
    """
    bound = 1 + equivalence_percent / 100
    by_levels = {one.levels: one for one in series}

    # One baseline is compared with many contenders.
    @cache
    def figures(levels: tuple[Levels, ...], first: float, last: float, place: int) -> dict[str, _Figure]:
        jobs = pd.concat([by_levels[one].jobs for one in levels], ignore_index=True)
        return _figures(jobs[jobs["number"].between(first, last)], seed, place)

    rows = []
    for entry in compare:
        if entry["factor"] not in FACTORS:
            raise Problem(f"compare: {entry['factor']} is no factor of this study; name one of {', '.join(FACTORS)}")
        for head, arms in _arms(series, entry["factor"], str(entry["baseline"])):
            alone = min(sum(len(one.valid) for one in arm) for arm in arms) < _LEAST_BATTERIES
            for phase, numbers in _phases(arms, segments).items():
                sides = [figures(tuple(one.levels for one in arm), *numbers, place) for place, arm in enumerate(arms)]
                for metric in METRICS:
                    # A merged percentile is compared with a merged one only: that of the jobs is something else.
                    methods = {metric: _METHODS.get(metric, _MERGED), f"{metric} of jobs": _MEDIANS}
                    name = next((name for name in methods if all(name in side for side in sides)), None)
                    if name:
                        judged = _judge(*(side[name] for side in sides), metric, bound, alone)
                        rows.append({**head, "phase": phase, "metric": metric, **judged, "method": methods[name]})
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _arms(series: Sequence[Series], factor: str, baseline: str) -> Iterator[tuple[dict, Arms]]:
    """Yield the levels and the arms of each comparison, in the order of the series."""
    fixed = [name for name in FACTORS if name not in (factor, "host")]
    places: dict[tuple, dict[str, list[Series]]] = {}
    for one in series:
        if len(one.jobs):
            place = tuple(one.head[name] for name in fixed)
            places.setdefault(place, {}).setdefault(one.head[factor], []).append(one)
    for place, by_level in places.items():
        base = by_level.pop(baseline, [])
        for level, arm in by_level.items():
            if not base or base[0].operation != arm[0].operation:
                continue
            hosts = {one.head["host"] for one in (*base, *arm)}
            where = "" if factor == "host" else hosts.pop() if len(hosts) == 1 else ALL_HOSTS
            levels = {**dict(zip(fixed, place, strict=True)), factor: "", "host": where, "operation": arm[0].operation}
            yield {"factor": factor, "baseline": baseline, "contender": level, **levels}, (base, arm)


def _phases(arms: Arms, segments: dict) -> dict[str, tuple[float, float]]:
    """The numbers (from, to) of the jobs of each phase."""
    changes = [
        int(one.jobs["number"].iloc[segment.first])
        for one in (*arms[0], *arms[1])
        for segment in segments[one.levels]
        if not math.isnan(segment.jump)
    ]
    phases = {"all": (0, math.inf)}
    if changes:
        parts = {"before the first change": (0, min(changes) - 1), "after the last change": (max(changes), math.inf)}
        counts = (
            sum(one.jobs["number"].between(*part).sum() for one in arm) for part in parts.values() for arm in arms
        )
        phases |= parts if min(counts) >= resampling.LEAST else {}
    return phases


def _judge(baseline: "_Figure", contender: "_Figure", metric: str, bound: float, alone: bool) -> dict:
    ratio, jobs = contender.value / baseline.value, min(baseline.jobs, contender.jobs)
    low, high = resampling.interval(contender.draws / baseline.draws, max(jobs, resampling.LEAST))
    widened = 1 + (0 if metric in _METHODS else histograms.RESOLUTION)
    low, high = float(low) / widened, float(high) * widened
    if jobs < resampling.LEAST:
        low, high, verdict = math.nan, math.nan, TOO_FEW_JOBS
    elif alone:
        verdict = TOO_FEW_BATTERIES
    elif 1 / bound <= low and high <= bound:
        verdict = "same"
    else:
        verdict = "higher" if low > 1 else "lower" if high < 1 else "no evidence"
    return {
        "percent": 100 * (ratio - 1),
        "low": 100 * (low - 1),
        "high": 100 * (high - 1),
        "baseline_value": baseline.value,
        "contender_value": contender.value,
        "n_baseline": baseline.jobs,
        "n_contender": contender.jobs,
        "verdict": verdict,
    }


class _Figure(NamedTuple):
    """One metric of some jobs, and what resampling the jobs makes of it."""

    value: float
    draws: np.ndarray
    jobs: int


def _figures(jobs: pd.DataFrame, seed: int, arm: int) -> dict[str, _Figure]:
    """Return the metrics that there are of jobs, drawn as arm 0 or 1.

    A percentile stands there as "p99", merged from bins, and as "p99 of jobs", the median of the jobs' own.
    """
    if jobs.empty:
        return {}
    n = jobs["N"].astype(float)
    weights = n if n.notna().all() else pd.Series(1.0, index=jobs.index)
    totals = {
        "mean": (jobs["mean_ms"] * weights, weights),
        "iops": (jobs["ios"].astype(float), jobs["seconds"].astype(float)),
    }
    figures = {}
    for name, (amounts, by) in totals.items():
        value = float(amounts.sum(skipna=False) / by.sum(skipna=False))
        if 0 < value < math.inf:
            figures[name] = _Figure(value, resampling.resampled_totals(amounts, by, seed, arm), len(jobs))
    total = float(n.sum(skipna=False))
    names = {p: f"p{p:g}" for p in PERCENTILES if f"p{p:g}" in METRICS and not histograms.refusal(total, p)}
    for name in names.values():
        own = jobs[f"{name}_ms"].dropna().to_numpy(float)
        if len(own):
            draws = histograms.resampled_medians(own, seed, arm)
            figures[f"{name} of jobs"] = _Figure(float(np.median(own)), draws, len(own))
    if merged := histograms_of(jobs):
        values, draws = histograms.resampled(merged, [*names], seed, arm)
        for name, value, drawn in zip(names.values(), values, draws.T, strict=True):
            figures[name] = _Figure(value, drawn, len(jobs))
    return figures
