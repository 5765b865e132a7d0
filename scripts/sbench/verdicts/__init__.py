"""From times to verdicts, on numpy, scipy and pandas alone: docs/verdicts.md has the public functions."""

import importlib

# Of one comparison, for a verdict: 2**5 distinct flips are the fewest that can give p <= 0.05.
MIN_BLOCKS = 6
# Percent of a cell's time that the harness may take, for a verdict (METHOD 13).
HARNESS = 10
_PUBLIC = {
    **dict.fromkeys(("judge", "compare_sessions"), "api"),
    **dict.fromkeys(("percentiles", "bounded_percentiles", "Percentile"), "histograms"),
    **{"Outcome": "outcomes", "Verdict": "stats"},
}
__all__ = ["HARNESS", "MIN_BLOCKS", *_PUBLIC]


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for: who needs the numbers above alone waits for no numpy."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
