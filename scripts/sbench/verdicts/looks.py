"""Judge a family at several looks, as blocks are added, with one error level for all looks together (METHOD 5, 17).

Each sign flip of whole blocks is followed over all looks: the flips that exceed a threshold at a look keep the part of
the level that they spent, so no look pays for another that is nearly alike.
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
    Flags,
    Floats,
    Verdict,
    choose_outcome,
    compute_bootstrap_interval,
    compute_detectable,
    compute_flipped_t,
    has_enough_blocks,
)

# Blocks after which a run is judged: even numbers, with growing gaps as each look spends a part of the level.
LOOKS = (6, 8, 10, 12, 16, 20, 26, 32, 40)
# Seeded continuations of each flip of the first 12 blocks.
CONTINUATIONS = 4
# The part of the level that the first call leaves to later calls, which add blocks to a run that had ended.
RESERVE = 0.1
# Standard errors between no effect and an effect that a family of usual size shows with a power of 0.8.
_REACH = 3.2 + 0.84
# States of a comparison at a look.
DECIDED, SAME, GIVEN_UP, OPEN = "decided", "same", "given up", "open"
# Choices of later blocks in the test of a shift.
_CHOICES = 2_000
# Blocks from which the scatter is known well enough to give a comparison up.
_SURE = 8


class Schedule(NamedTuple):
    """The looks at a run.

    Attributes:
        ends: number of blocks at each look, ascending.
        levels: the part of the error level that all looks up to each spend together.
        most: number of blocks at which the run ends at the latest.
    """

    ends: list[int]
    levels: list[float]
    most: int


class State(NamedTuple):
    """A comparison at a look.

    Attributes:
        look: number of the look, from 1.
        verdict: its verdict at that look.
        is_given_up: whether `most` blocks would not show the difference that it is to resolve.
        needed: blocks that would show it with a power of about 0.8.
        t, critical: its |t| and the threshold of its family.
    """

    look: int
    verdict: Verdict
    is_given_up: bool
    needed: float
    t: float
    critical: float

    @property
    def name(self) -> str:
        """Return decided, same, given up or open."""
        if self.verdict.verdict == Outcome.SAME:
            return SAME
        return DECIDED if self.verdict.verdict in ORDERED else GIVEN_UP if self.is_given_up else OPEN


def list_looks(first: int, most: int) -> list[int]:
    """Return the numbers of blocks after which a run of `first` to `most` blocks is judged."""
    between = [blocks for blocks in LOOKS if first < blocks < most]
    return sorted({first, *between, most})


def plan_schedule(ends: Sequence[int], mosts: Sequence[int]) -> Schedule:
    """Return the looks after `ends` blocks; `mosts` are the largest numbers of blocks that the run had at each look.

    The level spent grows linearly with the blocks, from 1/32 at 6 (p of 6 blocks is a multiple of it) to 90 % of
    `LEVEL` at the most. If a later call raises the most, its looks spend half of what is left. A run whose only look is
    its last spends `LEVEL`.
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
    beside: Floats | None = None,
    seed: int = 1,
) -> list[list[State]]:
    """Return the states of each comparison of a family at the looks that add blocks to it, until one ends it.

    At look k the threshold c_k is the smallest with share{s: T(s, n_j) > c_j for some j <= k} <= the level spent; T is
    the largest |t| of the family under the flip s of whole blocks. As the thresholds depend on |d| alone, the measured
    signs are one of equally likely flips, so the error over all looks is at most the level spent (path-wise spending in
    the manner of Lan & DeMets, Biometrika 70, 1983, on the flips of Westfall & Young, 1993). A comparison that is
    decided or given up stays in T with the blocks until then: its later blocks change neither its verdict nor another.

    A comparison is given up, from 8 blocks on, if s x (3.2 + 0.84) / sqrt(most) exceeds both ln(1 + resolve) and
    |median d| + s / sqrt(n): at `most` blocks it could not be shown. This never makes a verdict.

    Args:
        d: (blocks, comparisons) of ln(contender / baseline), NaN for a missing block.
        schedule: the looks (`plan_schedule`); the last is after all blocks.
        equivalence_percent: as for `stats.judge_family`.
        resolve_percent: difference that a comparison is to show at the most blocks.
        estimate_mean: returns the ratio of mean times of a comparison (second argument) over the blocks up to a number
            (first), which must be the same, too, for `same`.
        beside: d of further comparisons of the family, which get no verdict here.
        seed: seed of the flips beyond 12 blocks.
    """
    d = np.where(np.isfinite(d), d, math.nan)
    count, bound = d.shape[1], math.log1p(equivalence_percent / 100)
    d = d if beside is None else np.hstack([d, beside])
    flips = _build_flips(max(schedule.most, len(d)), seed)
    crossed, exceeding = np.zeros(len(flips), dtype=bool), np.zeros(len(flips))
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
            critical = _choose_threshold(t.max(axis=1), crossed, level)
            crossed = crossed | (t.max(axis=1) > critical * (1 + 1e-9))
            exceeding = np.maximum(exceeding, _divide(t.max(axis=1), critical))
            p[enough] = (exceeding[:, None] >= _divide(t[0], critical) * (1 - 1e-9)).mean(axis=0)
            error[enough] = np.nanstd(rows[:, enough], axis=0, ddof=1) / np.sqrt(n[enough])
            t_measured[enough] = t[0]
        rejected = t_measured > critical * (1 + 1e-9)
        reach = np.fmax(high - centre, centre - low)
        detectable = np.fmax(compute_detectable(np.full(len(n), critical), reach, error, n), math.exp(bound))
        detectable[~enough] = math.nan
        for number, of_comparison in enumerate(states):
            has_left = of_comparison and of_comparison[-1].name != OPEN
            # Without a further block there is nothing to judge.
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
            is_given_up = (
                outcome == Outcome.NO_EVIDENCE
                and n[number] >= _SURE
                and scatter * _REACH / math.sqrt(schedule.most) > resolvable
            )
            ratio, least, largest = (math.exp(edge[number]) for edge in (centre, low, high))
            chance = (float(p[number]), float(detectable[number]))
            verdict = Verdict(outcome, int(n[number]), ratio, least, largest, *chance)
            needed = (scatter * _REACH / math.log1p(resolve_percent / 100)) ** 2
            of_comparison.append(State(look, verdict, bool(is_given_up), needed, float(t_measured[number]), critical))
            if of_comparison[-1].name != OPEN:
                d[blocks:, number] = math.nan
    return states


