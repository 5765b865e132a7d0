"""Convert figures to JSON that BokehJS draws, with HoloViews and Bokeh. A page contains BokehJS only once.

Bokeh numbers its identifiers from the start of the process, so that a new process produces identical output for the
same tables.
"""

import json
import math
from collections.abc import Iterator, Mapping
from functools import partial
from html import escape

import holoviews as hv
import numpy as np
import pandas as pd
from bokeh import __version__
from bokeh.core.properties import value
from bokeh.document import Document
from bokeh.models import (
    BasicTickFormatter,
    BoxAnnotation,
    ColumnDataSource,
    FixedTicker,
    GlyphRenderer,
    Label,
    LabelSet,
    Legend,
    LegendItem,
    LinearAxis,
    PlainText,
    Span,
)
from bokeh.resources import Resources
from bokeh.settings import settings
from holoviews.plotting.bokeh import BokehRenderer

from sbench.pages.names import format_rate, format_with_interval
from sbench.pages.plot import ABOVE, ROW, STRIPE, Bars, Figure, Marks, Panel, compress_text

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
INK = "#222222"
settings.simple_ids = True
LEGEND_LINE = 20  # height of a line of a legend in pixels
LEGEND_GAP = 18  # space between two columns of a legend in pixels
_NO_ROW_GAP = ".bk-grid { row-gap: 0 !important; }"
HATCHES = {"": " ", "//": "right_diagonal_line", "..": "dot", "xx": "diagonal_cross"}


def render_loader() -> str:
    """Return the script that a page needs before its first figure: BokehJS itself, not a link to it."""
    return "".join(f"<script>{code}</script>" for code in Resources(mode="inline", components=["bokeh"]).js_raw)


def draw_figure(figure: Figure) -> str:
    """Return the HTML of a figure's panels, which the page's script draws."""
    panels = "".join(_render_panel(figure, number, panel) for number, panel in enumerate(figure.panels))
    columns = min(figure.columns, len(figure.panels))
    return f'<div class="panels columns-{columns}" role="img" aria-label="{escape(figure.title)}">{panels}</div>'


def _render_panel(figure: Figure, number: int, panel: Panel) -> str:
    axes = _draw_panel(panel, figure)
    for model in axes.references():
        if isinstance(model, ColumnDataSource):
            model.data = {name: _convert_column(column) for name, column in model.data.items()}
        # HoloViews adds four copies of each glyph for selections, which these figures do not support.
        if isinstance(model, GlyphRenderer):
            model.selection_glyph = model.nonselection_glyph = model.hover_glyph = model.muted_glyph = None
    drawn = render_axes(axes, f"figure-{figure.name}-{number}")
    return f'<div class="panel"><p class="panel-title">{escape(panel.title)}</p>{drawn}</div>'


def render_axes(axes, target: str) -> str:
    """Return HTML from which the page's script draws a Bokeh figure."""
    document = Document()
    document.add_root(axes)
    # Equivalent to `bokeh.embed.json_item`, which would traverse the figure three more times.
    item = {"target_id": target, "root_id": axes.id, "doc": document.to_json(deferred=False), "version": __version__}
    text = compress_text(json.dumps(item, separators=(",", ":"), allow_nan=False))
    room = f'<div id="{target}" style="min-height:{axes.height}px"></div>'
    return f'{room}<script type="text/plain" class="plot">{text}</script>'


def _compute_height(panel: Panel) -> int:
    return 96 + ROW * len(panel.rows) if panel.rows else panel.height


