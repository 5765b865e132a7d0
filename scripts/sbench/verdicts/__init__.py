"""Derive verdicts, such as "faster" or "same", from measured times.

The package depends only on numpy, scipy and pandas; only `changes` also needs ruptures. docs/verdicts.md describes its
public functions.
"""

import importlib

# Smallest number of blocks for a verdict: a two-sided sign-flip test has 2**5 distinct flips then, the fewest that can
# give p <= 0.05.
MIN_BLOCKS = 6
# Largest share of a measured time, in percent, that may be overhead of the benchmark for a verdict (METHOD 13).
HARNESS = 10
_PUBLIC = {
    **dict.fromkeys(("judge", "compare_sessions"), "api"),
    **dict.fromkeys(("percentiles", "bounded_percentiles", "Percentile"), "histograms"),
    **{"Outcome": "outcomes", "Verdict": "stats"},
}
__all__ = ["HARNESS", "MIN_BLOCKS", *_PUBLIC]


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that programs that need only the constants do not import numpy."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
