"""Compute confidence intervals, rates and verdicts from numbers (METHOD 16, 17 and 19).

`d` is always an array (blocks, comparisons) of ln(contender / baseline), with NaN for incomplete blocks. All functions
are symmetric: exchanging contender and baseline inverts every ratio and turns `faster` into `slower`.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.outcomes import Outcome

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int_]

CONFIDENCE = 0.95
LEVEL = 0.05  # significance level of a family of comparisons
FIRST_LEVEL = 2.0 ** (1 - MIN_BLOCKS)  # smallest p possible with 6 blocks, hence the error rate spent by a look at them
MOST = 2 * LEVEL - FIRST_LEVEL  # upper bound of the error rate that all looks at a family spend together
POWER = 0.8  # statistical power that defines the detectable ratio
ALL_FLIPS_UP_TO = 12  # largest number of blocks for which all sign flips are enumerated
SAMPLED_FLIPS = 9_999  # number of random sign flips for more blocks
LOST = 2  # an arm that lost this many more records than the other may look faster than it is
RESAMPLES = 2_000  # number of bootstrap samples of records or jobs
_TAIL = (1 - CONFIDENCE) / 2


class Estimate(NamedTuple):
    """An estimate from `n` samples, such as their median, with its 95 % CI; NaN if there are too few samples."""

    value: float
    low: float
    high: float
    n: int


class Verdict(NamedTuple):
    """The verdict of a comparison. Ratios are contender / baseline, and NaN if unknown."""

    verdict: Outcome
    blocks: int
    ratio: float
    low: float
    high: float
    p: float
    detectable_ratio: float


def estimate_median(values: npt.ArrayLike) -> Estimate:
    """Estimate the median of the finite values with a CI from order statistics; its limits are NaN below 6 values.

    The CI assumes independent values from the same distribution of any shape. Its coverage is at least 95 %: 96.9 % at
    n = 6 (smallest to largest), 98.4 at 7, 99.2 at 8, 96.1 at 9, 97.9 at 10 (2nd to 9th), 98.8 at 11, 96.1 at 12.
    """
    array = np.asarray(values, dtype=float)
    ordered = np.sort(array[np.isfinite(array)])
    n = len(ordered)
    low, high = _compute_ranks(n, 0.5)
    # np.median takes ten times as long for so few values, and tables contain thousands of medians.
    middle = float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else math.nan
    return Estimate(middle, _get_ranked(ordered, low), _get_ranked(ordered, high), n)


def estimate_share(events: int, n: int) -> Estimate:
    """Return the proportion of `n` trials that had an event, with its exact 95 % CI (Clopper & Pearson 1934)."""
    if not n:
        return Estimate(math.nan, math.nan, math.nan, 0)
    low = special.betaincinv(events, n - events + 1, _TAIL) if events else 0.0
    high = special.betaincinv(events + 1, n - events, 1 - _TAIL) if events < n else 1.0
    return Estimate(events / n, float(low), float(high), n)


def compute_upper_bound(events: int, n: int) -> float:
    """Return the exact one-sided 95 % upper bound of the proportion that `estimate_share` estimates."""
    return float(special.betaincinv(events + 1, n - events, CONFIDENCE)) if events < n else 1.0


def compute_rate(amounts: npt.ArrayLike, seconds: npt.ArrayLike) -> float:
    """Return the total amount divided by the total seconds, not a mean of rates (METHOD 16); NaN if unknown."""
    parts, time = np.asarray(amounts, dtype=float), float(np.sum(np.asarray(seconds, dtype=float)))
    return float(np.sum(parts)) / time if time > 0 and np.isfinite(parts).any() else math.nan


def estimate_total_ratio(amounts: npt.ArrayLike, weights: npt.ArrayLike, seed: int = 1) -> Estimate:
    """Return the total of the amounts divided by the total of the weights, with its 95 % CI over jobs or records.

    With 2 to 5 jobs, the CI is the range of the jobs' ratios. With a single job, it is NaN. `n` is the number of jobs
    with usable values.
    """
    parts, by = np.asarray(amounts, dtype=float), np.asarray(weights, dtype=float)
    usable = np.isfinite(parts) & np.isfinite(by) & (by > 0)
    parts, by = parts[usable], by[usable]
    if not len(parts):
        return Estimate(math.nan, math.nan, math.nan, 0)
    ends = np.full(2, math.nan)
    if len(parts) >= MIN_BLOCKS:
        ends = np.array(compute_interval(resample_totals(parts, by, seed), len(parts)))
    elif len(parts) > 1:
        ends = np.array([(parts / by).min(), (parts / by).max()])
    low, high = ends.tolist()
    return Estimate(float(parts.sum()) / float(by.sum()), low, high, len(parts))


def resample_totals(amounts: npt.ArrayLike, weights: npt.ArrayLike, seed: int = 1, arm: int = 0) -> Floats:
    """Return the ratio of total amount to total weight for 2,000 bootstrap samples of the jobs."""
    parts, by = np.asarray(amounts, dtype=float), np.asarray(weights, dtype=float)
    drawn = count_draws(len(parts), seed, arm)
    totals: Floats = (drawn @ parts) / (drawn @ by)
    return totals


def compute_interval(resampled: Floats, jobs: int) -> tuple[Floats, Floats]:
    """Return (low, high), the 95 % expanded percentile interval of bootstrap statistics along the first axis.

    With few jobs, the plain percentile interval would be too narrow, as with few blocks (see
    `stats.compute_bootstrap_interval`).
    """
    tail = compute_expanded_tail(jobs)
    low = np.quantile(resampled, tail, axis=0, method="lower")
    return low, np.quantile(resampled, 1 - tail, axis=0, method="higher")


@lru_cache(maxsize=8)
def count_draws(jobs: int, seed: int, arm: int) -> Floats:
    """Draw bootstrap samples of the jobs, and return how often each job occurs in each sample: (samples, jobs)."""
    random = np.random.default_rng([seed, arm, jobs])
    return random.multinomial(jobs, np.full(jobs, 1 / jobs), RESAMPLES).astype(float)


def compute_bootstrap_interval(d: Floats) -> tuple[Floats, Floats]:
    """Return (low, high), the 95 % bootstrap interval of each column's median over blocks; NaN below 6 blocks.

    No samples are drawn, and no seed is needed: the distribution of the median over all n**n bootstrap samples is known
    in closed form (Efron, Annals of Statistics 7, 1979).

    With few blocks, the plain percentile interval is too narrow: at n = 6 to 10 it contains the true median in 87.5 to
    96.1 % of runs. Hence this is the expanded percentile interval (Hesterberg, The American Statistician 69, 2015,
    section 5.3), whose tails are Phi(-t(0.975, n - 1) sqrt(n / (n - 1))) instead of 2.5 %. If n is odd, the limits are
    observed values, and the tail is reduced to cover 95 %. The coverage at n = 6 to 12 is 96.0 to 98.8 % for nearly any
    distribution. At n = 6, the interval extends from the smallest to the largest d, and excludes a ratio of 1 if and
    only if the sign-flip test of a single comparison gives p <= 0.05.
    """
    low = np.full(d.shape[1], math.nan)
    high = low.copy()
    counts = np.isfinite(d).sum(axis=0)
    for n in np.unique(counts[counts >= MIN_BLOCKS]):
        columns = np.flatnonzero(counts == n)
        ordered = np.sort(np.where(np.isfinite(d[:, columns]), d[:, columns], math.inf), axis=0)[:n]
        first, second, weights = _list_resample_medians(int(n))
        medians = (ordered[first] + ordered[second]) / 2
        order = np.argsort(medians, axis=0)
        medians = np.take_along_axis(medians, order, axis=0)
        below = np.cumsum(weights[order], axis=0)
        above = np.cumsum(weights[order][::-1], axis=0)
        covering = special.bdtrc(n // 2, n, _compute_ranks(int(n), 0.5)[0] / n) if n % 2 else 1
        tail = min(compute_expanded_tail(int(n)), covering) * (1 - 1e-9)
        each = np.arange(len(columns))
        low[columns] = medians[(below < tail).sum(axis=0), each]
        high[columns] = medians[::-1][(above < tail).sum(axis=0), each]
    return low, high


def compute_max_t(d: Floats, seed: int = 1, level: float | Floats = LEVEL) -> tuple[Floats, Floats]:
    """Test all comparisons of a family together with the max-|t| sign-flip test.

    The signs of whole blocks are flipped in all comparisons at once, which preserves the dependence between
    comparisons. Each |t| is compared with the largest |t| of each flip (Westfall & Young, Resampling-Based Multiple
    Testing, 1993, single step). All 2**N flips are used for up to N = 12 blocks, and otherwise the identity and 9,999
    seeded flips. Flipping a block does not affect comparisons without that block. t is infinite if all d of a
    comparison agree, and 0 if all are 0.

    The null hypothesis is that the two arms are exchangeable in each block. Simulated families of 24 comparisons at
    N = 10, of arms with equal medians and with a strongly skewed (exponential) distribution for one arm, had false
    alarms in 8 % instead of 5 % of families.

    Returns:
        The p of each comparison, adjusted for the family, and the critical |t| for p <= `level`.
    """
    signs = build_flips(len(d), seed)
    t = compute_flipped_t(d, signs)
    largest = t.max(axis=1)
    p = (largest[:, None] >= t[0] * (1 - 1e-9)).mean(axis=0)
    # The number of flips, other than the identity, that may reach the observed |t| without exceeding the level.
    allowed = np.floor(np.asarray(level) * len(signs)).astype(int) - 1
    critical = np.where(allowed >= 0, np.sort(largest[1:])[::-1][np.maximum(allowed, 0)], math.inf)
    return p, critical


def compute_flipped_t(d: Floats, signs: Floats) -> Floats:
    """Return |t| as an array (flips, comparisons), after multiplying whole blocks by `signs`, (flips, blocks)."""
    present = np.isfinite(d)
    n = present.sum(axis=0)
    filled = np.where(present, d, 0.0)
    squares = (filled**2).sum(axis=0)
    # Flips do not change the sum of squares, so t depends only on the flipped sum: t² = (n - 1) u / (1 - u).
    u = (signs @ filled) ** 2 / np.where(squares > 0, n * squares, 1.0)
    with np.errstate(divide="ignore"):
        t: Floats = np.sqrt((n - 1) * u / np.where(u > 1 - 1e-12, 0.0, 1 - u))
    return t


def count_looks(sessions: Iterable[str]) -> int:
    """Return how many times (at least 1) a verdict could have been evaluated, given the ordered sessions of the blocks.

    Each session counts as a look if at least 6 blocks had been measured by its end.
    """
    blocks = np.cumsum([count for count in Counter(sessions).values()])
    return max(1, int((blocks >= MIN_BLOCKS).sum()))


def compute_level(looks: int) -> float:
    """Return the significance level of a verdict at its n-th evaluation, where n is `looks`.

    A plan with a fixed number of repeats spends `LEVEL` at its only look. With 6 blocks, p is a multiple of 1/32, so
    this look spends only 1/32. Each further look spends half of the remaining level. All looks together spend at most
    `LEVEL` if the first look had 6 blocks, and at most `MOST` if it had more.
    """
    return LEVEL if looks == 1 else (LEVEL - FIRST_LEVEL) / 2 ** (looks - 1)


def apply_losses(outcome: Outcome, lost_baseline: int, lost_contender: int) -> Outcome:
    """Correct the outcome of a comparison for lost records: failed, invalid, or stopped by a time limit.

    The lost records may have been the slow ones. So arms are not the same if either lost a record, and an arm that lost
    at least `LOST` more records than the other is not faster; the outcome is then `no evidence`.
    """
    more = lost_contender - lost_baseline
    any_lost = lost_baseline + lost_contender > 0
    flattered = {Outcome.SAME: any_lost, Outcome.FASTER: more >= LOST, Outcome.SLOWER: -more >= LOST}
    return Outcome.NO_EVIDENCE if flattered.get(outcome) else outcome


def compute_unseen_share(blocks: int) -> float:
    """Return the proportion of stalling reads that remains unobserved in this many blocks with a probability of 5 %."""
    return 1 - math.pow(1 - CONFIDENCE, 1 / blocks)


def compute_serial_p(d: Floats, seed: int = 1) -> float:
    """Test for positive serial correlation between blocks in all comparisons together; return the permutation p.

    The residuals of each comparison (d minus its median) are scaled to unit norm. The sum of products of successive
    blocks is compared with the sums for other orders of the blocks: all orders for up to 7 blocks, and otherwise 9,999
    seeded orders. The result is NaN if all comparisons have too few blocks.
    """
    d = d[:, has_enough_blocks(d)]
    if not d.shape[1]:
        return math.nan
    residuals = np.nan_to_num(d - np.nanmedian(d, axis=0))[np.isfinite(d).any(axis=1)]
    scale = np.sqrt((residuals**2).sum(axis=0))
    residuals = residuals[:, scale > 0] / scale[scale > 0]
    products = residuals @ residuals.T
    orders = _build_orders(len(products), seed)
    sums = products[orders[:, 1:], orders[:, :-1]].sum(axis=1)
    return float((sums >= sums[0] - 1e-9).mean())


def has_enough_blocks(d: Floats) -> Flags:
    """Return for each comparison whether it has enough complete blocks for a verdict."""
    judged: Flags = np.isfinite(d).sum(axis=0) >= MIN_BLOCKS
    return judged


def judge_family(
    d: Floats,
    equivalence_percent: float = 5.0,
    seed: int = 1,
    looks: Sequence[int] | int = 1,
    means: Sequence[Estimate] | None = None,
    beside: Floats | None = None,
) -> list[Verdict]:
    """Return a verdict for each comparison of a family, by the tests of METHOD 17 in their order.

    1. `same` if the 95 % CI lies within ±`equivalence_percent`, for example 1 / 1.05 to 1.05, so that exchanging the
       arms does not matter. The CI in `means`, if given, must lie within the same bounds.
    2. `faster` or `slower` if p of the family is at most `compute_level(looks)` and the CI excludes 1.
    3. `no evidence` otherwise.

    Comparisons with fewer than 6 complete blocks are `too few repeats` and not part of the family. The ratio is
    exp(median d).

    The detectable ratio is the smallest ratio, at least 1 + `equivalence_percent`, that this run would have judged
    `slower` with a power of 0.8. It is exp(s / sqrt(n) x), where s is the standard deviation of the comparison's d, n
    its number of blocks, and x the noncentrality at which Student's t (n - 1 degrees of freedom) exceeds the threshold
    of this run with that power. The threshold is the family's critical |t|, or the half-width of the comparison's CI in
    standard errors (on its longer side) if that is larger. This is the minimum detectable effect of Bloom, Evaluation
    Review 19, 1995, with the exact noncentral t. The ratio is infinite if no |t| would suffice. It is meant for
    planning and, unlike the verdicts, assumes normal noise: simulated power at that ratio is 0.7 to 0.95 for normal
    noise, and 0.57 to 0.8 with rare large spikes.

    Args:
        d: ln(contender / baseline), an array (blocks, comparisons).
        equivalence_percent: the equivalence margin in percent.
        seed: seed of the sign flips.
        looks: how often the results have been evaluated, including this time, because each evaluation of a growing
            number of repeats is another chance of a false alarm: a number for all comparisons, or a number for each.
        means: ratios of mean times with their CIs, one per comparison.
        beside: d of further comparisons in the same blocks, which belong to the family but get no verdict here.
    """
    d = np.where(np.isfinite(d), d, math.nan)
    n, family = np.isfinite(d).sum(axis=0), has_enough_blocks(d)
    low, high = compute_bootstrap_interval(d)
    p, centre, detectable = np.full((3, d.shape[1]), math.nan)
    level = np.broadcast_to([compute_level(number) for number in np.atleast_1d(looks)], d.shape[1:])
    centre[n > 0] = np.nanmedian(d[:, n > 0], axis=0)
    if family.any():
        rows = d[:, family]
        if beside is not None:
            rows = np.hstack([rows, beside[:, has_enough_blocks(beside)]])
        rows = rows[np.isfinite(rows).any(axis=1)]
        adjusted, critical = compute_max_t(rows, seed, level[family])
        rows, p[family] = rows[:, : family.sum()], adjusted[: family.sum()]
        reach = np.fmax(high - centre, centre - low)[family]
        error = np.nanstd(rows, axis=0, ddof=1) / np.sqrt(n[family])
        detectable[family] = np.fmax(
            compute_detectable(critical, reach, error, n[family]), 1 + equivalence_percent / 100
        )
    bound = math.log1p(equivalence_percent / 100)
    decided = [choose_outcome(*limits, bound) for limits in zip(low, high, p, level, strict=True)]
    if means is not None:
        apart = [not (math.exp(-bound) <= mean.low and mean.high <= math.exp(bound)) for mean in means]
        decided = [
            Outcome.NO_EVIDENCE if one == Outcome.SAME and parts else one
            for one, parts in zip(decided, apart, strict=True)
        ]
    verdicts = [verdict if enough else Outcome.TOO_FEW for verdict, enough in zip(decided, family, strict=True)]
    numbers = (n, np.exp(centre), np.exp(low), np.exp(high), p, detectable)
    return [Verdict(*values) for values in zip(verdicts, *(column.tolist() for column in numbers), strict=True)]


def choose_outcome(low: float, high: float, p: float, level: float, bound: float) -> Outcome:
    """Choose the outcome of a comparison by the rule of METHOD 17.

    Args:
        low: lower limit of the CI of the ln ratio.
        high: its upper limit.
        p: p of the comparison, corrected for its family.
        level: significance level for p.
        bound: ln ratios within ± this value count as the same.
    """
    if -bound <= low and high <= bound:
        return Outcome.SAME
    if p <= level and high < 0:
        return Outcome.FASTER
    if p <= level and low > 0:
        return Outcome.SLOWER
    return Outcome.NO_EVIDENCE


def compute_detectable(critical: Floats, reach: Floats, error: Floats, n: Floats) -> Floats:
    """Return the detectable ratio of each comparison, as defined by `judge_family`.

    Args:
        critical: critical |t| of the family.
        reach: distance from the estimate to the farther limit of its CI, on the ln scale.
        error: standard error of the mean of d.
        n: number of blocks.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        threshold = np.fmax(critical, reach / error)
        ratio = np.exp(error * special.nctdtrinc(n - 1, 1 - POWER, np.where(np.isfinite(threshold), threshold, 1.0)))
    return np.where(error > 0, np.where(np.isfinite(threshold), ratio, math.inf), 1.0)


