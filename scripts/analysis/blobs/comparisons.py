"""Figures of comparisons: which rows of the verdicts they show."""

import pandas as pd

from scripts.analysis import comparisons as ratios
from scripts.analysis import prose
from scripts.analysis.blobs import courses, words
from scripts.analysis.blobs.data import Results
from scripts.analysis.plot import Figure

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
    pairs = {frozenset(pair) for pair in ONE_READER.items()}
    rows = _pairs(results, lambda base, other: frozenset((base, other)) in pairs)
    return ratios.comparisons(
        "comparison-one-reader",
        "One reader that gives to the others against everyone reading",
        rows,
        results.facts,
        words,
    )


def mpi_io(results: Results) -> Figure:
    """Return every comparison in which MPI-IO is a side."""
    rows = _pairs(results, lambda base, other: base in COLLECTIVE or other in COLLECTIVE)
    return ratios.comparisons("comparison-mpi-io", "MPI-IO, independent and collective", rows, results.facts, words)


def _pairs(results: Results, wanted) -> pd.DataFrame:
    rows = courses.rows_of(results)
    if rows.empty:
        return rows
    rows = rows[rows["factor"] == "pattern"]
    return rows[[wanted(*pair) for pair in zip(rows["baseline"], rows["contender"], strict=True)]]
