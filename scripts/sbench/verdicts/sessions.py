"""Compare runs that were measured in separate sessions, with the session as the unit of the statistics.

Runs on different days differ by everything that changed between these days. So the permutation test exchanges whole
sessions between the two sides, in all comparisons at once (METHOD 2, 14, 17).
"""

import itertools
import math
import warnings
from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
import scipy.stats

from sbench.verdicts import MIN_BLOCKS, looks, stats
from sbench.verdicts.outcomes import Outcome
from sbench.verdicts.stats import Flags, Floats, Verdict

# Smallest number of sessions per side, or of pairs, for an exact test: 4 and 4 sessions can be split in 70 ways, and
# 6 pairs have 64 sign flips.
LEAST, LEAST_PAIRS = 4, MIN_BLOCKS
# Smallest ratio of standard deviations at which the variances of two sides count as unequal.
UNEQUAL = 2
# Largest number of splits of the sessions into two sides that are enumerated; beyond it, this many random splits.
SPLITS = 20_000
COUNTS = ("requests", "bytes", "opens", "connections")
HASHES = ("code", "data", "packages")
COLUMNS = ("repeat", "session", "valid", "figure", "value", "unit", *COUNTS, "cache_state", "read", *HASHES)
# The column with the machine that measured a record. Tables of earlier versions lack it.
MACHINE = "machine"
# Two sides alternate if their sessions form at least this many stretches of consecutive sessions, two of each side.
LEAST_STRETCHES = 4
# Sessions of two sides mostly coincide with machines, or with every second session or day, if at most this share of all
# ways to divide the sessions into two sides have them coincide as much.
COINCIDING = 0.25


