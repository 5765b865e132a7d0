"""Compare samples of other benchmark tools: values of two sides without pairs, or values in blocks (METHOD 17)."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from sbench.verdicts import MIN_BLOCKS, sessions, stats
from sbench.verdicts.outcomes import JUDGED, Outcome
from sbench.verdicts.stats import Floats, Verdict

# Largest number of batches of a side.
BATCHES = 30
# Power at which a proposed number of samples detects a difference, if the scatter is at most its upper limit.
NEEDED_POWER = 0.9
# Confidence of this upper limit.
SCATTER_CONFIDENCE = 0.8
# Largest number of samples to propose.
MOST = 100_000
# Largest number of |t| to compute at a time, which determines the memory needed.
_MOST_T = 4_000_000
# p below which the samples of a side are reported to depend on their neighbours.
SERIAL_LEVEL = 0.01


class Judgement(NamedTuple):
    """The verdict on a comparison, and the numbers of samples that it had and needs.

    Attributes:
        verdict: the verdict; its `blocks` is the number of batches of the smaller side, or of blocks.
        batch: number of samples per batch.
        needed: number of samples of each side that would detect the difference with a power of 0.9; NaN if the scatter
            is unknown, or if this takes more than `MOST`.
        is_serial: whether neighbouring samples of a side depend on each other.
    """

    verdict: Verdict
    batch: int
    needed: float
    is_serial: bool


def judge_samples(
    base: Sequence[Floats],
    other: Sequence[Floats],
    equivalence_percent: float = 5,
    detect_percent: float = 10,
    seed: int = 1,
) -> list[Judgement]:
    """Return a judgement for each comparison of a family of unpaired samples, in the order of their measurement.

    A side with more than 30 samples is divided into 15 to 30 batches of equal size, because neighbouring samples of a
    process depend on each other (Schmeiser, Operations Research 30, 1982). Batches of both sides have the same size,
    and their medians are judged like sessions (`sessions.judge_sessions`).

    Comparisons with equal numbers of batches are tested together, as many as fit into memory. The p of such a group is
    multiplied by the number of all judged comparisons divided by the number in the group (Bonferroni), which bounds the
    error level of the family for any numbers of samples.

    Args:
        base: positive times of one side in any unit, an array for each comparison.
        other: times of the other side. Ratios are other / base.
        equivalence_percent: largest difference, in percent, that counts as the same.
        detect_percent: difference, in percent, for which `Judgement.needed` is computed.
        seed: seed of the splits, if there are too many to enumerate.
    """
    sizes = [_choose_batch_size(*map(len, pair)) for pair in zip(base, other, strict=True)]
    batches = [[_make_batches(values, size) for values in pair] for *pair, size in zip(base, other, sizes, strict=True)]
    groups = defaultdict(list)
    for number, (rows, other_rows) in enumerate(batches):
        groups[len(rows), len(other_rows)].append(number)
    family = max(1, sum(min(map(len, pair)) >= sessions.LEAST for pair in batches))
    made: dict[int, Judgement] = {}
    for counts, numbers in groups.items():
        size = _MOST_T // min(math.comb(sum(counts), counts[0]), sessions.SPLITS)
        for first in range(0, len(numbers), size):
            part = numbers[first : first + size]
            of_group = [batches[number] for number in part]
            judged = _judge_group(of_group, family, equivalence_percent, detect_percent, seed)
            made |= dict(zip(part, judged, strict=True))
    return [
        of._replace(batch=size, needed=of.needed * size)
        for of, size in zip((made[number] for number in range(len(batches))), sizes, strict=True)
    ]


def _judge_group(
    pairs: Sequence[Sequence[Floats]], family: int, equivalence_percent: float, detect_percent: float, seed: int
) -> list[Judgement]:
    """Return a judgement for each comparison of a group, whose numbers are in batches.

    Args:
        pairs: for each comparison, the batches of both sides, with a row per batch.
        family: number of comparisons in the family.
        equivalence_percent: as for `judge_samples`.
        detect_percent: as for `judge_samples`.
        seed: as for `judge_samples`.
    """
    base, other, *means = (
        np.log([how(pair[side], axis=1) for pair in pairs]).T for how in (np.median, np.mean) for side in (0, 1)
    )
    judged = sessions.judge_sessions(base, other, equivalence_percent=equivalence_percent, seed=seed, means=means)
    counts, share = (len(base), len(other)), family / len(pairs)
    # Enumerated splits of sides of equal size include each split and its mirror image, with the same |t|.
    lowest_p = (1 + (counts[0] == counts[1])) / math.comb(sum(counts), counts[0])
    is_possible = lowest_p * share <= stats.LEVEL
    made = []
    for verdict, *sides in zip(judged, base.T, other.T, strict=True):
        scatter, freedom = _pool_scatter(sides)
        if verdict.verdict in JUDGED:
            verdict = _correct_for_groups(verdict, share)
            error = scatter * math.sqrt(sum(1 / count for count in counts))
            detectable = _compute_detectable(verdict, error, freedom, family, is_possible, equivalence_percent)
            verdict = verdict._replace(detectable_ratio=detectable)
        needed = estimate_needed(scatter, freedom, family, detect_percent, sides=2)
        serial = [stats.compute_serial_p(side[:, None], seed) for side in sides]
        made.append(Judgement(verdict, 1, needed, any(p < SERIAL_LEVEL / 2 / family for p in serial)))
    return made


def judge_blocks(
    d: Floats, equivalence_percent: float = 5, detect_percent: float = 10, seed: int = 1
) -> list[Judgement]:
    """Return a judgement for each comparison of a family of blocks that measured both sides (`stats.judge_family`).

    Args:
        d: ln(other / base), an array (blocks, comparisons), NaN for incomplete blocks.
        equivalence_percent: largest difference, in percent, that counts as the same.
        detect_percent: difference, in percent, for which `Judgement.needed` is computed.
        seed: seed of the sign flips.
    """
    family = max(int(stats.has_enough_blocks(d).sum()), 1)
    is_serial = stats.compute_serial_p(d, seed) < SERIAL_LEVEL
    made = []
    for column, verdict in zip(d.T, stats.judge_family(d, equivalence_percent, seed), strict=True):
        scatter, freedom = _pool_scatter([column[np.isfinite(column)]])
        made.append(Judgement(verdict, 1, estimate_needed(scatter, freedom, family, detect_percent, 1), is_serial))
    return made


def estimate_needed(scatter: float, freedom: int, family: int, detect_percent: float, sides: int) -> float:
    """Return the number of samples of each side, or of blocks, that detects a difference with a power of 0.9.

    The scatter of a small pilot may be too small by chance, so its upper 80 % confidence limit is used (Browne,
    Statistics in Medicine 14, 1995). The power is computed for Student's t at the level of a comparison of the family.
    The CI must exclude 1, too: its estimate has pi / 3 times the variance of the mean for unpaired samples, and pi / 2
    times for blocks (Hodges & Lehmann, Annals of Mathematical Statistics 34, 1963).

    Args:
        scatter: standard deviation of the ln of samples, or of the ln of ratios in blocks.
        freedom: degrees of freedom of this estimate; the result is NaN if they are 0.
        family: number of comparisons in the family.
        detect_percent: the difference to detect in percent.
        sides: 2 for unpaired samples, 1 for blocks.
    """
    if not freedom or not math.isfinite(scatter):
        return math.nan
    largest = scatter * math.sqrt(freedom / special.chdtri(freedom, SCATTER_CONFIDENCE))
    effect, level = math.log1p(detect_percent / 100), stats.LEVEL / family

    def is_enough(n: int) -> bool:
        # The smallest p of a permutation test, or of a sign-flip test; beyond 60 samples it does not matter.
        lowest_p = 2 / math.comb(2 * n, n) if sides == 2 else 2.0 ** (1 - n)
        if n < 60 and lowest_p > (level if sides == 2 else stats.LEVEL):
            return False
        if not largest:
            return True
        error, freedom_of_n = largest * math.sqrt(sides / n), sides * (n - 1)
        return all(
            special.nctdtr(freedom_of_n, effect / (spread * error), special.stdtrit(freedom_of_n, 1 - of_test / 2))
            <= 1 - NEEDED_POWER
            for spread, of_test in ((1, level), (math.sqrt(math.pi / (3 if sides == 2 else 2)), stats.LEVEL))
        )

    low = high = sessions.LEAST if sides == 2 else MIN_BLOCKS
    while not is_enough(high):
        low, high = high, 2 * high
        if high > MOST:
            return math.nan
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return float(high)


def _choose_batch_size(base: int, other: int) -> int:
    return max(1, math.ceil(min(base, other) / BATCHES))


def _make_batches(values: Floats, size: int) -> Floats:
    """Return at most 30 successive batches, evenly distributed, as an array (batches, samples)."""
    number = len(values) // size
    rows = values[len(values) - number * size :].reshape(number, size)
    return rows if number <= BATCHES else rows[np.linspace(0, number - 1, BATCHES).round().astype(int)]


def _pool_scatter(sides: Sequence[Floats]) -> tuple[float, int]:
    """Return the standard deviation within sides, and its degrees of freedom."""
    freedom = sum(max(len(side) - 1, 0) for side in sides)
    squares = sum(((side - side.mean()) ** 2).sum() for side in sides if len(side))
    return (math.sqrt(squares / freedom) if freedom else math.nan), freedom


def _correct_for_groups(verdict: Verdict, share: float) -> Verdict:
    """Multiply p by the family's share of the group; the outcome is undecided if p no longer supports it."""
    p = min(1.0, verdict.p * share)
    is_lost = p > stats.LEVEL and verdict.verdict != Outcome.SAME
    return verdict._replace(p=p, verdict=Outcome.NO_EVIDENCE if is_lost else verdict.verdict)


def _compute_detectable(
    verdict: Verdict, error: float, freedom: int, family: int, is_possible: bool, equivalence_percent: float
) -> float:
    """Return the detectable ratio as `stats.judge_family` defines it, at the level of a comparison of the family."""
    critical = special.stdtrit(freedom, 1 - stats.LEVEL / family / 2) if is_possible else math.inf
    centre, low, high = np.log([verdict.ratio, verdict.low, verdict.high])
    # Student's t has `freedom` degrees of freedom, which `compute_detectable` derives from the number of blocks.
    numbers = np.array([[critical], [max(high - centre, centre - low)], [error], [freedom + 1]])
    return max(float(stats.compute_detectable(*numbers)[0]), 1 + equivalence_percent / 100)
