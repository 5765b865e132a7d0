"""Figures with one row per cell: values side by side, the parts that a time is made of, box plots of samples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from scripts.report import prose
from scripts.report.curves import INTERVAL, INVALID, in_series, numbers
from scripts.report.declaration import Value
from scripts.report.plot import Bars, Figure, Look, Marks, Panel, round_ticks
from scripts.report.results import Results

# Rows that a panel bears before it is thinned to the smallest and the largest level of the factor that scales.
MANY_ROWS = 40
THINNED = " Of more than two levels of {} only the smallest and the largest are drawn; all are in the numbers."
PARTS = (("#D55E00", "//"), ("#E69F00", "xx"), ("#56B4E9", ""), ("#CC79A7", ".."))


def alone(run: Results, value: Value | None = None) -> Figure:
    """Return a value (default: the report's first) of the cells that no curve shows, with their invalid repeats."""
    cells = pd.concat([run.measured, run.invalid]) if len(run.invalid) else run.measured
    value = value or run.report.values[0]
    if len(cells) and run.report.scaling:
        cells = cells[~in_series(cells, run.report.scaling.factor, run)]
    cells = cells[cells.groupby(_places(run))["n"].transform("max") > 0] if len(cells) else cells
    name = value.column.removesuffix("_s")
    return values(run, name, value.title, [(value, "", True)], f"{value.means} {INTERVAL}", cells)


def values(
    run: Results,
    name: str,
    title: str,
    shown: Sequence[tuple[Value, str, bool]],
    caption: str,
    cells: pd.DataFrame | None = None,
) -> Figure:
    """Return values of cells (default: the measured ones) in rows, one panel per place.

    Args:
        run: what the page is about.
        name: the stem of the figure's files.
        title: the figure's.
        shown: each value, what tells it from the others, and whether its marks are filled.
        caption: what the figure shows.
        cells: those with n = 0 are drawn as invalid, each repeat as large as a median.
    """
    cells, thinned = _thin(run.measured if cells is None else cells, run)
    if cells.empty or not any(value.column in run.records or cells[value.column].notna().any() for value, *_ in shown):
        return Figure(name, title, "", (), pd.DataFrame())
    own, panels = run.report.headline, []
    for levels, group in _by_place(cells, run):
        factors = run.telling(group, [factor for factor in run.report.names if factor != own])
        rows = run.names.sorted_rows(group, factors) if factors else [()]
        marks = []
        for number, arm in enumerate(run.arms):
            arm_cells = group[(group[own] == arm) & (group["n"] > 0)]
            y = _y(arm_cells, rows, factors, _aside(number, len(run.arms)))
            for value, what, filled in shown:
                look = replace(Look.of(number), filled=filled)
                label = ": ".join(filter(None, [run.names.subject(own, arm), what]))
                marks += [_marks(label, look, arm_cells, y, value, run)] if len(arm_cells) else []
        invalid = group[group["n"] == 0]
        if len(invalid):
            y = _y(invalid, rows, factors, 0.0)
            marks.append(Marks("[INVALID]", INVALID, _samples(invalid, y, shown[0][0], run, 0.0)))
        labels = tuple(run.names.row(dict(zip(factors, row, strict=True)), factors) for row in rows)
        label = shown[0][0].label
        panels.append(_with_ticks(Panel(prose.capital(run.place(levels)), label, marks=tuple(marks), rows=labels)))
    caption += THINNED.format(run.report.scaling.factor) if thinned else ""
    return Figure(name, title, caption, tuple(panels), numbers(run, cells, [value for value, *_ in shown]))


def parts(run: Results, name: str, title: str, shown: Mapping[str, str], axis: str, caption: str) -> Figure:
    """Return stacked bars: columns of the records, each the median over a cell's repeats, and what they are called."""
    if not set(shown) <= set(run.records):
        return Figure(name, title, "These data do not tell the parts of a time apart.", (), pd.DataFrame())
    medians = run.records[run.records["valid"]].groupby("cell", sort=False)[list(shown)].median()
    table = run.measured[["cell", *run.report.names]].join(medians, on="cell", how="inner")
    cells, thinned = _thin(table, run)
    panels = []
    for levels, group in _by_place(cells, run):
        factors = run.telling(group, run.report.names)
        rows = run.names.sorted_rows(group, factors) if factors else [()]
        y = list(_y(group, rows, factors, 0.0).values())
        ends = group[list(shown)].cumsum(axis=1)
        bars = tuple(
            Bars(text, colour, pd.DataFrame({"y": y, "left": ends[part] - group[part], "right": ends[part]}), hatch)
            for (part, text), (colour, hatch) in zip(shown.items(), PARTS, strict=False)
        )
        labels = tuple(run.names.row(dict(zip(factors, row, strict=True)), factors) for row in rows)
        panels.append(Panel(title=prose.capital(run.place(levels)), x_label=axis, bars=bars, rows=labels))
    caption += THINNED.format(run.report.scaling.factor) if thinned else ""
    return Figure(name, title, caption, tuple(panels), table)


def boxes(run: Results, name: str, title: str, column: str, axis: str, caption: str) -> Figure:
    """Return box plots of a column of the samples, one panel per place and per level of what is given."""
    if column not in run.samples:
        return Figure(name, title, "There are no samples to draw.", (), pd.DataFrame())
    samples = run.samples[run.samples["cell"].isin(run.measured["cell"]) & run.samples["valid"]]
    if samples.empty:
        return Figure(name, title, "", (), pd.DataFrame())
    own, given = run.report.headline, [factor.name for factor in run.report.factors if factor.given]
    keys, panels, tables = [*_places(run), *given], [], []
    for levels, group in samples.groupby(keys, sort=False, observed=True):
        where = dict(zip(keys, levels, strict=True))
        factors = run.telling(group, [factor for factor in run.report.names if factor not in keys])
        table = _boxes(group, column, [*factors, *([] if own in factors else [own])], run)
        rows = tuple(run.names.row(row, factors) for row in table.to_dict("records"))
        drawn = [
            _box(run.names.subject(own, arm), Look.of(number), table[table[own] == arm])
            for number, arm in enumerate(run.arms)
            if (table[own] == arm).any()
        ]
        heading = [run.place(where), *(run.names.level(factor, where[factor]) for factor in given)]
        bars, marks = zip(*drawn, strict=True)
        panels.append(_with_ticks(Panel(prose.capital(" · ".join(filter(None, heading))), axis, "", marks, bars, rows)))
        tables.append(table.assign(**where).drop(columns="y"))
    return Figure(name, title, caption, tuple(panels), pd.concat(tables))


def _box(label: str, look: Look, table: pd.DataFrame) -> tuple[Bars, Marks]:
    """The middle half as a bar; the median with whiskers; the smallest and the largest as samples."""
    bar = table.rename(columns={"q1": "left", "q3": "right"})[["y", "left", "right"]]
    points = table.rename(columns={"median": "x", "low": "x_low", "high": "x_high", "count": "n"})
    ends = table.melt(["y"], ["min", "max"], "note", "x").replace({"min": "smallest", "max": "largest"})
    return Bars(label, look.colour, bar, alpha=0.35), Marks(
        label, look, points[["x", "x_low", "x_high", "y", "n"]], ends
    )


def _boxes(samples: pd.DataFrame, column: str, factors: list[str], run: Results) -> pd.DataFrame:
    rows = []
    for levels in run.names.sorted_rows(samples, factors):
        times = samples.loc[(samples[factors] == list(levels)).all(axis=1), column]
        q1, median, q3 = np.quantile(times, [0.25, 0.5, 0.75])
        inside = times[(times >= q1 - 1.5 * (q3 - q1)) & (times <= q3 + 1.5 * (q3 - q1))]
        ends = {"count": len(times), "min": times.min(), "low": inside.min(), "q1": q1, "median": median, "q3": q3}
        rows.append(dict(zip(factors, levels, strict=True)) | ends | {"high": inside.max(), "max": times.max()})
    return pd.DataFrame(rows).assign(y=-np.arange(len(rows), dtype=float))


def _places(run: Results) -> list[str]:
    return list(run.report.places)


def _by_place(cells: pd.DataFrame, run: Results) -> list[tuple[dict, pd.DataFrame]]:
    groups = cells.groupby(_places(run), sort=False)
    return [(dict(zip(_places(run), levels, strict=True)), group) for levels, group in groups]


def _y(cells: pd.DataFrame, rows: list[tuple], factors: list[str], aside: float) -> dict[str, float]:
    """Where each cell lies: in the row of its levels, a little aside."""
    levels = cells[factors].itertuples(index=False, name=None)
    return {cell: aside - rows.index(level) for cell, level in zip(cells["cell"], levels, strict=True)}


def _aside(arm: int, arms: int) -> float:
    return 0.2 - 0.4 * arm / (arms - 1) if arms > 1 else 0.0


def _marks(label: str, look: Look, cells: pd.DataFrame, y: dict, value: Value, run: Results) -> Marks:
    names = {value.column: "x", f"{value.column}_low": "x_low", f"{value.column}_high": "x_high"}
    points = cells.rename(columns=names).assign(y=cells["cell"].map(y) + 0.04)[[*names.values(), "y", "n"]]
    # The samples lie a little below their median, whose bar would hide them.
    return Marks(label, look, points, _samples(cells, y, value, run, -0.1))


def _samples(cells: pd.DataFrame, y: dict, value: Value, run: Results, below: float) -> pd.DataFrame:
    records = run.records
    if records.empty or value.column not in records:
        return pd.DataFrame(columns=["x", "y", "note"])
    own = records[records["cell"].isin(cells["cell"]) & (records["valid"] | records["cell"].isin(run.invalid["cell"]))]
    notes = "repeat " + own["repeat"].astype(str)
    return pd.DataFrame({"x": own[value.column], "y": own["cell"].map(y) + below, "note": notes})


def _thin(cells: pd.DataFrame, run: Results) -> tuple[pd.DataFrame, bool]:
    """Keep the smallest and the largest level of the factor that scales in a place whose rows are too many to read."""
    kept, thinned = [], False
    if not run.report.scaling:
        return cells, thinned
    for _, group in _by_place(cells, run):
        levels = pd.to_numeric(group[run.report.scaling.factor], errors="coerce")
        if len(group) > MANY_ROWS and levels.nunique() > 2:
            group, thinned = group[levels.isin([levels.min(), levels.max()])], True
        kept.append(group)
    return (pd.concat(kept) if kept else cells), thinned


def _with_ticks(panel: Panel) -> Panel:
    """Make an axis of more than a decade logarithmic, with round numbers; others begin at 0."""
    low, high = replace(panel, x_log=True).x_range()
    return replace(panel, x_log=True, x_ticks=round_ticks(low, high)) if high > 20 * low else panel
