"""Shows what hvplot draws: in a page that needs no network with Bokeh, and in Markdown as a picture of matplotlib's."""

import io
from collections.abc import Callable

import holoviews as hv
import holoviews.plotting.mpl
import matplotlib
from holoviews.core import Dimensioned
from holoviews.plotting.bokeh import BokehRenderer

from sbench.pages.page import Page
from sbench.pages.plot import COLOURS
from sbench.pages.plot_html import embedded, look

HEIGHT = 380
_SVG = {"svg.hashsalt": "storage-benchmarks", "grid.color": "#dfe1e5", "legend.frameon": False}
_CYCLE = hv.Cycle(values=list(COLOURS))
# What every figure looks like, by the kind of its elements.
_LOOK = {
    "Overlay": {"legend_position": "top"},
    "Curve": {"color": _CYCLE, "padding": 0.06},
    "Scatter": {"color": _CYCLE, "alpha": 0.5},
    "HLine": {"color": "#5c6370"},
}
_DOT = {"bokeh": hv.opts.Scatter(size=7, backend="bokeh"), "matplotlib": hv.opts.Scatter(s=28, backend="matplotlib")}


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
        axes.grid.visible = True
        look(axes)
        panel = f'<div class="panels columns-1"><div class="panel">{embedded(axes, f"figure-{name}")}</div></div>'
        self.picture(name, title, _svg(_of("matplotlib", draw)), "", self.loader() + panel)


def _svg(plot: Dimensioned) -> str:
    with matplotlib.rc_context(_SVG):
        figure, text = hv.render(plot, backend="matplotlib"), io.StringIO()
        figure.set_size_inches(8, 3.6)
        for axes in figure.axes:
            axes.set_aspect("auto")
            axes.grid(True)
        figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    return text.getvalue()


def _of(backend: str, draw: Callable[[], Dimensioned]) -> Dimensioned:
    """Return the plot that `draw` makes for a backend, with the look of all figures."""
    hv.Store.set_current_backend(backend)
    looks = [getattr(hv.opts, kind)(**options, backend=backend) for kind, options in _LOOK.items()]
    return draw().opts(*looks, _DOT[backend])
