"""Estimate percentiles and their confidence intervals from the latency histograms of fio jobs (METHOD 16, 18).

A histogram is an array (bins, 2) of latency and count, as in fio's json+ output. fio uses 64 bins between a power of
two and the next, and reports the middle of each bin. So every percentile here, as in fio's output, is the middle of a
bin, within 0.8 % of the true latency. As in fio, the p-th percentile is the bin that contains the ceil(p N)-th of N
operations.

If the bins are unknown, a histogram is an array (ranges, 3) of the lowest latency, the highest latency and the count.
A range contains the operations between two of fio's percentiles, or between two bounds of another histogram.

Percentiles are never averaged: histograms are added. Latencies within a job are correlated, and the machine drifts
between jobs, so that the unit of the confidence intervals is the job, not the operation.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.stats import RESAMPLES, Floats, compute_binomial_quantiles, compute_interval, count_draws

MIN_ABOVE = 10  # smallest number of operations beyond a percentile (METHOD 18)
RESOLUTION = 1 / 64  # relative resolution of a ratio of two percentiles, each of which is within half of this


class Percentile(NamedTuple):
    """A percentile of `n` operations with its 95 % CI, in the unit of the bins.

    If the percentile cannot be estimated, the numbers are NaN and `reason` gives the reason.
    """

    value: float
    low: float
    high: float
    n: float
    reason: str = ""


class Moments(NamedTuple):
    """Number of operations in a histogram, and their mean, standard deviation and maximum.

    Each operation counts with the middle of its bin.
    """

    n: int
    mean: float
    stddev: float
    largest: float


def compute_moments(histogram: Floats) -> Moments:
    """Return the moments of a histogram, with the sample standard deviation (n - 1), as in fio."""
    values, counts = histogram.T.astype(float)
    n = counts.sum()
    if not n:
        return Moments(0, math.nan, math.nan, math.nan)
    mean = float(counts @ values / n)
    variance = counts @ (values - mean) ** 2 / (n - 1) if n > 1 else math.nan
    return Moments(int(n), mean, math.sqrt(variance), float(values[counts > 0].max()))


def compute_at_or_above(histogram: Floats, limit: float) -> Floats:
    """Count the operations at or above a limit and add up their latencies.

    The latency of an operation may be anywhere in its bin. For the lower and upper bounds, each operation counts with
    the lower or upper edge of its bin. For the middle, it counts with the middle of its bin; for a histogram of
    ranges, the middle is the mean of the two bounds.

    Returns:
        An array with the rows lower bound, middle and upper bound, and the columns number and sum of latencies.
    """
    low, high, counts = to_ranges(histogram).T
    least, most = (np.array([counts @ (edge >= limit), counts @ (edge * (edge >= limit))]) for edge in (low, high))
    if histogram.shape[1] == 3:
        return np.array([least, (least + most) / 2, most])
    values = histogram[:, 0].astype(float)
    return np.array([least, [counts @ (values >= limit), counts @ (values * (values >= limit))], most])


def to_ranges(histogram: Floats) -> Floats:
    """Convert a histogram of bins to ranges (lowest latency, highest latency, count); return ranges unchanged."""
    if histogram.shape[1] == 3:
        return histogram
    values, counts = histogram.T.astype(float)
    return np.column_stack([values * (1 - RESOLUTION / 2), values * (1 + RESOLUTION / 2), counts])


def percentiles(histograms: Sequence[Floats], ps: Sequence[float], seed: int = 1) -> list[Percentile]:
    """Estimate percentiles (0 < p < 100) of the merged histogram of several jobs, with 95 % CIs.

    A percentile with fewer than 10 operations beyond it is not estimated. The CI depends on the number of jobs:

    one job: exact order statistics of its operations as if they were independent (Hahn & Meeker, Statistical Intervals,
        section 5.2), so without the drift between jobs;
    2 to 5 jobs: the order statistics of the merged operations, widened to the range of the jobs' percentiles;
    6 or more: a bootstrap that resamples whole jobs (`resample_percentiles`, `compute_interval`), never narrower than
        the order statistics.

    In simulations in which the level drifts by 10 % from job to job, the CI of p99 contains the p99 of further jobs in
    94 to 98 % of cases with 6 to 50 jobs (order statistics: 83 to 93 %). With a drift of 30 %, it contains that value
    in 81 % of cases with 6 jobs, 88 % with 20 and 93 % with 50 (order statistics: 40 %), because the slowest jobs
    determine the tail and a few jobs may not include them.

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
    """Estimate percentiles with 95 % CIs, as `percentiles` does, from histograms of ranges.

    The lower end of a CI assumes the lowest latency for each operation, and the upper end assumes the highest, so that
    the CI contains the CI of any histogram of bins that is consistent with the ranges. The value is NaN if these two
    assumptions give percentiles that differ by more than a bin.
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
    """Return the rank, counted from 1, of the p-th percentile among n operations sorted by latency."""
    return math.ceil(round(n * p / 100, 9))


def describe_refusal(n: float, p: float) -> str:
    """Explain why a percentile is refused: fewer than 10 of `n` operations lie beyond it (METHOD 18).

    For percentiles below the median, operations with lower latencies lie beyond. The result is an empty string if
    there are enough operations, or if n is unknown (NaN).
    """
    if math.isnan(n):
        return ""
    beyond = int(n) - compute_rank(int(n), p) if p >= 50 else compute_rank(int(n), p)
    if beyond >= MIN_ABOVE:
        return ""
    return f"p{p:g} is refused: {beyond} of {int(n):,} operations lie beyond it, {MIN_ABOVE} are needed"


def compute_bounds(values: Sequence[float]) -> Percentile:
    """Derive bounds of the p-th percentile over all jobs from the p-th percentile of each job.

    Use this if there are no histograms to merge. The merged percentile lies between the smallest (m) and the largest
    (M) of the jobs' percentiles: in each job, at least p % of operations have latencies up to M, and less than p % have
    latencies below m. So the bounds (m, M) are certain for the measured operations. The value is the median of the
    jobs' percentiles, not the merged percentile, and pages must label it as such. N is unknown (NaN).
    """
    finite = np.asarray(values, dtype=float)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return Percentile(math.nan, math.nan, math.nan, math.nan, "this percentile is missing in all jobs")
    return Percentile(float(np.median(finite)), float(finite.min()), float(finite.max()), math.nan)


def resample_percentiles(
    histograms: Sequence[Floats], ps: Sequence[float], seed: int = 1, arm: int = 0
) -> tuple[list[float], Floats]:
    """Compute percentiles of the jobs' merged histogram, and of 2,000 bootstrap samples of whole jobs.

    Args:
        histograms: a histogram of bins per job.
        ps: the percentiles, such as 99.
        seed: seed of the samples.
        arm: number of the side of a comparison, so that the two sides are resampled independently.

    Returns:
        The percentiles, and an array (2,000, ps) of the percentiles of the samples.
    """
    values, counts = _join_histograms(histograms)
    merged = _compute_percentiles(values, np.cumsum(counts.sum(axis=0))[None, :], ps)[0]
    return merged.tolist(), _compute_percentiles(
        values, count_draws(len(counts), seed, arm) @ np.cumsum(counts, axis=1), ps
    )


def resample_medians(values: npt.ArrayLike, seed: int = 1, arm: int = 0) -> Floats:
    """Return the medians of 2,000 bootstrap samples of the values.

    With fewer than 6 values, each sample is a single value. Medians of so few values hardly vary and would give too
    narrow a confidence interval, while single values give an interval up to the range of the values.
    """
    given = np.asarray(values, dtype=float)
    random = np.random.default_rng([seed, arm, len(given)])
    size = len(given) if len(given) >= MIN_BLOCKS else 1
    medians: Floats = np.median(random.choice(given, (RESAMPLES, size)), axis=1)
    return medians


def compute_pooled_stddev(means: npt.ArrayLike, stddevs: npt.ArrayLike, weights: npt.ArrayLike) -> float:
    """Compute the standard deviation over all operations from each job's mean, standard deviation and N (`weights`).

    The result is exact: the sum of squares within jobs, (N - 1) s², plus the sum of squares of the jobs' means around
    the common mean, N (mean - common mean)².
    """
    each, spreads, counts = (np.asarray(array, dtype=float) for array in (means, stddevs, weights))
    n = counts.sum()
    if not n > 1:
        return math.nan
    squares = (counts - 1) @ spreads**2 + counts @ (each - counts @ each / n) ** 2
    return float(np.sqrt(squares / (n - 1)))


def _join_histograms(histograms: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Omit empty histograms, and align the rest on the union of their bins.

    Returns:
        The latencies of the bins, and the counts as an array (jobs, bins).
    """
    histograms = [histogram for histogram in histograms if histogram[:, 1].sum()]
    if not histograms:
        return np.empty(0), np.empty((0, 0))
    values = np.unique(np.concatenate([histogram[:, 0] for histogram in histograms]))
    counts = np.zeros((len(histograms), len(values)))
    for row, histogram in zip(counts, histograms, strict=True):
        np.add.at(row, np.searchsorted(values, histogram[:, 0]), histogram[:, 1])
    return values, counts


def _compute_percentiles(values: Floats, cumulative: Floats, ps: Sequence[float]) -> Floats:
    """Compute percentiles, an array (rows, ps), from histograms as cumulative counts, an array (rows, bins)."""
    n = cumulative[:, -1]
    ranks = np.stack([np.ceil(np.round(n * p / 100, 9)) for p in ps], axis=1)
    # Concatenate the rows, each shifted above the row before it, so that a single search finds the bins of all rows.
    above = np.arange(len(cumulative))[:, None] * (float(np.max(n)) + 1)
    places = np.searchsorted((cumulative + above).ravel(), np.fmax(ranks, 1) + above)
    bins: Floats = values[places - np.arange(len(cumulative))[:, None] * cumulative.shape[1]]
    return bins


@cache
def _compute_ranks(n: int, p: float) -> tuple[int, int]:
    """Return the ranks (from 1) of the two sorted values that are the limits of a percentile's 95 % CI.

    At most 2.5 % of Binomial(n, p) lie outside on each side. Both ranks are between 1 and n, because
    `describe_refusal` rejects a percentile with fewer than ten operations on either side.
    """
    low, high = compute_binomial_quantiles(n, p / 100)
    return low, high + 1
