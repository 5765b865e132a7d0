"""Compute the statistics of METHOD 16, 17 and 19 on plain numbers: intervals, rates, and the verdicts of a family.

`d` is always an array (blocks, comparisons) of ln(contender / baseline), NaN for incomplete blocks. Everything is
even-handed: exchanging contender and baseline turns every ratio into its inverse and `faster` into `slower`.
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
LEVEL = 0.05  # of the family
FIRST_LEVEL = 2.0 ** (1 - MIN_BLOCKS)  # the least p of 6 blocks, so the part of the level that a look at them spends
MOST = 2 * LEVEL - FIRST_LEVEL  # most that all looks at a family spend
POWER = 0.8  # power of a detectable ratio
ALL_FLIPS_UP_TO = 12  # blocks; beyond it, so many seeded flips:
SAMPLED_FLIPS = 9_999
LOST = 2  # excess records lost by an arm from which the remaining records may flatter it
RESAMPLES = 2_000  # of records or jobs, drawn with replacement
_TAIL = (1 - CONFIDENCE) / 2


class Estimate(NamedTuple):
    """A median of `n` samples with its interval; NaN with too few samples."""

    value: float
    low: float
    high: float
    n: int


class Verdict(NamedTuple):
    """The verdict of one comparison; ratios are contender / baseline, NaN if unknown."""

    verdict: Outcome
    blocks: int
    ratio: float
    low: float
    high: float
    p: float
    detectable_ratio: float


def estimate_median(values: npt.ArrayLike) -> Estimate:
    """Return the median with its order-statistics interval, NaN limits below 6 values.

    The interval assumes independent values of one distribution, whatever its shape, and covers at least 95 %: 96.9 % at
    n = 6 (smallest to largest), 98.4 at 7, 99.2 at 8, 96.1 at 9, 97.9 at 10 (2nd to 9th), 98.8 at 11, 96.1 at 12.
    """
    array = np.asarray(values, dtype=float)
    ordered = np.sort(array[np.isfinite(array)])
    n = len(ordered)
    low, high = _compute_ranks(n, 0.5)
    # np.median takes ten times as long for so few values, and tables have thousands of medians.
    middle = float(ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else math.nan
    return Estimate(middle, _get_ranked(ordered, low), _get_ranked(ordered, high), n)


def estimate_share(events: int, n: int) -> Estimate:
    """Return the share of `n` trials with an event and its exact 95 % interval (Clopper & Pearson 1934)."""
    if not n:
        return Estimate(math.nan, math.nan, math.nan, 0)
    low = special.betaincinv(events, n - events + 1, _TAIL) if events else 0.0
    high = special.betaincinv(events + 1, n - events, 1 - _TAIL) if events < n else 1.0
    return Estimate(events / n, float(low), float(high), n)


def compute_upper_bound(events: int, n: int) -> float:
    """Return the exact one-sided upper bound, of 95 % confidence, of a share (`estimate_share`): `events` of `n`."""
    return float(special.betaincinv(events + 1, n - events, CONFIDENCE)) if events < n else 1.0


def compute_rate(amounts: npt.ArrayLike, seconds: npt.ArrayLike) -> float:
    """Return the total of the amounts by the total seconds, never a mean of rates (METHOD 16); NaN if unknown."""
    parts, time = np.asarray(amounts, dtype=float), float(np.sum(np.asarray(seconds, dtype=float)))
    return float(np.sum(parts)) / time if time > 0 and np.isfinite(parts).any() else math.nan


def estimate_total_ratio(amounts: npt.ArrayLike, weights: npt.ArrayLike, seed: int = 1) -> Estimate:
    """Return the total of amounts by the total of weights with its interval over the jobs or records.

    For 2 to 5 jobs the interval is the range of their ratios, for one job it is NaN. `n` is their number.
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
    """Return 2,000 totals of `amounts` by totals of `weights` of jobs drawn with replacement."""
    parts, by = np.asarray(amounts, dtype=float), np.asarray(weights, dtype=float)
    drawn = count_draws(len(parts), seed, arm)
    totals: Floats = (drawn @ parts) / (drawn @ by)
    return totals


