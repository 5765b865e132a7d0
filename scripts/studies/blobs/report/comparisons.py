"""Figures of comparisons: which rows of the verdicts they show."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from scripts.report import comparisons as ratios
from scripts.report.plot import Figure
from scripts.statistics.verdicts import CONTEST
from scripts.studies.blobs.patterns import FROM_ONE
from scripts.studies.blobs.report.results import FACTORS, Results

# One reader that gives to the others, and the pattern in which everyone reads the same.
ONE_READER = {"broadcast": "single-file", "scatter": "sections"}
COLLECTIVE = ("mpi-io", "mpi-io-interleaved", "mpi-io-collective", "mpi-io-collective-interleaved")


def one_reader(results: Results) -> Figure:
    """Return broadcast against single-file and scatter against sections."""
    rows = _patterns(results)
    rows = rows[_one_reader(rows)]
    return ratios.of_rows(
        results, rows, "comparison-one-reader", "One reader that gives to the others against everyone reading"
    )


def mpi_io(results: Results) -> Figure:
    """Return every comparison in which MPI-IO is a side."""
    rows = _patterns(results)
    rows = rows[_mpi_io(rows)]
    return ratios.of_rows(results, rows, "comparison-mpi-io", "MPI-IO, independent and collective")


def everyone(results: Results) -> Figure:
    """Return the other patterns, in which everyone reads: one object or one each, contiguous or interleaved."""
    rows = _patterns(results)
    rows = rows[~_one_reader(rows) & ~_mpi_io(rows)]
    rows = rows[~(rows["baseline"].isin(FROM_ONE) | rows["contender"].isin(FROM_ONE))]
    return ratios.of_rows(results, rows, "comparison-everyone", "Everyone reads: patterns compared")


def _patterns(results: Results) -> pd.DataFrame:
    """Every judged pair of patterns that differ in nothing else: those under `compare`, and those of the contests."""
    rows = results.verdicts
    compared = results.comparisons("total")
    if rows.empty:
        return pd.DataFrame(columns=["baseline", "contender"])
    pairs = rows[rows["factor"] == CONTEST]
    levels = results.cells.set_index("cell")[list(FACTORS)]
    pairs = pairs[pairs["baseline"].isin(levels.index) & pairs["contender"].isin(levels.index)]
    sides = {side: levels.loc[pairs[side]].reset_index(drop=True) for side in ("baseline", "contender")}
    differ = sides["baseline"] != sides["contender"]
    alone = (differ.drop(columns="pattern").sum(axis=1) == 0).to_numpy()
    named = {side: table["pattern"].to_numpy()[alone] for side, table in sides.items()}
    states = dict(zip(results.cells["cell"], results.states(results.cells), strict=True))
    pairs = pairs[alone].assign(state=pairs[alone]["baseline"].map(states))
    return pd.concat([compared[compared["factor"] == "pattern"], pairs.assign(factor="pattern", **named)])


def _one_reader(rows: pd.DataFrame) -> np.ndarray:
    pairs = {frozenset(pair) for pair in ONE_READER.items()}
    return np.array([frozenset(pair) in pairs for pair in _sides(rows)], dtype=bool)


def _mpi_io(rows: pd.DataFrame) -> np.ndarray:
    return np.array([bool({*pair} & {*COLLECTIVE}) for pair in _sides(rows)], dtype=bool)


def _sides(rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    return zip(rows["baseline"], rows["contender"], strict=True)
