"""From how many reads on an index pays, which some drivers need before they read."""

import math

import pandas as pd

from scripts.report import prose
from scripts.report.results import Results


def costs(run: Results) -> list[str]:
    """Return a sentence for each cell with an index: what it costs to make, and from how many reads on that pays.

    It is held against the fastest cell of the same kind whose driver needs none, by the medians of their total runtime.
    """
    cells = run.measured
    if "index_s" not in cells or (indexed := cells[cells["index_s"] > 0]).empty:
        return []
    alike = [name for name in run.report.names if name not in ("driver", "page_buffer", "read_cache", "library")]
    counts = {one["cell"]: one["index"] for one in run.facts.get("indexes") or []}
    return [
        _sentence(cell, cells[cells["index_s"].isna()], alike, counts.get(cell["cell"]) or {}, run)
        for cell in indexed.to_dict("records")
    ]


def _sentence(cell: dict, others: pd.DataFrame, alike: list[str], counts: dict, run: Results) -> str:
    requests = sum(method["count"] for method in (counts.get("requests") or {}).values())
    counted = f" and {prose.count(requests, 'request')}" if requests else ""
    made = (
        f"{run.names.row(cell, run.report.names)}: the index takes {prose.number(cell['index_s'])} s{counted} to make"
    )
    plain = others[(others[alike] == [cell[name] for name in alike]).all(axis=1) & others["total_s"].notna()]
    if plain.empty:
        return f"{made}."
    best = plain.loc[plain["total_s"].idxmin()].to_dict()
    saved = best["total_s"] - cell["total_s"]
    than = f"{run.names.level('driver', best['driver'])}, the fastest without one"
    if not saved > 0:
        return f"{made}; its reads are no faster than those with {than}, so it never pays."
    reads = math.ceil(cell["index_s"] / saved)
    gain = f"{prose.number(saved)} s saved per read"
    return f"{made}; from {prose.count(reads, 'read')} on it pays, against {than} ({gain})."
