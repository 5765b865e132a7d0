"""Draw a value over two numeric factors as a heat map: a tile per pair of levels, darker for higher values."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from sbench.pages import curves, names, prose
from sbench.pages.declaration import Value
from sbench.pages.plot import Bars, Figure, Note, Panel
from sbench.pages.results import Results

HALF, HIGH = 0.46, 0.31  # half a tile's width and height, relative to the spacing of tiles
ROW = 46  # height of a row in pixels
DARK = (0, 74, 128)
PALE_BELOW = 0.55  # fraction of the range of values; tiles above it have white text


def draw_tiles(run: Results, across: str, up: str, value: Value | None = None) -> Figure:
    """Draw a value over two factors, with a panel for each arm measured at several levels of both.

    Pairs of levels that were not measured remain empty.

    Args:
        run: results to draw.
        across: factor on the x axis.
        up: factor on the y axis.
        value: value to draw; the report's first value by default.
    """
    value = value or run.report.values[0]
    name, factors = f"{value.column.replace('_', '-')}-over-{across}-{up}", [across, up]
    title = f"{value.title} over {run.report.get_factor(across).title} and {run.report.get_factor(up).title}"
    cells = run.measured[run.measured[value.column].notna()]
    others = [factor for factor in run.report.names if factor not in factors]
    groups = [
        group for _, group in cells.groupby(others, sort=False) if all(group[one].nunique() > 1 for one in factors)
    ]
    if not groups:
        return Figure(name, title, "", (), pd.DataFrame())
    drawn = pd.concat(groups)
    tells = run.select_telling_factors(drawn, others) or [run.report.headline]
    titles = [
        f"{prose.capitalize_first(run.names.format_row(group.iloc[0], tells))}: {value.label}" for group in groups
    ]
    panels = tuple(_build_panel(*one, across, up, value, run) for one in zip(groups, titles, strict=True))
    caption = f"{value.means} Each tile has the summary of a cell; the darkest is the highest of its panel."
    return Figure(name, title, caption, panels, curves.build_numbers(run, drawn, [value]), 2)


def _build_panel(cells: pd.DataFrame, title: str, across: str, up: str, value: Value, run: Results) -> Panel:
    labels = [
        run.report.get_factor(name).axis or prose.capitalize_first(run.report.get_factor(name).title)
        for name in (across, up)
    ]
    ordered = cells.sort_values([across, up], key=lambda levels: levels.map(names.parse_amount))
    values = {(cell[across], cell[up]): cell[value.column] for cell in ordered.to_dict("records")}
    return build_panel(title, values, labels, names.format_rate)


def build_panel(
    title: str, values: Mapping[tuple[str, str], float], labels: Sequence[str], format_value: Callable[[float], str]
) -> Panel:
    """Build a panel with a tile per pair of levels.

    Args:
        title: title of the panel.
        values: (level on the x axis, level on the y axis) -> value; levels are drawn in this order.
        labels: labels of both axes.
        format_value: formats the value of a tile.
    """
    columns, rows = (list(dict.fromkeys(pair[axis] for pair in values)) for axis in (0, 1))
    low, high = min(values.values()), max(values.values())
    bars, notes = [], []
    for (across, up), value in values.items():
        x, y = columns.index(across), rows.index(up)
        share = (value - low) / (high - low) if high > low else 1.0
        table = pd.DataFrame({"y": [y], "left": [x - HALF], "right": [x + HALF]})
        bars.append(Bars("", _compute_shade(share), table, half=HIGH))
        notes.append(Note(x, y, format_value(value), "#ffffff" if share > PALE_BELOW else "#222222"))
    return Panel(
        title=title,
        x_label=labels[0],
        y_label=labels[1],
        bars=tuple(bars),
        notes=tuple(notes),
        height=90 + ROW * len(rows),
        x_ticks=tuple(range(len(columns))),
        x_tick_texts=tuple(columns),
        y_ticks=tuple(range(len(rows))),
        y_tick_texts=tuple(rows),
        x_ends=(-0.6, len(columns) - 0.4),
        y_ends=(-0.6, len(rows) - 0.4),
    )


def _compute_shade(share: float) -> str:
    parts = np.array([240, 246, 251]) * (1 - share) + np.array(DARK) * share
    return "#" + "".join(f"{round(part):02x}" for part in parts)
