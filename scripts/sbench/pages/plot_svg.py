"""Draw figures as SVG for Markdown reports; the same numbers produce identical output."""

import io
import re
from collections import Counter
from collections.abc import Iterable
from textwrap import fill

from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from sbench.pages.plot import ABOVE, ROW, STRIPE, Bars, Figure, Marks, Panel, format_tick

SHAPES = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "inverted_triangle": "v",
    "hex": "h",
    "star": "*",
    "x": "x",
    "": "",
}
STYLE = {
    "svg.hashsalt": "storage-benchmarks",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,
}
WIDTH = 9.0  # inches
LINE = 0.2  # inches per line of text
SIZE = 9  # font size in points
PIXELS = 330 / 2.6  # pixels of an HTML panel per inch here


def draw_figure(figure: Figure) -> str:
    """Return a figure as an SVG document."""
    with rc_context():
        rcdefaults()
        rcParams.update(STYLE)
        canvas = Canvas(figsize=(WIDTH, 1))
        FigureCanvasSVG(canvas)
        _draw_panels(canvas, figure)
        text = io.StringIO()
        canvas.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return _shorten_svg(text.getvalue())


def _shorten_svg(svg: str) -> str:
    """Halve the size of matplotlib's SVG by replacing recurring styles with classes and rounding to two decimals."""
    styles = Counter(re.findall(r'<[^>]* style="([^"]*)"', svg))
    classes = {style: f"s{number}" for number, (style, count) in enumerate(styles.items()) if count > 1}

    def shorten_tag(tag: re.Match) -> str:
        text = re.sub(r' transform="rotate\(-0 [^"]*"|(?<=<g) id="[^"]*"', "", tag[0])
        if (style := re.search(r'style="([^"]*)"', text)) and style[1] in classes:
            text = text.replace(style[0], f'class="{classes[style[1]]}"')
        return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", text)

    rules = "".join(f".{name} {{{style}}}\n" for style, name in classes.items())
    text = re.sub(r"<[^>]*>", shorten_tag, re.sub(r"\s*\n\s*", "\n", svg))
    text = re.sub(r"<g>\n(<[^<]*(?:/>|</text>))\n</g>", r"\1", text)
    return text.replace("</style>", f"\n{rules}</style>", 1)