def find_apart(base: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """Check whether the sessions of two sides alternate in time, and do so regardless of machines and rhythms.

    If each side was measured in a different week, or mostly on a different machine, the test cannot separate this
    difference from a difference between the sides (METHOD 17). The same applies to a rhythm, such as a load on every
    second day, if the sides are in strict turn. If each machine measured only one session, only the kinds of machines,
    the first words of their names, can coincide with the sides.

    Args:
        base: the records of one side, with the columns `session`, `unit_of` (identifies a session across runs), and
            `machine` if known.
        other: the records of the other side.

    Returns:
        The reasons why they do not alternate: `times`, or `days` if the sides have no day in common; `turns` if every
        second session, or every second day, is mostly of one side; and `machines`. An empty list if they alternate.
    """
    rows = []
    for number, side in enumerate((base, other)):
        for _, of in side.assign(**{MACHINE: side.get(MACHINE, "")}).groupby("unit_of"):
            rows.append((of["session"].iloc[0], number, set(of[MACHINE].fillna(""))))
    rows.sort(key=lambda row: row[:2])
    order = [number for _, number, _ in rows]
    days = [{session[:10] for session, number, _ in rows if number == side} for side in (0, 1)]
    dates = pd.to_datetime([session[:10] for session, _, _ in rows], errors="coerce").fillna(pd.Timestamp(0))
    halves = [[{str(place % 2)} for place in range(len(rows))], [{str(date.toordinal() % 2)} for date in dates]]
    kinds = [{name.partition(" ")[0] for name in machines} for _, _, machines in rows]
    apart = [] if _is_alternating(order) else ["times" if days[0] & days[1] else "days"]
    apart += ["turns"] * any(is_coinciding(order, labels) for labels in halves)
    return apart + ["machines"] * any(is_coinciding(order, labels) for labels in ([row[2] for row in rows], kinds))


def is_coinciding(order: Sequence[int], labels: Sequence[set[str]]) -> bool:
    """Return whether the sides of sessions mostly coincide with labels of the sessions, such as machines.

    The statistic is chi-squared of the sessions of the first side with each label. Its distribution is that over all
    splits of the sessions into two sides.
    """
    names = sorted(set[str]().union(*labels))
    has = np.array([[float(name in labels[place]) for name in names] for place in np.argsort(order, kind="stable")])
    counts, ours = has.sum(axis=0), order.count(0)
    expected = counts * ours / len(order)
    distances = ((_build_splits(ours, len(order), 1) @ has - expected) ** 2 / counts).sum(axis=1)
    return bool(distances[0] > 1e-9 and (distances >= distances[0] - 1e-9).mean() <= COINCIDING)


def _is_alternating(order: Sequence[int]) -> bool:
    """Return whether two sides alternate in a sequence of sessions, each given as its side.

    A stretch is a run of consecutive sessions of the same side. The sides alternate if each has at least two stretches,
    there are at least `LEAST_STRETCHES` in all, and more than 5 % of all orders have at most this number of stretches
    (Wald and Wolfowitz, Annals of Mathematical Statistics 11, 1940).
    """
    stretches = [side for side, _ in itertools.groupby(order)]
    if len(stretches) < LEAST_STRETCHES or min(map(stretches.count, (0, 1))) < LEAST_STRETCHES / 2:
        return False
    of_first = order.count(0)
    m, n = of_first - 1, len(order) - of_first - 1
    ways = 0
    for number in range(2, len(stretches) + 1):
        most, least = number - number // 2 - 1, number // 2 - 1
        ways += math.comb(m, most) * math.comb(n, least) + math.comb(m, least) * math.comb(n, most)
    return ways / math.comb(len(order), of_first) > 1 - stats.CONFIDENCE


def judge_sessions(
    base: Floats,
    other: Floats,
    paired: bool = False,
    equivalence_percent: float = 5,
    seed: int = 1,
    means: Sequence[Floats] = (),
    times: Sequence[Sequence[str]] = (),
) -> list[Verdict]:
    """Return a verdict for each comparison of a family, by the tests of METHOD 17, with the session as the unit.

    Args:
        base: ln of the value of each session of one side, an array (sessions, comparisons), NaN if missing.
        other: the same for the other side. Ratios are other / base.
        paired: whether the sessions of both sides form pairs, in their order. If so, `stats.judge_family` judges the
            differences.
        equivalence_percent: the largest difference, in percent, that counts as the same.
        seed: seed of the splits, if there are too many to enumerate.
        means: ln of the sessions' mean times of both sides, if `base` and `other` are medians. The verdict `same` then
            also requires the CI of the ratio of means to lie within the same bounds.
        times: the start times of the sessions of both sides. If given, the sides may have been compared before, as
            sessions were added: a verdict is reached at 4, 6, 8, 10, 12, 16 … sessions of the smaller side (or from 6
            pairs on), and all these looks together have the error level of one.

    Without pairs, the ratio is the median of all differences between two sessions (Hodges & Lehmann, Annals of
    Mathematical Statistics 34, 1963), with the CI of the exact rank-sum test. The permutation test splits all sessions
    into two sides in all comparisons at once, and compares |t| with the largest |t| of each split (see
    `stats.compute_max_t`). This assumes sides of equal variance, so Welch's test (Biometrika 34, 1947) must agree. Its
    p is corrected for all comparisons (Bonferroni) if the sides have unequal numbers of sessions, or if their standard
    deviations differ by more than a factor of `UNEQUAL`. In the latter case, the CI is extended to include Welch's CI.
    With fewer than `LEAST` sessions on a side, or fewer than `LEAST_PAIRS` pairs, the verdict is
    `too few repeats`, with a ratio but without a CI.
    """
    bound = math.log1p(equivalence_percent / 100)
    if paired:
        judged = _judge_pairs(other - base, equivalence_percent, seed, bool(times))
        low, high = stats.compute_bootstrap_interval(means[1] - means[0]) if means else np.zeros((2, len(judged)))
    else:
        judged = _judge_unpaired(base, other, bound, seed, times)
        shifts = [_estimate_shift(*columns) for columns in zip(means[0].T, means[1].T, strict=True)] if means else []
        low, high = np.array(shifts).T[1:] if shifts else np.zeros((2, len(judged)))
    apart = _is_beyond(low, high, bound)
    return [
        one._replace(verdict=Outcome.NO_EVIDENCE) if parts and one.verdict == Outcome.SAME else one
        for one, parts in zip(judged, apart, strict=True)
    ]


def _judge_pairs(d: Floats, equivalence_percent: float, seed: int, with_looks: bool) -> list[Verdict]:
    judged = stats.judge_family(d, equivalence_percent, seed)
    if not with_looks or len(d) < LEAST_PAIRS:
        return judged
    ends, flips = list_looks(len(d), paired=True), stats.build_flips(len(d), seed)
    rows = [np.where(stats.has_enough_blocks(d[:end]), d[:end], np.nan) for end in ends]
    t = [stats.compute_flipped_t(of_look, flips[:, :end]) for end, of_look in zip(ends, rows, strict=True)]
    joint_p, level = _combine_looks(ends, t)
    bound = math.log1p(equivalence_percent / 100)
    outcomes = [
        stats.choose_outcome(math.log(one.low), math.log(one.high), p, level, bound)
        for one, p in zip(judged, joint_p, strict=True)
    ]
    return [
        one if one.verdict == Outcome.TOO_FEW else one._replace(p=float(p), verdict=outcome)
        for one, p, outcome in zip(judged, joint_p, outcomes, strict=True)
    ]


def list_looks(number: int, paired: bool) -> list[int]:
    """Return the numbers of sessions, or pairs, up to the present one at which sides are compared."""
    least = LEAST_PAIRS if paired else LEAST
    return [least, *(end for end in looks.LOOKS if least < end <= number)]


def _combine_looks(ends: Sequence[int], t: Sequence[Floats]) -> tuple[Floats, float]:
    """Return the p of each comparison over all looks, and the level for it.

    The first look, at n sessions, spends 1/32, and all looks up to N sessions spend 0.05 - (0.05 - 1/32) n / N, so that
    the number of sessions need not be known in advance.

    Args:
        ends: the number of sessions, or pairs, at each look.
        t: |t| at each look, an array (rearrangements, comparisons) with the sessions as measured first.
    """
    levels = [stats.LEVEL - (stats.LEVEL - stats.FIRST_LEVEL) * ends[0] / end for end in ends]
    paths = looks.Paths(len(t[0]))
    shares = [paths.look(of_look, level)[1] for of_look, level in zip(t, levels, strict=True)]
    # A comparison that crossed its threshold at an earlier look has crossed it.
    return paths.compute_p(np.max(shares, axis=0)), levels[-1]


def _judge_unpaired(
    base: Floats, other: Floats, bound: float, seed: int, times: Sequence[Sequence[str]]
) -> list[Verdict]:
    counts = np.minimum(*(np.isfinite(side).sum(axis=0) for side in (base, other)))
    enough, p = counts >= LEAST, np.full(base.shape[1], math.nan)
    ends, level = np.full((2, base.shape[1]), math.nan), stats.LEVEL
    if enough.any():
        p[enough], ends[:, enough] = _compute_welch(base[:, enough], other[:, enough])
        of_splits, level = _test_splits(base[:, enough], other[:, enough], seed, times)
        p[enough] = np.maximum(p[enough], of_splits)
    verdicts = []
    for column, (is_enough, n) in enumerate(zip(enough, counts, strict=True)):
        centre, low, high = _estimate_shift(base[:, column], other[:, column])
        low, high = np.fmin(low, ends[0, column]), np.fmax(high, ends[1, column])
        verdict = stats.choose_outcome(low, high, p[column], level, bound) if is_enough else Outcome.TOO_FEW
        numbers = (*np.exp([centre, low, high]).tolist(), float(p[column]), math.nan)
        verdicts.append(Verdict(verdict, int(n), *numbers))
    return verdicts


def _is_beyond(low: Floats, high: Floats, bound: float) -> Flags:
    return ~((low >= -bound) & (high <= bound))


def compare_counts(base: pd.DataFrame, other: pd.DataFrame, name: str) -> str:
    """Compare an exact count, such as the number of requests, between two sides that read the same objects.

    Such counts repeat exactly, so two records of each side suffice (METHOD 11).

    Args:
        base: records of one side, with the columns `name` and `read` (the objects read).
        other: records of the other side.
        name: the column of the count.

    Returns:
        `same`, `more` or `fewer` (on the other side), the reason why they cannot be compared, or an empty string if a
        side lacks the count.
    """
    sides = [side[side[name].notna()].fillna({"read": ""}) for side in (base, other)]
    if any(side.empty for side in sides):
        return ""
    if any((side.groupby("read")[name].nunique() > 1).any() for side in sides):
        return "differs between repeats"
    first, second = (side.groupby("read")[name].agg(["first", "size"]) for side in sides)
    both = first.join(second, lsuffix="_base", how="inner")
    if both.empty:
        return "other objects were read"
    if min(both["size_base"].sum(), both["size"].sum()) < 2:
        return "one repeat"
    signs = set(np.sign(both["first"] - both["first_base"]))
    of_sign = {0.0: Outcome.SAME, 1.0: Outcome.MORE, -1.0: Outcome.FEWER}
    return of_sign[signs.pop()] if len(signs) == 1 else Outcome.DEPENDS


def _test_splits(base: Floats, other: Floats, seed: int, times: Sequence[Sequence[str]]) -> tuple[Floats, float]:
    """Return the p of each comparison, adjusted for the family and for all looks, and the level for it.

    p is the proportion of splits whose largest |t| is at least the |t| of the comparison. With times, each split is
    followed over the looks, which are after the sessions with which the smaller side reached 4, 6, 8 … sessions.
    """
    values = np.vstack([other, base])
    splits = _build_splits(len(other), len(values), seed)
    if not times:
        t = _compute_split_t(splits, values)
        return (t.max(axis=1)[:, None] >= t[0] * (1 - 1e-9)).mean(axis=0), stats.LEVEL
    order = np.argsort(np.array([*times[1], *times[0]]), kind="stable")
    values, splits = values[order], splits[:, order]
    smaller = np.minimum(np.cumsum(splits[0]), np.cumsum(1 - splits[0])).astype(int)
    numbers = list_looks(smaller[-1], paired=False)
    ends = [int(np.searchsorted(smaller, number)) + 1 for number in numbers]
    of_looks = []
    for end in ends:
        sides = (np.isfinite(values[:end][splits[0, :end] == side]).sum(axis=0) for side in (0, 1))
        enough = np.minimum(*sides) >= LEAST
        of_looks.append(np.where(enough, _compute_split_t(splits[:, :end], values[:end]), 0))
    return _combine_looks(numbers, of_looks)


def _compute_split_t(splits: Floats, values: Floats) -> Floats:
    """Return |t| of two sides as an array (splits, comparisons); 0 for splits with an empty side.

    Args:
        splits: 1 for the sessions of one side, an array (splits, sessions).
        values: the sessions, an array (sessions, comparisons), NaN if missing.
    """
    present, filled = np.isfinite(values), np.nan_to_num(values)
    n, total, squares = present.sum(axis=0), filled.sum(axis=0), (filled**2).sum(axis=0)
    spread = squares - total**2 / np.maximum(n, 1)
    ours, sums = splits @ present, splits @ filled
    with np.errstate(divide="ignore", invalid="ignore"):
        between = sums**2 / ours + (total - sums) ** 2 / (n - ours) - total**2 / n
        between = np.where((ours > 0) & (ours < n), between, 0)
        # All splits have the same total sum of squares, so |t| depends only on its share between the sides.
        share = np.where(spread > 1e-12 * np.maximum(squares, 1e-300), between / spread, 0)
        t: Floats = np.sqrt((n - 2) * share / np.where(share > 1 - 1e-12, 0.0, 1 - share))
    return np.nan_to_num(t, nan=0.0, posinf=math.inf)


def _compute_welch(base: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Return p and the 95 % CI of Welch's test for each comparison.

    p is corrected for all comparisons if the sides have unequal variances or unequal numbers of sessions. It is 0 if
    the sessions of each side are equal. The limits of the CI are NaN if the sides have equal variances.
    """
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # raised for equal sessions
        test = scipy.stats.ttest_ind(other, base, equal_var=False, nan_policy="omit")
        ends = np.array(test.confidence_interval(stats.CONFIDENCE))
    p = np.nan_to_num(np.asarray(test.pvalue, dtype=float))
    spreads = sorted(math.sqrt(np.nanvar(side, axis=0, ddof=1).mean()) for side in (base, other))
    unequal = spreads[1] > UNEQUAL * spreads[0]
    together = np.minimum(1, p * len(p)) if unequal or len(base) != len(other) else p
    return together, ends if unequal else np.full(ends.shape, math.nan)


def _estimate_shift(base: Floats, other: Floats) -> tuple[float, float, float]:
    """Return the median difference between sessions of two sides and its 95 % CI; NaN with too few sessions."""
    base, other = base[np.isfinite(base)], other[np.isfinite(other)]
    if not len(base) or not len(other):
        return math.nan, math.nan, math.nan
    differences = np.sort((other[:, None] - base).ravel())
    rank = _compute_rank(len(base), len(other))
    low, high = (float(differences[rank - 1]), float(differences[-rank])) if rank else (math.nan, math.nan)
    return float(np.median(differences)), low, high


@cache
def _compute_rank(m: int, n: int) -> int:
    """Return the rank, from either end of the sorted differences, of the limits of the 95 % CI of the shift.

    It is counted from 1, and is the largest rank with a coverage of at least 95 %: in the rank-sum test, at most 2.5 %
    of the splits have fewer pairs in that order (Hollander & Wolfe, Nonparametric Statistical Methods, section 4.3).
    The result is 0 if m and n are too small.
    """
    ways = np.zeros(m * n + 1)
    ways[0] = 1
    # Expand a Gaussian binomial coefficient: multiply by (1 - q^(n + i)) and divide by (1 - q^i), for i = 1 … m.
    for i in range(1, m + 1):
        ways[n + i :] -= ways[: -(n + i)].copy() if n + i < len(ways) else 0
        for place in range(i, len(ways)):
            ways[place] += ways[place - i]
    return int((np.cumsum(ways) / ways.sum() <= (1 - stats.CONFIDENCE) / 2 + 1e-12).sum())


@cache
def _build_splits(ours: int, sessions: int, seed: int) -> Floats:
    """Return splits of the sessions into two sides, with the measured split first.

    The result is an array (splits, sessions) with 1 for sessions of the first side and 0 for the others.
    """
    if math.comb(sessions, ours) <= SPLITS:
        chosen = np.array([*itertools.combinations(range(sessions), ours)])
    else:
        random = np.random.default_rng(seed)
        drawn = [random.permutation(sessions)[:ours] for _ in range(SPLITS - 1)]
        chosen = np.array([range(ours), *drawn])
    splits = np.zeros((len(chosen), sessions))
    np.put_along_axis(splits, chosen, 1, axis=1)
    return splits
