"""How values of the study are called where people read them."""

import pandas as pd

from scripts.report import prose
from scripts.studies.blobs.patterns import WHOLE

FACTORS = (
    *("store", "pattern", "size", "processes", "objects", "operation_size", "chunk_size", "concurrency", "cache"),
)
SIZES = ("size", "operation_size", "chunk_size")


def usual(cells: pd.DataFrame) -> dict[str, str]:
    """Return the level of each factor but store, pattern and size that most cells have: said once, not each time."""
    found = {}
    for factor in FACTORS[3:]:
        counts = cells[factor].value_counts()
        if len(counts) and 2 * counts.iloc[0] > len(cells):
            found[factor] = str(counts.index[0])
    return found


def worth(factor: str, value: str, usual_levels: dict[str, str]) -> bool:
    """Return whether a level has to be said."""
    return bool(value) and value != usual_levels.get(factor) and (factor, value) != ("cache", "any")


def pattern_of(row: pd.Series | dict) -> str:
    """Return a pattern, and whether each process has an object of its own where the pattern leaves that open."""
    return f"{row['pattern']}, own objects" if row.get("objects") == "own" else row["pattern"]


def whole(pattern: str) -> bool:
    """Return whether a pattern gives each process a whole object, not a section of one."""
    return pattern in WHOLE


def latency(records: pd.DataFrame) -> str:
    """Return what the latency of a record is."""
    told = "median of the iterations after the first"
    return f"{told} (of a single one, that one)" if (records["iterations"] == 1).any() else told


def rate(value: float) -> str:
    """Return a bandwidth in MiB/s as people read it: three digits, all before the point."""
    return f"{value:,.0f}" if value >= 100 else prose.number(value)


def interval(low: float, high: float, text=prose.number) -> str:
    """Return " [2.40, 2.42]" with a blank before it, or nothing where there is none."""
    return f" [{text(low)}, {text(high)}]" if pd.notna(low) and pd.notna(high) else ""
