"""Describe figures independently of the output format; `plot_html` and `plot_svg` draw them."""

import math
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's palette, which readers with common colour vision deficiencies can distinguish, without the colours of
# verdicts (`comparisons.LOOKS`), and two additional colours.
COLOURS = ("#0072B2", "#CC79A7", "#000000", "#56B4E9", "#8A6D3B", "#E69F00", "#7B4EA3")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star")
DASHES = ("solid", "dashed", "dotted", "dashdot")
GREY = "#6b6b6b"
NAME = 0.07  # height of a line of text at the top of a panel, relative to the panel's height
ROW = 40  # height of a row in pixels
ABOVE, STRIPE = 0.5, 0.23  # distance of a row's label above its marks, and half its stripe, relative to a row
BAR = 0.25  # half the height of a bar relative to a row, which leaves the label's stripe free
LONGEST = 130  # maximum number of characters of a label
LETTER = 0.015  # width of a character relative to a panel, if two panels are side by side


@dataclass(frozen=True)
class Look:
    """Colour, marker and line style of an arm's marks; no two arms share both colour and marker.

    Without a marker, only a line is drawn.
    """

    colour: str
    marker: str
    dash: str = "solid"
    filled: bool = True

    @classmethod
    def from_arm(cls, arm: int, style: int = 0) -> "Look":
        """Return the look of the arm with index `arm`.

        If there are more arms than colours, the colours repeat with other markers. Variants of an arm have a different
        `style`, which determines the line style and whether markers are filled.
        """
        again, colour = divmod(arm, len(COLOURS))
        marker = MARKERS[(colour + again) % len(MARKERS)]
        return cls(COLOURS[colour], marker, DASHES[style % len(DASHES)], filled=style % 2 == 0)


@dataclass(frozen=True)
class Marks:
    """The marks of an arm in a panel.

    Attributes:
        label: label in the legend.
        look: look of the marks.
        points: columns x, y and, if a confidence interval is known, x_low and x_high or y_low and y_high; optionally
            note, and `text`, the value as displayed.
        samples: columns x, y and note.
        joined: whether a line connects the points; for continuous factors only (METHOD 21).
        size: size of a marker in pixels.
    """

    label: str
    look: Look
    points: pd.DataFrame
    samples: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["x", "y", "note"]))
    joined: bool = False
    size: int = 9


@dataclass(frozen=True)
class Bars:
    """Segments of horizontal bars, as columns y, left and right of `table`. `half` is half their height."""

    label: str
    colour: str
    table: pd.DataFrame
    hatch: str = ""
    alpha: float = 1.0
    half: float = BAR


@dataclass(frozen=True)
class Rule:
    """A line across a panel: horizontal and labelled on the right, or vertical (axis "x") and labelled at the top."""

    at: float
    label: str = ""
    axis: str = "y"
    colour: str = "#444444"
    dash: str = "dashed"


# Lines at a ratio of 1 (no difference), for ratios on the x axis and on the y axis.
SAME_X, SAME_Y = (Rule(1.0, axis=axis, dash="solid") for axis in ("x", "y"))


class Note(NamedTuple):
    """Text centred at a point of a panel."""

    x: float
    y: float
    text: str
    colour: str = "#222222"


class Event(NamedTuple):
    """A vertical line, with the position of its label.

    Attributes:
        rule: the line.
        tier: line of text that contains its label, counted from the top; -1 without a label.
        before: whether the label is to the left of the line.
    """

    rule: Rule
    tier: int
    before: bool


