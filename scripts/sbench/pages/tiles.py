"""Draw a value over two numeric factors as a heat map: a tile per pair of levels, darker for higher values."""

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
    columns, rows = (sorted(cells[factor].unique(), key=names.parse_amount) for factor in (across, up))
    low, high = cells[value.column].min(), cells[value.column].max()
    bars, notes = [], []
    for cell in cells.to_dict("records"):
        x, y = columns.index(cell[across]), rows.index(cell[up])
        share = (cell[value.column] - low) / (high - low) if high > low else 1.0
        table = pd.DataFrame({"y": [y], "left": [x - HALF], "right": [x + HALF]})
        bars.append(Bars("", _compute_shade(share), table, half=HIGH))
        ink = "#ffffff" if share > PALE_BELOW else "#222222"
        notes.append(Note(x, y, names.format_rate(cell[value.column]), ink))
    return Panel(
        title=title,
        x_label=run.report.get_factor(across).axis or prose.capitalize_first(run.report.get_factor(across).title),
        y_label=run.report.get_factor(up).axis or prose.capitalize_first(run.report.get_factor(up).title),
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
