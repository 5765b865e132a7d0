"""What requests, bytes, CPU and opens explain of a time: a model with measured costs (METHOD 11).

T = CPU + requests x round trip / requests in flight + bytes / rate + opens x cost of an open. Round trip and rate are
those that were measured of the network, CPU that of the tasks; only the cost of an open is fitted.
"""

import numpy as np
import pandas as pd

# A comparison is explained where the model has the sign of what was measured, and its ratio to so many percent.
EXPLAINED_PERCENT = 10
_NEEDED = ("total_s", "task_cpu_s", "requests", "round_trip_s", "in_flight", "rate_mib_s", "opens")
_LEAST = 4
_MIB = 2**20


def modelled_s(cells: pd.DataFrame) -> pd.Series:
    """Return the seconds that the model gives each cell, fitted to the other cells of its store; NaN where unknown.

    `cells` are those of cells.csv with the columns store, total_s, task_cpu_s, requests, round_trip_s, in_flight,
    rate_mib_s, opens and bytes_delivered; a store of fewer than four cells that have them is not modelled.
    """
    modelled = pd.Series(np.nan, index=cells.index)
    if not {*_NEEDED, "store", "bytes_delivered"} <= set(cells):
        return modelled
    numbers = cells[[*_NEEDED, "bytes_delivered"]].apply(pd.to_numeric, errors="coerce")
    numbers = numbers[numbers.notna().all(axis="columns") & (numbers["in_flight"] > 0)]
    for _, rows in numbers.groupby(cells["store"], sort=False):
        if len(rows) < _LEAST:
            continue
        waits = rows["requests"] * rows["round_trip_s"] / rows["in_flight"]
        fixed = rows["task_cpu_s"] + waits + rows["bytes_delivered"] / _MIB / rows["rate_mib_s"]
        # By relative errors, so that long cells do not decide alone: least squares of (T - fixed - cost x opens) / T.
        share, left = (part / rows["total_s"] for part in (rows["opens"], rows["total_s"] - fixed))
        above, below = ((share * of).sum() - share * of for of in (left, share))
        cost = (above / below).clip(lower=0).where(below > 0, 0)
        modelled[rows.index] = fixed + cost * rows["opens"]
    return modelled


def explains(modelled_ratio: pd.Series, ratio: pd.Series) -> pd.Series:
    """Return of which comparisons the model has the sign of the ratio of times, and its size to 10 %."""
    sign = np.sign(np.log(modelled_ratio)) == np.sign(np.log(ratio))
    return sign & ((modelled_ratio / ratio - 1).abs() <= EXPLAINED_PERCENT / 100)