def _get_ranked(ordered: Floats, rank: int) -> float:
    return float(ordered[rank - 1]) if 1 <= rank <= len(ordered) else math.nan


def compute_binomial_quantiles(n: int, p: float) -> tuple[int, int]:
    """Return the 2.5 % and 97.5 % quantiles of Binomial(n, p).

    This replaces scipy.stats.binom.ppf, whose import alone would delay each program by a second.
    """
    tails = np.array([_TAIL, 1 - _TAIL])
    above = np.ceil(special.bdtrik(tails, n, p))
    below = np.maximum(above - 1, 0)
    low, high = np.where(special.bdtr(below, n, p) >= tails, below, above)
    return int(low), int(high)


@cache
def _compute_ranks(n: int, quantile: float) -> tuple[int, int]:
    """Return the ranks (from 1) of the two sorted values that are the limits of a quantile's CI of at least 95 %.

    Hahn & Meeker, Statistical Intervals, section 5.2: at most 2.5 % of Binomial(n, quantile) lie outside on either
    side. The result is (0, 0) if n is too small for such ranks.
    """
    low, high = compute_binomial_quantiles(n, quantile) if n else (0, 0)
    return (low, high + 1) if low >= 1 and high < n else (0, 0)


@cache
def build_flips(blocks: int, seed: int) -> Floats:
    """Return the signs of sign flips, an array (flips, blocks), with the identity first.

    A flip and its negation give the same |t|, so the first sign is fixed where all flips are enumerated.
    """
    if blocks <= ALL_FLIPS_UP_TO:
        return np.array([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=blocks - 1)])
    signs = np.random.default_rng(seed).choice((1.0, -1.0), (SAMPLED_FLIPS, blocks))
    return np.vstack([np.ones(blocks), signs])


