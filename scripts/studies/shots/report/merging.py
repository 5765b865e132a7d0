"""Merges comparisons that came out alike: the fewest parts that a few levels tell apart from the rest."""

import itertools

import numpy as np
import pandas as pd

from scripts.studies.shots.report.results import FACTORS, in_order

# Ratios further apart than this are not told as one range, where a level tells them apart.
ALIKE = 1.5
MOST_PARTS = 4

Conditions = list[tuple[str, str]]


def parts(chosen: pd.DataFrame, among: pd.DataFrame) -> list[tuple[pd.DataFrame, Conditions | None]]:
    """Return `chosen`, rows of one outcome, in parts that can be named.

    Args:
        chosen: rows of `among` with ratio, the factors as columns and "direction", which says whether access follows
            the layout or crosses it.
        among: all rows of that kind of comparison in one place.

    Returns:
        Parts with their conditions as (factor, level), which hold in that part and nowhere else in `among`. More than
        four parts are too many to read: then all of `chosen` comes back in one part, its conditions None.
    """
    if chosen.empty:
        return []
    found = _named(chosen, among)
    for factors in itertools.chain(*(itertools.combinations(_context(chosen), size) for size in (1, 2))):
        if found is not None:
            break
        pieces = [_named(rows, among) for _, rows in chosen.groupby(list(factors), sort=False)]
        if all(piece is not None for piece in pieces):
            found = list(itertools.chain(*pieces))
    found = [piece for part in found or [] for piece in _alike(*part, among)]
    return found if 0 < len(found) <= MOST_PARTS else [(chosen, None)]


def _named(chosen: pd.DataFrame, among: pd.DataFrame) -> list[tuple[pd.DataFrame, Conditions]] | None:
    """Return `chosen` as one part if levels of single factors tell it from the rest, else None."""
    context = _context(among)
    without = ("direction",), ("layout", "access")
    for left_out in without:
        conditions = [(factor, set(chosen[factor])) for factor in context if factor not in left_out]
        conditions = [(factor, levels) for factor, levels in conditions if levels != set(among[factor])]
        inside = [among[factor].isin(levels) for factor, levels in conditions]
        if (np.logical_and.reduce(inside).sum() if inside else len(among)) == len(chosen):
            named = [(factor, level) for factor, levels in conditions for level in sorted(levels, key=in_order)]
            return [(chosen, named)]
    return None


def _alike(rows: pd.DataFrame, conditions: Conditions, among: pd.DataFrame) -> list[tuple[pd.DataFrame, Conditions]]:
    """Cut a part whose ratios lie far apart by the factor that brings them closest together."""
    if _spread(rows) <= np.log(ALIKE):
        return [(rows, conditions)]
    trials = []
    for factor in _context(rows):
        groups = [part for _, part in rows.groupby(factor, sort=False)]
        named = [_named(part, among) for part in groups]
        if all(named):
            trials.append((max(map(_spread, groups)), [part for one in named for part in one]))
    if not trials:
        return [(rows, conditions)]
    spread, cut = min(trials, key=lambda trial: trial[0])
    return cut if spread < _spread(rows) / 2 else [(rows, conditions)]


def _spread(rows: pd.DataFrame) -> float:
    ratios = rows["ratio"].dropna()
    return float(np.log(ratios.max() / ratios.min())) if len(ratios) > 1 else 0.0


def _context(rows: pd.DataFrame) -> list[str]:
    return [factor for factor in (*FACTORS, "direction") if rows[factor].nunique() > 1]
