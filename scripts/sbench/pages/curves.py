"""Draw a value against a numeric factor: single repeats, estimates with confidence intervals, and upper bounds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from sbench.pages import names, prose, references, words
from sbench.pages.declaration import Factor, Value
from sbench.pages.plot import GREY, SAME_Y, Figure, Look, Marks, Panel, choose_round_ticks, move_marks_apart
from sbench.pages.results import Results
from sbench.probe import sizes

PANELS = 12  # panels to draw at most; the figure's table covers all of them
ARMS = 8  # per panel; additional arms are split into further panels
TICKS = 6  # on the x axis of a panel half a page wide
WIDE = 4  # ratio of largest to smallest value at which an axis becomes logarithmic
INVALID = Look(GREY, "x")
_BASE = ["base_cell", "base_level", "base_total_s"]
# Types: a panel's levels and cells; and an arm's label, look and sorted cells.
Group = tuple[dict, pd.DataFrame]
Arm = tuple[str, Look, pd.DataFrame]


@dataclass(frozen=True)
class _Plot:
    """Settings shared by all panels of a figure, so that a variant of an arm looks the same in each panel."""

    run: Results
    factor: str
    value: Value
    varies: list[str]
    variants: list[tuple]


def draw_curves(run: Results, factor: str, value: Value | None = None) -> Figure:
    """Draw a value against a numeric factor.

    The report's `panels` split the figure into panels; with many arms, further factors do. Colours distinguish the
    levels of the question's factor. Arms measured at a single level of the numeric factor are omitted.

    Args:
        run: results to draw.
        factor: factor on the x axis.
        value: value on the y axis; the report's first value by default.
    """
    value = value or run.report.values[0]
    name = f"{value.column.replace('_', '-')}-by-{factor.replace('_', '-')}"
    title = f"{value.title} by {run.report.get_factor(factor).title}"
    cells = run.measured[run.measured[value.column].notna()]
    many = is_in_series(cells, factor, run)
    # For the factor along which a contest is held, draw all arms if none was measured at several levels.
    cells = cells if run.report.contest and factor == run.report.along and not many.any() else cells[many]
    if cells.empty:
        return Figure(name, title, "", (), pd.DataFrame())
    plot, groups = _plan_panels(cells, factor, value, run)
    panels = tuple(_build_panel(levels, group, plot) for levels, group in groups[:PANELS])
    more = words.fill("first panels", drawn=PANELS, of=len(groups)) if len(groups) > PANELS else ""
    bounded = value.bound and cells[value.bound].notna().any()
    bound = words.fill("dotted bound", bound=value.bound_name) if bounded else ""
    interval = "" if run.records.empty else f" {words.fill('marks')}"
    published = [arm for _, group in groups for *_, arm in references.iter_arms(group, run, value, factor)]
    others = f" {words.fill('grey marks')}" if published else ""
    caption = f"{value.means}{bound}{interval}{others}{more}"
    return Figure(name, title, caption, panels, build_numbers(run, cells, [value], run.invalid["cell"], published), 2)


def is_in_series(cells: pd.DataFrame, factor: str, run: Results) -> pd.Series:
    """Return a mask of the cells whose arm was measured at several levels of a factor."""
    if cells.empty:
        return pd.Series(dtype=bool)
    others = [name for name in run.report.names if name != factor]
    return cells.groupby(others, sort=False)[factor].transform("nunique") > 1


def draw_speedup(run: Results) -> Figure:
    """Draw each arm's speedup over its smallest level of the scaling factor (time at that level / time)."""
    scaling = run.report.scaling
    if not scaling or run.measured.empty:
        return Figure("performance-ratio", "", "", (), pd.DataFrame())
    title = run.report.metrics[0].title
    means = words.fill("performance ratio", title=title)
    ratio = Value("performance_ratio", "Performance ratio", means=means, ratio=True)
    runs = [_compute_base_ratios(one, ratio.column) for one in (run, *run.references)]
    bases = pd.concat([one.cells.set_index("cell")[_BASE] for one in runs])
    figure = draw_curves(replace(runs[0], references=tuple(runs[1:])), scaling.factor, ratio)
    numbers = figure.numbers.join(bases, on="cell") if len(figure.numbers) else figure.numbers
    return replace(figure, name="performance-ratio", numbers=numbers)


