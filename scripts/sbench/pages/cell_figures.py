"""Draw figures with a row per cell (values, time components, box plots), and timelines of requests."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.cbook import boxplot_stats

from sbench.pages import prose, references, row_labels, words
from sbench.pages.curves import INVALID, build_numbers, is_in_series
from sbench.pages.declaration import Value
from sbench.pages.plot import Bars, Figure, Look, Marks, Panel, choose_round_ticks
from sbench.pages.results import Results
from sbench.verdicts.outcomes import ORDERED

MIB = 2**20
PARTS = (("#D55E00", "//"), ("#E69F00", "xx"), ("#56B4E9", ""), ("#CC79A7", ".."))


def draw_lone_cells(run: Results) -> Figure:
    """Draw the primary value of each cell that is not part of a curve; invalid repeats are included."""
    value, cells = run.report.values[0], pd.concat([run.measured, run.invalid])
    if len(cells) and run.report.scaling:
        cells = cells[~is_in_series(cells, run.report.scaling.factor, run)]
    cells = cells[cells.groupby(list(run.report.places))["n"].transform("max") > 0] if len(cells) else cells
    name = value.column.removesuffix("_s")
    return draw_values(run, name, value.title, [(value, "", True)], f"{value.means} {words.fill('marks')}", cells)


def draw_values(
    run: Results,
    name: str,
    title: str,
    shown: Sequence[tuple[Value, str, bool]],
    caption: str,
    cells: pd.DataFrame | None = None,
) -> Figure:
    """Draw values of cells, with a row per cell and a panel per storage location.

    Cells without a valid repeat (n = 0) are drawn as invalid, with each repeat as large as a median.

    Args:
        run: results to draw.
        name: name of the figure.
        title: title of the figure.
        shown: values to draw, each as (value, label that distinguishes it from the others, whether its markers are
            filled).
        caption: caption of the figure.
        cells: cells to draw; the measured cells by default.
    """
    cells = run.measured if cells is None else cells
    # Invalid cells have values in the records only.
    tables = [table for table in (run.records, cells) for value, *_ in shown if value.column in table]
    if cells.empty or not any(table[value.column].notna().any() for table in tables for value, *_ in shown):
        return Figure(name, title, "", (), pd.DataFrame())
    own, panels, published = run.report.headline, [], []
    for title_of, group, rows in _iter_places(cells, run, [factor for factor in run.report.names if factor != own]):
        marks = []
        for number, arm in enumerate(run.arms):
            arm_cells = group[(group[own] == arm) & (group["n"] > 0)]
            aside = 0.1 - 0.2 * number / (len(run.arms) - 1) if len(run.arms) > 1 else 0.0
            for value, what, filled in shown if len(arm_cells) else ():
                label = ": ".join(filter(None, [run.names.format_subject(own, arm), what]))
                look = replace(Look.from_arm(number), filled=filled)
                marks.append(_build_marks(label, look, arm_cells.assign(y=arm_cells["y"] + aside), value, run))
        invalid = group[group["n"] == 0]
        if len(invalid):
            marks.append(Marks("[INVALID]", INVALID, _select_samples(invalid, shown[0][0], run)))
        for (label, look), arm in _find_published(group, shown[0][0], run).items():
            marks.append(_build_marks(label, look, arm, shown[0][0], run))
            published.append(arm)
        panels.append(_add_ticks(Panel(title_of, shown[0][0].label, marks=tuple(marks), rows=rows)))
    caption += f" {words.fill('grey marks')}" if published else ""
    table = build_numbers(run, cells, [value for value, *_ in shown], published=published)
    return Figure(name, title, caption, tuple(panels), table)


def draw_time_parts(run: Results, name: str, title: str, shown: Mapping[str, str], axis: str, caption: str) -> Figure:
    """Draw the median of each time component over a cell's valid repeats, as a stacked bar per cell.

    Args:
        run: results to draw.
        name: name of the figure.
        title: title of the figure.
        shown: columns of the records, mapped to their labels.
        axis: label of the x axis.
        caption: caption of the figure.
    """
    if not set(shown) <= set(run.records):
        return Figure(name, title, "These data do not contain the parts of the times.", (), pd.DataFrame())
    medians = run.records[run.records["valid"]].groupby("cell", sort=False)[list(shown)].median()
    table = run.measured[["cell", *run.report.names]].join(medians, on="cell", how="inner")
    panels = []
    for title_of, group, rows in _iter_places(table, run, run.report.names):
        ends = group[list(shown)].cumsum(axis=1)
        bars = []
        for (part, text), (colour, hatch) in zip(shown.items(), PARTS, strict=False):
            stretches = {"y": group["y"], "left": ends[part] - group[part], "right": ends[part]}
            bars.append(Bars(text, colour, pd.DataFrame(stretches), hatch))
        panels.append(Panel(title_of, axis, bars=tuple(bars), rows=rows))
    return Figure(name, title, caption, tuple(panels), table)


def draw_boxes(run: Results, name: str, title: str, column: str, axis: str, caption: str) -> Figure:
    """Draw box plots of a column of the samples, with a panel for each storage location and kind of work."""
    if column not in run.samples:
        return Figure(name, title, "These data lack samples.", (), pd.DataFrame())
    samples = run.samples[run.samples["cell"].isin(run.measured["cell"]) & run.samples["valid"]]
    if samples.empty:
        return Figure(name, title, "", (), pd.DataFrame())
    own, given = run.report.headline, [factor.name for factor in run.report.factors if factor.given]
    keys, panels, tables = [*run.report.places, *given], [], []
    for levels, group in samples.groupby(keys, sort=False, observed=True):
        where = dict(zip(keys, levels, strict=True))
        factors = run.select_telling_factors(group, [factor for factor in run.report.names if factor not in keys])
        table = _compute_boxes(group, column, [*factors, *([] if own in factors else [own])], run)
        rows = tuple(run.names.format_row(row, factors) for row in table.to_dict("records"))
        drawn = [
            _build_box(run.names.format_subject(own, arm), Look.from_arm(number), table[table[own] == arm])
            for number, arm in enumerate(run.arms)
            if (table[own] == arm).any()
        ]
        # Omit a level in the panel title if all results had it before the factor was introduced.
        varied = [factor for factor in given if where[factor] != run.report.added.get(factor)]
        heading = [run.describe_place(where), *(run.names.format_level(factor, where[factor]) for factor in varied)]
        bars, marks = zip(*drawn, strict=True)
        panels.append(
            _add_ticks(Panel(prose.capitalize_first(" · ".join(filter(None, heading))), axis, "", marks, bars, rows))
        )
        tables.append(table.assign(**where).drop(columns="y"))
    return Figure(name, title, caption, tuple(panels), pd.concat(tables))


def _build_box(label: str, look: Look, table: pd.DataFrame) -> tuple[Bars, Marks]:
    """Build the box as a bar between the quartiles, and the markers for the median, whiskers and extremes."""
    bar = table.rename(columns={"q1": "left", "q3": "right"})[["y", "left", "right"]]
    points = table.rename(columns={"median": "x", "low": "x_low", "high": "x_high", "count": "n"})
    points = points[["x", "x_low", "x_high", "y", "n"]]
    ends = table.melt(["y"], ["min", "max"], "note", "x").replace({"min": "smallest", "max": "largest"})
    return Bars(label, look.colour, bar, alpha=0.35), Marks(label, look, points, ends)


def _compute_boxes(samples: pd.DataFrame, column: str, factors: list[str], run: Results) -> pd.DataFrame:
    """Compute the box plot statistics for each combination of levels.

    Whiskers extend to the furthest value within 1.5 interquartile ranges of the box.
    """
    rows, of = [], dict(list(samples.groupby(factors, sort=False)[column]))
    for levels in run.names.list_combinations(samples, factors):
        times = of[tuple(levels)]
        [box] = boxplot_stats(times)
        ends = {"count": len(times), "min": times.min(), "low": box["whislo"], "q1": box["q1"], "median": box["med"]}
        ends |= {"q3": box["q3"], "high": box["whishi"], "max": times.max()}
        rows.append(dict(zip(factors, levels, strict=True)) | ends)
    return pd.DataFrame(rows).assign(y=-np.arange(len(rows), dtype=float))


def _iter_places(
    cells: pd.DataFrame, run: Results, factors: Iterable[str]
) -> Iterator[tuple[str, pd.DataFrame, tuple[str, ...]]]:
    """Yield a panel for each storage location: its title, its cells with their row position `y`, and its row labels."""
    places = list(run.report.places)
    for levels, group in cells.groupby(places, sort=False):
        telling = run.select_telling_factors(group, factors)
        rows = run.names.list_combinations(group, telling)
        y = [0.0 - rows.index(tuple(row)) for row in group[telling].to_numpy()]
        named = [_get_shared_levels(group[np.array(y) == -place], telling, run) for place in range(len(rows))]
        names, noted = row_labels.format_row_labels(
            named, telling, run, lambda row, of=telling: run.names.format_row(row, of)
        )
        title = "; ".join(filter(None, [run.describe_place(dict(zip(places, levels, strict=True))), noted]))
        yield prose.capitalize_first(title), group.assign(y=y), tuple(names)


def _get_shared_levels(cells: pd.DataFrame, factors: Sequence[str], run: Results) -> dict:
    """Return the level of each factor for the cells of a row, or an empty string if the factor applies to none."""
    rows = cells.to_dict("records")
    return {name: rows[0][name] if any(run.names.has_meaning(name, row) for row in rows) else "" for name in factors}


def _build_marks(label: str, look: Look, cells: pd.DataFrame, value: Value, run: Results) -> Marks:
    names = {value.column: "x", f"{value.column}_low": "x_low", f"{value.column}_high": "x_high"}
    points = cells.rename(columns=names).assign(y=cells["y"] + 0.04)[[*names.values(), "y", "n"]]
    # Draw samples slightly below their median, whose error bar would hide them.
    return Marks(label, look, points, _select_samples(cells.assign(y=cells["y"] - 0.1), value, run))


def _find_published(cells: pd.DataFrame, value: Value, run: Results) -> dict[tuple[str, Look], pd.DataFrame]:
    """Return the published cells that match the rows of a panel, grouped by label and look.

    Their `y` positions are below those of the measured cells.
    """
    arms: dict[tuple[str, Look], list[pd.DataFrame]] = {}
    for y, own in cells[cells["n"] > 0].groupby("y"):
        for label, look, arm in references.iter_arms(own, run, value, rows=True):
            arms.setdefault((label, look), []).append(arm.assign(y=y - 0.15))
    return {key: pd.concat(parts) for key, parts in arms.items()}


def _select_samples(cells: pd.DataFrame, value: Value, run: Results) -> pd.DataFrame:
    records = run.select_drawn(value.column).merge(cells[["cell", "y"]], on="cell")
    return records.assign(x=records[value.column])[["x", "y", "note"]]


def _add_ticks(panel: Panel) -> Panel:
    """Make the x axis logarithmic with round ticks if its range exceeds a factor of 20."""
    low, high = replace(panel, x_log=True).compute_x_range()
    return replace(panel, x_log=True, x_ticks=choose_round_ticks(low, high)) if high > 20 * low else panel


def draw_waterfall(run: Results, pair: Mapping | None = None) -> Figure:
    """Draw the requests of a comparison's two arms over time.

    The figure has no panels if the requests were not recorded.

    Args:
        run: results to draw.
        pair: row of `get_comparisons`; by default, the comparison with the highest rank.
    """
    rows = run.get_comparisons() if pair is None else pd.DataFrame([pair]).assign(verdict="", ratio=1.0)
    recorded = set(run.requests.get("cell", ()))
    rows = rows[rows["baseline_cell"].isin(recorded) & rows["contender_cell"].isin(recorded)] if len(rows) else rows
    name, title = "requests-in-time", "Timeline of requests"
    if rows.empty:
        counted = "requests" in run.cells and run.cells["requests"].notna().any()
        return Figure(name, title, "not recorded." if counted else "", (), pd.DataFrame())
    # Prefer the question's factor, then decided comparisons, then the largest effect.
    ranks = rows.assign(
        decided=rows["verdict"].isin(ORDERED),
        own=rows["factor"] == run.report.headline,
        effect=np.abs(np.log(rows["ratio"].astype(float))),
    )
    pair = ranks.sort_values(["own", "decided", "effect"], ascending=False, kind="stable").iloc[0]
    sides = run.names.format_pair(pair, run.names.format_level)
    arms = [run.requests[run.requests["cell"] == pair[f"{side}_cell"]] for side in ("contender", "baseline")]
    end = max(float(arm["end_s"].max()) for arm in arms)
    # If both arms read the same files, draw equal offsets at equal heights.
    alike = len({frozenset(arm["object"]) for arm in arms}) == 1
    panels = tuple(
        _build_request_panel(
            f"{side}: {_describe_requests(arm)}", arm, _compute_object_places(pd.concat(arms) if alike else arm), end
        )
        for side, arm in zip(sides, arms, strict=True)
    )
    where = ", ".join(filter(None, [run.names.format_place(pair), _format_shared_levels(pair, run)]))
    caption = (
        f"{prose.capitalize_first(where)}. Each line is a request: its byte range, from the time of the request to the "
        f"last byte received. Files are stacked. Repeat {int(arms[0]['repeat'].iloc[0])}."
    )
    return Figure(name, title, caption, panels, pd.concat(arms), columns=2)


def _build_request_panel(title: str, arm: pd.DataFrame, places: dict[str, tuple[int, int]], end: float) -> Panel:
    height = max((base + size for base, size in places.values()), default=1) / MIB
    return Panel(
        title=title,
        x_label="Time since the window opened / s",
        y_label="Position in the files / MiB",
        marks=(Marks("", Look("#0072B2", ""), _build_request_lines(arm, places), joined=True),),
        x_ends=(0.0, end * 1.02),
        y_ends=(-0.03 * height, height * 1.03),
    )


def _format_shared_levels(pair: pd.Series, run: Results) -> str:
    inside = [name for name in run.report.names if name not in run.report.places and name != pair["factor"]]
    return run.names.format_levels(pair, run.select_varying_factors(run.get_comparisons(), inside))


def _compute_object_places(rows: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Return the start and size of each object, in bytes, when all objects are stacked.

    An object's size is the end of the last byte range requested from it.
    """
    sizes = (rows["offset_bytes"] + rows["bytes"]).groupby(rows["object"]).max().dropna().astype(int)
    starts = sizes.cumsum() - sizes
    return {name: (int(starts[name]), int(size)) for name, size in sizes.items()}