def _draw_panel(panel: Panel, figure: Figure):
    labels = list(dict.fromkeys(drawn.label for drawn in (*panel.bars, *panel.marks) if drawn.label))
    columns = _count_legend_columns(labels, min(figure.columns, len(figure.panels)))
    elements = [
        *map(_draw_bars, panel.bars),
        *(one for marks in panel.marks for one in _draw_marks(marks, bool(panel.rows))),
    ]
    drawn = hv.Overlay(elements or [hv.Curve([])]).opts(
        backend="bokeh",
        responsive=True,
        normalize=False,
        title="",
        height=_compute_height(panel) + (4 + LEGEND_LINE * -(-len(labels) // columns) if labels else 0),
        xlim=tuple(map(float, panel.compute_x_range())),
        ylim=tuple(map(float, panel.compute_y_range())),
        logx=panel.x_log,
        logy=panel.y_log,
        xlabel=panel.x_label,
        ylabel=panel.y_label,
        yaxis=None if panel.rows else "left",
        show_grid=True,
        default_tools=["pan", "box_zoom", "reset", "save"],
        show_legend=False,
        hooks=[partial(_add_legend, columns), partial(_add_details, panel, figure)],
    )
    return BokehRenderer.get_plot_state(drawn)


def _count_legend_columns(labels: list[str], panels: int) -> int:
    """Return how many legend columns fit above each of `panels` panels that are side by side on a wide page."""
    wide = [LEGEND_GAP + 28 + 6 * len(label) for label in labels]
    fits = (
        columns
        for columns in range(len(labels), 1, -1)
        if sum(max(wide[column::columns]) for column in range(columns)) <= 1200 // panels - 60
    )
    return next(fits, 1)


def _add_legend(columns: int, plot, _element) -> None:
    """Add a legend with an entry per label, because HoloViews omits legends of many elements or of a single one."""
    drawn: dict[str, list[GlyphRenderer]] = {}
    for part in plot.subplots.values():
        drawn.setdefault(part.hmap.last.label, []).append(part.handles["glyph_renderer"])
    items = [LegendItem(label=value(label), renderers=renderers) for label, renderers in drawn.items() if label]
    if items:
        places = {"location": (0, 0), "margin": 0, "padding": 2, "spacing": LEGEND_GAP, "ncols": columns}
        # No background, because the label of a limit may extend behind the legend.
        looks = {"background_fill_color": None, "border_line_color": None, "stylesheets": [_NO_ROW_GAP]}
        legend = Legend(items=items, orientation="horizontal", click_policy="hide", **places, **looks)
        plot.state.add_layout(legend, "above")


def _convert_column(column: object) -> list:
    """Convert a column to a list, with numbers rounded to five significant digits.

    Gaps are NaN, because null would be drawn as 0. The list is half the size of Bokeh's encoding.
    """
    values = pd.Series(column)
    if pd.api.types.is_numeric_dtype(values):
        return [float(f"{value:.5g}") if np.isfinite(value) else math.nan for value in values]
    return [str(value) for value in values]


def _draw_bars(bars: Bars) -> hv.Element:
    table = bars.table.assign(bottom=bars.table["y"] - bars.half, top=bars.table["y"] + bars.half)
    ends = zip(table["left"], table["right"], strict=True)
    table["tip"] = [
        f"{format_rate(right - left)} ({format_rate(left)} to {format_rate(right)})" for left, right in ends
    ]
    bar = hv.Rectangles(table, ["left", "bottom", "right", "top"], "tip", label=bars.label)
    hatch = {"hatch_pattern": HATCHES[bars.hatch], "hatch_color": "white", "hatch_alpha": 0.7}
    return _apply_style(
        bar,
        fill_color=bars.colour,
        fill_alpha=bars.alpha,
        line_color="white",
        # Bars without a label are tiles, which display their values.
        **(_get_hover_options(bars.label) if bars.label else {}),
        hooks=[lambda plot, _: plot.handles["glyph"].update(**hatch)],
    )


def _draw_marks(marks: Marks, in_rows: bool) -> Iterator[hv.Element]:
    """Yield an arm's samples, intervals, line and summaries, from back to front."""
    label, look, points = marks.label, marks.look, marks.points
    value = "x" if in_rows else "y"
    if len(marks.samples):
        samples = hv.Scatter(_add_tips(marks.samples, value), "x", ["y", "tip"], label=label)
        edge = look.colour if look.marker == "x" else None
        dot = {"marker": look.marker, "size": 5, "fill_color": look.colour, "fill_alpha": 0.4, "line_color": edge}
        yield _apply_style(samples, **dot, **_get_hover_options(label))
    ends = points.assign(x_end=points["x"], y_end=points["y"])
    for axis, corners in (("x", ["x_low", "y", "x_high", "y_end"]), ("y", ["x", "y_low", "x_end", "y_high"])):
        if f"{axis}_low" in points:
            yield _apply_style(hv.Segments(ends, corners, [], label=label), color=look.colour, line_width=2)
    if marks.joined:
        line = {"color": look.colour, "line_width": 1.8, "line_dash": look.dash}
        yield _apply_style(hv.Curve(points, "x", "y", label=label), **line)
    if look.marker:
        dot = {"marker": look.marker, "size": marks.size, "line_color": look.colour, "line_width": 1.5}
        dot["fill_color"] = look.colour if look.filled else "white"
        summary = hv.Scatter(_add_tips(points, value), "x", ["y", "tip"], label=label)
        yield _apply_style(summary, **dot, **_get_hover_options(label))


def _get_hover_options(label: str) -> dict:
    """Return options that show a mark's column `tip` as its tooltip.

    All text is in one column, because HoloViews would modify tooltips that name several columns.
    """
    return {"tools": ["hover"], "hover_tooltips": [(label, "@{tip}")]}


def _add_tips(points: pd.DataFrame, value: str) -> pd.DataFrame:
    return points.assign(tip=[_format_tip(point, value) for point in points.to_dict("records")])


def _format_tip(point: Mapping, value: str) -> str:
    number = point.get("text") or format_with_interval(
        point[value], point.get(f"{value}_low"), point.get(f"{value}_high")
    )
    size = f", n = {point['n']:,.0f}" if pd.notna(point.get("n")) else ""
    return f"{number}{size}" + (f" ({point['note']})" if point.get("note") else "")


def _apply_style(element: hv.Element, **style) -> hv.Element:
    """Apply a style without computing axis limits, which would take a third of HoloViews' time."""
    return element.opts(backend="bokeh", normalize=False, apply_ranges=False, show_legend=False, **style)


def _add_details(panel: Panel, figure: Figure, plot, _element) -> None:
    """Add to the Bokeh figure what HoloViews has no options for: ticks, labels, limits, events and fonts."""
    axes = plot.state
    for axis, grid, ticks, texts in (
        (axes.xaxis[0], axes.xgrid[0], panel.x_ticks, panel.get_x_tick_names()),
        (axes.yaxis[0], axes.ygrid[0], panel.y_ticks, panel.get_y_tick_names()),
    ):
        if ticks:
            axis.ticker = grid.ticker = FixedTicker(ticks=[float(tick) for tick in ticks])
            axis.major_label_overrides = {float(tick): _build_plain_text(text) for tick, text in texts.items()}
    if panel.band:
        left, right = panel.band
        look_of = {"fill_color": "#0072B2", "fill_alpha": 0.1, "line_color": None, "level": "underlay"}
        axes.add_layout(BoxAnnotation(left=left, right=right, **look_of))
    for rule in panel.rules:
        line = {"line_color": rule.colour, "line_dash": rule.dash, "line_width": 1.2, "level": "underlay"}
        axes.add_layout(Span(location=rule.at, dimension="height" if rule.axis == "x" else "width", **line))
    if not panel.x_ticks and not panel.x_log:
        axes.xaxis.formatter = BasicTickFormatter(use_scientific=False)
    if panel.rows:
        places = [-row for row in range(len(panel.rows))]
        axes.ygrid.ticker = FixedTicker(ticks=places)
        # Use a single model, because a model per label would take most of the time for a long figure.
        heights = np.array(places) + ABOVE
        axes.hstrip(list(heights - STRIPE), list(heights + STRIPE), fill_color="white", line_color=None)
        names = ColumnDataSource({"y": list(heights), "text": panel.rows})
        font = {"text_color": INK, "text_font": value(FONT), "text_font_size": "12px", "text_baseline": "middle"}
        axes.add_layout(LabelSet(source=names, x=value(2), x_units="screen", **font))
    for note in panel.notes:
        _add_text(axes, note.text, note.colour, x=note.x, y=note.y, text_align="center")
    for event in panel.list_events():
        if event.rule.label:
            side = {"text_align": "right" if event.before else "left", "x_offset": -4 if event.before else 4}
            # White background, so that no line crosses the text.
            at = {
                "x": float(event.rule.at),
                "y": panel.compute_name_height(event.tier),
                "background_fill_color": "white",
            }
            _add_text(axes, event.rule.label, event.rule.colour, **at, **side)
    _name_limits(axes, panel, figure)
    for axis in axes.axis:
        axis.axis_label = _build_plain_text(axis.axis_label) if axis.axis_label else None
    _set_look(axes)


def _set_look(axes) -> None:
    axes.toolbar.autohide, axes.toolbar.logo, axes.outline_line_color = True, None, None
    for axis in axes.axis:
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12.5px"
        axis.major_label_text_color = axis.axis_label_text_color = INK
        axis.minor_tick_line_color = None
    axes.grid.grid_line_color = "#e8e8e8"
    for legend in axes.legend:
        legend.label_text_font, legend.label_text_font_size, legend.label_standoff = FONT, "12px", 4


def _name_limits(axes, panel: Panel, figure: Figure) -> None:
    """Label the limits on the right. If any panel of the figure has limits, give all panels the same margins."""
    if limits := panel.list_limits():
        ticks = FixedTicker(ticks=[height for _, height in limits])
        names = LinearAxis(ticker=ticks, major_tick_line_color=None, axis_line_color=None)
        names.major_label_overrides = {height: _build_plain_text(rule.label) for rule, height in limits}
        axes.add_layout(names, "right")
    labels = [rule.label for one in figure.panels for rule in one.rules if rule.axis == "y" and rule.label]
    if labels:
        axes.min_border_left, axes.min_border_right = 76, 48 + 7 * max(map(len, labels))


def _add_text(axes, text: str, colour: str = INK, **place) -> None:
    font = {"text_color": colour, "text_font": FONT, "text_font_size": "12px", "text_baseline": "middle"}
    axes.add_layout(Label(text=_build_plain_text(text), **place, **font))


def _build_plain_text(text: str) -> PlainText:
    """Build a text model for the canvas; Bokeh would interpret $$…$$ in a string as TeX."""
    return PlainText(text=text)
