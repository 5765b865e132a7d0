"""Model a cell's time from requests, bytes, CPU time and opens, and check whether the model explains a ratio."""

import math

import numpy as np
import pandas as pd

MIB = 2**20
# A model explains a ratio that it meets within so many percent, or half of its distance from 1 if that is less.
EXPLAINED_PERCENT = 10
_MODELLED = ("total_s", "task_cpu_s", "requests", "round_trip_s", "in_flight", "rate_mib_s", "opens")
# Fewest cells of a store for a fit of the cost of an open.
_LEAST = 4


def compute_modelled_s(cells: pd.DataFrame) -> pd.Series:
    """Return the seconds that a model gives each cell, fitted to the other cells of its store; NaN if unknown.

    T = CPU + requests x round trip / requests in flight + bytes / rate + opens x cost of an open (METHOD 11). Round
    trip and rate are measured on the network, CPU on the tasks; only the last cost is fitted.

    `cells` has cells.csv's columns store, total_s, task_cpu_s, requests, round_trip_s, in_flight, rate_mib_s, opens and
    bytes_delivered; a store with fewer than four complete cells is not modelled.
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
        # By relative errors, so that long cells do not decide alone: least squares of (T - fixed - cost x opens) / T.
        share, left = (part / rows["total_s"] for part in (rows["opens"], rows["total_s"] - fixed))
        above, below = ((share * of).sum() - share * of for of in (left, share))
        cost = (above / below).clip(lower=0).where(below > 0, 0)
        modelled[rows.index] = fixed + cost * rows["opens"]
    return modelled


def is_explained(modelled_ratio: pd.Series, ratio: pd.Series) -> pd.Series:
    """Return for which comparisons the model meets the ratio of times to 10 % and to half of its distance from 1.

    Distances are of logarithms: any model of the same sign would be within 10 % of ×1.03.
    """
    measured, modelled = ratio.transform(np.log), modelled_ratio.transform(np.log)
    return (modelled - measured).abs() <= (measured.abs() / 2).clip(upper=math.log1p(EXPLAINED_PERCENT / 100))


def has_direction(modelled_ratio: pd.Series, ratio: pd.Series) -> pd.Series:
    """Return for which comparisons the model is off by less than half of the effect, so gives the right direction."""
    return (modelled_ratio / ratio).transform(np.log).abs() <= ratio.transform(np.log).abs() / 2
