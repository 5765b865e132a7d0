"""Model the time of a measured configuration from its requests, bytes, CPU time and opens.

The model also tells whether these quantities explain the measured ratio of two times.
"""

import math

import numpy as np
import pandas as pd

MIB = 2**20
# A model explains a ratio if it is off by at most this percentage, and by at most half of the ratio's distance from 1.
EXPLAINED_PERCENT = 10
_MODELLED = ("total_s", "task_cpu_s", "requests", "round_trip_s", "in_flight", "rate_mib_s", "opens")
# Smallest number of rows of a store for fitting the cost of an open.
_LEAST = 4


def compute_modelled_s(cells: pd.DataFrame) -> pd.Series:
    """Model the total time of each row of `cells`, in seconds, from its requests, bytes, CPU time and opens.

    T = CPU + requests x round trip / requests in flight + bytes / rate + opens x cost of an open (METHOD 11). The round
    trip and the rate are measured on the network, and the CPU time is measured on the tasks. Only the cost of an open
    is fitted, for each row to the other rows of its store.

    Args:
        cells: rows of cells.csv with the columns store, total_s, task_cpu_s, requests, round_trip_s, in_flight,
            rate_mib_s, opens and bytes_delivered.

    Returns:
        The modelled times. They are NaN for rows with missing values, and for stores with fewer than four complete
        rows.
    """
    modelled = pd.Series(np.nan, index=cells.index)
    if not {*_MODELLED, "store", "bytes_delivered"} <= set(cells):
        return modelled
    numbers = cells[[*_MODELLED, "bytes_delivered"]].apply(pd.to_numeric, errors="coerce")
    numbers = numbers[numbers.notna().all(axis="columns") & (numbers["in_flight"] > 0)]
    for _, rows in numbers.groupby(cells["store"], sort=False):
        if len(rows) < _LEAST:
            continue
        waits = rows["requests"] * rows["round_trip_s"] / rows["in_flight"]
        fixed = rows["task_cpu_s"] + waits + rows["bytes_delivered"] / MIB / rows["rate_mib_s"]
        # Least squares of the relative error (T - fixed - cost x opens) / T, so that long times do not dominate.
        share, left = (part / rows["total_s"] for part in (rows["opens"], rows["total_s"] - fixed))
        above, below = ((share * of).sum() - share * of for of in (left, share))
        cost = (above / below).clip(lower=0).where(below > 0, 0)
        modelled[rows.index] = fixed + cost * rows["opens"]
    return modelled


def is_explained(modelled_ratio: pd.Series, ratio: pd.Series) -> pd.Series:
    """Return for each comparison whether the model explains the measured ratio of times.

    The modelled ratio may deviate by 10 %, and by at most half of the measured ratio's distance from 1, both on a
    logarithmic scale. Without the second condition, almost any model would explain a ratio as small as 1.03.
    """
    measured, modelled = ratio.transform(np.log), modelled_ratio.transform(np.log)
    return (modelled - measured).abs() <= (measured.abs() / 2).clip(upper=math.log1p(EXPLAINED_PERCENT / 100))


def has_direction(modelled_ratio: pd.Series, ratio: pd.Series) -> pd.Series:
    """Return for each comparison whether the modelled ratio has the right direction.

    It has if its error is at most half of the measured effect, both on a logarithmic scale.
    """
    return (modelled_ratio / ratio).transform(np.log).abs() <= ratio.transform(np.log).abs() / 2
