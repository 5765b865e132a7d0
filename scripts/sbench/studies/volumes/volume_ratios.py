"""Volumes against one another, and with a second job against without: ratios with intervals.

The unit is the battery: jobs of one are no repeats of it (METHOD 18). Where both arms have 6 batteries or more that
were measured side by side, in one session, a verdict is that of METHOD 17, its blocks being pairs of batteries. With
fewer there is none: a difference between volumes and one between two hours cannot be told apart. What is printed
then has an interval that speaks of these batteries alone, with jobs as the unit, those of both resampled independently.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from sbench.design import fingerprint
from sbench.measure.judging import OTHER_CODE
from sbench.probe.program import Problem
from sbench.studies.volumes.changes import Segment
from sbench.studies.volumes.fio_output import PERCENTILES
from sbench.studies.volumes.series import ALL_HOSTS, FACTORS, Levels, Series, get_histograms
from sbench.verdicts import histograms, stats
from sbench.verdicts.outcomes import Outcome

METRICS = ("p50", "p99", "p99.9", "mean", "iops")
COLUMNS = (
    *("factor", "baseline", "contender", *FACTORS, "operation", "metric", "phase", "ratio"),
    *("ratio_low", "ratio_high", "baseline_value", "contender_value", "n_baseline", "n_contender", "verdict", "method"),
)
_BLOCKS = "pairs of batteries measured side by side"
_JOBS = "bootstrap of the jobs of a few batteries: the volume, the host and the hour cannot be told apart"
_MERGED = f"ratio of merged percentiles, {_JOBS}"
_MEDIANS = f"ratio of the medians of the jobs' percentiles, as there are no bins to merge, {_JOBS}"
_TOTALS = f"ratio of totals over totals, {_JOBS}"
_METHODS = {"mean": _TOTALS, "iops": _TOTALS}
# What the first battery leaves behind, or finds, cannot be told from what the arms differ in (METHOD 2).
IN_ONE_ORDER = "always in one order"
Arms = tuple[list[Series], list[Series]]


def compare_series(
    series: Sequence[Series],
    segments: dict[tuple, list[Segment]],
    compare: Sequence[dict],
    equivalence_percent: float = 5,
    seed: int = 1,
) -> pd.DataFrame:
    """Return a row per comparison, phase and metric, in the order of `compare` (factor, baseline), then of the series.

    The arms of a comparison are the jobs at the baseline's and at another level of a factor, at the same levels of the
    others but the host: a volume's hosts are taken together. Phases: all jobs; those before the first change of either
    arm; those from the last change of either on; they count only where each has 6 jobs in both arms. `ratio` is
    contender / baseline. A percentile is a bin of fio's, so intervals of a few batteries' are widened by a bin (1.6 %).

    Verdicts: `not comparable` where batteries measured side by side differ in measuring code or software, or all were
    measured in one order, which `method` says; where both arms have 6 batteries side by side
    (`_find_shared_sessions`) those of `stats.judge_family`, all comparisons of a factor on a metric of a
    phase corrected jointly; else `too few repeats`, below 6 jobs in an arm without an interval.
    """
    by_levels = {one.levels: one for one in series}

    # One baseline is compared with many contenders.
    @cache
    def get_figures(levels: tuple[Levels, ...], first: float, last: float, place: int, repeat: int = 0) -> dict:
        jobs = pd.concat([by_levels[one].jobs for one in levels], ignore_index=True)
        jobs = jobs[jobs["repeat"] == repeat] if repeat else jobs
        return _compute_figures(jobs[jobs["number"].between(first, last)], seed, place)

    rows, families, looks, lost = [], {}, {}, {}
    for entry in compare:
        if entry["factor"] not in FACTORS:
            raise Problem(f"compare: {entry['factor']} is no factor of this study; name one of {', '.join(FACTORS)}")
        for head, arms in _list_arms(series, entry["factor"], str(entry["baseline"])):
            blocks = _find_shared_sessions(arms)
            unlike = ", ".join(dict.fromkeys(words for one in blocks for words in _list_differences(arms, one)))
            reasons = [f"{unlike}, between the arms"] * bool(unlike) + [IN_ONE_ORDER] * _has_fixed_order(arms, blocks)
            keys = [tuple(one.levels for one in arm) for arm in arms]
            for phase, numbers in _find_phases(arms, segments).items():
                both = {
                    one: [get_figures(levels, *numbers, place, one) for place, levels in enumerate(keys)]
                    for one in (0, *blocks)
                }
                sides = both.pop(0)
                for metric in METRICS:
                    # A merged percentile is compared with a merged one only: that of the jobs is something else.
                    methods = {metric: _METHODS.get(metric, _MERGED), f"{metric} of jobs": _MEDIANS}
                    name = next((name for name in methods if all(name in side for side in sides)), None)
                    if not name:
                        continue
                    printed = _compare_figures(*(side[name] for side in sides), metric)
                    rows.append({**head, "phase": phase, "metric": metric, **printed, "method": methods[name]})
                    pairs = {one: pair for one, pair in both.items() if all(name in side for side in pair)}
                    d = {one: math.log(pair[1][name].value / pair[0][name].value) for one, pair in pairs.items()}
                    few = min(side[name].jobs for side in sides) < stats.MIN_BLOCKS
                    if few or len(d) < stats.MIN_BLOCKS:
                        continue
                    if reasons:
                        rows[-1] |= dict.fromkeys(("ratio", "ratio_low", "ratio_high"), math.nan)
                        rows[-1] |= {"verdict": Outcome.NOT_COMPARABLE, "method": "; ".join(reasons)}
                    else:
                        families.setdefault((entry["factor"], phase, metric), {})[len(rows) - 1] = pd.Series(d)
                        looks[len(rows) - 1] = stats.count_looks([blocks[one] for one in d])
                        lost[len(rows) - 1] = _count_lost(arms)
    for family in families.values():
        d = pd.DataFrame(family)
        judged = stats.judge_family(d.to_numpy(), equivalence_percent, seed, [looks[row] for row in d])
        for row, verdict in zip(d, judged, strict=True):
            rows[row] |= {"ratio": verdict.ratio, "ratio_low": verdict.low, "ratio_high": verdict.high}
            # Of IOPS more are better.
            called = verdict.verdict.mirrored if rows[row]["metric"] == "iops" else verdict.verdict
            outcome = stats.apply_losses(called, *lost[row])
            flattered = f"; batteries lost: {lost[row][0]} of the baseline, {lost[row][1]} of the contender"
            rows[row] |= {"verdict": outcome, "method": _BLOCKS + flattered * (outcome != called)}
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _find_shared_sessions(arms: Arms) -> dict[int, str]:
    """The session by repeat, of the repeats in which both arms have valid batteries and all are of one session."""
    first, second = sessions = {}, {}
    for arm, own in zip(arms, sessions, strict=True):
        for battery in (battery for one in arm for battery in one.valid):
            own.setdefault(battery.repeat, set()).add(battery.record.get("session"))
    together = {repeat: of for repeat, of in sorted(first.items()) if of == second.get(repeat) and len(of) == 1}
    # Imported batteries are of no session.
    return {repeat: session for repeat, (session,) in together.items() if session is not None}


def _has_fixed_order(arms: Arms, repeats: Iterable[int]) -> bool:
    """Whether in each of some repeats the same arm was measured first; False where the records do not tell."""
    gaps = np.array([np.subtract(*(_compute_mean_position(arm, repeat) for arm in arms)) for repeat in repeats])
    return len(gaps) > 0 and bool((gaps > 0).all() or (gaps < 0).all())


def _compute_mean_position(arm: list[Series], repeat: int) -> float:
    positions = [battery.record.get("position") for one in arm for battery in one.valid if battery.repeat == repeat]
    return math.nan if None in positions else float(np.mean(positions))


def _count_lost(arms: Arms) -> tuple[int, int]:
    """In how many of the repeats that both arms attempted each of them lost a battery."""
    attempts: list[dict[int, bool]] = [{}, {}]
    for arm, valid in zip(arms, attempts, strict=True):
        for battery in (battery for one in arm for battery in one.batteries):
            valid[battery.repeat] = valid.get(battery.repeat, True) and battery.valid
    both = attempts[0].keys() & attempts[1].keys()
    return tuple(sum(not valid[repeat] for repeat in both) for valid in attempts)


def _list_differences(arms: Arms, repeat: int) -> Iterator[str]:
    """In words, what differs between batteries measured side by side beside the factor (METHOD 14)."""
    of_arms = ([battery for one in arm for battery in one.valid if battery.repeat == repeat] for arm in arms)
    for base, other in itertools.product(*of_arms):
        codes, fio = ([one.record[key] for one in (base, other)] for key in ("provenance", "fio"))
        if len({code.get("code_sha256") for code in codes}) > 1:
            yield OTHER_CODE
        if len(set(fio)) > 1:
            yield " and ".join(fio)
        if base.software and other.software:
            yield from fingerprint.describe_differences(base.software, other.software, environments=False)


def _list_arms(series: Sequence[Series], factor: str, baseline: str) -> Iterator[tuple[dict, Arms]]:
    """Yield the levels and the arms of each comparison, in the order of the series."""
    fixed = [name for name in FACTORS if name not in (factor, "host", "start_credits")]
    places: dict[tuple, dict[str, list[Series]]] = {}
    for one in series:
        if len(one.jobs):
            place = tuple(one.head[name] for name in fixed)
            places.setdefault(place, {}).setdefault(one.head[factor], []).append(one)
    for place, by_level in places.items():
        bases = _split_by_credits(by_level.pop(baseline, []), factor)
        pairs = (
            (base, level, arm)
            for level, arms in by_level.items()
            for arm in _split_by_credits(arms, factor)
            for base in bases
        )
        for base, level, arm in pairs:
            # A volume that has no credits is compared in each state of one that has some.
            states = {one.head["start_credits"] for one in (base[0], arm[0])} - {""}
            if len(states) > 1 and factor != "start_credits":
                continue
            # Latencies from when operations were due are another quantity than those from when they were begun.
            if (base[0].operation, base[0].loop) != (arm[0].operation, arm[0].loop):
                continue
            hosts = {one.head["host"] for one in (*base, *arm)}
            where = "" if factor == "host" else hosts.pop() if len(hosts) == 1 else ALL_HOSTS
            levels = dict(zip(fixed, place, strict=True)) | {"start_credits": next(iter(states), ""), factor: ""}
            levels |= {"host": where, "operation": arm[0].operation}
            yield {"factor": factor, "baseline": baseline, "contender": level, **levels}, (base, arm)


def _split_by_credits(arm: list[Series], factor: str) -> list[list[Series]]:
    """An arm, apart for the credits that its batteries began with."""
    if factor == "start_credits" and arm:
        return [arm]
    states = dict.fromkeys(one.head["start_credits"] for one in arm)
    return [[one for one in arm if one.head["start_credits"] == state] for state in states]


def _find_phases(arms: Arms, segments: dict) -> dict[str, tuple[float, float]]:
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
        numbers = [pd.concat([one.jobs["number"] for one in arm]) for arm in arms]
        counts = (own.between(*part).sum() for part in parts.values() for own in numbers)
        phases |= parts if min(counts) >= stats.MIN_BLOCKS else {}
    return phases


def _compare_figures(baseline: "_Figure", contender: "_Figure", metric: str) -> dict:
    """What is said of the jobs of both arms where their batteries are too few to judge."""
    jobs, low, high = min(baseline.jobs, contender.jobs), math.nan, math.nan
    if jobs >= stats.MIN_BLOCKS:
        low, high = map(float, stats.compute_interval(contender.draws / baseline.draws, jobs))
    widened = 1 + (0 if metric in _METHODS else histograms.RESOLUTION)
    return {
        **{"ratio": contender.value / baseline.value, "ratio_low": low / widened, "ratio_high": high * widened},
        **{"baseline_value": baseline.value, "contender_value": contender.value},
        **{"n_baseline": baseline.jobs, "n_contender": contender.jobs, "verdict": Outcome.TOO_FEW},
    }


class _Figure(NamedTuple):
    """One metric of some jobs, and what resampling the jobs makes of it."""

    value: float
    draws: np.ndarray
    jobs: int


def _compute_figures(jobs: pd.DataFrame, seed: int, arm: int) -> dict[str, _Figure]:
    """Return the metrics that there are of jobs, drawn as arm 0 or 1: "p99" from bins, "p99 of jobs" their median."""
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
            figures[name] = _Figure(value, stats.resample_totals(amounts, by, seed, arm), len(jobs))
    total = float(n.sum(skipna=False))
    names = {p: f"p{p:g}" for p in PERCENTILES if f"p{p:g}" in METRICS and not histograms.describe_refusal(total, p)}
    for name in names.values():
        if len(own := jobs[f"{name}_ms"].dropna().to_numpy(float)):
            draws = histograms.resample_medians(own, seed, arm)
            figures[f"{name} of jobs"] = _Figure(float(np.median(own)), draws, len(own))
    if merged := get_histograms(jobs):
        values, draws = histograms.resample_percentiles(merged, [*names], seed, arm)
        for name, value, drawn in zip(names.values(), values, draws.T, strict=True):
            figures[name] = _Figure(value, drawn, len(jobs))
    return figures