@dataclass(frozen=True)
class Panel:
    """A pair of axes.

    Each of `rows` is a label above its marks, from the top down (row i is at y = -i). Labels have stripes that no line
    crosses, so that marks must stay within a quarter of a row's height.

    `rules` are limits, which are within the axes' ranges, events, and lines of no difference. Panels that should be
    comparable have the same `x_ends` or `y_ends`.
    """

    title: str
    x_label: str
    y_label: str = ""
    marks: tuple[Marks, ...] = ()
    bars: tuple[Bars, ...] = ()
    rows: tuple[str, ...] = ()
    height: int = 330
    x_log: bool = False
    y_log: bool = False
    x_ticks: tuple[float, ...] = ()
    x_tick_texts: tuple[str, ...] = ()
    y_ticks: tuple[float, ...] = ()
    y_tick_texts: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    rules: tuple[Rule, ...] = ()
    band: tuple[float, float] | None = None

    def compute_x_range(self) -> tuple[float, float]:
        """Return the limits of the x axis, with space for everything drawn, including markers."""
        return self.x_ends or _compute_ends(self._join_values("x"), self.x_log, bool(self.rows))

    def compute_y_range(self) -> tuple[float, float]:
        """Return the limits of the y axis, with space above everything drawn for the labels of events."""
        if self.rows:
            return -len(self.rows) + 0.55, ABOVE + STRIPE
        if self.y_ends:
            return self.y_ends
        low, high = _compute_ends(self._join_values("y"), self.y_log, True)
        share = NAME * (1 + max((event.tier for event in self.list_events()), default=-1))
        return low, _compute_value_at(low, high, 1 / (1 - share), self.y_log)

    def get_x_tick_names(self) -> dict[float, str]:
        """Return the label of each tick on the x axis."""
        return dict(zip(self.x_ticks, self.x_tick_texts or map(format_tick, self.x_ticks), strict=True))

    def get_y_tick_names(self) -> dict[float, str]:
        """Return the label of each tick on the y axis."""
        return dict(zip(self.y_ticks, self.y_tick_texts or map(format_tick, self.y_ticks), strict=True))

    def list_limits(self) -> list[tuple[Rule, float]]:
        """List the rules labelled on the right, from the bottom up, each with the y position of its label.

        The positions are chosen so that labels do not overlap.
        """
        low, high = self.compute_y_range()
        rules = sorted((rule for rule in self.rules if rule.axis == "y" and rule.label), key=lambda rule: rule.at)
        places = np.array([_compute_share(rule.at, low, high, self.y_log) for rule in rules])
        steps = NAME * np.arange(len(rules))
        places = np.maximum.accumulate(places - steps) + steps
        # Move labels beyond the top down again.
        places = np.minimum(places, 1 - steps[::-1])
        return [
            (rule, _compute_value_at(low, high, place, self.y_log)) for rule, place in zip(rules, places, strict=True)
        ]

    def list_events(self) -> list[Event]:
        """List the rules labelled at the top; labels that would overlap are on separate lines of text."""
        low, high = self.compute_x_range()
        ends: list[float] = []
        events = []
        for rule in sorted((rule for rule in self.rules if rule.axis == "x"), key=lambda rule: rule.at):
            width = LETTER * (len(rule.label) + 1)
            start = _compute_share(rule.at, low, high, self.x_log)
            before = start + width > 1
            start -= width if before else 0
            tier = next((tier for tier, end in enumerate(ends) if end <= start), len(ends)) if rule.label else -1
            if rule.label:
                ends[tier : tier + 1] = [start + width]
            events.append(Event(rule, tier, before))
        return events

    def compute_name_height(self, tier: int) -> float:
        """Return the y position of the event labels on line `tier`, counted from the top."""
        low, high = self.compute_y_range()
        return _compute_value_at(low, high, 1 - NAME * (tier + 0.5), self.y_log)

    def _join_values(self, axis: str) -> np.ndarray:
        frames = [frame for mark in self.marks for frame in (mark.points, mark.samples)]
        columns = [frame[name] for frame in frames for name in (axis, f"{axis}_low", f"{axis}_high") if name in frame]
        columns.append([rule.at for rule in self.rules if rule.axis == axis])
        if axis == "x":
            columns += [bar.table[name] for bar in self.bars for name in ("left", "right")]
            columns.append(self.band or ())
        values = np.concatenate([np.asarray(column, float) for column in columns])
        return values[np.isfinite(values)]


