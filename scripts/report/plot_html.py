"""Draws a figure for the page with Bokeh: data and drawing instructions only, the library itself comes once (`loader`).

The identifiers that Bokeh hands out count up from the start of the process, so a page built afresh from the same
tables has the same bytes.
"""

import json
import zlib
from base64 import b64encode
from html import escape

import numpy as np
import pandas as pd
from bokeh.embed import json_item
from bokeh.models import (
    BasicTickFormatter,
    BoxAnnotation,
    ColumnDataSource,
    FixedTicker,
    HoverTool,
    Label,
    Legend,
    LinearAxis,
    PlainText,
    Range1d,
    Span,
)
from bokeh.models.glyphs import HBar, Line, Scatter, Segment
from bokeh.plotting import figure as axes_of
from bokeh.resources import Resources

from scripts.report.plot import ABOVE, Bars, Boxes, Figure, Marks, Panel, tick_text

FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
SAMPLES = "samples"
HATCHES = {"": " ", "//": "right_diagonal_line", "..": "dot", "xx": "diagonal_cross"}


def loader() -> str:
    """Return the script that a page needs once, before its first figure: BokehJS itself, no link to it."""
    return "".join(f"<script>{code}</script>" for code in Resources(mode="inline", components=["bokeh"]).js_raw)


def draw(figure: Figure) -> str:
    """Return the HTML of `figure`'s panels; they draw themselves when the reader scrolls near them."""
    panels = "".join(_embed(figure, number, panel) for number, panel in enumerate(figure.panels))
    columns = min(figure.columns, len(figure.panels))
    return f'<div class="panels columns-{columns}" role="img" aria-label="{escape(figure.title)}">{panels}</div>'


def _embed(figure: Figure, number: int, panel: Panel) -> str:
    target = f"figure-{figure.name}-{number}"
    item = json_item(_panel(panel, figure), target)
    text = packed(json.dumps(item, separators=(",", ":"), allow_nan=False))
    return (
        f'<div class="panel"><p class="panel-title">{escape(panel.title)}</p>'
        f'<div id="{target}" style="min-height:{_height(panel)}px"></div>'
        f'<script type="text/plain" class="plot">{text}</script></div>'
    )


def packed(text: str) -> str:
    """Return a text as the page's own script inflates it: figures are most of a long page."""
    return b64encode(zlib.compress(text.encode(), 9)).decode()


def _height(panel: Panel) -> int:
    return 96 + panel.row_height * len(panel.rows) if panel.rows else panel.height


