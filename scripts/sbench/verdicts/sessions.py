"""Test comparisons between runs, with the session as the unit.

Runs of a machine on two days differ by the day, too. So whole sessions are exchanged between two sides, in all
comparisons at once (METHOD 2, 14, 17).
"""

import itertools
import math
import warnings
from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
import scipy.stats

from sbench.verdicts import MIN_BLOCKS, stats
from sbench.verdicts.outcomes import Outcome
from sbench.verdicts.stats import Flags, Floats, Verdict

# Sessions of each side that an exact test needs: 4 and 4 have 70 splits, 6 pairs have 64 flips.
LEAST, LEAST_PAIRS = 4, MIN_BLOCKS
# Sides count as unequally spread from this ratio of standard deviations.
UNEQUAL = 2
# Beyond so many splits of the sessions into two sides, draw so many with a seed.
SPLITS = 20_000
COUNTS = ("requests", "bytes", "opens", "connections")
HASHES = ("code", "data", "packages")
COLUMNS = ("repeat", "session", "valid", "figure", "value", "unit", *COUNTS, "cache_state", "read", *HASHES)
# The machine of a record; earlier tables lack it.
MACHINE = "machine"
# Sides take turns if their sessions, in order, form at least so many stretches, two of each side.
LEAST_STRETCHES = 4


def find_apart(base: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """Return why the sessions of two sides do not take turns: `times` or `days`, and `machines`; [] if they do.

    The test cannot separate differences between two weeks, or two machines, from differences between two sides with one
    each (METHOD 17). If machines measured a session each, only their kinds can belong to a side.

    Args:
        base: the records of one side: `session`, `unit_of`, which names a session of any run, and `machine` if known.
        other: the records of the other side.
    """
    rows = []
    for number, side in enumerate((base, other)):
        for _, of in side.assign(**{MACHINE: side.get(MACHINE, "")}).groupby("unit_of"):
            rows.append((of["session"].iloc[0], number, sorted(set(of[MACHINE].fillna("")))))
    rows.sort()
    days = [{session[:10] for session, number, _ in rows if number == side} for side in (0, 1)]
    nodes = [(" ".join(machines), number) for _, number, machines in rows]
    kinds = [(" ".join(name.partition(" ")[0] for name in machines), number) for _, number, machines in rows]
    apart = (
        [] if _is_alternating([("", number) for _, number, _ in rows]) else ["times" if days[0] & days[1] else "days"]
    )
    of_sides = [{place for place, number in nodes if number == side} for side in (0, 1)]
    by_machine = (sorted(order, key=lambda place: place[0]) for order in (nodes, kinds))
    if all(map(_is_alternating, by_machine)) or (apart and of_sides[0] == of_sides[1]):
        return apart
    return [*apart, "machines"]


def _is_alternating(order: Sequence[tuple[str, int]]) -> bool:
    """Return whether sessions, each with a place and a side, form enough stretches of one side in one place.

    Enough: two of each side, `LEAST_STRETCHES` in all, and more than 5 % of all orders have at most so many (Wald and
    Wolfowitz, Annals of Mathematical Statistics 11, 1940).
    """
    stretches = [side for (_, side), _ in itertools.groupby(order)]
    if len(stretches) < LEAST_STRETCHES or min(map(stretches.count, (0, 1))) < LEAST_STRETCHES / 2:
        return False
    of_first = sum(side == 0 for _, side in order)
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
) -> list[Verdict]:
    """Return a verdict for each comparison of a family, in the order of METHOD 17, with the session as the unit.

    Args:
        base: ln of the value of each session of one side (sessions, comparisons), NaN if missing.
        other: the same of the other side; ratios are other / base.
        paired: whether the sessions of both sides are pairs, in their order; if so, `stats.judge_family` of the
            differences.
        equivalence_percent: the largest difference that counts as the same.
        seed: seed of the splits, if there are too many to use all.
        means: for both sides, ln of the sessions' mean times, if `base` and `other` are medians: `same` requires their
            ratio within the same bounds.

    Without pairs the ratio is the median of all differences between two sessions (Hodges & Lehmann, Annals of
    Mathematical Statistics 34, 1963) with the interval of the exact rank-sum test. Sessions are split again into two
    sides in all comparisons at once, and |t| is compared with the largest of each split (`stats.compute_max_t`). Splits
    assume equally spread sides, so Welch's test (Biometrika 34, 1947) has to agree: for all comparisons together
    (Bonferroni) if a side has more sessions, or its sessions scatter `UNEQUAL` times as much as the other's; in the
    latter case the interval includes Welch's, too. Below `LEAST` sessions on a side, or `LEAST_PAIRS` pairs, the
    verdict is `too few repeats`, with a ratio and without an interval.
    """
    bound = math.log1p(equivalence_percent / 100)
    if paired:
        judged = stats.judge_family(other - base, equivalence_percent, seed)
        low, high = stats.compute_bootstrap_interval(means[1] - means[0]) if means else np.zeros((2, len(judged)))
    else:
        judged = _judge_unpaired(base, other, bound, seed)
        shifts = [_estimate_shift(*columns) for columns in zip(means[0].T, means[1].T, strict=True)] if means else []
        low, high = np.array(shifts).T[1:] if shifts else np.zeros((2, len(judged)))
    apart = _is_beyond(low, high, bound)
    return [
        one._replace(verdict=Outcome.NO_EVIDENCE) if parts and one.verdict == Outcome.SAME else one
        for one, parts in zip(judged, apart, strict=True)
    ]


