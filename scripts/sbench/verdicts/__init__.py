"""Derive verdicts from times, on numpy, scipy and pandas alone: docs/verdicts.md has the public functions."""

import importlib

# Blocks of a comparison with a verdict: 2**5 distinct flips are the fewest that can give p <= 0.05.
MIN_BLOCKS = 6
# Most percent of a cell's time that the harness may take for a verdict (METHOD 13).
HARNESS = 10
_PUBLIC = {
    **dict.fromkeys(("judge", "compare_sessions"), "api"),
    **dict.fromkeys(("percentiles", "bounded_percentiles", "Percentile"), "histograms"),
    **{"Outcome": "outcomes", "Verdict": "stats"},
}
__all__ = ["HARNESS", "MIN_BLOCKS", *_PUBLIC]


def __getattr__(name: str) -> object:
    """Import a public name on first use: programs that need only the numbers above do not wait for numpy."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
