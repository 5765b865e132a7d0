"""Judge a family at several looks, as blocks are added, with one error level for all looks together (METHOD 5, 17).

Each sign flip of whole blocks is followed over all looks: the flips that exceed a threshold at a look keep the part of
the level that they spent, so no look pays for another that is nearly alike.
"""

import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from sbench.verdicts import MIN_BLOCKS
from sbench.verdicts.outcomes import DECIDED, Outcome
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
LOOKS = (6, 8, 10, 12, 16, 20)
# Seeded continuations of each flip of the first 12 blocks.
CONTINUATIONS = 4
# The part of the level that the first call leaves to later calls, which add blocks to a run that had ended.
RESERVE = 0.1
# Standard errors between no effect and an effect that a family of usual size shows with a power of 0.8.
_REACH = 3.2 + 0.84
# Blocks from which the scatter is known well enough to give a comparison up.
_SURE = 8


class Stop(NamedTuple):
    """The verdict of a comparison at the look that ended it.

    Attributes:
        look: number of that look, from 1.
        is_given_up: whether `most` blocks would not show the difference that it is to resolve.
        needed: blocks that would show it with a power of about 0.8.
    """

    verdict: Verdict
    look: int
    is_given_up: bool
    needed: float

    @property
    def is_open(self) -> bool:
        """Return whether further blocks may decide."""
        return self.verdict.verdict not in DECIDED and not self.is_given_up


def list_looks(first: int, most: int) -> list[int]:
    """Return the numbers of blocks after which a run of `first` to `most` blocks is judged."""
    between = [blocks for blocks in LOOKS if first < blocks < most]
    return sorted({first, *between, most})


def compute_spent(blocks: int, first: int, most: int) -> float:
    """Return the level that all looks up to `blocks` spend together: 1/32 at 6, then linear, 0.045 at `most`.

    At 6 blocks p is a multiple of 1/32. A run of fixed blocks, whose `first` look is its last, spends `LEVEL`.
    """
    if first == most:
        return LEVEL
    share = (blocks - MIN_BLOCKS) / (most - MIN_BLOCKS)
    return FIRST_LEVEL + share * ((1 - RESERVE) * LEVEL - FIRST_LEVEL)


def judge_looks(
    d: Floats,
    ends: Sequence[int],
    most: int,
    equivalence_percent: float = 5,
    resolve_percent: float = 10,
    means: Sequence[Sequence[Estimate]] | None = None,
    beside: Floats | None = None,
    seed: int = 1,
) -> list[Stop]:
    """Return the stop of each comparison of a family that was judged after each of `ends` blocks.

    At look k the threshold c_k is the smallest with share{s: T(s, n_j) > c_j for some j <= k} <= `compute_spent`; T is
    the largest |t| of the family under the flip s of whole blocks. As the thresholds depend on |d| alone, the measured
    signs are one of equally likely flips, so the error over all looks is at most the level spent (path-wise spending in
    the manner of Lan & DeMets, Biometrika 70, 1983, on the flips of Westfall & Young, 1993). A comparison that is
    decided or given up stays in T with the blocks until then: its later blocks change neither its verdict nor another.

    A comparison is given up, from 8 blocks on, if s x (3.2 + 0.84) / sqrt(most) exceeds both ln(1 + resolve) and
    |median d| + s / sqrt(n): at `most` blocks it could not be shown. This never makes a verdict.

    Args:
        d: (blocks, comparisons) of ln(contender / baseline), NaN for a missing block.
        ends: numbers of blocks at the looks, ascending; `list_looks` has those of a run.
        most: blocks at which the run ends at the latest.
        equivalence_percent: as for `stats.judge_family`.
        resolve_percent: difference that a comparison is to show at `most` blocks.
        means: for each look, the ratios of mean times, as for `stats.judge_family`.
        beside: d of further comparisons of the family, which get no verdict here.
        seed: seed of the flips beyond 12 blocks.
    """
    d = np.where(np.isfinite(d), d, math.nan)
    count, bound = d.shape[1], math.log1p(equivalence_percent / 100)
    d = d if beside is None else np.hstack([d, beside])
    flips = _build_flips(most, seed)
    crossed, exceeding = np.zeros(len(flips), dtype=bool), np.zeros(len(flips))
    stops: list[Stop | None] = [None] * count
    for look, blocks in enumerate(ends, 1):
        rows = d[:blocks]
        enough, n = has_enough_blocks(rows), np.isfinite(rows).sum(axis=0)
        low, high = compute_bootstrap_interval(rows)
        centre, error, p = (np.full(d.shape[1], math.nan) for _ in range(3))
        centre[n > 0] = np.nanmedian(rows[:, n > 0], axis=0)
        critical = math.inf
        rejected: Flags = np.zeros(d.shape[1], dtype=bool)
        if enough.any():
            t = compute_flipped_t(rows[:, enough], flips[:, :blocks])
            critical = _choose_threshold(t.max(axis=1), crossed, compute_spent(blocks, ends[0], most))
            crossed = crossed | (t.max(axis=1) > critical * (1 + 1e-9))
            exceeding = np.maximum(exceeding, _divide(t.max(axis=1), critical))
            p[enough] = (exceeding[:, None] >= _divide(t[0], critical) * (1 - 1e-9)).mean(axis=0)
            error[enough] = np.nanstd(rows[:, enough], axis=0, ddof=1) / np.sqrt(n[enough])
            rejected[enough] = t[0] > critical * (1 + 1e-9)
        reach = np.fmax(high - centre, centre - low)
        detectable = np.fmax(compute_detectable(np.full(len(n), critical), reach, error, n), math.exp(bound))
        detectable[~enough] = math.nan
        for number in range(count):
            before = stops[number]
            if before is not None and not before.is_open:
                continue
            outcome = Outcome.TOO_FEW
            if enough[number]:
                outcome = choose_outcome(low[number], high[number], 0.0 if rejected[number] else 1.0, 0.5, bound)
                mean = means[look - 1][number] if means is not None else None
                is_same = mean is None or (math.exp(-bound) <= mean.low and mean.high <= math.exp(bound))
                outcome = outcome if outcome != Outcome.SAME or is_same else Outcome.NO_EVIDENCE
            scatter = error[number] * math.sqrt(n[number])
            resolvable = max(math.log1p(resolve_percent / 100), abs(centre[number]) + error[number])
            given_up = (
                outcome == Outcome.NO_EVIDENCE
                and n[number] >= _SURE
                and scatter * _REACH / math.sqrt(most) > resolvable
            )
            ratio, least, largest = (math.exp(edge[number]) for edge in (centre, low, high))
            chance = (float(p[number]), float(detectable[number]))
            verdict = Verdict(outcome, int(n[number]), ratio, least, largest, *chance)
            needed = (scatter * _REACH / math.log1p(resolve_percent / 100)) ** 2
            stop = stops[number] = Stop(verdict, look, given_up, needed)
            if not stop.is_open:
                d[blocks:, number] = math.nan
    return [stop for stop in stops if stop is not None]


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
    later = random.choice((1.0, -1.0), (len(signs), most - first))
    later[0] = 1.0
    return np.hstack([signs, later])