def _judge_unpaired(base: Floats, other: Floats, bound: float, seed: int) -> list[Verdict]:
    counts = np.minimum(*(np.isfinite(side).sum(axis=0) for side in (base, other)))
    enough, p = counts >= LEAST, np.full(base.shape[1], math.nan)
    ends = np.full((2, base.shape[1]), math.nan)
    if enough.any():
        p[enough], ends[:, enough] = _compute_welch(base[:, enough], other[:, enough])
        p[enough] = np.maximum(p[enough], _compute_adjusted_p(base[:, enough], other[:, enough], seed))
    verdicts = []
    for column, (is_enough, n) in enumerate(zip(enough, counts, strict=True)):
        centre, low, high = _estimate_shift(base[:, column], other[:, column])
        low, high = np.fmin(low, ends[0, column]), np.fmax(high, ends[1, column])
        verdict = stats.choose_outcome(low, high, p[column], stats.LEVEL, bound) if is_enough else Outcome.TOO_FEW
        numbers = (*np.exp([centre, low, high]).tolist(), float(p[column]), math.nan)
        verdicts.append(Verdict(verdict, int(n), *numbers))
    return verdicts


def _is_beyond(low: Floats, high: Floats, bound: float) -> Flags:
    return ~((low >= -bound) & (high <= bound))


def compare_counts(base: pd.DataFrame, other: pd.DataFrame, name: str) -> str:
    """Return how a count of two sides compares: `same`, `more` or `fewer` of the other side, or why it is unknown.

    Compare counts of records that read the same objects; they repeat exactly, so two records of each side suffice
    (METHOD 11). Return "" if a side lacks the count.
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


def _compute_adjusted_p(base: Floats, other: Floats, seed: int) -> Floats:
    """Return the p of each comparison, adjusted for all: the share of splits with a |t| as large in any of them."""
    values = np.vstack([other, base])
    present, filled = np.isfinite(values), np.nan_to_num(values)
    n, total, squares = present.sum(axis=0), filled.sum(axis=0), (filled**2).sum(axis=0)
    spread = squares - total**2 / n
    splits = _build_splits(len(other), len(values), seed)
    ours, sums = splits @ present, splits @ filled
    with np.errstate(divide="ignore", invalid="ignore"):
        between = np.where((ours > 0) & (ours < n), sums**2 / ours + (total - sums) ** 2 / (n - ours) - total**2 / n, 0)
        # All splits have the same total spread, so |t| follows from the part of it between the sides.
        share = np.where(spread > 1e-12 * np.maximum(squares, 1e-300), between / spread, 0)
        t = np.sqrt((n - 2) * share / np.where(share > 1 - 1e-12, 0.0, 1 - share))
    p: Floats = (t.max(axis=1)[:, None] >= t[0] * (1 - 1e-9)).mean(axis=0)
    return p


def _compute_welch(base: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Return Welch's p of each comparison, and the ends of its 95 % interval, NaN if both sides are equally spread.

    If they are not, or a side has more sessions, p covers all comparisons together. It is 0 if no session differs from
    another.
    """
    with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of equal sessions
        test = scipy.stats.ttest_ind(other, base, equal_var=False, nan_policy="omit")
        ends = np.array(test.confidence_interval(stats.CONFIDENCE))
    p = np.nan_to_num(np.asarray(test.pvalue, dtype=float))
    spreads = sorted(math.sqrt(np.nanvar(side, axis=0, ddof=1).mean()) for side in (base, other))
    unequal = spreads[1] > UNEQUAL * spreads[0]
    together = np.minimum(1, p * len(p)) if unequal or len(base) != len(other) else p
    return together, ends if unequal else np.full(ends.shape, math.nan)


def _estimate_shift(base: Floats, other: Floats) -> tuple[float, float, float]:
    """Return the median difference between two sessions, and its 95 % interval; NaN with too few sessions."""
    base, other = base[np.isfinite(base)], other[np.isfinite(other)]
    if not len(base) or not len(other):
        return math.nan, math.nan, math.nan
    differences = np.sort((other[:, None] - base).ravel())
    rank = _compute_rank(len(base), len(other))
    low, high = (float(differences[rank - 1]), float(differences[-rank])) if rank else (math.nan, math.nan)
    return float(np.median(differences)), low, high


@cache
def _compute_rank(m: int, n: int) -> int:
    """Return the largest rank whose differences from below and above hold the shift with at least 95 %; 0 if none does.

    In the rank-sum test, at most 2.5 % of the splits have fewer pairs in that order (Hollander & Wolfe, Nonparametric
    Statistical Methods, section 4.3).
    """
    ways = np.zeros(m * n + 1)
    ways[0] = 1
    # As a Gaussian binomial coefficient: multiply by (1 - q^(n + i)), divide by (1 - q^i), for i = 1 … m.
    for i in range(1, m + 1):
        ways[n + i :] -= ways[: -(n + i)].copy() if n + i < len(ways) else 0
        for place in range(i, len(ways)):
            ways[place] += ways[place - i]
    return int((np.cumsum(ways) / ways.sum() <= (1 - stats.CONFIDENCE) / 2 + 1e-12).sum())


@cache
def _build_splits(ours: int, sessions: int, seed: int) -> Floats:
    """Return which sessions are the first side's (splits, sessions); the first split is the measured split."""
    if math.comb(sessions, ours) <= SPLITS:
        chosen = np.array([*itertools.combinations(range(sessions), ours)])
    else:
        random = np.random.default_rng(seed)
        drawn = [random.permutation(sessions)[:ours] for _ in range(SPLITS - 1)]
        chosen = np.array([range(ours), *drawn])
    splits = np.zeros((len(chosen), sessions))
    np.put_along_axis(splits, chosen, 1, axis=1)
    return splits