def _compute_base_ratios(run: Results, ratio: str) -> Results:
    """Divide the time at an arm's smallest scaling level by each cell's and record's time, in a new column `ratio`."""
    factor, column = run.report.scaling.factor, run.report.values[0].column
    others = [name for name in run.report.names if name != factor]
    measured = run.measured[run.measured[column].notna()]
    measured = measured[is_in_series(measured, factor, run)]
    measured = measured.iloc[measured[factor].map(names.parse_amount).argsort(kind="stable")]
    bases = measured.drop_duplicates(others).set_index(others)[["cell", factor, column]]
    bases = measured.join(bases.set_axis(_BASE, axis=1), on=others).set_index("cell")[_BASE]
    cells, records = (table.join(bases, on="cell", how="inner") for table in (run.cells, run.records))
    for end, other in {"": "", "_low": "_high", "_high": "_low"}.items():
        cells[ratio + end] = cells["base_total_s"] / cells[column + other]
    if column in records:
        records[ratio] = records["base_total_s"] / records[column]
    return replace(run, cells=cells, records=records)


def _plan_panels(cells: pd.DataFrame, factor: str, value: Value, run: Results) -> tuple[_Plot, list[Group]]:
    """Return the shared settings and the cells of each panel.

    If a panel would contain more than `ARMS` arms, further factors split it.
    """
    report = run.report
    keys = [name for name in report.panels if name != factor]
    for more in reversed(report.names):
        arms = [name for name in report.names if name not in (*keys, factor)]
        if cells[[*keys, *arms]].drop_duplicates().groupby(keys).size().max() <= ARMS:
            break
        if more not in (*keys, factor, report.headline):
            keys.append(more)
    varies = run.select_varying_factors(
        cells, [name for name in report.names if name not in (*keys, factor, report.headline)]
    )
    groups = [(dict(zip(keys, levels, strict=True)), group) for levels, group in cells.groupby(keys, sort=False)]
    groups.sort(key=lambda group: [run.names.get_sort_key(*level) for level in group[0].items()])
    return _Plot(run, factor, value, varies, run.names.list_combinations(cells, varies)), groups


