"""Estimate percentiles with intervals from fio's latency histograms, for a job and merged over jobs (METHOD 16, 18).

A histogram is an array (bins, 2) of latency and count, as in fio's json+. fio keeps 64 bins between a power of two and
the next and reports each as its middle, so that every percentile here, as in fio's output, is the middle of a bin:
within 0.8 % of the latency. The p-th percentile is the bin of the ceil(p N)-th of N operations, which is fio's
definition.

Without single bins there are ranges, an array (ranges, 3) of the lowest and the highest latency that an operation of
the range can have, and their count: the operations between two percentiles of fio, or two bounds of another histogram.

Percentiles are never averaged: histograms are added. Within a job latencies follow one another and between jobs the
machine drifts, so that the jobs are the unit of the intervals, not the operations.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.stats import RESAMPLES, Floats, compute_binomial_quantiles, compute_interval, count_draws

MIN_ABOVE = 10  # operations that must lie beyond a percentile (METHOD 18)
RESOLUTION = 1 / 64  # of a ratio of two percentiles: each is within half of this


class Percentile(NamedTuple):
    """A percentile of `n` operations with its 95 % interval, in the unit of the bins; NaN and the reason if refused."""

    value: float
    low: float
    high: float
    n: float
    reason: str = ""


class Moments(NamedTuple):
    """Number, mean, standard deviation and largest value of a histogram, each operation at its bin's middle."""

    n: int
    mean: float
    stddev: float
    largest: float


def compute_moments(histogram: Floats) -> Moments:
    """Return the moments of a histogram; the standard deviation is a sample's, like fio's."""
    values, counts = histogram.T.astype(float)
    n = counts.sum()
    if not n:
        return Moments(0, math.nan, math.nan, math.nan)
    mean = float(counts @ values / n)
    variance = counts @ (values - mean) ** 2 / (n - 1) if n > 1 else math.nan
    return Moments(int(n), mean, math.sqrt(variance), float(values[counts > 0].max()))


def compute_at_or_above(histogram: Floats, limit: float) -> Floats:
    """Return the operations at or above a limit and the sum of their latencies: (least, middle, most) × (n, sum).

    The middle takes each operation at its bin's middle, or half of both bounds for ranges. An operation is somewhere in
    its bin: the bounds take all operations at its lower and at its upper edge.
    """
    low, high, counts = to_ranges(histogram).T
    least, most = (np.array([counts @ (edge >= limit), counts @ (edge * (edge >= limit))]) for edge in (low, high))
    if histogram.shape[1] == 3:
        return np.array([least, (least + most) / 2, most])
    values = histogram[:, 0].astype(float)
    return np.array([least, [counts @ (values >= limit), counts @ (values * (values >= limit))], most])


def to_ranges(histogram: Floats) -> Floats:
    """Return a histogram, of bins or of ranges, as ranges: lowest and highest latency, count."""
    if histogram.shape[1] == 3:
        return histogram
    values, counts = histogram.T.astype(float)
    return np.column_stack([values * (1 - RESOLUTION / 2), values * (1 + RESOLUTION / 2), counts])


def percentiles(histograms: Sequence[Floats], ps: Sequence[float], seed: int = 1) -> list[Percentile]:
    """Return percentiles (0 < p < 100) of the jobs' merged histogram, with intervals.

    Percentiles with fewer than 10 operations beyond them are refused. Intervals of 95 %:

    one job: exact order statistics of its operations as if they were independent (Hahn & Meeker, Statistical Intervals,
        section 5.2), so without the drift between jobs;
    2 to 5 jobs: the order statistics of the merged operations, widened to the range of the jobs' percentiles;
    6 or more: bootstrap that resamples whole jobs (`resample_percentiles`, `compute_interval`), never narrower than
        the order statistics.

    In simulations with a level that drifts from job to job by 10 %, intervals of p99 hold the value of further jobs in
    94 to 98 % of cases at 6 to 50 jobs (order statistics: 83 to 93 %). At 30 % they hold it in 81 % at 6 jobs, 88 % at
    20
    and 93 % at 50 (order statistics: 40 %): the slowest jobs make the tail, and few jobs have not shown them.

    >>> import numpy as np
    >>> job = np.array([[0.5, 900], [1.0, 90], [8.0, 10]])  # ms, operations
    >>> percentiles([job] * 6, [99])
    [Percentile(value=1.0, low=1.0, high=8.0, n=6000, reason='')]
    """
    values, counts = _join_histograms(histograms)
    total = counts.sum(axis=0)
    n = int(total.sum())
    cumulative = np.cumsum(total)
    low, high = np.full((2, len(ps)), math.nan)
    if n and len(counts) >= MIN_BLOCKS:
        low, high = compute_interval(resample_percentiles(histograms, ps, seed)[1], len(counts))
    elif n and len(counts) > 1:
        own = _compute_percentiles(values, np.cumsum(counts, axis=1), ps)
        low, high = own.min(axis=0), own.max(axis=0)
    estimates = []
    for p, wide_low, wide_high in zip(ps, low, high, strict=True):
        if reason := describe_refusal(n, p):
            estimates.append(Percentile(math.nan, math.nan, math.nan, n, reason))
            continue
        places = np.searchsorted(cumulative, [compute_rank(n, p), *_compute_ranks(n, p)])
        value, least, most = values[places].tolist()
        estimates.append(Percentile(value, float(np.fmin(least, wide_low)), float(np.fmax(most, wide_high)), n))
    return estimates


