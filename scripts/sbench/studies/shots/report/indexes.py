"""Describe after how many reads an index pays off, for drivers that need an index."""

import math

import pandas as pd

from sbench.pages import prose
from sbench.pages.results import Results
from sbench.studies.shots.report import words


def describe_costs(run: Results) -> list[str]:
    """Write a sentence for each cell (configuration) with an index on its cost, and after how many reads it pays off.

    The index is compared with the cell that has the shortest median runtime among cells without an index for the same
    data and task.
    """
    cells = run.measured
    if "index_s" not in cells or (indexed := cells[cells["index_s"] > 0]).empty:
        return []
    others = ("driver", "page_buffer", "read_cache", "chunk_cache", "library")
    alike = [name for name in run.report.names if name not in others]
    counts = {one["cell"]: one["index"] for one in run.facts.get("indexes") or []}
    names = [
        name
        for name in run.report.names
        if name == "driver" or name in run.select_telling_factors(cells, run.report.names)
    ]
    lines = []
    for cell in indexed.to_dict("records"):
        requests = _format_requests(counts.get(cell["cell"]) or {})
        fields = {"seconds": prose.format_number(cell["index_s"]), "requests": requests}
        pays = _describe_payoff(cell, cells[cells["index_s"].isna()], alike, run)
        lines.append(words.fill("index", who=run.names.format_row(cell, names), **fields, pays=pays))
    return lines


def _format_requests(index: dict) -> str:
    requests = sum(method["count"] for method in (index.get("requests") or {}).values())
    return f" and {prose.format_count(requests, 'request')}" if requests else ""


def _describe_payoff(cell: dict, others: pd.DataFrame, alike: list[str], run: Results) -> str:
    plain = others[(others[alike] == [cell[name] for name in alike]).all(axis=1) & others["total_s"].notna()]
    if plain.empty:
        return ""
    best = plain.loc[plain["total_s"].idxmin()].to_dict()
    saved, driver = best["total_s"] - cell["total_s"], run.names.format_level("driver", best["driver"])
    if not saved > 0:
        return words.fill("index never pays", driver=driver)
    reads = prose.format_count(math.ceil(cell["index_s"] / saved), "read")
    return words.fill("index pays", reads=reads, driver=driver, saved=prose.format_number(saved))
