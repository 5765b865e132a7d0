"""Figures with one row per cell: values side by side, the parts that a time is made of, box plots of samples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.cbook import boxplot_stats

from scripts.report import prose
from scripts.report.curves import INTERVAL, INVALID, in_series, numbers
from scripts.report.declaration import Value
from scripts.report.plot import Bars, Figure, Look, Marks, Panel, round_ticks
from scripts.report.results import Results

PARTS = (("#D55E00", "//"), ("#E69F00", "xx"), ("#56B4E9", ""), ("#CC79A7", ".."))


def alone(run: Results, value: Value | None = None) -> Figure:
    """Return a value (default: the report's first) of the cells that no curve shows, with their invalid repeats."""
    cells = pd.concat([run.measured, run.invalid]) if len(run.invalid) else run.measured
    value = value or run.report.values[0]
    if len(cells) and run.report.scaling:
        cells = cells[~in_series(cells, run.report.scaling.factor, run)]
    cells = cells[cells.groupby([*run.report.places])["n"].transform("max") > 0] if len(cells) else cells
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

    `shown` is each value, what tells it from the others, and whether its marks are filled. Cells with n = 0 are drawn
    as invalid, each repeat as large as a median.
    """
    cells = run.measured if cells is None else cells
    if cells.empty or not any(value.column in run.records or cells[value.column].notna().any() for value, *_ in shown):
        return Figure(name, title, "", (), pd.DataFrame())
    own, panels = run.report.headline, []
    for title_of, group, rows in _by_place(cells, run, [factor for factor in run.report.names if factor != own]):
        marks = []
        for number, arm in enumerate(run.arms):
            arm_cells = group[(group[own] == arm) & (group["n"] > 0)]
            aside = 0.2 - 0.4 * number / (len(run.arms) - 1) if len(run.arms) > 1 else 0.0
            for value, what, filled in shown if len(arm_cells) else ():
                label = ": ".join(filter(None, [run.names.subject(own, arm), what]))
                look = replace(Look.of(number), filled=filled)
                marks.append(_marks(label, look, arm_cells.assign(y=arm_cells["y"] + aside), value, run))
        invalid = group[group["n"] == 0]
        if len(invalid):
            marks.append(Marks("[INVALID]", INVALID, _samples(invalid, shown[0][0], run)))
        panels.append(_with_ticks(Panel(title_of, shown[0][0].label, marks=tuple(marks), rows=rows)))
    return Figure(name, title, caption, tuple(panels), numbers(run, cells, [value for value, *_ in shown]))


def parts(run: Results, name: str, title: str, shown: Mapping[str, str], axis: str, caption: str) -> Figure:
    """Return stacked bars: columns of the records, each the median over a cell's repeats, and what they are called."""
    if not set(shown) <= set(run.records):
        return Figure(name, title, "These data do not tell the parts of a time apart.", (), pd.DataFrame())
    medians = run.records[run.records["valid"]].groupby("cell", sort=False)[list(shown)].median()
    table = run.measured[["cell", *run.report.names]].join(medians, on="cell", how="inner")
    panels = []
    for title_of, group, rows in _by_place(table, run, run.report.names):
        ends = group[list(shown)].cumsum(axis=1)
        bars = []
        for (part, text), (colour, hatch) in zip(shown.items(), PARTS, strict=False):
            stretches = {"y": group["y"], "left": ends[part] - group[part], "right": ends[part]}
            bars.append(Bars(text, colour, pd.DataFrame(stretches), hatch))
        panels.append(Panel(title_of, axis, bars=tuple(bars), rows=rows))
    return Figure(name, title, caption, tuple(panels), table)


def boxes(run: Results, name: str, title: str, column: str, axis: str, caption: str) -> Figure:
    """Return box plots of a column of the samples, one panel per place and per level of what is given."""
    if column not in run.samples:
        return Figure(name, title, "There are no samples to draw.", (), pd.DataFrame())
    samples = run.samples[run.samples["cell"].isin(run.measured["cell"]) & run.samples["valid"]]
    if samples.empty:
        return Figure(name, title, "", (), pd.DataFrame())
    own, given = run.report.headline, [factor.name for factor in run.report.factors if factor.given]
    keys, panels, tables = [*run.report.places, *given], [], []
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
    points = points[["x", "x_low", "x_high", "y", "n"]]
    ends = table.melt(["y"], ["min", "max"], "note", "x").replace({"min": "smallest", "max": "largest"})
    return Bars(label, look.colour, bar, alpha=0.35), Marks(label, look, points, ends)


def _boxes(samples: pd.DataFrame, column: str, factors: list[str], run: Results) -> pd.DataFrame:
    """One row per combination of levels: its quartiles, and whiskers to the furthest within 1.5 times the box."""
    rows = []
    for levels in run.names.sorted_rows(samples, factors):
        times = samples.loc[(samples[factors] == list(levels)).all(axis=1), column]
        [box] = boxplot_stats(times)
        ends = {"count": len(times), "min": times.min(), "low": box["whislo"], "q1": box["q1"], "median": box["med"]}
        ends |= {"q3": box["q3"], "high": box["whishi"], "max": times.max()}
        rows.append(dict(zip(factors, levels, strict=True)) | ends)
    return pd.DataFrame(rows).assign(y=-np.arange(len(rows), dtype=float))


def _by_place(
    cells: pd.DataFrame, run: Results, factors: Iterable[str]
) -> Iterator[tuple[str, pd.DataFrame, tuple[str, ...]]]:
    """Yield each place's title, its cells with their `y`, and the names of its rows: levels of those of `factors`."""
    places = list(run.report.places)
    for levels, group in cells.groupby(places, sort=False):
        telling = run.telling(group, factors)
        rows = run.names.sorted_rows(group, telling)
        labels = tuple(run.names.row(dict(zip(telling, row, strict=True)), telling) for row in rows)
        y = [0.0 - rows.index(tuple(row)) for row in group[telling].to_numpy()]
        yield prose.capital(run.place(dict(zip(places, levels, strict=True)))), group.assign(y=y), labels


def _marks(label: str, look: Look, cells: pd.DataFrame, value: Value, run: Results) -> Marks:
    names = {value.column: "x", f"{value.column}_low": "x_low", f"{value.column}_high": "x_high"}
    points = cells.rename(columns=names).assign(y=cells["y"] + 0.04)[[*names.values(), "y", "n"]]
    # The samples lie a little below their median, whose bar would hide them.
    return Marks(label, look, points, _samples(cells.assign(y=cells["y"] - 0.1), value, run))


def _samples(cells: pd.DataFrame, value: Value, run: Results) -> pd.DataFrame:
    """Each valid repeat of some cells at the cells' `y`, and of cells without one each repeat."""
    records = run.records
    if records.empty or value.column not in records:
        return pd.DataFrame(columns=["x", "y", "note"])
    own = records[records["valid"] | records["cell"].isin(run.invalid["cell"])]
    own = own.merge(cells[["cell", "y"]], on="cell")
    return pd.DataFrame({"x": own[value.column], "y": own["y"], "note": "repeat " + own["repeat"].astype(str)})


def _with_ticks(panel: Panel) -> Panel:
    """Make an axis of more than a decade logarithmic, with round numbers; others begin at 0."""
    low, high = replace(panel, x_log=True).x_range()
    return replace(panel, x_log=True, x_ticks=round_ticks(low, high)) if high > 20 * low else panel
