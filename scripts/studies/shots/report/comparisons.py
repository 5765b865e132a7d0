"""Figures of comparisons: which rows of the verdicts they show."""

from scripts.report import comparisons as ratios
from scripts.report import prose
from scripts.report.plot import Figure
from scripts.studies.shots.report import words
from scripts.studies.shots.report.results import Results


def comparisons(results: Results, factors: list[str] | None = None, metric: str = "total") -> Figure:
    """Return a row a comparison of `factors` (default: all but the control), a panel a place and pair of levels."""
    rows = results.verdicts
    rows = rows[(rows["metric"] == metric) & (rows["role"] != "control")] if len(rows) else rows
    rows = rows[rows["factor"].isin(factors)] if factors and len(rows) else rows
    name = "-".join(["comparison", *(factors or ["all"]), *([metric] if metric != "total" else [])])
    named = f" by {prose.listing(factor.replace('_', ' ') for factor in factors)}" if factors else ""
    return ratios.comparisons(name, f"Ratio of {words.METRICS[metric]}{named}", rows, results.facts, words)
