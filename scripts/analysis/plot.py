"""A figure, described once: drawn for the page by `plot_html`, for Markdown by `plot_svg`, written as CSV by `page`."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

# Okabe and Ito's palette, which readers with any of the common colour vision deficiencies tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star")
DASHES = ("solid", "dashed", "dotted", "dashdot")
GREY = "#6b6b6b"


@dataclass(frozen=True)
class Look:
    """How the marks of one arm look: no two arms share both colour and marker."""

    colour: str
    marker: str
    dash: str = "solid"
    filled: bool = True

    @classmethod
    def of(cls, arm: int, style: int = 0) -> "Look":
        """Return the look of the `arm`-th arm; `style` tells variants of an arm apart (dash, and a hollow marker)."""
        return cls(
            COLOURS[arm % len(COLOURS)], MARKERS[arm % len(MARKERS)], DASHES[style % len(DASHES)], style % 2 == 0
        )


@dataclass(frozen=True)
class Marks:
    """One arm in one panel.

    `points` has x, y and, where an interval is known, x_low and x_high or y_low and y_high; `samples` has x, y and
    note. With `joined` a line runs through the points, which is for continuous factors only (METHOD 21).
    """

    label: str
    look: Look
    points: pd.DataFrame
    samples: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["x", "y", "note"]))
    joined: bool = False


@dataclass(frozen=True)
class Boxes:
    """Box plots lying in rows: `table` has y, low, q1, median, q3, high (whiskers), min and max."""

    label: str
    look: Look
    table: pd.DataFrame


@dataclass(frozen=True)
class Bars:
    """Stretches of horizontal bars: `table` has y, left and right."""

    label: str
    colour: str
    table: pd.DataFrame
    hatch: str = ""


@dataclass(frozen=True)
class Panel:
    """One pair of axes. With `rows`, the y axis names them from the top down (row i lies at y = -i)."""

    title: str
    x_label: str
    y_label: str = ""
    marks: tuple[Marks, ...] = ()
    boxes: tuple[Boxes, ...] = ()
    bars: tuple[Bars, ...] = ()
    rows: tuple[str, ...] = ()
    row_notes: tuple[str, ...] = ()
    row_height: int = 26
    x_log: bool = False
    x_ticks: tuple[float, ...] = ()
    from_zero: bool = True
    rule: float | None = None
    band: tuple[float, float] | None = None

    def x_range(self) -> tuple[float, float]:
        """Return the x axis' ends: everything drawn, with room for the markers."""
        return _spread(self._values("x"), self.x_log, bool(self.rows) and self.from_zero)

    def y_range(self) -> tuple[float, float]:
        """Return the y axis' ends."""
        if self.rows:
            return -len(self.rows) + 0.4, 0.6
        return _spread(self._values("y"), False, self.from_zero)

    def _values(self, axis: str) -> np.ndarray:
        frames = [frame for mark in self.marks for frame in (mark.points, mark.samples)]
        found = [frame[name] for frame in frames for name in (axis, f"{axis}_low", f"{axis}_high") if name in frame]
        if axis == "x":
            found += [box.table[name] for box in self.boxes for name in ("min", "max")]
            found += [bar.table[name] for bar in self.bars for name in ("left", "right")]
        # The rule at 1 and the equivalence band belong to the axis that carries the values.
        if self.rule is not None and axis == ("x" if self.rows else "y"):
            found.append(pd.Series([self.rule]))
        if self.band and axis == "x":
            found.append(pd.Series(self.band))
        values = np.concatenate([np.asarray(column, float) for column in found]) if found else np.array([])
        return values[np.isfinite(values)]


@dataclass(frozen=True)
class Figure:
    """What is shown under one heading; `numbers` is all that is drawn, `name` the stem of its files."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    numbers: pd.DataFrame
    columns: int = 1


def _spread(values: np.ndarray, log: bool, from_zero: bool) -> tuple[float, float]:
    if log:
        values = values[values > 0]
    if not len(values):
        return (0.5, 2.0) if log else (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    if log:
        margin = max((high / low) ** 0.06, 1.04)
        return low / margin, high * margin
    margin = 0.06 * (high - (0.0 if from_zero and low >= 0 else low)) or 1.0
    return (0.0 if from_zero and low >= 0 else low - margin), high + margin


def ratio_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return at most nine round ratios between `low` and `high`, always with 1, for a logarithmic axis."""
    for steps in (
        (0.8, 0.85, 0.9, 0.95, 0.975, 1.025, 1.05, 1.1, 1.15, 1.2, 1.25),
        (0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.6, 1.8, 2),
        (0.1, 0.2, 0.3, 0.5, 0.7, 1.5, 2, 3, 4, 6, 8, 10),
        (0.01, 0.05, 0.1, 0.25, 0.5, 2, 4, 10, 20, 100),
    ):
        chosen = tuple(sorted(step for step in (*steps, 1) if low <= step <= high))
        if len(chosen) <= 9 and low >= steps[0] * 0.9 and high <= steps[-1] * 1.1:
            return chosen
    powers = [10.0**power for power in range(-6, 7)]
    return tuple(step for step in powers if low <= step <= high)


def time_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return round numbers (1, 2, 5 times powers of ten; powers alone where those are many) for a logarithmic axis."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    fine = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    ticks = [tick for tick in fine if low <= tick <= high]
    return tuple(ticks if len(ticks) <= 8 else [10.0**power for power in powers if low <= 10.0**power <= high])


def tick_text(value: float) -> str:
    """Return `value` as a tick: no digits that say nothing."""
    return f"{value:g}"