def _build_panel(levels: dict, cells: pd.DataFrame, plot: _Plot) -> Panel:
    value, arms, title = plot.value, _list_arms(cells, plot), _format_title(levels, plot)
    columns = {value.column: "y", f"{value.column}_low": "y_low", f"{value.column}_high": "y_high"}

    def build_marks(label: str, look: Look, arm: pd.DataFrame) -> Marks:
        points = arm.rename(columns=columns)[["x", *columns.values(), "n"]]
        return Marks(label, look, points, _select_samples(arm["cell"], plot), joined=True)

    marks = [build_marks(*arm) for arm in arms]
    published = [
        build_marks(label, look, _add_x_values(arm, plot))
        for label, look, arm in references.iter_arms(cells, plot.run, value, plot.factor)
    ]
    if "base_cell" in cells:
        title = f"{title}. Base: {'; '.join(f'{label}, {_format_base(arm.iloc[0], plot)}' for label, _, arm in arms)}"
    # Cells without a valid repeat lack a summary; draw each of their repeats.
    broken = plot.run.invalid
    broken = broken[(broken[list(levels)] == list(levels.values())).all(axis=1)]
    invalid = _select_samples(broken["cell"], plot)
    marks += [Marks("[INVALID]", INVALID, invalid)] if len(invalid) else []
    drawn = [invalid["x"], *(mark.points["x"] for mark in published)]
    places = np.unique(pd.concat([cells[plot.factor].map(names.parse_amount), *drawn]).astype(float))
    wide = bool(len(places) == 1 or places[-1] >= WIDE * places[0])
    # Label every position, or every n-th position counted from the largest.
    ticks = places[::-1][:: -(-len(places) // TICKS)][::-1]
    declared = plot.run.report.get_factor(plot.factor)
    panel = Panel(
        title=title,
        x_label=declared.axis or prose.capitalize_first(declared.title),
        y_label=value.label,
        marks=(*move_marks_apart(marks, places, wide), *published, *_build_bound_marks(cells, plot)),
        x_log=wide,
        x_ticks=tuple(ticks),
        x_tick_texts=tuple(_format_tick(tick, declared, plot) for tick in ticks),
        rules=(SAME_Y,) if value.ratio else (),
    )
    low, high = replace(panel, y_log=True).compute_y_range()
    if high < 2 * WIDE * low and not value.ratio:
        return panel
    return replace(panel, y_log=True, y_ticks=choose_round_ticks(low, high))


def _format_tick(tick: float, declared: Factor, plot: _Plot) -> str:
    if declared.size:
        return sizes.format_size(tick)
    return declared.known_as(f"{tick:.0f}", plot.run.facts) if declared.known_as else f"{tick:g}"


def _format_base(cell: pd.Series, plot: _Plot) -> str:
    level, unit = plot.run.names.format_level(plot.factor, cell["base_level"]), plot.run.report.values[0].unit
    return f"{level}, {prose.format_number(cell['base_total_s'])} {unit}"


def _format_title(levels: dict, plot: _Plot) -> str:
    """Write a panel's title: its storage location, then the levels that vary within that location."""
    run = plot.run
    place, cells = run.describe_place(levels), run.cells[run.cells["control"] == ""]
    parts = [prose.capitalize_first(place)] if place else []
    for name, level in levels.items():
        if name not in run.report.places and level and (not parts or cells[name].nunique() > 1):
            parts.append(run.names.format_level(name, level))
        cells = cells[cells[name] == level]
    return " · ".join(parts)


def _list_arms(cells: pd.DataFrame, plot: _Plot) -> list[Arm]:
    """List the arms of a panel.

    The colour depends on the question's factor, the line style on the other varying factors.
    """
    run, own = plot.run, plot.run.report.headline
    arms = []
    for number, level in enumerate(run.arms):
        for style, levels in enumerate(plot.variants):
            arm = cells[(cells[own] == level) & (cells[plot.varies] == list(levels)).all(axis=1)]
            if len(arm):
                named = {own: level, **dict(zip(plot.varies, levels, strict=True))}
                look = Look.from_arm(number, style)
                if len(plot.variants) == 1 and not plot.value.bound:
                    # With one line per arm, the line style also identifies the arm, except next to bounds, which are
                    # dotted.
                    look = replace(Look.from_arm(number, number), filled=True)
                arms.append((run.names.format_row(named, named), look, _add_x_values(arm, plot)))
    return arms


def _add_x_values(arm: pd.DataFrame, plot: _Plot) -> pd.DataFrame:
    return arm.assign(x=arm[plot.factor].map(names.parse_amount)).sort_values("x")


def _select_samples(cells: pd.Series, plot: _Plot) -> pd.DataFrame:
    records = plot.run.select_drawn(plot.value.column)
    records = records[records["cell"].isin(cells)]
    return records.assign(x=records[plot.factor].map(names.parse_amount).astype(float), y=records[plot.value.column])


def _build_bound_marks(cells: pd.DataFrame, plot: _Plot) -> list[Marks]:
    """Build a line of upper bounds for each arm and cache state, through the largest bound at each x position."""
    own, marks = plot.run.report.headline, []
    if not plot.value.bound:
        return []
    bounded = cells[cells[plot.value.bound].notna()]
    shown = [own, *(["cache"] if "cache" in plot.varies else [])]
    for levels, group in bounded.groupby(shown, sort=False):
        named = dict(zip(shown, levels, strict=True))
        most = (
            group.assign(x=group[plot.factor].map(names.parse_amount))
            .groupby("x")[plot.value.bound]
            .max()
            .reset_index()
        )
        # A single point cannot form a line; draw it as a marker.
        look = Look(Look.from_arm(plot.run.arms.index(named[own])).colour, "" if len(most) > 1 else "star", "dotted")
        points = most.rename(columns={plot.value.bound: "y"}).assign(y_low=np.nan, y_high=np.nan, n=np.nan)
        marks.append(
            Marks(f"{plot.run.names.format_row(named, shown)}: {plot.value.bound_name}", look, points, joined=True)
        )
    return marks


def build_numbers(
    run: Results,
    cells: pd.DataFrame,
    values: Sequence[Value],
    also: Iterable[str] = (),
    published: Sequence[pd.DataFrame] = (),
) -> pd.DataFrame:
    """Build the table of the numbers in a figure: medians and single repeats.

    Args:
        run: results.
        cells: cells with medians and repeats.
        values: values to include.
        also: names of further cells whose repeats are included.
        published: published cells to append.
    """
    columns = ["cell", *run.report.names, "repeat"]
    bounds = [value.bound for value in values if value.bound]
    ends = [f"{value.column}{end}" for value in values for end in ("", "_low", "_high")]
    medians = cells.assign(repeat="")[[*columns, "n", *ends, *bounds]]
    if published:
        others = pd.concat(published).drop_duplicates(["published", "cell"])
        medians = pd.concat([medians, others.reindex(columns=[*columns, "n", *ends, "published"])])
    if run.records.empty:
        return medians
    single = run.records[run.records["cell"].isin([*cells["cell"], *also])]
    shown = [name for value in values for name in (value.column, value.bound) if name in single]
    return pd.concat([medians, single[[*columns, "valid", *shown]]])
