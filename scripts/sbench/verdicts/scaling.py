"""Find the number of workers beyond which a configuration stops scaling (METHOD 19)."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from sbench.verdicts import stats


def find_stops(
    runs: pd.DataFrame, arm: Sequence[str], by: str = "workers", time: str = "total_s", equivalence_percent: float = 5
) -> pd.DataFrame:
    """For each configuration, find the number of workers beyond which more workers do not measurably reduce the time.

    A larger number reduces the time if, over complete blocks, the 95 % CI of the ratio of total times
    (`stats.compute_bootstrap_interval`) lies below 1 and is not inside ±`equivalence_percent`. The result is
    descriptive: it is not corrected for the number of comparisons.

    Args:
        runs: a row per valid record (duplicates are allowed) with the columns `arm`, `by`, `time`, repeat, and
            optionally session.
        arm: the columns that identify a configuration.
        by: the column with the number of workers, or another factor with whole numbers.
        time: the column with the total time in seconds.
        equivalence_percent: ratios within this percentage of 1 count as the same.

    Returns:
        One row per configuration, in order of appearance: the columns `arm`; base and base_s (the smallest number of
        workers and its median time, METHOD 19); outcome (`single`: one number of workers was measured; `few`: too few
        blocks to decide; `stops`; `gains`: the largest measured number still reduces the time); stops_at; next; and
        ratio, ratio_low and ratio_high of the time at `next` to the time at `stops_at`.
    """
    rows, block = [], [column for column in ("repeat", "session") if column in runs]
    for levels, part in runs.groupby(list(arm), sort=False, observed=True):
        part = part.assign(**{by: part[by].astype(int)})
        totals = part.pivot_table(index=block, columns=by, values=time, aggfunc="first")
        rows.append({**dict(zip(arm, levels, strict=True)), **_find_stop(totals, equivalence_percent)})
    columns = [*arm, "base", "base_s", "outcome", "stops_at", "next", "ratio", "ratio_low", "ratio_high"]
    return pd.DataFrame(rows, columns=columns).astype({"stops_at": "Int64", "next": "Int64"})


def _find_stop(totals: pd.DataFrame, equivalence_percent: float) -> dict[str, object]:
    counts = list(totals.columns)
    base = {"base": counts[0], "base_s": float(totals[counts[0]].median())}
    if len(counts) == 1:
        return base | {"outcome": "single"}
    bound = math.log1p(equivalence_percent / 100)
    logs = np.log(totals.to_numpy(dtype=float))
    for place, count in enumerate(counts[:-1]):
        d = logs[:, place + 1 :] - logs[:, [place]]
        low, high = stats.compute_bootstrap_interval(d)
        if ((high < 0) & (low < -bound)).any():
            continue
        if np.isnan(high).any():
            return base | {"outcome": "few"}
        ratio, least, most = np.exp([np.nanmedian(d[:, 0]), low[0], high[0]]).tolist()
        ends = {"ratio": ratio, "ratio_low": least, "ratio_high": most}
        return base | {"outcome": "stops", "stops_at": count, "next": counts[place + 1], **ends}
    return base | {"outcome": "gains"}