def compute_interval(resampled: Floats, jobs: int) -> tuple[Floats, Floats]:
    """Return (low, high) of resampled statistics along the first axis: the 95 % expanded percentile interval.

    Few jobs make the plain percentile interval too short, as few blocks do (`stats.compute_bootstrap_interval`).
    """
    tail = compute_expanded_tail(jobs)
    low = np.quantile(resampled, tail, axis=0, method="lower")
    return low, np.quantile(resampled, 1 - tail, axis=0, method="higher")


@lru_cache(maxsize=8)
def count_draws(jobs: int, seed: int, arm: int) -> Floats:
    """Return how often each job is in each resample: (resamples, jobs)."""
    random = np.random.default_rng([seed, arm, jobs])
    return random.multinomial(jobs, np.full(jobs, 1 / jobs), RESAMPLES).astype(float)


def compute_bootstrap_interval(d: Floats) -> tuple[Floats, Floats]:
    """Return (low, high), the 95 % bootstrap interval of each column's median, resampling blocks; NaN below 6 blocks.

    It draws nothing: the distribution of a resample's median over all n**n resamples is known in closed form (Efron,
    Annals of Statistics 7, 1979), so the interval needs no seed.

    Few blocks make the plain percentile interval too short: at n = 6…10 it holds the true median in 87.5 to 96.1 % of
    runs. Hence the expanded percentile interval (Hesterberg, The American Statistician 69, 2015, section 5.3), whose
    tails are Phi(-t(0.975, n - 1) sqrt(n / (n - 1))) instead of 2.5 %. If n is odd, limits are observed values and the
    tail is cut to cover 95 %. Coverage at n = 6…12, nearly whatever the distribution: 96.0 to 98.8 %. At n = 6 it runs
    from the smallest to the largest d, so that it excludes 1 exactly if the sign-flip test of one comparison gives p <=
    0.05.
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
    """Return (p of each comparison, adjusted for all of them; the critical |t| for p <= `level`).

    Signs of whole blocks are flipped in all comparisons at once, which keeps their dependence, and each |t| is compared
    with the largest of each flip (Westfall & Young, Resampling-Based Multiple Testing, 1993, single step). All 2**N
    flips are used up to N = 12 blocks, else the identity and 9,999 seeded flips. A block's flip does not touch
    comparisons without that block. t is infinite if all d of a comparison agree, 0 if all are 0.

    The null hypothesis is that arms could be exchanged in each block. Arms with equal medians, one of them strongly
    skewed (exponential), gave 8 % of false alarms in simulated families of 24 at N = 10, instead of 5 %.
    """
    signs = _build_flips(len(d), seed)
    t = compute_flipped_t(d, signs)
    largest = t.max(axis=1)
    p = (largest[:, None] >= t[0] * (1 - 1e-9)).mean(axis=0)
    # Flips other than the identity that may reach the observed |t|.
    allowed = np.floor(np.asarray(level) * len(signs)).astype(int) - 1
    critical = np.where(allowed >= 0, np.sort(largest[1:])[::-1][np.maximum(allowed, 0)], math.inf)
    return p, critical


def compute_flipped_t(d: Floats, signs: Floats) -> Floats:
    """Return |t| (flips, comparisons) of each comparison under each flip of whole blocks, `signs` (flips, blocks)."""
    present = np.isfinite(d)
    n = present.sum(axis=0)
    filled = np.where(present, d, 0.0)
    squares = (filled**2).sum(axis=0)
    # Flips leave the sum of squares alone, so t follows from the flipped sum alone: t² = (n - 1) u / (1 - u).
    u = (signs @ filled) ** 2 / np.where(squares > 0, n * squares, 1.0)
    with np.errstate(divide="ignore"):
        t: Floats = np.sqrt((n - 1) * u / np.where(u > 1 - 1e-12, 0.0, 1 - u))
    return t


def count_looks(sessions: Iterable[str]) -> int:
    """Return how often a verdict could have been read, by the sessions of its blocks in their order; at least once.

    Each session that ends with at least 6 blocks counts as a look.
    """
    blocks = np.cumsum([count for count in Counter(sessions).values()])
    return max(1, int((blocks >= MIN_BLOCKS).sum()))


def compute_level(looks: int) -> float:
    """Return the level of a verdict that is read for the n-th time.

    A plan of fixed repeats spends `LEVEL` at its only look. At 6 blocks p is a multiple of 1/32, so it spends 1/32.
    Further looks spend the rest by halves: all looks together spend at most `LEVEL` after a first look at 6 blocks, and
    `MOST` after a first look at more.
    """
    return LEVEL if looks == 1 else (LEVEL - FIRST_LEVEL) / 2 ** (looks - 1)


def apply_losses(outcome: Outcome, lost_baseline: int, lost_contender: int) -> Outcome:
    """Return the outcome of a comparison after its arms lost records: failed, invalid or ended by a time limit.

    Lost records may be the slow ones. If an arm lost `LOST` more, the arms are not the same, and it is not faster.
    """
    more = lost_contender - lost_baseline
    flattered = {Outcome.SAME: abs(more), Outcome.FASTER: more, Outcome.SLOWER: -more}
    return Outcome.NO_EVIDENCE if flattered.get(outcome, 0) >= LOST else outcome


def compute_unseen_share(blocks: int) -> float:
    """Return the share of reads that would stall in none of so many blocks with a probability of 5 %."""
    return 1 - math.pow(1 - CONFIDENCE, 1 / blocks)


def compute_serial_p(d: Floats, seed: int = 1) -> float:
    """Return the p of blocks that resemble their predecessors, over all comparisons; NaN if all have too few blocks.

    The residuals of each comparison, d minus its median, are scaled alike. The sum of the products of neighbours is
    compared with the sums in other orders of the blocks: all orders up to 7 blocks, beyond it as many seeded orders as
    flips.
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
    """Return which comparisons have enough complete blocks to be judged."""
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
    """Return a verdict for each comparison of a family, in the order of METHOD 17.

    `same` if the interval lies inside ±`equivalence_percent`, taken as 1 / 1.05 … 1.05 so that exchanging the arms
    changes nothing, and so does the interval of `means`, the ratios of mean times, if given; `faster` or `slower` if
    the family's p is at most `compute_level(looks)` and the interval excludes 1; else `no evidence`. Comparisons of
    fewer than 6 complete blocks are `too few repeats` and stay outside the family. The ratio is exp(median d).

    `beside` is d of further comparisons in the same blocks, which belong to the family and get no verdict here. `looks`
    is how often the results were seen, including this time, for each comparison or for all: adding repeats to undecided
    results gives several chances.

    The detectable ratio is the smallest above 1 + `equivalence_percent` that this run would have found `slower` with a
    power of 0.8: exp(s / sqrt(n) x), s the standard deviation of the comparison's d, n its blocks, x the noncentrality
    at which Student's t (n - 1 degrees of freedom) exceeds with that power the threshold of this run: the family's
    critical |t|, or the reach of the comparison's interval in standard errors if that is larger (the minimum detectable
    effect of Bloom, Evaluation Review 19, 1995, with the exact noncentral t). Infinite if no |t| would suffice. It is a
    plan and assumes normal noise, which no verdict does: simulated power at that ratio is 0.7 to 0.95 for normal noise,
    0.57 to 0.8 with rare large spikes.
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
    """Return the verdict of METHOD 17 on ln ratios; ratios within ±`bound` count as the same."""
    if -bound <= low and high <= bound:
        return Outcome.SAME
    if p <= level and high < 0:
        return Outcome.FASTER
    if p <= level and low > 0:
        return Outcome.SLOWER
    return Outcome.NO_EVIDENCE


def compute_detectable(critical: Floats, reach: Floats, error: Floats, n: Floats) -> Floats:
    """Return the detectable ratio of each comparison (`judge_family`), given its standard error and `n` blocks."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        threshold = np.fmax(critical, reach / error)
        ratio = np.exp(error * special.nctdtrinc(n - 1, 1 - POWER, np.where(np.isfinite(threshold), threshold, 1.0)))
    return np.where(error > 0, np.where(np.isfinite(threshold), ratio, math.inf), 1.0)


