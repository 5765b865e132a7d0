"""Figures of one value against one numeric factor: every repeat, the estimate, its interval, what bounds it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from scripts.lib import sizes
from scripts.report import names, prose
from scripts.report.declaration import Value
from scripts.report.plot import GREY, SAME_Y, Figure, Look, Marks, Panel, beside, round_ticks
from scripts.report.results import Results

PANELS = 12  # that are drawn; all are in the numbers
ARMS = 8  # in a panel; more are told apart by panels of their own
TICKS = 6  # along the x axis of a panel that takes half the page
WIDE = 4  # ratio of largest to smallest from which on an axis is logarithmic
INVALID = Look(GREY, "x")
INTERVAL = "Small marks: each repeat; large mark and bar: their summary and its 95 % CI, from 6 repeats on."
Arm = tuple[str, Look, pd.DataFrame]


@dataclass(frozen=True)
class _Plot:
    """What all panels of a figure share: how variants of an arm look is the same in each."""

    run: Results
    factor: str
    value: Value
    varies: list[str]
    variants: list[tuple]


def against(run: Results, factor: str, value: Value | str = "") -> Figure:
    """Return a value (default: the report's first) against a numeric factor.

    Panels are told apart by the report's `panels` and by what else varies much, colours by the factor that the question
    is about. Arms with one level of the factor are left out where others have several.
    """
    value = run.report.value(value) if value and isinstance(value, str) else value or run.report.values[0]
    name = f"{value.column.replace('_', '-')}-by-{factor.replace('_', '-')}"
    title = f"{value.title} by {run.report.factor(factor).title}"
    cells = _with(run.measured, value)
    cells = several(cells, factor, run) if len(cells) else cells
    if cells.empty:
        return Figure(name, title, "", (), pd.DataFrame())
    plot, groups = _plot(cells, factor, value, run)
    panels = tuple(_panel(levels, group, plot) for levels, group in groups[:PANELS])
    more = f" The first {PANELS} of {len(groups)} panels are drawn; all are in the numbers."
    bound = f" Dotted, or stars: {value.bound_name}." if _bounded(cells, value).any() else ""
    interval = "" if run.records.empty else f" {INTERVAL}"
    caption = f"{value.means}{bound}{interval}{more if len(groups) > PANELS else ''}"
    return Figure(name, title, caption, panels, numbers(run, cells, [value], run.invalid["cell"]), 2)


def several(cells: pd.DataFrame, factor: str, run: Results) -> pd.DataFrame:
    """Return the cells whose arm was measured at several levels of a factor.

    Of the factor along which arms are compared all are returned where none has several levels.
    """
    many = in_series(cells, factor, run)
    return cells if factor == run.report.along and not many.any() else cells[many]


def in_series(cells: pd.DataFrame, factor: str, run: Results) -> pd.Series:
    """Return which cells are of an arm that was measured at several levels of a factor."""
    others = [name for name in run.report.names if name != factor]
    return cells.groupby(others, sort=False)[factor].transform("nunique") > 1


def speedup(run: Results) -> Figure:
    """Return the performance ratio base / this one: all arms against one base, then each against its own."""
    if not run.report.scaling:
        return Figure("performance-ratio", "Performance ratio", "", (), pd.DataFrame())
    factor, value = run.report.scaling.factor, run.report.values[0]
    name, title = "performance-ratio", f"Performance ratio against {factor}"
    cells = _with(run.measured, value)
    cells = cells[in_series(cells, factor, run)] if len(cells) else cells
    if cells.empty:
        return Figure(name, title, "", (), pd.DataFrame())
    plot, groups = _plot(cells, factor, value, run)
    panels, tables = [], []
    for levels, group in groups[: PANELS // 2]:
        drawn = _arms(group, plot)
        fewest = min(float(arm["x"].iloc[0]) for *_, arm in drawn)
        named, common = next((label, arm.iloc[0]) for label, _, arm in drawn if float(arm["x"].iloc[0]) == fewest)
        for one in (True, False) if len(drawn) > 1 else (True,):
            bases = [common if one else arm.iloc[0] for *_, arm in drawn]
            marks = [_ratio_marks(arm, base, plot) for arm, base in zip(drawn, bases, strict=True)]
            labels = [named] if one else [label for label, *_ in drawn]
            named_bases = "; ".join(_base(label, base, plot) for label, base in zip(labels, bases, strict=False))
            against_what = "one base" if one else "own base"
            heading = f"{_title(levels, plot)}. {prose.capital(against_what)}: {named_bases}"
            axis = f"Performance ratio, {against_what}"
            panels.append(_axes(heading, axis, marks, group[factor].map(names.amount), plot, rules=(SAME_Y,)))
            tables += [
                _ratio_numbers(arm, base, mark, run).assign(against=against_what)
                for (*_, arm), base, mark in zip(drawn, bases, marks, strict=True)
            ]
    caption = (
        f"Performance ratio = median {run.report.metrics[0].title} of the base / that of this one; above 1 is faster "
        "than the base. Left: all arms against one base; right: each arm against its own smallest level. Bars: 95 % "
        "CI of the arm's median; the base's own uncertainty is not in them."
    )
    return Figure(name, title, caption, tuple(panels), pd.concat(tables), 2)


def _with(cells: pd.DataFrame, value: Value) -> pd.DataFrame:
    """The cells that have the value, and of which it says something."""
    cells = cells[cells[value.column].notna()]
    return cells[[value.applies(cell) for cell in cells.to_dict("records")]]


def _plot(
    cells: pd.DataFrame, factor: str, value: Value, run: Results
) -> tuple[_Plot, list[tuple[dict, pd.DataFrame]]]:
    """What all panels share, and each panel's levels and cells; where arms are many, panels are told apart by more."""
    report = run.report
    keys = [name for name in report.panels if name != factor]
    for more in reversed(report.names):
        arms = [name for name in report.names if name not in (*keys, factor)]
        if cells.groupby(keys)[arms].apply(lambda group: len(group.drop_duplicates())).max() <= ARMS:
            break
        if more not in (*keys, factor, report.headline):
            keys.append(more)
    varies = run.varying(cells, [name for name in report.names if name not in (*keys, factor, report.headline)])
    variants = run.names.sorted_rows(cells, varies) if varies else [()]
    groups = [(dict(zip(keys, levels, strict=True)), group) for levels, group in cells.groupby(keys, sort=False)]
    groups.sort(key=lambda group: [run.names.order(*level) for level in group[0].items()])
    return _Plot(run, factor, value, varies, variants), groups


def _panel(levels: dict, cells: pd.DataFrame, plot: _Plot) -> Panel:
    factor, value = plot.factor, plot.value
    marks = [
        Marks(label, look, _points(arm, value), _samples(arm["cell"], plot), joined=True)
        for label, look, arm in _arms(cells, plot)
    ]
    invalid = _invalid(levels, plot)
    marks += [Marks("[INVALID]", INVALID, invalid)] if len(invalid) else []
    places = pd.concat([cells[factor].map(names.amount), invalid["x"]])
    rules = (SAME_Y,) if value.ratio else ()
    return _axes(_title(levels, plot), value.label, marks, places, plot, _bounds(cells, plot), rules)


def _axes(
    title: str,
    label: str,
    marks: Sequence[Marks],
    levels: pd.Series,
    plot: _Plot,
    bounds: Sequence[Marks] = (),
    rules: tuple = (),
) -> Panel:
    places = np.unique(levels.astype(float))
    wide = bool(len(places) == 1 or places[-1] >= WIDE * places[0])
    ticks = _ticks(places)
    declared = plot.run.report.factor(plot.factor)
    panel = Panel(
        title=title,
        x_label=declared.axis or prose.capital(declared.title),
        y_label=label,
        marks=(*beside(marks, places, wide), *bounds),
        x_log=wide,
        x_ticks=tuple(ticks),
        x_tick_texts=tuple(sizes.text(tick) if declared.size else f"{tick:g}" for tick in ticks),
        rules=rules,
    )
    low, high = replace(panel, y_log=True).y_range()
    if high < 2 * WIDE * low and not plot.value.ratio:
        return panel
    return replace(panel, y_log=True, y_ticks=round_ticks(low, high))


def _title(levels: dict, plot: _Plot) -> str:
    """What tells a panel from the others: where bytes came from, then the levels that vary where they are."""
    run = plot.run
    place, cells = run.place(levels), run.cells[run.cells["control"] == ""]
    parts = [prose.capital(place)] if place else []
    for name, level in levels.items():
        if name not in run.report.places and level and (not parts or cells[name].nunique() > 1):
            parts.append(run.names.level(name, level))
        cells = cells[cells[name] == level]
    return " · ".join(filter(None, parts))


def _arms(cells: pd.DataFrame, plot: _Plot) -> list[Arm]:
    """(label, look, cells) of each arm: the question's factor decides the colour, what else varies the dash."""
    run, own = plot.run, plot.run.report.headline
    arms = []
    for number, level in enumerate(run.arms):
        for style, levels in enumerate(plot.variants):
            arm = cells[(cells[own] == level) & (cells[plot.varies] == list(levels)).all(axis=1)]
            if len(arm):
                named = {own: level, **dict(zip(plot.varies, levels, strict=True))}
                look = Look.of(number, style)
                if len(plot.variants) == 1 and not plot.value.bound:
                    # One line per arm: it has a dash of its own, beside colour and marker; bounds are dotted.
                    look = replace(Look.of(number, number), filled=True)
                arm = arm.assign(x=arm[plot.factor].map(names.amount)).sort_values("x")
                arms.append((run.names.row(named, named), look, arm))
    return arms


def _points(arm: pd.DataFrame, value: Value) -> pd.DataFrame:
    columns = {value.column: "y", f"{value.column}_low": "y_low", f"{value.column}_high": "y_high"}
    return arm.rename(columns=columns)[["x", *columns.values(), "n"]]


def _samples(cells: pd.Series, plot: _Plot, valid: bool = True) -> pd.DataFrame:
    """Each repeat of some cells, the valid ones or all."""
    records, column = plot.run.records, plot.value.column
    if records.empty or column not in records:
        return pd.DataFrame(columns=["x", "y", "note", "cell"])
    own = records[records["cell"].isin(cells) & records[column].notna()]
    own = own[own["valid"]] if valid else own
    return pd.DataFrame(
        {
            "x": own[plot.factor].map(names.amount).astype(float),
            "y": own[column],
            "note": "repeat " + own["repeat"].astype(str),
            "cell": own["cell"],
        }
    )


def _invalid(levels: dict, plot: _Plot) -> pd.DataFrame:
    """Each repeat of the panel's cells that have no valid one: they have no summary."""
    cells = plot.run.invalid
    inside = cells[(cells[list(levels)] == list(levels.values())).all(axis=1)]
    return _samples(inside["cell"], plot, valid=False)


def _bounded(cells: pd.DataFrame, value: Value) -> pd.Series:
    if not value.bound:
        return pd.Series(False, index=cells.index)
    return cells[value.bound].notna() & np.array([value.bounded(cell) for cell in cells.to_dict("records")], bool)


def _bounds(cells: pd.DataFrame, plot: _Plot) -> list[Marks]:
    """The most that was possible of each arm, by the state of the cache, at each place of the panel."""
    own, marks = plot.run.report.headline, []
    shown = [own, *(["cache"] if "cache" in plot.varies else [])]
    for levels, group in cells[_bounded(cells, plot.value)].groupby(shown, sort=False):
        named = dict(zip(shown, levels, strict=True))
        most = group.assign(x=group[plot.factor].map(names.amount)).groupby("x")[plot.value.bound].max().reset_index()
        # One place alone makes no line.
        look = Look(Look.of(plot.run.arms.index(named[own])).colour, "" if len(most) > 1 else "star", "dotted")
        points = most.rename(columns={plot.value.bound: "y"}).assign(y_low=np.nan, y_high=np.nan, n=np.nan)
        marks.append(Marks(f"{plot.run.names.row(named, shown)}: ceiling", look, points, joined=True))
    return marks


def _ticks(places: np.ndarray) -> np.ndarray:
    """Places that are named: all, or every second and so on, the largest among them."""
    step = -(-len(places) // TICKS)
    return places[::-1][::step][::-1]


def numbers(run: Results, cells: pd.DataFrame, values: Sequence[Value], also: Iterable[str] = ()) -> pd.DataFrame:
    """Return what is drawn of some cells, their medians and each repeat; of the cells `also` each repeat alone."""
    columns = ["cell", *run.report.names, "repeat"]
    shown = [name for value in values for name in (value.column, value.bound) if name]
    ends = [f"{value.column}{end}" for value in values for end in ("", "_low", "_high")]
    ends += [value.bound for value in values if value.bound]
    medians = cells.assign(repeat="")[[*columns, "n", *ends]]
    if run.records.empty:
        return medians
    single = run.records[run.records["cell"].isin([*cells["cell"], *also])]
    return pd.concat([medians, single[[*columns, "valid", *(name for name in shown if name in single)]]])


def _ratio_marks(arm: Arm, base: pd.Series, plot: _Plot) -> Marks:
    label, look, cells = arm
    points, samples, seconds = _points(cells, plot.value), _samples(cells["cell"], plot), base[plot.value.column]
    turned = {"y": seconds / points["y"], "y_low": seconds / points["y_high"], "y_high": seconds / points["y_low"]}
    return Marks(label, look, points.assign(**turned), samples.assign(y=seconds / samples["y"]), joined=True)


def _base(label: str, base: pd.Series, plot: _Plot) -> str:
    level = plot.run.names.level(plot.factor, base[plot.factor])
    return f"{label}, {level}, {prose.number(base[plot.value.column])} {plot.value.unit}"


def _ratio_numbers(arm: pd.DataFrame, base: pd.Series, marks: Marks, run: Results) -> pd.DataFrame:
    columns = {"y": "performance_ratio", "y_low": "performance_ratio_low", "y_high": "performance_ratio_high"}
    factors = list(run.report.names)
    medians = arm[[*factors, "n"]].assign(repeat="", **{new: marks.points[old] for old, new in columns.items()})
    single = marks.samples.join(arm.set_index("cell")[factors], on="cell").rename(columns=columns)
    single = single.assign(repeat=single["note"])[[*factors, "repeat", "performance_ratio"]]
    return pd.concat([medians, single]).assign(base_cell=base["cell"], base_total_s=base["total_s"])
