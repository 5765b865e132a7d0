"""Judge a family of comparisons repeatedly as blocks are added, with a joint error level for all looks (METHOD 5, 17).

A look is an interim analysis. Each sign flip of whole blocks is followed over all looks. A flip that exceeded
the threshold at an earlier look does not use up more of the error level at later looks. Looks at nearly the same data
therefore cost almost nothing.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.outcomes import ORDERED, Outcome
from sbench.verdicts.stats import (
    ALL_FLIPS_UP_TO,
    FIRST_LEVEL,
    LEVEL,
    Estimate,
    Floats,
    Verdict,
    apply_losses,
    choose_outcome,
    compute_bootstrap_interval,
    compute_detectable,
    compute_flipped_t,
    has_enough_blocks,
)

# The numbers of blocks after which a run is judged. They are even, and the gaps grow because each look spends a part of
# the error level.
LOOKS = (6, 8, 10, 12, 16, 20, 26, 32, 40)
# The number of random continuations of each flip of the first 12 blocks.
CONTINUATIONS = 4
# The part of the error level that is reserved for later calls that add blocks to a finished run.
RESERVE = 0.1
# The size, in standard errors, of an effect that a family of typical size detects with a power of 0.8.
_REACH = 3.2 + 0.84
# States of a comparison at a look.
DECIDED, SAME, GIVEN_UP, OPEN = "decided", "same", "given up", "open"
# The number of permutations in the test of whether later blocks differ.
_CHOICES = 2_000
# The minimum number of blocks for giving a comparison up, so that its scatter is known well enough.
_SURE = 8


class Schedule(NamedTuple):
    """The looks at a run.

    Attributes:
        ends: the number of blocks at each look, in ascending order.
        levels: the cumulative error level spent at each look.
        most: the maximum number of blocks of the run.
    """

    ends: list[int]
    levels: list[float]
    most: int


class State(NamedTuple):
    """The state of a comparison at a look.

    Attributes:
        look: the number of the look, starting at 1.
        verdict: the verdict at that look, before lost records are considered.
        is_given_up: whether even `most` blocks would not suffice to detect the difference to resolve, or to make up for
            lost records.
        needed: the number of blocks that would detect it with a power of about 0.8.
        t: the |t| of the comparison.
        critical: the threshold of its family.
        outcome: the verdict, after lost records are considered (`stats.apply_losses`).
    """

    look: int
    verdict: Verdict
    is_given_up: bool
    needed: float
    t: float
    critical: float
    outcome: Outcome

    @property
    def name(self) -> str:
        """The name of the state: "decided", "same", "given up" or "open"."""
        if self.outcome == Outcome.SAME:
            return SAME
        return DECIDED if self.outcome in ORDERED else GIVEN_UP if self.is_given_up else OPEN


class Paths:
    """The largest |t| of a family over all looks, under each of many rearrangements of its data."""

    def __init__(self, number: int) -> None:
        """Begin before the first look, with this number of rearrangements."""
        self._crossed, self._exceeding = np.zeros(number, dtype=bool), np.zeros(number)

    def look(self, t: Floats, spent: float) -> tuple[float, Floats]:
        """Add a look.

        Args:
            t: |t|, an array (rearrangements, comparisons); the first rearrangement is the data as measured.
            spent: the cumulative error level.

        Returns:
            The smallest threshold for which the fraction of rearrangements that have ever crossed a threshold is at
            most `spent`, and the measured |t| of each comparison as a multiple of it.
        """
        largest = t.max(axis=1)
        allowed = math.floor(spent * len(largest)) - int(self._crossed.sum())
        free = np.sort(largest[~self._crossed])[::-1]
        critical = math.inf if allowed <= 0 else float(free[allowed]) if allowed < len(free) else 0.0
        self._crossed = self._crossed | (largest > critical * (1 + 1e-9))
        self._exceeding = np.maximum(self._exceeding, _divide(largest, critical))
        return critical, _divide(t[0], critical)

    def compute_p(self, shares: Floats) -> Floats:
        """Return the fraction of rearrangements that reached these multiples of the threshold at some look."""
        p: Floats = (self._exceeding[:, None] >= shares * (1 - 1e-9)).mean(axis=0)
        return p


def list_looks(first: int, most: int) -> list[int]:
    """Return the numbers of blocks at which to judge a run with at least `first` and at most `most` blocks."""
    between = [blocks for blocks in LOOKS if first < blocks < most]
    return sorted({first, *between, most})


def plan_schedule(ends: Sequence[int], mosts: Sequence[int]) -> Schedule:
    """Distribute the error level over the looks of a run.

    The level spent grows linearly with the number of blocks, from 1/32 at 6 blocks (whose p values are multiples of
    1/32) to 90 % of `LEVEL` at the maximum number of blocks. If a later call raises this maximum, its looks spend half
    of the remaining level. If the first look is already at the maximum, it spends all of `LEVEL`.

    Args:
        ends: the number of blocks at each look.
        mosts: the maximum number of blocks that was configured at each look.
    """
    if ends[0] >= mosts[0]:
        return Schedule(list(ends), [LEVEL] * len(ends), max(mosts))
    spent, target, begun, most = FIRST_LEVEL, (1 - RESERVE) * LEVEL, MIN_BLOCKS, mosts[0]
    levels: list[float] = []
    for end, largest in zip(ends, mosts, strict=True):
        if largest > most:
            begun, spent, most = ends[len(levels) - 1], levels[-1], largest
            target = (spent + LEVEL) / 2
        share = min(1.0, max(0.0, (end - begun) / (most - begun)))
        levels.append(spent + share * (target - spent))
    return Schedule(list(ends), levels, most)


def judge_looks(
    d: Floats,
    schedule: Schedule,
    equivalence_percent: float = 5,
    resolve_percent: float = 10,
    estimate_mean: Callable[[int, int], Estimate] | None = None,
    count_losses: Callable[[int, int], tuple[int, int, int]] | None = None,
    beside: Floats | None = None,
    seed: int = 1,
) -> list[list[State]]:
    """Judge the comparisons of a family at each look until they are decided or given up.

    Threshold: at look k, c_k is the smallest value with share{s: T(s, n_j) > c_j for some j <= k} <= the level spent,
    where T is the largest |t| of the family under the flip s of whole blocks. The thresholds depend only on |d|, and
    under the null hypothesis the measured signs are one of equally likely flips. Therefore, the error over all looks is
    at most the level spent. This is error spending as in Lan & DeMets (Biometrika 70, 1983), applied to the flips of
    Westfall & Young (1993). Comparisons that are decided or given up remain in T with their blocks up to that look.
    Their later blocks affect neither their verdicts nor those of other comparisons.

    Giving up: a comparison with at least 8 blocks is given up if s x (3.2 + 0.84) / sqrt(most) exceeds both
    ln(1 + resolve) and |median d| + s / sqrt(n), because `most` blocks would not suffice to decide it. It is also given
    up if lost records forbid its verdict. Giving up does not affect the verdict.

    Args:
        d: array (block, comparison) of ln(contender / baseline); NaN for missing blocks.
        schedule: the looks (see `plan_schedule`); the last one is after all blocks.
        equivalence_percent: as for `stats.judge_family`.
        resolve_percent: the difference that a comparison should be able to detect at the maximum number of blocks.
        estimate_mean: called with a number of blocks and a comparison's index, returns its ratio of mean times over
            these first blocks. The verdict `same` requires that the means are the same, too.
        count_losses: called like `estimate_mean`, returns the number of blocks that attempted both arms, and how many
            records the baseline and the contender lost in them.
        beside: `d` of further comparisons in the family, whose states are not returned.
        seed: the seed of the flips beyond 12 blocks.

    Returns:
        For each comparison, its states. Looks without an additional block of the comparison are left out.
    """
    d = np.where(np.isfinite(d), d, math.nan)
    count, bound = d.shape[1], math.log1p(equivalence_percent / 100)
    d = d if beside is None else np.hstack([d, beside])
    flips = _build_flips(max(schedule.most, len(d)), seed)
    paths = Paths(len(flips))
    states: list[list[State]] = [[] for _ in range(count)]
    for look, (blocks, level) in enumerate(zip(schedule.ends, schedule.levels, strict=True), 1):
        rows = d[:blocks]
        enough, n = has_enough_blocks(rows), np.isfinite(rows).sum(axis=0)
        low, high = compute_bootstrap_interval(rows)
        centre, error, p, t_measured = (np.full(d.shape[1], math.nan) for _ in range(4))
        centre[n > 0] = np.nanmedian(rows[:, n > 0], axis=0)
        critical = math.inf
        if enough.any():
            t = compute_flipped_t(rows[:, enough], flips[:, :blocks])
            critical, shares = paths.look(t, level)
            p[enough] = paths.compute_p(shares)
            error[enough] = np.nanstd(rows[:, enough], axis=0, ddof=1) / np.sqrt(n[enough])
            t_measured[enough] = t[0]
        rejected = t_measured > critical * (1 + 1e-9)
        reach = np.fmax(high - centre, centre - low)
        detectable = np.fmax(compute_detectable(np.full(len(n), critical), reach, error, n), math.exp(bound))
        detectable[~enough] = math.nan
        for number, of_comparison in enumerate(states):
            has_left = of_comparison and of_comparison[-1].name != OPEN
            # Do not judge the comparison again if it has no additional block.
            if has_left or (of_comparison and of_comparison[-1].verdict.blocks == n[number]):
                continue
            outcome = Outcome.TOO_FEW
            if enough[number]:
                outcome = choose_outcome(low[number], high[number], 0.0 if rejected[number] else 1.0, 0.5, bound)
            if outcome == Outcome.SAME and estimate_mean:
                mean = estimate_mean(blocks, number)
                is_same = math.exp(-bound) <= mean.low and mean.high <= math.exp(bound)
                outcome = outcome if is_same else Outcome.NO_EVIDENCE
            scatter = error[number] * math.sqrt(n[number])
            resolvable = max(math.log1p(resolve_percent / 100), abs(centre[number]) + error[number])
            allowed = apply_losses(outcome, *count_losses(blocks, number)[1:]) if count_losses else outcome
            is_given_up = (
                allowed == Outcome.NO_EVIDENCE
                and n[number] >= _SURE
                and (allowed != outcome or scatter * _REACH / math.sqrt(schedule.most) > resolvable)
            )
            ratio, least, largest = (math.exp(edge[number]) for edge in (centre, low, high))
            chance = (float(p[number]), float(detectable[number]))
            verdict = Verdict(outcome, int(n[number]), ratio, least, largest, *chance)
            needed = (scatter * _REACH / math.log1p(resolve_percent / 100)) ** 2
            t_of = float(t_measured[number])
            of_comparison.append(State(look, verdict, bool(is_given_up), needed, t_of, critical, allowed))
            if of_comparison[-1].name != OPEN:
                d[blocks:, number] = math.nan
    return states


def compute_shift_p(d: Floats, first: int, seed: int = 1) -> float:
    """Test whether the blocks after the first `first` ones differ from them, and return the p value.

    This is a permutation test. For each comparison, take the difference between the means of the later and the first
    blocks, in units of its standard error. The statistic is the sum of its square over all comparisons. The result is
    NaN if no comparison has both later blocks and enough first ones.
    """
    present = np.isfinite(d)
    d = d[:, (present[:first].sum(axis=0) >= MIN_BLOCKS) & (present[first:].sum(axis=0) > 0)]
    if not d.shape[1]:
        return math.nan
    present = np.isfinite(d)
    filled = np.where(present, d - np.nanmedian(d, axis=0), 0.0)
    filled = filled / np.sqrt(np.maximum((filled**2).sum(axis=0), 1e-300))
    random = np.random.default_rng(seed)
    later = np.tile(np.arange(len(d)) >= first, (_CHOICES, 1)).astype(float)
    later[1:] = random.permuted(later[1:], axis=1)
    n_later, sum_later = later @ present, later @ filled
    n_first, sum_first = present.sum(axis=0) - n_later, filled.sum(axis=0) - sum_later
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = (sum_later / n_later - sum_first / n_first) ** 2 / (1 / n_later + 1 / n_first)
    sums = np.nansum(squares, axis=1)
    return float((sums >= sums[0] * (1 - 1e-9)).mean())


def _divide(t: Floats, critical: float) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        shares: Floats = np.where(np.isinf(t) & math.isinf(critical), 1.0, t / critical)
    return np.nan_to_num(shares, nan=0.0, posinf=math.inf)


@cache
def _build_flips(most: int, seed: int) -> Floats:
    """Build an array (flip, block) of signs, with the identity in the first row.

    It contains all flips of the first 12 blocks up to a global sign, each with random continuations for later blocks.
    """
    first = min(most, ALL_FLIPS_UP_TO)
    signs = np.array([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=first - 1)])
    if most <= first:
        return signs
    random = np.random.default_rng(seed)
    signs = np.repeat(signs, CONTINUATIONS, axis=0)
    # Draw block by block, so that the flips for a larger `most` begin with the same signs.
    later = random.choice((1.0, -1.0), (most - first, len(signs))).T
    later[0] = 1.0
    return np.hstack([signs, later])