def _get_ranked(ordered: Floats, rank: int) -> float:
    return float(ordered[rank - 1]) if 1 <= rank <= len(ordered) else math.nan


def compute_binomial_quantiles(n: int, p: float) -> tuple[int, int]:
    """Return the fewest successes of `n` that 2.5 %, and that 97.5 %, of Binomial(n, p) do not exceed.

    As scipy.stats.binom.ppf, whose import alone would take a second of each program.
    """
    tails = np.array([_TAIL, 1 - _TAIL])
    above = np.ceil(special.bdtrik(tails, n, p))
    below = np.maximum(above - 1, 0)
    low, high = np.where(special.bdtr(below, n, p) >= tails, below, above)
    return int(low), int(high)


@cache
def _compute_ranks(n: int, quantile: float) -> tuple[int, int]:
    """Return the ranks (from 1) whose values hold the quantile with at least 95 %; (0, 0) if there are none.

    Hahn & Meeker, Statistical Intervals, section 5.2: at most 2.5 % of Binomial(n, quantile) on either side.
    """
    low, high = compute_binomial_quantiles(n, quantile) if n else (0, 0)
    return (low, high + 1) if low >= 1 and high < n else (0, 0)


@cache
def _build_flips(blocks: int, seed: int) -> Floats:
    """Build signs (flips, blocks), the identity first. A flip and its mirror share |t|, so the first sign is fixed."""
    if blocks <= ALL_FLIPS_UP_TO:
        return np.array([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=blocks - 1)])
    signs = np.random.default_rng(seed).choice((1.0, -1.0), (SAMPLED_FLIPS, blocks))
    return np.vstack([np.ones(blocks), signs])


