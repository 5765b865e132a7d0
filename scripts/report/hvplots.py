"""Shows what hvplot draws: in a page that needs no network with Bokeh, and in Markdown as a picture of matplotlib's."""

from collections.abc import Callable
from html import escape
from pathlib import Path

import holoviews as hv
import holoviews.plotting.mpl
import matplotlib
from bokeh.embed import components
from holoviews.core import Dimensioned
from holoviews.plotting.bokeh import BokehRenderer
from IPython.display import display

from scripts.lib.program import replacing
from scripts.report.markup import link, markdown_line
from scripts.report.plot import COLOURS
from scripts.report.plot_html import FONT, loader, packed

HEIGHT = 380
_GREY, _LINE = "#5c6370", "#dfe1e5"
_SVG = {
    "svg.hashsalt": "storage-benchmarks",
    "axes.edgecolor": "#b0b5bd",
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "legend.frameon": False,
}
_CYCLE, _BOX = hv.Cycle(values=list(COLOURS)), {"color": COLOURS[0]}
# What every figure looks like, by hvplot's backend and kind of element.
_LOOKS = {
    "bokeh": {
        "Overlay": {"legend_position": "top", "show_grid": True},
        "Curve": {"color": _CYCLE, "line_width": 2, "padding": 0.06},
        "Scatter": {"color": _CYCLE, "size": 7, "alpha": 0.5},
        "HLine": {"color": _GREY, "line_width": 1.5, "line_dash": "dashed"},
        "BoxWhisker": {
            "show_grid": True,
            "box_fill_color": COLOURS[0],
            "box_fill_alpha": 0.35,
            "box_line_color": COLOURS[0],
        },
    },
    "matplotlib": {
        "Overlay": {"legend_position": "top"},
        "Curve": {"color": _CYCLE, "linewidth": 2, "padding": 0.06},
        "Scatter": {"color": _CYCLE, "s": 28, "alpha": 0.5},
        "HLine": {"color": _GREY, "linewidth": 1.2, "linestyle": "dashed"},
        "BoxWhisker": {"boxprops": _BOX, "medianprops": {**_BOX, "linewidth": 2}},
    },
}


class Figures:
    """Shows figures; the pictures for Markdown lie in a folder."""

    def __init__(self, files: Path | str) -> None:
        """Give the folder of pictures; what is shown first brings BokehJS along."""
        self._files, self._loader = Path(files), loader()

    def show(self, draw: Callable[[], Dimensioned], name: str, title: str) -> None:
        """Show what `draw` returns, which is called for each of hvplot's backends.

        Args:
            draw: returns a plot of hvplot's, of options that both backends have.
            name: of the picture's file.
            title: what the figure shows, below it.
        """
        html, path = self._interactive(_of("bokeh", draw)), self._files / f"{name}.svg"
        self._picture(_of("matplotlib", draw), path)
        # On paper the picture stands in its place.
        html += f'<img class="paper" alt="" data-svg="{packed(path.read_text(encoding="utf-8"))}">'
        html = f"<figure>{html}<figcaption>{escape(title)}.</figcaption></figure>"
        picture = markdown_line(link(title, f"{self._files.name}/{path.name}"))
        display({"text/html": html, "text/markdown": f"!{picture}\n\n{title}."}, raw=True)

    def _interactive(self, plot: Dimensioned) -> str:
        axes = BokehRenderer.get_plot_state(plot)
        axes.sizing_mode, axes.width, axes.height = "stretch_width", None, HEIGHT
        axes.toolbar.logo, axes.toolbar.autohide, axes.outline_line_color = None, True, None
        axes.grid.grid_line_color = "#e8e8e8"
        for axis in axes.axis:
            axis.axis_label_text_font = axis.major_label_text_font = FONT
            axis.axis_label_text_font_style, axis.minor_tick_line_color = "normal", None
        script, target = components(axes)
        before, self._loader = self._loader, ""
        panel = f'<div class="panel"><div style="height: {HEIGHT}px">{target}</div>{script}</div>'
        return f'{before}<div class="panels columns-1">{panel}</div>'

    def _picture(self, plot: Dimensioned, path: Path) -> None:
        with matplotlib.rc_context(_SVG), replacing(path) as part:
            figure = hv.render(plot, backend="matplotlib")
            figure.set_size_inches(8, 3.6)
            for axes in figure.axes:
                axes.set_aspect("auto")
                axes.grid(visible=True)
            figure.savefig(part, format="svg", bbox_inches="tight", metadata={"Date": None})


def _of(backend: str, draw: Callable[[], Dimensioned]) -> Dimensioned:
    """Return the plot that `draw` makes for a backend, with the look of all figures."""
    hv.Store.set_current_backend(backend)
    return draw().opts(*(getattr(hv.opts, kind)(**look, backend=backend) for kind, look in _LOOKS[backend].items()))
