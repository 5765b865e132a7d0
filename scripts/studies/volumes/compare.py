"""Volumes against one another, and with a second job against without: differences in percent with intervals.

The unit is the battery: jobs of one are no repeats of it (METHOD 18). Where both arms have 6 batteries or more that
were measured side by side, in one session, a verdict is that of METHOD 17, its blocks being pairs of batteries. With
fewer there is none: a difference between volumes and one between two hours cannot be told apart. What is printed
then has an interval that speaks of these batteries alone, with jobs as the unit, those of both resampled independently.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from scripts.lib.program import Problem
from scripts.statistics import histograms, stats
from scripts.studies.volumes.changes import Segment
from scripts.studies.volumes.fio_output import PERCENTILES
from scripts.studies.volumes.series import ALL_HOSTS, FACTORS, Levels, Series, histograms_of

TOO_FEW_JOBS, TOO_FEW_BATTERIES = "too few jobs", "too few batteries"
METRICS = ("p50", "p99", "p99.9", "mean", "iops")
COLUMNS = (
    *("factor", "baseline", "contender", *FACTORS, "operation", "metric", "phase", "percent", "low", "high"),
    *("baseline_value", "contender_value", "n_baseline", "n_contender", "verdict", "method"),
)
_BLOCKS = "pairs of batteries measured side by side"
_JOBS = "bootstrap of the jobs of a few batteries: the volume, the host and the hour cannot be told apart"
_MERGED = f"ratio of merged percentiles, {_JOBS}"
_MEDIANS = f"ratio of the medians of the jobs' percentiles, as there are no bins to merge, {_JOBS}"
_TOTALS = f"ratio of totals over totals, {_JOBS}"
_METHODS = {"mean": _TOTALS, "iops": _TOTALS}
_CALLED = {"faster": "lower", "slower": "higher"}
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

    A percentile here is a bin of fio's, so that the intervals of a few batteries' are widened by a bin (1.6 %); between
    pairs of batteries that is part of the noise.

    Verdicts: where both arms have 6 batteries side by side (`_side_by_side`) those of `stats.judge`, `faster` and
    `slower` called `lower` and `higher`, all comparisons of a factor on a metric of a phase corrected jointly; else
    `too few batteries`. `too few jobs` below 6 in an arm. Phases stand only where each has 6 jobs in both arms.

    Raises:
        Problem: `compare` names something that is no factor.
    """
    by_levels = {one.levels: one for one in series}

    # One baseline is compared with many contenders.
    @cache
    def figures(levels: tuple[Levels, ...], first: float, last: float, place: int, repeat: int = 0) -> dict:
        jobs = pd.concat([by_levels[one].jobs for one in levels], ignore_index=True)
        jobs = jobs[jobs["repeat"] == repeat] if repeat else jobs
        return _figures(jobs[jobs["number"].between(first, last)], seed, place)

    rows, families, looks = [], {}, {}
    for entry in compare:
        if entry["factor"] not in FACTORS:
            raise Problem(f"compare: {entry['factor']} is no factor of this study; name one of {', '.join(FACTORS)}")
        for head, arms in _arms(series, entry["factor"], str(entry["baseline"])):
            blocks = _side_by_side(arms)
            keys = [tuple(one.levels for one in arm) for arm in arms]
            for phase, numbers in _phases(arms, segments).items():
                sides = [figures(levels, *numbers, place) for place, levels in enumerate(keys)]
                pairs = {
                    one: [figures(levels, *numbers, place, one) for place, levels in enumerate(keys)] for one in blocks
                }
                for metric in METRICS:
                    # A merged percentile is compared with a merged one only: that of the jobs is something else.
                    methods = {metric: _METHODS.get(metric, _MERGED), f"{metric} of jobs": _MEDIANS}
                    name = next((name for name in methods if all(name in side for side in sides)), None)
                    if not name:
                        continue
                    judged = _printed(*(side[name] for side in sides), metric)
                    rows.append({**head, "phase": phase, "metric": metric, **judged, "method": methods[name]})
                    values = {one: [side[name].value for side in pair if name in side] for one, pair in pairs.items()}
                    d = {one: math.log(pair[1] / pair[0]) for one, pair in values.items() if len(pair) == len(arms)}
                    if judged["verdict"] != TOO_FEW_JOBS and len(d) >= stats.MIN_BLOCKS:
                        families.setdefault((entry["factor"], phase, metric), {})[len(rows) - 1] = pd.Series(d)
                        looks[len(rows) - 1] = stats.looks([blocks[one] for one in d])
    for family in families.values():
        d = pd.DataFrame(family)
        judged = stats.judge(d.to_numpy(), equivalence_percent, seed, [looks[row] for row in d])
        for row, verdict in zip(d, judged, strict=True):
            ends = {"percent": verdict.ratio, "low": verdict.low, "high": verdict.high}
            rows[row] |= {name: 100 * (ratio - 1) for name, ratio in ends.items()}
            rows[row] |= {"verdict": _CALLED.get(verdict.verdict, verdict.verdict), "method": _BLOCKS}
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _side_by_side(arms: Arms) -> dict[int, str]:
    """The session by repeat, of the repeats in which both arms have valid batteries and all are of one session."""
    sessions: list[dict[int, set]] = []
    for arm in arms:
        own: dict[int, set] = {}
        for battery in (battery for one in arm for battery in one.valid):
            own.setdefault(battery.repeat, set()).add(battery.record.get("session"))
        sessions.append(own)
    first, second = sessions
    # Imported batteries are of no session.
    return {
        one: next(iter(first[one]))
        for one in sorted(first)
        if first[one] == second.get(one) and len(first[one]) == 1 and None not in first[one]
    }