@cache
def _build_orders(blocks: int, seed: int) -> Places:
    """Build orders of blocks (orders, blocks), first the measured order."""
    if math.factorial(blocks) <= SAMPLED_FLIPS:
        return np.array([*itertools.permutations(range(blocks))])
    given = np.tile(np.arange(blocks), (SAMPLED_FLIPS + 1, 1))
    given[1:] = np.random.default_rng(seed).permuted(given[1:], axis=1)
    return given


@cache
def compute_expanded_tail(n: int) -> float:
    """Return the tail of a 95 % expanded percentile interval of `n` resampled values (`compute_bootstrap_interval`)."""
    return float(special.ndtr(-math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, 1 - _TAIL)))


@cache
def _list_resample_medians(n: int) -> tuple[Places, Places, Floats]:
    """Return the medians of a resample of n ordered values: indices of the two values to average, probability."""
    share = np.arange(n + 1) / n
    at_most = special.bdtrc((n - 1) // 2, n, share)  # probability that the lower middle value is among the first i
    weights = np.diag(np.diff(at_most))
    if n % 2 == 0:
        half = n // 2
        part = np.diff(share**half)  # half the draws among the first i + 1, one of them the last of these
        pairs = math.comb(n, half) * np.triu(np.outer(part, part[::-1]), 1)
        weights += pairs - np.diag(pairs.sum(axis=1))
    first, second = np.nonzero(weights > 0)
    return first, second, weights[first, second]