def _build_request_lines(rows: pd.DataFrame, places: dict[str, tuple[int, int]]) -> pd.DataFrame:
    """Build the points of a line per request with a byte range, separated by gaps (NaN)."""
    rows = rows[rows["offset_bytes"].notna()].sort_values("begin_s")
    low = (rows["object"].map({name: base for name, (base, _) in places.items()}) + rows["offset_bytes"]) / MIB
    ends = {"x": (rows["begin_s"], rows["end_s"]), "y": (low, low + rows["bytes"] / MIB)}
    gap = np.full(len(rows), np.nan)
    return pd.DataFrame(
        {axis: np.column_stack([*(np.asarray(end, float) for end in two), gap]).ravel() for axis, two in ends.items()}
    )


def _describe_requests(rows: pd.DataFrame) -> str:
    fewest, once = count_fewest_requests(rows)
    total = int(select_delivered(rows)["bytes"].sum())
    again = f", {prose.format_number((total - once) / MIB)} MiB of it again" if total - once > 0.01 * total else ""
    count = prose.format_count(len(rows), "request")
    return f"{count} for {prose.format_number(total / MIB)} MiB{again}; {fewest} would have brought it"


def select_delivered(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the requests whose responses delivered part of a byte range, sorted by object and offset."""
    return rows[(rows["bytes"] > 0) & rows["offset_bytes"].notna()].sort_values(["object", "offset_bytes"])


def count_fewest_requests(rows: pd.DataFrame) -> tuple[int, int]:
    """Return the least number of requests that would fetch each delivered byte once, and the number of bytes."""
    rows = select_delivered(rows)
    stretches = total = 0
    for _, own in rows.groupby("object", sort=False):
        ends = (own["offset_bytes"] + own["bytes"]).cummax()
        before = ends.shift(fill_value=-1)
        stretches += int((own["offset_bytes"] > before).sum())
        total += int((ends - own["offset_bytes"].where(own["offset_bytes"] > before, before)).clip(lower=0).sum())
    return stretches, total
