"""Totals by totals with intervals: records, or jobs, are drawn with replacement (METHOD 16)."""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from scripts.statistics.stats import MIN_BLOCKS, Estimate, expanded_tail

RESAMPLES = 2_000
LEAST = MIN_BLOCKS  # fewer jobs cannot be resampled, as fewer blocks cannot (METHOD 5)


def total_over_total(amounts: Sequence[float], weights: Sequence[float], seed: int = 1) -> Estimate:
    """Return the total of amounts by the total of weights with its interval over the jobs or records.

    Of 2 to 5 the interval is the range of their own ratios, of one there is none. `n` is their number.
    """
    amounts, weights = np.asarray(amounts, dtype=float), np.asarray(weights, dtype=float)
    usable = np.isfinite(amounts) & np.isfinite(weights) & (weights > 0)
    amounts, weights = amounts[usable], weights[usable]
    if not len(amounts):
        return Estimate(math.nan, math.nan, math.nan, 0)
    low = high = math.nan
    if len(amounts) >= LEAST:
        low, high = interval(resampled_totals(amounts, weights, seed), len(amounts))
    elif len(amounts) > 1:
        low, high = (amounts / weights).min(), (amounts / weights).max()
    return Estimate(float(amounts.sum() / weights.sum()), float(low), float(high), len(amounts))


def resampled_totals(amounts: Sequence[float], weights: Sequence[float], seed: int = 1, arm: int = 0) -> np.ndarray:
    """Return 2,000 totals of `amounts` by totals of `weights` of jobs drawn with replacement."""
    drawn = draws(len(amounts), seed, arm)
    return (drawn @ np.asarray(amounts, dtype=float)) / (drawn @ np.asarray(weights, dtype=float))


def interval(resampled: np.ndarray, jobs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (low, high) of resampled statistics along the first axis: the 95 % expanded percentile interval.

    Few jobs make the plain percentile interval too short, as few blocks do (`stats.bootstrap_interval`).
    """
    tails = ((expanded_tail(jobs), "lower"), (1 - expanded_tail(jobs), "higher"))
    return tuple(np.quantile(resampled, tail, axis=0, method=method) for tail, method in tails)


@lru_cache(maxsize=8)
def draws(jobs: int, seed: int, arm: int) -> np.ndarray:
    """How often each job is in each resample: (resamples, jobs)."""
    random = np.random.default_rng([seed, arm, jobs])
    return random.multinomial(jobs, np.full(jobs, 1 / jobs), RESAMPLES).astype(float)