@dataclass(frozen=True)
class Figure:
    """Panels with a common heading. `numbers` contains everything drawn, and `name` is the stem of its files."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    numbers: pd.DataFrame
    columns: int = 1


def shorten_names(figure: Figure) -> Figure:
    """Shorten all labels of a figure to a single line that leaves space for the drawing."""

    def shorten_panel(panel: Panel) -> Panel:
        drawn = {
            kind: tuple(replace(one, label=_shorten_name(one.label)) for one in getattr(panel, kind))
            for kind in ("marks", "bars", "rules")
        }
        rows = {kind: tuple(map(_shorten_name, getattr(panel, kind))) for kind in ("rows", "x_tick_texts")}
        return replace(panel, title=" ".join(panel.title.split()), **drawn, **rows)

    return replace(figure, panels=tuple(map(shorten_panel, figure.panels)))


def _shorten_name(name: str) -> str:
    """Shorten a long label in the middle, because labels differ at both ends."""
    name = " ".join(name.split())
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[1 - LONGEST // 2 :]}"


def _compute_share(value: float, low: float, high: float, log: bool) -> float:
    """Return the relative position of a value on an axis from `low` to `high`, between 0 and 1."""
    if log:
        value, low, high = np.log([value, low, high])
    return float((value - low) / (high - low))


def _compute_value_at(low: float, high: float, share: float, log: bool) -> float:
    """Return the value at the relative position `share` on an axis from `low` to `high`."""
    return float(low * (high / low) ** share if log else low + (high - low) * share)


def _compute_ends(values: np.ndarray, log: bool, from_zero: bool) -> tuple[float, float]:
    values = values[values > 0] if log else values
    if not len(values):
        return (0.5, 2.0) if log else (0.0, 1.0)
    low, high = float(values.min()), float(values.max())
    if log:
        margin = max((high / low) ** 0.06, 1.04)
        return low / margin, high * margin
    at_zero = from_zero and low >= 0
    margin = 0.06 * (high - (0.0 if at_zero else low)) or 1.0
    return (0.0 if at_zero else low - margin), high + margin


def move_marks_apart(marks: Sequence[Marks], levels: np.ndarray, wide: bool) -> tuple[Marks, ...]:
    """Shift the marks of arms slightly, so that they do not hide each other; the figure's numbers do not change.

    Args:
        marks: marks of each arm.
        levels: positions on the x axis, in ascending order.
        wide: whether the x axis is logarithmic.
    """

    def move_x(x: pd.Series, part: float) -> pd.Series:
        return x * (levels[-1] / levels[0]) ** part if wide else x + part * (levels[-1] - levels[0])

    step, shifted = min(0.024, 0.036 / max(len(marks) - 1, 1)), []
    for number, mark in enumerate(marks):
        aside = step * (number - (len(marks) - 1) / 2)
        points = mark.points.assign(x=move_x(mark.points["x"], aside))
        samples = mark.samples.assign(x=move_x(mark.samples["x"], aside + 0.4 * step))
        shifted.append(replace(mark, points=points, samples=samples[["x", "y", "note"]]))
    return tuple(shifted)


def choose_round_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return at most nine round numbers as ticks of a logarithmic axis, including 1 if it is in range."""
    if high <= 6 * low:
        ticks = MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    else:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        if sum(low <= tick <= high for tick in ticks) > 9:
            ticks = [10.0**power for power in powers]
    return tuple(float(f"{tick:.6g}") for tick in ticks if low <= tick <= high)


def format_tick(value: float) -> str:
    """Format a tick without trailing zeros."""
    return f"{value:g}"


def compress_text(text: str) -> str:
    """Compress text, which the page's script inflates, because figures take up most of a long page."""
    return b64encode(zlib.compress(text.encode(), 9)).decode()
