"""Apply the verdict rule to DataFrames of times, for use in other projects (see docs/verdicts.md)."""

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd

from sbench.verdicts import sessions, stats
from sbench.verdicts.stats import Verdict


def judge(
    blocks: pd.DataFrame,
    baseline: Hashable,
    equivalence_percent: float = 5,
    looks: Sequence[int] | int = 1,
    seed: int = 1,
) -> pd.DataFrame:
    """Compare each arm with a baseline, in blocks that measured all arms in succession (METHOD 17).

    An arm is a side of a comparison, such as a version of a program. All comparisons form a family: the signs of whole
    blocks are flipped in all comparisons at once (Westfall & Young, Resampling-Based Multiple Testing, 1993), so that a
    family without differences raises a false alarm in 5 % of runs. `stats.judge_family` gives the formulas and their
    sources.

    Args:
        blocks: positive times in any unit, with a row per block and a column per arm. NaN means that an arm failed. A
            verdict needs at least six complete blocks. Arms are not the same if either failed in a block, and an arm
            that failed in two blocks more than the other is not faster.
        baseline: the column to compare the other columns with.
        equivalence_percent: two arms are the same if the 95 % CI of their ratio lies within 1/(1 + x) to 1 + x, where
            x is this percentage.
        looks: how often the results have been evaluated, including this time: a number for all comparisons, or a
            number per comparison.
        seed: seed of the sign flips, which are drawn at random for more than 12 blocks.

    Returns:
        A DataFrame with a row per other arm, in the order of the columns: verdict (`Outcome`), blocks (the number of
        complete blocks), ratio (the median of arm / baseline), low and high (its 95 % CI), p (corrected for the
        family), and detectable_ratio (the smallest slowdown that these blocks would have detected with a power of
        0.8). Numbers are NaN with fewer than six complete blocks.

    Raises:
        ValueError: the baseline column or all other columns are missing, or a time is not positive.

    >>> import pandas as pd
    >>> blocks = pd.DataFrame({"old": [10.1, 9.9, 10.0, 10.3, 9.8, 10.2], "new": [8.1, 7.9, 8.2, 8.2, 7.7, 8.3]})
    >>> judge(blocks, baseline="old").round(2)
        verdict  blocks  ratio   low  high     p  detectable_ratio
    new  faster       6    0.8  0.79  0.82  0.03              1.05
    """
    if baseline not in blocks or len(blocks.columns) < 2:
        raise ValueError(f"blocks must have a column {baseline!r} and at least another (got {list(blocks.columns)})")
    arms = blocks.columns.drop([baseline])
    logs = _take_logs(blocks)
    d = logs[arms].to_numpy() - logs[[baseline]].to_numpy()
    lost, *failed = logs[[baseline, *arms]].isna().sum().tolist()
    verdicts = [
        one._replace(verdict=stats.apply_losses(one.verdict, lost, of_arm))
        for one, of_arm in zip(stats.judge_family(d, equivalence_percent, seed, looks), failed, strict=True)
    ]
    return _make_table(verdicts, arms)


def compare_sessions(
    base: pd.DataFrame,
    other: pd.DataFrame,
    paired: bool = False,
    equivalence_percent: float = 5,
    seed: int = 1,
) -> pd.DataFrame:
    """Compare two sides that were measured in separate sessions, for example in different weeks.

    Sessions on different days differ in everything that changed between these days, so the session is the unit of the
    statistics. The permutation test exchanges whole sessions between the sides, in all comparisons at once. Welch's
    test must agree, because the sides may have unequal variances. `sessions.judge_sessions` gives the formulas and
    their sources.

    Args:
        base: positive times in any unit, with a row per session and a column per comparison. NaN means a missing time.
            A verdict needs at least four sessions of each side.
        other: times of the other side, with the same columns.
        paired: whether the rows of both sides form pairs, in their order. A verdict then needs at least six pairs.
        equivalence_percent: as for `judge`.
        seed: seed of the permutations, which are drawn at random if there are more than 20,000.

    Returns:
        A DataFrame with a row per column, as from `judge`. `blocks` is the number of sessions of the smaller side, and
        ratios are other / base.

    Raises:
        ValueError: the sides have different columns, a time is not positive, or pairs have unequal numbers of sessions.

    >>> import pandas as pd
    >>> base = pd.DataFrame({"read": [10.0, 10.2, 9.9, 10.1], "write": [5.0, 5.1, 4.9, 5.0]})
    >>> other = pd.DataFrame({"read": [11.6, 11.4, 11.5, 11.7], "write": [5.0, 5.0, 5.1, 4.9]})
    >>> compare_sessions(base, other)[["verdict", "blocks", "ratio", "low", "high", "p"]].round(2)
          verdict  blocks  ratio   low  high     p
    read   slower       4   1.15  1.12  1.18  0.03
    write    same       4   1.00  0.96  1.04  1.00
    """
    if list(base.columns) != list(other.columns):
        raise ValueError(f"both sides must have the same columns (got {list(base.columns)} and {list(other.columns)})")
    if paired and len(base) != len(other):
        raise ValueError(f"pairs require equal numbers of sessions (got {len(base)} and {len(other)})")
    logs = [_take_logs(side).to_numpy() for side in (base, other)]
    return _make_table(sessions.judge_sessions(logs[0], logs[1], paired, equivalence_percent, seed), base.columns)


def _take_logs(times: pd.DataFrame) -> pd.DataFrame:
    numbers = times.astype(float)
    if (numbers <= 0).any(axis=None) or np.isinf(numbers).any(axis=None):
        raise ValueError("times must be positive numbers; write NaN for a missing time")
    return numbers.transform(np.log)


def _make_table(verdicts: Sequence[Verdict], index: pd.Index) -> pd.DataFrame:
    return pd.DataFrame([verdict._asdict() for verdict in verdicts], index=index)
