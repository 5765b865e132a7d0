"""Shows what hvplot draws: in a page that needs no network with Bokeh, and in Markdown as a picture of matplotlib's."""

import io
from collections.abc import Callable

import holoviews as hv
import holoviews.plotting.mpl
import matplotlib
from holoviews.core import Dimensioned
from holoviews.plotting.bokeh import BokehRenderer

from scripts.report.page import Page
from scripts.report.plot import COLOURS
from scripts.report.plot_html import embedded, look

HEIGHT = 380
_GREY = "#5c6370"
_SVG = {"svg.hashsalt": "storage-benchmarks", "axes.grid": True, "grid.color": "#dfe1e5", "legend.frameon": False}
_CYCLE, _BOX = hv.Cycle(values=list(COLOURS)), {"color": COLOURS[0]}
# What every figure looks like, by hvplot's backend and kind of element.
_LOOKS = {
    "bokeh": {
        "Overlay": {"legend_position": "top", "show_grid": True},
        "Curve": {"color": _CYCLE, "line_width": 2, "padding": 0.06},
        "Scatter": {"color": _CYCLE, "size": 7, "alpha": 0.5},
        "HLine": {"color": _GREY, "line_width": 1.5, "line_dash": "dashed"},
        "BoxWhisker": {"show_grid": True, "box_fill_color": COLOURS[0], "box_fill_alpha": 0.35},
    },
    "matplotlib": {
        "Overlay": {"legend_position": "top"},
        "Curve": {"color": _CYCLE, "linewidth": 2, "padding": 0.06},
        "Scatter": {"color": _CYCLE, "s": 28, "alpha": 0.5},
        "HLine": {"color": _GREY, "linewidth": 1.2, "linestyle": "dashed"},
        "BoxWhisker": {"boxprops": _BOX, "medianprops": {**_BOX, "linewidth": 2}},
    },
}


class Figures(Page):
    """Shows figures; the pictures for Markdown lie in a folder."""

    def show(self, draw: Callable[[], Dimensioned], name: str, title: str) -> None:
        """Show what `draw` returns, which is called for each of hvplot's backends.

        Args:
            draw: returns a plot of hvplot's, of options that both backends have.
            name: of the picture's file.
            title: what the figure shows, below it.
        """
        axes = BokehRenderer.get_plot_state(_of("bokeh", draw))
        axes.sizing_mode, axes.width, axes.height = "stretch_width", None, HEIGHT
        look(axes)
        panel = f'<div class="panels columns-1"><div class="panel">{embedded(axes, f"figure-{name}")}</div></div>'
        self.picture(name, title, _svg(_of("matplotlib", draw)), self.loader() + panel, "")


def _svg(plot: Dimensioned) -> str:
    with matplotlib.rc_context(_SVG):
        figure, text = hv.render(plot, backend="matplotlib"), io.StringIO()
        figure.set_size_inches(8, 3.6)
        for axes in figure.axes:
            axes.set_aspect("auto")
        figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    return text.getvalue()


def _of(backend: str, draw: Callable[[], Dimensioned]) -> Dimensioned:
    """Return the plot that `draw` makes for a backend, with the look of all figures."""
    hv.Store.set_current_backend(backend)
    return draw().opts(*(getattr(hv.opts, kind)(**look, backend=backend) for kind, look in _LOOKS[backend].items()))