def _arms(series: Sequence[Series], factor: str, baseline: str) -> Iterator[tuple[dict, Arms]]:
    """Yield the levels and the arms of each comparison, in the order of the series."""
    fixed = [name for name in FACTORS if name not in (factor, "host", "start_credits")]
    places: dict[tuple, dict[str, list[Series]]] = {}
    for one in series:
        if len(one.jobs):
            place = tuple(one.head[name] for name in fixed)
            places.setdefault(place, {}).setdefault(one.head[factor], []).append(one)
    for place, by_level in places.items():
        bases = _alike(by_level.pop(baseline, []), factor)
        pairs = (
            (base, level, arm) for level, arms in by_level.items() for arm in _alike(arms, factor) for base in bases
        )
        for base, level, arm in pairs:
            # A volume that has no credits is compared in each state of one that has some.
            states = {one.head["start_credits"] for one in (base[0], arm[0])} - {""}
            if len(states) > 1 and factor != "start_credits":
                continue
            # Latencies from when operations were due are another quantity than those from when they were begun.
            if not base or (base[0].operation, base[0].loop) != (arm[0].operation, arm[0].loop):
                continue
            hosts = {one.head["host"] for one in (*base, *arm)}
            where = "" if factor == "host" else hosts.pop() if len(hosts) == 1 else ALL_HOSTS
            levels = {
                **dict(zip(fixed, place, strict=True)),
                "start_credits": next(iter(states), ""),
                factor: "",
                "host": where,
                "operation": arm[0].operation,
            }
            yield {"factor": factor, "baseline": baseline, "contender": level, **levels}, (base, arm)


def _alike(arm: list[Series], factor: str) -> list[list[Series]]:
    """An arm, apart for the credits that its batteries began with."""
    states = {one.head["start_credits"]: None for one in arm}
    return (
        [arm]
        if factor == "start_credits" and arm
        else [[one for one in arm if one.head["start_credits"] == state] for state in states]
    )


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
        phases |= parts if min(counts) >= stats.MIN_BLOCKS else {}
    return phases


def _printed(baseline: "_Figure", contender: "_Figure", metric: str) -> dict:
    """What is said of the jobs of both arms where their batteries are too few to judge."""
    ratio, jobs = contender.value / baseline.value, min(baseline.jobs, contender.jobs)
    low, high = stats.interval(contender.draws / baseline.draws, max(jobs, stats.MIN_BLOCKS))
    widened = 1 + (0 if metric in _METHODS else histograms.RESOLUTION)
    low, high = float(low) / widened, float(high) * widened
    few = jobs < stats.MIN_BLOCKS
    return {
        "percent": 100 * (ratio - 1),
        "low": math.nan if few else 100 * (low - 1),
        "high": math.nan if few else 100 * (high - 1),
        "baseline_value": baseline.value,
        "contender_value": contender.value,
        "n_baseline": baseline.jobs,
        "n_contender": contender.jobs,
        "verdict": TOO_FEW_JOBS if few else TOO_FEW_BATTERIES,
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
            figures[name] = _Figure(value, stats.resampled_totals(amounts, by, seed, arm), len(jobs))
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