def _draw_panels(canvas: Canvas, figure: Figure) -> None:
    """Place the legend and panels according to the size of their text; a layout engine would draw everything twice."""
    columns = min(figure.columns, len(figure.panels))
    width = WIDTH / columns
    keys = {label: key for panel in figure.panels for label, key in _list_legend_keys(panel) if label}
    legend = _count_legend_lines(list(keys)) * LINE + 0.12 if keys else 0.05
    titles = [fill(panel.title, int(width * 11.5)) for panel in figure.panels]
    places, top = [], legend
    for start in range(0, len(titles), columns):
        line = range(start, min(start + columns, len(titles)))
        top += 0.12 + max(titles[number].count("\n") + 1 for number in line) * LINE
        height = max(_compute_height(figure.panels[number]) for number in line)
        places += [(number, (number - start) * width, top, height) for number in line]
        top += height + 0.55
    canvas.set_figheight(top)
    if keys:
        per_line = -(-len(keys) // _count_legend_lines(list(keys)))
        canvas.legend(
            keys.values(), keys.keys(), loc="upper left", bbox_to_anchor=(0, 1), ncols=per_line, frameon=False
        )
    # Align the right ends of axes above each other, with or without limits.
    limits = [rule.label for panel in figure.panels for rule in panel.rules if rule.axis == "y" and rule.label]
    beside = _measure_width(limits) if limits else 0.0
    # The last tick is a twentieth of the axis from its end; half of its label may extend beyond the axis.
    last = [panel.get_x_tick_names()[panel.x_ticks[-1]] for panel in figure.panels if panel.x_ticks]
    beside = max(beside, _measure_width(last) / 2 - 0.05 * width - 0.2 if last else 0.0)
    for number, left, above, height in places:
        panel = figure.panels[number]
        # Leave half of the width for the drawing, however long the labels of limits are.
        before, after = 0.22 if panel.rows else 0.7, min(0.2 + beside, 0.4 * width)
        box = ((left + before) / WIDTH, 1 - (above + height) / top, (width - before - after) / WIDTH, height / top)
        canvas.text(left / WIDTH + 0.01, 1 - (above - 0.06) / top, titles[number], weight="bold", va="bottom")
        _draw_panel(canvas.add_axes(box), panel)


def _compute_height(panel: Panel) -> float:
    return 0.1 + len(panel.rows) * ROW / 85 if panel.rows else panel.height / PIXELS


def _measure_width(texts: Iterable[str]) -> float:
    """Return the width of the widest label, in inches."""
    # Control points bound glyphs closely enough; the widest label is among the longest.
    longest = sorted(texts, key=len)[-4:]
    return max(TextPath((0, 0), text or " ", size=SIZE).vertices[:, 0].max(initial=0) for text in longest) / 72


def _count_legend_lines(labels: list[str]) -> int:
    """Return the number of legend lines if every column is as wide as the longest label."""
    column = _measure_width(labels) + 0.75
    return -(-len(labels) // max(1, int(WIDTH // column)))


def _list_legend_keys(panel: Panel) -> list[tuple[str, object]]:
    keys: list[tuple[str, object]] = [
        (bars.label, Patch(facecolor=bars.colour, edgecolor="white", hatch=bars.hatch)) for bars in panel.bars
    ]
    for marks in panel.marks:
        line = Line2D([], [], linestyle=marks.look.dash if marks.joined else "none", **_get_marker_style(marks))
        keys.append((marks.label, line))
    return keys


def _draw_panel(axes, panel: Panel) -> None:
    if panel.x_log:
        axes.set_xscale("log")
    if panel.y_log:
        axes.set_yscale("log")
    axes.set_xlim(*panel.compute_x_range())
    axes.set_ylim(*panel.compute_y_range())
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.band:
        axes.axvspan(*panel.band, color="#0072B2", alpha=0.1, linewidth=0)
    if panel.x_ticks:
        names = panel.get_x_tick_names()
        axes.xaxis.set_major_locator(FixedLocator(panel.x_ticks))
        axes.xaxis.set_major_formatter(lambda value, _: names.get(value, format_tick(value)))
        axes.xaxis.set_minor_locator(NullLocator())
    if panel.y_ticks:
        axes.yaxis.set_major_locator(FixedLocator(panel.y_ticks))
        texts = panel.get_y_tick_names()
        axes.yaxis.set_major_formatter(lambda value, _: texts.get(value, format_tick(value)))
        axes.yaxis.set_minor_locator(NullLocator())
    _draw_rules(axes, panel)
    if panel.rows:
        _draw_row_names(axes, panel)
    for bars in panel.bars:
        _draw_bars(axes, bars)
    for marks in panel.marks:
        _draw_marks(axes, marks)
    for note in panel.notes:
        axes.text(note.x, note.y, note.text, ha="center", va="center_baseline", color=note.colour)


def _draw_rules(axes, panel: Panel) -> None:
    for rule in panel.rules:
        draw_line = axes.axvline if rule.axis == "x" else axes.axhline
        draw_line(rule.at, color=rule.colour, linestyle=rule.dash, linewidth=1)
    inch = axes.get_figure().dpi_scale_trans
    for rule, height in panel.list_limits():
        where = blended_transform_factory(axes.transAxes + ScaledTranslation(0.05, 0, inch), axes.transData)
        axes.text(1, height, rule.label, transform=where, ha="left", va="center_baseline", color=rule.colour)
    for rule, tier, before in panel.list_events():
        side, aside = ("right", -0.04) if before else ("left", 0.04)
        where = axes.transData + ScaledTranslation(aside, 0, inch)
        height = panel.compute_name_height(tier)
        # White background, so that no line crosses the text.
        font = {"color": rule.colour, "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.5}}
        axes.text(rule.at, height, rule.label, transform=where, ha=side, va="center_baseline", **font)


def _draw_row_names(axes, panel: Panel) -> None:
    """Draw row labels as text objects, because ticks would take most of the time for a long figure."""
    axes.yaxis.set_major_locator(NullLocator())
    axes.spines["left"].set_visible(False)
    low, high = panel.compute_x_range()
    places = [-row for row in range(len(panel.rows))]
    axes.hlines(places, low, high, color="#e4e4e4", linewidth=0.7, zorder=0.5)
    where = blended_transform_factory(axes.transAxes, axes.transData)
    for place, name in zip(places, panel.rows, strict=True):
        axes.axhspan(place + ABOVE - STRIPE, place + ABOVE + STRIPE, facecolor="white", edgecolor="none", zorder=2.1)
        axes.text(0, place + ABOVE, name, transform=where, ha="left", va="center_baseline")


def _get_marker_style(marks: Marks) -> dict:
    colour = marks.look.colour
    face = colour if marks.look.filled else "white"
    return {
        "color": colour,
        "marker": SHAPES[marks.look.marker],
        "markersize": marks.size * 2 / 3,
        "markerfacecolor": face,
        "markeredgecolor": colour,
        "linewidth": 1.4,
    }


def _draw_marks(axes, marks: Marks) -> None:
    points, samples, colour = marks.points, marks.samples, marks.look.colour
    shape = SHAPES[marks.look.marker]
    # Draw samples as a single collection with a shared shape, because separate markers would take most of the file.
    axes.plot(
        samples["x"].astype(float), samples["y"].astype(float), shape, markersize=3.2, color=colour, alpha=0.35, mew=0
    )
    for axis in ("x", "y"):
        if f"{axis}_low" in points:
            bounded = points.dropna(subset=[f"{axis}_low", f"{axis}_high"])
            if axis == "x":
                axes.hlines(bounded["y"], bounded["x_low"], bounded["x_high"], color=colour, linewidth=1.6)
            else:
                axes.vlines(bounded["x"], bounded["y_low"], bounded["y_high"], color=colour, linewidth=1.6)
    style = marks.look.dash if marks.joined else "none"
    axes.plot(points["x"].astype(float), points["y"].astype(float), linestyle=style, **_get_marker_style(marks))


def _draw_bars(axes, bars: Bars) -> None:
    table = bars.table
    axes.barh(
        table["y"],
        table["right"] - table["left"],
        left=table["left"],
        height=2 * bars.half,
        color=bars.colour,
        edgecolor="white",
        linewidth=0.5,
        hatch=bars.hatch,
        alpha=bars.alpha,
    )