def compute_shift_p(d: Floats, first: int, seed: int = 1) -> float:
    """Return the p of later blocks that differ from the `first` ones, over all comparisons; NaN without later blocks.

    The sum over comparisons of the squared difference between the means of later and of first blocks, in units of its
    standard error, is compared with the sums for other choices of the later blocks (a permutation test).
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


def _choose_threshold(largest: Floats, crossed: Flags, spent: float) -> float:
    """Return the smallest threshold that lets no more flips cross than the level spent allows."""
    allowed = math.floor(spent * len(largest)) - int(crossed.sum())
    free = np.sort(largest[~crossed])[::-1]
    if allowed <= 0:
        return math.inf
    return float(free[allowed]) if allowed < len(free) else 0.0


def _divide(t: Floats, critical: float) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        shares: Floats = np.where(np.isinf(t) & math.isinf(critical), 1.0, t / critical)
    return np.nan_to_num(shares, nan=0.0, posinf=math.inf)


@cache
def _build_flips(most: int, seed: int) -> Floats:
    """Build signs (flips, blocks), the identity first: all flips of 12 blocks, each with seeded continuations."""
    first = min(most, ALL_FLIPS_UP_TO)
    signs = np.array([(1.0, *rest) for rest in itertools.product((1.0, -1.0), repeat=first - 1)])
    if most <= first:
        return signs
    random = np.random.default_rng(seed)
    signs = np.repeat(signs, CONTINUATIONS, axis=0)
    # Block by block, so that a larger `most` continues the same flips.
    later = random.choice((1.0, -1.0), (most - first, len(signs))).T
    later[0] = 1.0
    return np.hstack([signs, later])