@cache
def _build_orders(blocks: int, seed: int) -> Places:
    """Return permutations of the blocks, an array (orders, blocks), with the measured order first."""
    if math.factorial(blocks) <= SAMPLED_FLIPS:
        return np.array([*itertools.permutations(range(blocks))])
    given = np.tile(np.arange(blocks), (SAMPLED_FLIPS + 1, 1))
    given[1:] = np.random.default_rng(seed).permuted(given[1:], axis=1)
    return given


@cache
def compute_expanded_tail(n: int) -> float:
    """Return the tail probability of a 95 % expanded percentile interval for `n` values.

    `compute_bootstrap_interval` gives the formula.
    """
    return float(special.ndtr(-math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, 1 - _TAIL)))


@cache
def _list_resample_medians(n: int) -> tuple[Places, Places, Floats]:
    """List all possible medians of a bootstrap sample of n sorted values.

    Returns:
        For each median, the indices of the two values whose mean it is, and its probability.
    """
    share = np.arange(n + 1) / n
    at_most = special.bdtrc((n - 1) // 2, n, share)  # probability that the sample's lower median is among the first i
    weights = np.diag(np.diff(at_most))
    if n % 2 == 0:
        half = n // 2
        part = np.diff(share**half)  # probability that the largest of n / 2 draws is value i
        pairs = math.comb(n, half) * np.triu(np.outer(part, part[::-1]), 1)
        weights += pairs - np.diag(pairs.sum(axis=1))
    first, second = np.nonzero(weights > 0)
    return first, second, weights[first, second]