def _panel(panel: Panel, figure: Figure):
    columns = _legend_columns(panel, figure)
    axes = axes_of(
        height=_height(panel) + 24 * -(-len(_labels(panel)) // columns),
        sizing_mode="stretch_width",
        x_axis_type="log" if panel.x_log else "linear",
        y_axis_type="log" if panel.y_log else "linear",
        x_range=Range1d(*map(float, panel.x_range())),
        y_range=Range1d(*map(float, panel.y_range())),
        tools="pan,box_zoom,reset,save",
        toolbar_location="right",
        x_axis_label=_plain(panel.x_label),
        y_axis_label=_plain(panel.y_label) if panel.y_label else None,
    )
    axes.toolbar.autohide = True
    axes.toolbar.logo = None
    if panel.band:
        axes.add_layout(BoxAnnotation(left=panel.band[0], right=panel.band[1], fill_color="#0072B2", fill_alpha=0.1))
    _rules(axes, panel, figure)
    items = [(bars.label, _bars(axes, bars)) for bars in panel.bars]
    items += [(boxes.label, _boxes(axes, boxes)) for boxes in panel.boxes]
    items += [(marks.label, _marks(axes, marks)) for marks in panel.marks]
    _hover(axes, panel)
    _dress(axes, panel)
    items = [(label, glyphs) for label, glyphs in items if label]
    if items:
        legend = Legend(items=items, ncols=columns, click_policy="hide", border_line_color=None)
        legend.label_text_font, legend.label_text_font_size, legend.label_standoff = FONT, "12px", 4
        legend.padding, legend.margin, legend.spacing, legend.location = 2, 0, 18, "top_left"
        axes.add_layout(legend, "above")
    return axes


def _legend_columns(panel: Panel, figure: Figure) -> int:
    labels = _labels(panel)
    if (panel.rows or figure.columns == 1) and max(map(len, labels), default=0) < 26:
        return 4
    return 3 if len("".join(labels)) <= 24 else 2


def _labels(panel: Panel) -> list[str]:
    return [drawn.label for drawn in (*panel.bars, *panel.boxes, *panel.marks) if drawn.label]


def _rules(axes, panel: Panel, figure: Figure) -> None:
    """Draw limits and events with their names."""
    for rule in panel.rules:
        dimension = "height" if rule.axis == "x" else "width"
        look = {"line_color": rule.colour, "line_dash": rule.dash, "line_width": 1.2}
        axes.add_layout(Span(location=float(rule.at), dimension=dimension, **look))
    for event in panel.events():
        if event.rule.label:
            place = {"text_align": "right" if event.before else "left", "x_offset": -4 if event.before else 4}
            look = {"text_color": event.rule.colour, "text_font": FONT, "text_font_size": "12px"}
            at = {"x": float(event.rule.at), "y": panel.name_height(event.tier)}
            axes.add_layout(Label(text=_plain(event.rule.label), text_baseline="middle", **at, **place, **look))
    if limits := panel.limits():
        ticks = FixedTicker(ticks=[height for _, height in limits])
        names = LinearAxis(ticker=ticks, major_tick_line_color=None, axis_line_color=None)
        names.major_label_overrides = {height: _plain(rule.label) for rule, height in limits}
        axes.add_layout(names, "right")
    labels = [rule.label for one in figure.panels for rule in one.rules if rule.axis == "y" and rule.label]
    if labels:
        # The axes of panels below each other begin and end alike, whether they have limits or not.
        axes.min_border_left, axes.min_border_right = 76, 48 + 7 * max(map(len, labels))


def _dress(axes, panel: Panel) -> None:
    if panel.x_ticks:
        axes.xaxis.ticker = FixedTicker(ticks=[float(tick) for tick in panel.x_ticks])
        axes.xaxis.major_label_overrides = {float(tick): _plain(text) for tick, text in panel.x_tick_names().items()}
    elif not panel.x_log:
        axes.xaxis.formatter = BasicTickFormatter(use_scientific=False)
    if panel.y_ticks:
        axes.yaxis[0].ticker = FixedTicker(ticks=[float(tick) for tick in panel.y_ticks])
        axes.yaxis[0].major_label_overrides = {float(tick): tick_text(tick) for tick in panel.y_ticks}
    if panel.rows:
        axes.yaxis.visible = False
        axes.ygrid.ticker = FixedTicker(ticks=[-row for row in range(len(panel.rows))])
        for row, name in enumerate(panel.rows):
            where = {"x": 2, "x_units": "screen", "y": ABOVE - row, "text_baseline": "middle"}
            look = {"text_color": "#222222", "text_font": FONT, "text_font_size": "12px"}
            axes.add_layout(Label(text=_plain(name), **where, **look))
    for axis in axes.axis:
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12.5px"
        axis.major_label_text_color = axis.axis_label_text_color = "#222222"
        axis.minor_tick_line_color = None
    axes.grid.grid_line_color = "#e8e8e8"
    axes.outline_line_color = None


def _plain(text: str) -> PlainText:
    """A text on the canvas, where Bokeh takes $$…$$ in a mere string for TeX."""
    return PlainText(text=text)


def _source(table: pd.DataFrame) -> ColumnDataSource:
    """Plain lists with five digits: half the bytes of Bokeh's own encoding."""
    columns = {}
    for name in table:
        column = table[name]
        if pd.api.types.is_numeric_dtype(column):
            columns[name] = [None if not np.isfinite(value) else float(f"{value:.5g}") for value in column]
        else:
            columns[name] = [str(value) for value in column]
    return ColumnDataSource(columns)


def _marks(axes, marks: Marks) -> list:
    look, colour = marks.look, marks.look.colour
    source = _source(marks.points)
    drawn = []
    if len(marks.samples):
        dot = Scatter(marker=look.marker, size=5, line_color=None, fill_color=colour, fill_alpha=0.4)
        if look.marker == "x":
            dot.line_color = colour
        drawn.append(axes.add_glyph(_source(marks.samples), dot, name=SAMPLES))
    bar = {"line_color": colour, "line_width": 2}
    if "x_low" in marks.points:
        drawn.append(axes.add_glyph(source, Segment(x0="x_low", y0="y", x1="x_high", y1="y", **bar)))
    if "y_low" in marks.points:
        drawn.append(axes.add_glyph(source, Segment(x0="x", y0="y_low", x1="x", y1="y_high", **bar)))
    if marks.joined:
        drawn.append(axes.add_glyph(source, Line(line_color=colour, line_width=1.8, line_dash=look.dash)))
    fill = colour if look.filled else "white"
    if look.marker:
        dot = Scatter(marker=look.marker, size=marks.size, line_color=colour, fill_color=fill, line_width=1.5)
        drawn.append(axes.add_glyph(source, dot, name=marks.label))
    # The legend shows what comes first in the list, so the summary leads.
    return drawn[::-1]


def _hover(axes, panel: Panel) -> None:
    """Tell the values under the pointer: one tool for all summaries and one for all samples, which spares the page."""
    value = "x" if panel.rows else "y"
    number = f"@{value}{{0.[0000]}}"
    samples = [one for one in axes.renderers if one.name == SAMPLES]
    points = [one for one in axes.renderers if one.name and one.name != SAMPLES]
    if samples:
        axes.add_tools(HoverTool(renderers=samples, tooltips=f"{number} (@note)"))
    if points and panel.marks:
        known = f"{value}_low" in panel.marks[0].points
        between = f" [@{value}_low{{0.[0000]}}, @{value}_high{{0.[0000]}}]" if known else ""
        count = ", n = @n" if "n" in panel.marks[0].points else ""
        note = " (@note)" if "note" in panel.marks[0].points else ""
        axes.add_tools(HoverTool(renderers=points, tooltips=f"$name: {number}{between}{count}{note}"))


def _bars(axes, bars: Bars) -> list:
    table = bars.table.assign(width=bars.table["right"] - bars.table["left"])
    look = {"fill_color": bars.colour, "line_color": "white", "hatch_pattern": HATCHES[bars.hatch]}
    glyph = HBar(y="y", left="left", right="right", height=0.62, hatch_color="white", hatch_alpha=0.7, **look)
    bar = axes.add_glyph(_source(table), glyph)
    axes.add_tools(HoverTool(renderers=[bar], tooltips=[(bars.label, "@width{0.[0000]} s")]))
    return [bar]


def _boxes(axes, boxes: Boxes) -> list:
    colour, table = boxes.look.colour, boxes.table
    source = _source(table.assign(top=table["y"] + 0.3, bottom=table["y"] - 0.3))
    look = {"fill_color": colour, "fill_alpha": 0.35, "line_color": colour}
    box = axes.add_glyph(source, HBar(y="y", left="q1", right="q3", height=0.6, **look))
    lines = [
        Segment(x0="low", y0="y", x1="high", y1="y", line_color=colour),
        Segment(x0="median", y0="bottom", x1="median", y1="top", line_color=colour, line_width=2.5),
        *(Scatter(x=end, marker=boxes.look.marker, line_color=colour, fill_color=colour) for end in ("min", "max")),
    ]
    tips = [("median", "@median"), ("middle half", "@q1 to @q3"), ("smallest, largest", "@min, @max"), ("n", "@count")]
    axes.add_tools(HoverTool(renderers=[box], tooltips=tips))
    return [box, *(axes.add_glyph(source, line) for line in lines)]