def bounded_percentiles(ranges: Sequence[Floats], ps: Sequence[float], seed: int = 1) -> list[Percentile]:
    """Return percentiles of jobs whose operations are known by ranges, as `percentiles` does with bins.

    An interval contains the interval of any bins that fit the ranges: its lower end takes all operations at their
    lowest, its upper end all at their highest. The value is NaN if the two percentiles differ by more than a bin.
    """
    ranges = [to_ranges(histogram) for histogram in ranges]
    lowest, highest = (percentiles([own[:, [end, 2]] for own in ranges], ps, seed) for end in (0, 1))
    estimates = []
    for low, high in zip(lowest, highest, strict=True):
        same = high.value <= low.value * (1 + RESOLUTION) ** 2
        value = (low.value + high.value) / 2 if same else math.nan
        estimates.append(Percentile(value, low.low, high.high, low.n, low.reason))
    return estimates


def compute_rank(n: int, p: float) -> int:
    """Return the rank of the p-th percentile (from 1) among n operations in the order of their latencies."""
    return math.ceil(round(n * p / 100, 9))


def describe_refusal(n: float, p: float) -> str:
    """Return why the p-th percentile of `n` operations is refused, or "": fewer than 10 lie beyond it (METHOD 18).

    Below the median, beyond is below. An unknown n (NaN) refuses nothing.
    """
    if math.isnan(n):
        return ""
    beyond = int(n) - compute_rank(int(n), p) if p >= 50 else compute_rank(int(n), p)
    if beyond >= MIN_ABOVE:
        return ""
    return f"p{p:g} is refused: {beyond} of {int(n):,} operations lie beyond it, {MIN_ABOVE} are needed"


def compute_bounds(values: Sequence[float]) -> Percentile:
    """Return bounds of all jobs' p-th percentile from the jobs' percentiles, without bins to merge.

    The merged percentile lies between the smallest (m) and the largest (M) of the jobs' percentiles: at M each job has
    at least p % of its operations at or below, and at any latency below m less than p %. So the interval (m, M) is
    certain for the measured operations. The value is not merged: it is the median of the jobs' values, and pages have
    to call it so. N is unknown here.
    """
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Percentile(math.nan, math.nan, math.nan, math.nan, "this percentile is missing in all jobs")
    return Percentile(float(np.median(finite)), float(finite.min()), float(finite.max()), math.nan)


def resample_percentiles(
    histograms: Sequence[Floats], ps: Sequence[float], seed: int = 1, arm: int = 0
) -> tuple[list[float], Floats]:
    """Return percentiles of the jobs' merged histogram, and (2,000, ps) of jobs drawn with replacement by `arm`."""
    values, counts = _join_histograms(histograms)
    merged = _compute_percentiles(values, np.cumsum(counts.sum(axis=0))[None, :], ps)[0]
    return merged.tolist(), _compute_percentiles(
        values, count_draws(len(counts), seed, arm) @ np.cumsum(counts, axis=1), ps
    )


def resample_medians(values: npt.ArrayLike, seed: int = 1, arm: int = 0) -> Floats:
    """Return 2,000 medians of values drawn with replacement; single values instead if there are fewer than 6.

    The medians of so few hardly vary and would give too short an interval; single values give their range.
    """
    given = np.asarray(values, dtype=float)
    random = np.random.default_rng([seed, arm, len(given)])
    size = len(given) if len(given) >= MIN_BLOCKS else 1
    medians: Floats = np.median(random.choice(given, (RESAMPLES, size)), axis=1)
    return medians


def compute_pooled_stddev(means: npt.ArrayLike, stddevs: npt.ArrayLike, weights: npt.ArrayLike) -> float:
    """Return the standard deviation of all operations of jobs from each job's N, mean and standard deviation.

    Exact: the sum of squares within jobs, (N - 1) s², plus the sum for the jobs' means around the common mean.
    """
    each, spreads, counts = (np.asarray(array, dtype=float) for array in (means, stddevs, weights))
    n = counts.sum()
    if not n > 1:
        return math.nan
    squares = (counts - 1) @ spreads**2 + counts @ (each - counts @ each / n) ** 2
    return float(np.sqrt(squares / (n - 1)))


def _join_histograms(histograms: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Join histograms over the union of their bins: (latencies, counts (jobs, bins)); drop empty histograms."""
    histograms = [histogram for histogram in histograms if histogram[:, 1].sum()]
    if not histograms:
        return np.empty(0), np.empty((0, 0))
    values = np.unique(np.concatenate([histogram[:, 0] for histogram in histograms]))
    counts = np.zeros((len(histograms), len(values)))
    for row, histogram in zip(counts, histograms, strict=True):
        np.add.at(row, np.searchsorted(values, histogram[:, 0]), histogram[:, 1])
    return values, counts


def _compute_percentiles(values: Floats, cumulative: Floats, ps: Sequence[float]) -> Floats:
    """Return percentiles (rows, ps) of histograms given as cumulative counts (rows, bins)."""
    n = cumulative[:, -1]
    ranks = np.stack([np.ceil(np.round(n * p / 100, 9)) for p in ps], axis=1)
    # Put rows end to end, each above the row before it, so that one search finds the bins of all.
    above = np.arange(len(cumulative))[:, None] * (float(np.max(n)) + 1)
    places = np.searchsorted((cumulative + above).ravel(), np.fmax(ranks, 1) + above)
    bins: Floats = values[places - np.arange(len(cumulative))[:, None] * cumulative.shape[1]]
    return bins


@cache
def _compute_ranks(n: int, p: float) -> tuple[int, int]:
    """Return the ranks (from 1) that hold the percentile with at least 95 %: at most 2.5 % of Binomial(n, p) per side.

    They lie between 1 and n, as `describe_refusal` refuses a percentile with fewer than ten operations on either side.
    """
    low, high = compute_binomial_quantiles(n, p / 100)
    return low, high + 1
