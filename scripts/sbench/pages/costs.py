"""Compute what the reads of cells cost, in US dollars per 1,000 reads, and describe the prices."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from sbench.design import prices
from sbench.design.prices import Rates
from sbench.pages import prose, words
from sbench.pages.results import Results

READS = 1000


def compute_costs(run: Results, cells: pd.DataFrame) -> pd.Series:
    """Return the price of the requests of 1,000 reads of each cell, and of the bytes that leave the store's region.

    The result is in US dollars; NaN if the requests were not counted or have no listed price.
    """
    rates = find_rates(run)
    counts = _count_billed(cells)
    costs = [
        READS * rates[store].compute_usd(row) if store in rates else math.nan
        for store, row in zip(cells.get("store", [""] * len(cells)), counts.to_dict("records"), strict=True)
    ]
    return pd.Series(costs, cells.index, dtype=float)


def compute_machine_costs(run: Results, cells: pd.DataFrame) -> pd.Series:
    """Return the price of the machine during 1,000 reads of each cell in US dollars; NaN if it is unknown."""
    hourly = prices.find_hourly_price(run.facts.get("billed_machine"))
    return READS * cells["total_s"].astype(float) / 3600 * (hourly[0] if hourly else math.nan)


def describe_prices(run: Results) -> str:
    """Describe the prices behind the costs of a run's cells; an empty string if no cell has a cost."""
    costs = compute_costs(run, run.measured)
    if costs.isna().all():
        return ""
    used = dict.fromkeys(run.measured.loc[costs.notna(), "store"])
    rates = [rates for name, rates in find_rates(run).items() if name in used]
    return words.fill("prices of table", prices=format_prices(rates), file=prices.PRICES)


def format_prices(rates: Iterable[Rates]) -> str:
    """Describe prices by service and region, with their dates."""
    parts = [
        words.fill(
            "emulated prices" if one.is_emulated else "prices",
            title=one.title,
            dates=prose.format_list(one.dates),
            transfer=words.fill("prices of transfer") if one.usd.get("bytes") else "",
        )
        for one in rates
    ]
    return prose.format_list(dict.fromkeys(parts))


def find_rates(run: Results) -> dict[str, Rates]:
    """Return the list prices of the run's stores by name, without stores that have none."""
    specs, machine = run.facts.get("stores") or {}, run.facts.get("billed_machine")
    listed = {name: prices.find_rates(spec, machine) for name, spec in specs.items() if "kind" in (spec or {})}
    return {name: rates for name, rates in listed.items() if rates}


def _count_billed(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the numbers of requests by price and the bytes of each cell, with NaN for unknown ones."""
    delivered = pd.to_numeric(cells.get("bytes_delivered", pd.Series(np.nan, cells.index)), errors="coerce")
    offered = pd.to_numeric(cells.get("bytes_offered", pd.Series(np.nan, cells.index)), errors="coerce")
    counts = cells.reindex(columns=list(prices.BILLED)).apply(pd.to_numeric, errors="coerce")
    return counts.assign(bytes=delivered.fillna(offered))
