"""Compare published rates with the limits of machines (config/facts/machines.yaml).

A rate above a limit cannot be true, and a plateau at a limit shows that the machine limits the rate (METHOD 20).
"""

import importlib
from pathlib import Path

import numpy as np
import pandas as pd

from sbench.court.timings import Timings, format_levels
from sbench.pages import prose
from sbench.probe.program import read_yaml

MACHINES = Path("config/facts/machines.yaml")
KEPT, BROKEN, UNTOLD = "kept", "broken", "not testable"
# All rates of a plateau are at least this fraction of its largest rate; a rate of at least this fraction of the ceiling
# counts as reaching it.
LEVEL, AT_CEILING = 0.9, 0.8
# Minimum number of consecutive levels in a plateau.
FEW = 3
# Conversion factors from the units of ceilings to the units of rates.
_UNITS = {"Mbit/s": 1e6 / 8 / 2**20, "IOPS": 1.0}
_OF_A_RUN = {"rate": "mean", "amount": "sum", "time": "max", "machine": "first"}


def read_machines(study: str) -> dict[str, dict]:
    """Return the limits of all machines as {machine: {ceiling: {value, unit, note}}}.

    Ceilings that the study's `published` module computes are included.
    """
    own = getattr(importlib.import_module(f"sbench.studies.{study}.published"), "compute_ceilings", dict)
    return read_yaml(MACHINES)["machines"] | own()


def compute_rates(data: Timings) -> pd.DataFrame:
    """Compute the rate of each cell as the median over its repeats (METHOD 16).

    Returns:
        DataFrame with one row per cell: the columns that identify the cell, `amount` and `time` if declared, `rate`,
        `ceiling` (NaN if unknown) and `bound` (name of the ceiling).
    """
    declared = {role: how for role, how in _OF_A_RUN.items() if role in data.spec}
    table = pd.DataFrame({role: data.group_by_cell(data.get_values(role)).agg(how) for role, how in declared.items()})
    if "amount" in table:
        table["rate"] = table["amount"] / table["time"]
    middles = {name: "first" if name == "machine" else "median" for name in table}
    table = table.groupby(level=data.cell_columns, sort=False).agg(middles)
    bounds = [_get_ceiling(data, machine) for machine in table.get("machine", pd.Series("", table.index))]
    table = table.assign(ceiling=[ceiling for ceiling, _ in bounds], bound=[name for _, name in bounds])
    return table.drop(columns="machine", errors="ignore").reset_index()


def _get_ceiling(data: Timings, machine: str) -> tuple[float, str]:
    """Return the ceiling for the rate of a cell, in the unit of rates, and the ceiling's name.

    If the table declares more than one machine, their ceilings are added up. The ceiling is NaN if it is unknown.
    """
    if not machine:
        return np.nan, "machine not named"
    facts, through = data.machines.get(machine, {}), data.spec["through"]
    name = next((name for name in through if name in facts), through[0])
    fact, machines = facts.get(name, {}), data.spec.get("machines", 1)
    words = f"{machine} {name.replace('_', ' ')}"
    if fact.get("value", "unknown") == "unknown":
        return np.nan, f"{words} ({fact['note']})" if "note" in fact else words
    return float(fact["value"]) * _UNITS[fact["unit"]] * machines, f"{machines} × {words}" if machines > 1 else words


def judge_plateaus(data: Timings) -> tuple[str, str]:
    """Find the plateaus at which rates stop growing. The rule is broken if a plateau reaches the machine's ceiling.

    Returns:
        The outcome, and a description of the plateaus and ceilings.
    """
    over, table = data.spec["over"], compute_rates(data).dropna(subset="rate").sort_values(data.spec["over"])
    of_series = table.groupby(data.series_columns or (lambda row: ""), sort=False)
    if not (of_series.size() >= FEW).any():
        return UNTOLD, f"each series has fewer than {FEW} levels of {over}"
    texts, at_ceiling = [], False
    for level, own in of_series:
        flat = _find_plateau(own)
        if len(flat):
            at_ceiling |= bool(flat["rate"].max() >= AT_CEILING * flat["ceiling"].iloc[0])
            span = prose.format_span(flat["rate"], "{:,.0f}".format)
            ends = prose.format_span(flat[over], "{:g}".format)
            named = f"{format_levels(level)}: " if data.series_columns else ""
            texts.append(f"{named}{span} {data.unit}{_format_gbit(flat['rate'].max(), data)} at {over} {ends}")
    unknown = _describe_unknown(table)
    outcome = BROKEN if at_ceiling else UNTOLD if texts and unknown else KEPT
    listed = f"rates level off: {'; '.join(texts)}" if texts else f"no series has a plateau of {FEW} levels"
    return outcome, listed + _describe_largest(table, data) + (unknown if texts else "")


def _find_plateau(series: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a series' last plateau, or no rows if there is none.

    A plateau is a run of at least `FEW` consecutive levels whose smallest rate is at least `LEVEL` × the largest.
    """
    rates = series["rate"].to_numpy()
    for end in range(len(rates), FEW - 1, -1):
        start, low, high = end - 1, rates[end - 1], rates[end - 1]
        while start and min(low, rates[start - 1]) >= LEVEL * max(high, rates[start - 1]):
            start -= 1
            low, high = min(low, rates[start]), max(high, rates[start])
        if end - start >= FEW:
            return series.iloc[start:end]
    return series.iloc[:0]


def judge_ceilings(data: Timings) -> tuple[str, str]:
    """Count the rates above the machine's ceiling, which are too fast to be true. Any such rate breaks the rule.

    Returns:
        The outcome, and a description of the rates and ceilings.
    """
    table = compute_rates(data)
    above = table[table["rate"] > table["ceiling"]]
    unknown, bounded = _describe_unknown(table), table["ceiling"].notna().sum()
    text = f"{len(above)} of {bounded} rates exceed the ceiling{_describe_largest(table, data)}" if bounded else ""
    return BROKEN if len(above) else UNTOLD if unknown else KEPT, (text + unknown).removeprefix("; ")


def _describe_largest(table: pd.DataFrame, data: Timings) -> str:
    largest = table.dropna(subset="ceiling").groupby("bound", sort=False)[["rate", "ceiling"]].max()
    return "".join(
        f"; {row.Index}: up to {_format_rate(row.rate, data)}, ceiling {_format_rate(row.ceiling, data)}"
        for row in largest.itertuples()
    )


def _describe_unknown(table: pd.DataFrame) -> str:
    names = dict.fromkeys(table.loc[table["ceiling"].isna(), "bound"])
    return f"; ceiling unknown: {', '.join(names)}" if names else ""


def _format_rate(value: float, data: Timings) -> str:
    return f"{value:,.0f} {data.unit}{_format_gbit(value, data)}"


def _format_gbit(value: float, data: Timings) -> str:
    """Format a rate in MiB/s as " (… Gbit/s)", the unit of network cards; for other units, return an empty string."""
    return f" ({value * 2**20 * 8 / 1e9:.1f} Gbit/s)" if data.unit == "MiB/s" else ""
