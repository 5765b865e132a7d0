"""Compare volumes, or a volume with and without a background load, by ratios with confidence intervals.

The unit of repetition is the battery, since the jobs of a battery are not independent (METHOD 18). If both arms have at
least 6 batteries measured in the same sessions, the verdict follows METHOD 17 with pairs of batteries as blocks. Fewer
batteries give no verdict, because a difference between volumes could be a difference between two times of day. Their
confidence interval applies to these batteries only: jobs are resampled, independently in both arms.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pandas as pd

from sbench.design import fingerprint
from sbench.measure.families import OTHER_CODE
from sbench.probe.program import Problem
from sbench.studies.volumes.fio_output import PERCENTILES
from sbench.studies.volumes.series import ALL_HOSTS, FACTORS, Levels, Series, get_histograms
from sbench.verdicts import histograms, stats
from sbench.verdicts.changes import Segment
from sbench.verdicts.outcomes import Outcome

METRICS = ("p50", "p99", "p99.9", "mean", "iops")
COLUMNS = (
    *("factor", "baseline", "contender", *FACTORS, "operation", "metric", "phase", "ratio"),
    *("ratio_low", "ratio_high", "baseline_value", "contender_value", "n_baseline", "n_contender", "verdict", "method"),
)
_BLOCKS = "pairs of batteries measured side by side"
_JOBS = "bootstrap of the jobs of a few batteries; volume, host and hour cannot be separated"
_MERGED = f"ratio of merged percentiles, {_JOBS}"
_MEDIANS = f"ratio of the medians of the jobs' percentiles (histograms are missing), {_JOBS}"
_TOTALS = f"ratio of totals over totals, {_JOBS}"
_METHODS = {"mean": _TOTALS, "iops": _TOTALS}
# With a fixed order, an effect of the first battery on the second would look like a difference between arms (METHOD 2).
IN_ONE_ORDER = "always in the same order"
Arms = tuple[list[Series], list[Series]]


def compare_series(
    series: Sequence[Series],
    segments: dict[tuple, list[Segment]],
    compare: Sequence[dict],
    equivalence_percent: float = 5,
    seed: int = 1,
) -> pd.DataFrame:
    """Compare series that differ in a single factor.

    The arms of a comparison are the jobs at the baseline level and at another level of a factor. All other factors have
    equal levels, except that the hosts of a volume are pooled. `ratio` is contender / baseline.

    There are three phases: all jobs, the jobs before the first level change in either arm, and the jobs after the last
    change in either arm. The last two are left out unless both have at least 6 jobs in both arms.

    Percentiles are limited to the resolution of fio's bins. The intervals of their ratios are therefore widened by a
    bin (1.6 %) in comparisons without a verdict.

    Verdicts:
        `too few repeats`: fewer than 6 batteries in both arms were measured in the same session
            (`_find_shared_sessions`). There is no interval if an arm has fewer than 6 jobs.
        `not comparable`: these batteries differ in measuring code or software, or always ran in the same order. The
            reason is in `method`.
        Otherwise `stats.judge_family` decides, with a family per factor, metric and phase.

    Returns:
        A row per comparison, phase and metric, in the order of `compare`, whose items have "factor" and "baseline", and
        then of the series.
    """
    by_levels = {one.levels: one for one in series}

    # Cached, because a baseline is compared with many contenders.
    @cache
    def get_figures(levels: tuple[Levels, ...], first: float, last: float, place: int, repeat: int = 0) -> dict:
        jobs = pd.concat([by_levels[one].jobs for one in levels], ignore_index=True)
        jobs = jobs[jobs["repeat"] == repeat] if repeat else jobs
        return _compute_figures(jobs[jobs["number"].between(first, last)], seed, place)

    rows, families, looks, lost = [], {}, {}, {}
    for entry in compare:
        if entry["factor"] not in FACTORS:
            raise Problem(f"compare: factor must be one of {', '.join(FACTORS)} (got {entry['factor']})")
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
                    # Compare merged percentiles only with merged percentiles; medians over jobs are another quantity.
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
            # Higher IOPS are better, so the verdict is reversed.
            called = verdict.verdict.mirrored if rows[row]["metric"] == "iops" else verdict.verdict
            outcome = stats.apply_losses(called, *lost[row])
            flattered = f"; batteries lost: {lost[row][0]} of the baseline, {lost[row][1]} of the contender"
            rows[row] |= {"verdict": outcome, "method": _BLOCKS + flattered * (outcome != called)}
    return pd.DataFrame(rows, columns=[*COLUMNS])


def _find_shared_sessions(arms: Arms) -> dict[int, str]:
    """Find the repeats whose valid batteries were all measured in the same session. Return {repeat: session}."""
    first, second = sessions = {}, {}
    for arm, own in zip(arms, sessions, strict=True):
        for battery in (battery for one in arm for battery in one.valid):
            own.setdefault(battery.repeat, set()).add(battery.record.get("session"))
    together = {repeat: of for repeat, of in sorted(first.items()) if of == second.get(repeat) and len(of) == 1}
    # Imported batteries have no session.
    return {repeat: session for repeat, (session,) in together.items() if session is not None}


def _has_fixed_order(arms: Arms, repeats: Iterable[int]) -> bool:
    """Return whether all repeats are known to have measured the same arm first."""
    gaps = np.array([np.subtract(*(_compute_mean_position(arm, repeat) for arm in arms)) for repeat in repeats])
    return len(gaps) > 0 and bool((gaps > 0).all() or (gaps < 0).all())


def _compute_mean_position(arm: list[Series], repeat: int) -> float:
    positions = [battery.record.get("position") for one in arm for battery in one.valid if battery.repeat == repeat]
    return math.nan if None in positions else float(np.mean(positions))


def _count_lost(arms: Arms) -> tuple[int, int]:
    """Count how often each arm has no valid battery, among the repeats that were attempted in both arms."""
    attempts: list[dict[int, bool]] = [{}, {}]
    for arm, valid in zip(arms, attempts, strict=True):
        for battery in (battery for one in arm for battery in one.batteries):
            valid[battery.repeat] = valid.get(battery.repeat, True) and battery.valid
    both = attempts[0].keys() & attempts[1].keys()
    return tuple(sum(not valid[repeat] for repeat in both) for valid in attempts)


def _list_differences(arms: Arms, repeat: int) -> Iterator[str]:
    """Yield differences in code, fio version or software between the arms' batteries of a repeat (METHOD 14)."""
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
    """Yield each comparison, in the order of the series: the columns that identify it, and its two arms."""
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
            # A volume without credits is compared with each credit state of a volume with credits.
            states = {one.head["start_credits"] for one in (base[0], arm[0])} - {""}
            if len(states) > 1 and factor != "start_credits":
                continue
            # Latencies since due times (open loop) and since the start of operations are different quantities.
            if (base[0].operation, base[0].loop) != (arm[0].operation, arm[0].loop):
                continue
            hosts = {one.head["host"] for one in (*base, *arm)}
            where = "" if factor == "host" else hosts.pop() if len(hosts) == 1 else ALL_HOSTS
            levels = dict(zip(fixed, place, strict=True)) | {"start_credits": next(iter(states), ""), factor: ""}
            levels |= {"host": where, "operation": arm[0].operation}
            yield {"factor": factor, "baseline": baseline, "contender": level, **levels}, (base, arm)


def _split_by_credits(arm: list[Series], factor: str) -> list[list[Series]]:
    """Split an arm (one side of a comparison) by initial credits, unless the comparison is between credits."""
    if factor == "start_credits" and arm:
        return [arm]
    states = dict.fromkeys(one.head["start_credits"] for one in arm)
    return [[one for one in arm if one.head["start_credits"] == state] for state in states]


def _find_phases(arms: Arms, segments: dict) -> dict[str, tuple[float, float]]:
    """Return the job numbers (first, last) of all jobs, and of the phases before and after level changes."""
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
    """Compute the ratio of a metric and, by resampling jobs instead of the too few batteries, its interval."""
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
    """The value of a metric, its values in resampled sets of jobs (`draws`), and the number of jobs."""

    value: float
    draws: np.ndarray
    jobs: int


def _compute_figures(jobs: pd.DataFrame, seed: int, arm: int) -> dict[str, _Figure]:
    """Compute all available metrics of jobs. Resampling uses separate random numbers for `arm` 0 and 1.

    Percentiles such as "p99" come from merged bins. "p99 of jobs" is the median of the jobs' p99s.
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
