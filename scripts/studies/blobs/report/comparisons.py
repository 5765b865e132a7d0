"""Figures of comparisons: which rows of the verdicts they show."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from scripts.report import comparisons as ratios
from scripts.report import prose
from scripts.report.plot import Figure
from scripts.statistics.verdicts import CONTEST
from scripts.studies.blobs.patterns import FROM_ONE
from scripts.studies.blobs.report import courses, words
from scripts.studies.blobs.report.data import Results

# One reader that gives to the others, and the pattern in which everyone reads the same.
ONE_READER = {"broadcast": "single-file", "scatter": "sections"}
COLLECTIVE = ("mpi-io", "mpi-io-interleaved", "mpi-io-collective", "mpi-io-collective-interleaved")


def by(results: Results, factors: list[str], metric: str = "total", otherwise: bool = True) -> Figure:
    """Return the comparisons of `factors`, a panel a place and pair of levels; `otherwise`: say if there is none."""
    rows = courses.rows_of(results, metric)
    rows = rows[rows["factor"].isin(factors)] if len(rows) else rows
    named = prose.listing(factor.replace("_", " ") for factor in factors)
    name = "-".join(["comparison", *factors, *([metric] if metric != "total" else [])])
    if rows.empty and not otherwise:
        return Figure(name, "", "", (), rows)
    return ratios.comparisons(name, f"Ratio of {words.METRICS[metric]} by {named}", rows, results.facts, words)


def one_reader(results: Results) -> Figure:
    """Return broadcast against single-file and scatter against sections."""
    rows = _patterns(results)
    rows = rows[_one_reader(rows)]
    return ratios.comparisons(
        "comparison-one-reader",
        "One reader that gives to the others against everyone reading",
        rows,
        results.facts,
        words,
    )


def mpi_io(results: Results) -> Figure:
    """Return every comparison in which MPI-IO is a side."""
    rows = _patterns(results)
    rows = rows[_mpi_io(rows)]
    return ratios.comparisons("comparison-mpi-io", "MPI-IO, independent and collective", rows, results.facts, words)


def everyone(results: Results) -> Figure:
    """Return the other patterns, in which everyone reads: one object or one each, contiguous or interleaved."""
    rows = _patterns(results)
    rows = rows[~_one_reader(rows) & ~_mpi_io(rows)]
    rows = rows[~(rows["baseline"].isin(FROM_ONE) | rows["contender"].isin(FROM_ONE))]
    return ratios.comparisons("comparison-everyone", "Everyone reads: patterns compared", rows, results.facts, words)


def _patterns(results: Results) -> pd.DataFrame:
    """Every judged pair of patterns that differ in nothing else: those asked for, and those of the contests."""
    rows = results.verdicts
    asked = courses.rows_of(results)
    if rows.empty:
        return pd.DataFrame(columns=["baseline", "contender"])
    pairs = rows[rows["factor"] == CONTEST]
    levels = results.cells.set_index("cell")[list(words.FACTORS)]
    pairs = pairs[pairs["baseline"].isin(levels.index) & pairs["contender"].isin(levels.index)]
    sides = {side: levels.loc[pairs[side]].reset_index(drop=True) for side in ("baseline", "contender")}
    differ = sides["baseline"] != sides["contender"]
    alone = (differ.drop(columns="pattern").sum(axis=1) == 0).to_numpy()
    named = {side: table["pattern"].to_numpy()[alone] for side, table in sides.items()}
    return pd.concat([asked[asked["factor"] == "pattern"], pairs[alone].assign(factor="pattern", **named)])


def _one_reader(rows: pd.DataFrame) -> np.ndarray:
    pairs = {frozenset(pair) for pair in ONE_READER.items()}
    return np.array([frozenset(pair) in pairs for pair in _sides(rows)], dtype=bool)


def _mpi_io(rows: pd.DataFrame) -> np.ndarray:
    return np.array([bool({*pair} & {*COLLECTIVE}) for pair in _sides(rows)], dtype=bool)


def _sides(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    return zip(rows["baseline"], rows["contender"], strict=True)
