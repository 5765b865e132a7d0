"""A figure, described once: drawn for the page by `plot_html`, for Markdown by `plot_svg`, written as CSV by `page`."""

import math
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

# Of Okabe and Ito's palette, which readers with any of the common colour vision deficiencies tell apart, what verdicts
# do not have (`comparisons.LOOKS`), and two more.
COLOURS = ("#0072B2", "#CC79A7", "#000000", "#56B4E9", "#8A6D3B", "#E69F00", "#7B4EA3")
MARKERS = ("circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "star")
DASHES = ("solid", "dashed", "dotted", "dashdot")
GREY = "#6b6b6b"
NAME = 0.07  # of a panel's height: a line of text at its top
ROW = 40  # of the page's pixels: a row's height
ABOVE, STRIPE = 0.5, 0.23  # of a row's height: its name above its marks, in a stripe that reaches as far up and down
BAR = 0.25  # of a row's height: a bar's reach up and down, which leaves the stripe free
LONGEST = 130  # letters of a name in a figure
LETTER = 0.015  # of a panel's width: a letter, where two panels stand beside each other


@dataclass(frozen=True)
class Look:
    """How the marks of one arm look: no two arms share both colour and marker. Without a marker, a line alone."""

    colour: str
    marker: str
    dash: str = "solid"
    filled: bool = True

    @classmethod
    def from_arm(cls, arm: int, style: int = 0) -> "Look":
        """Return the look of the `arm`-th arm; `style` tells variants of an arm apart (dash, and a hollow marker).

        When the colours are used up they come again with other markers.
        """
        again, colour = divmod(arm, len(COLOURS))
        marker = MARKERS[(colour + again) % len(MARKERS)]
        return cls(COLOURS[colour], marker, DASHES[style % len(DASHES)], filled=style % 2 == 0)


@dataclass(frozen=True)
class Marks:
    """One arm in one panel.

    `points` has x, y and, where an interval is known, x_low and x_high or y_low and y_high; `samples` has x, y and
    note, which the points may have too, and what they are read as (`text`). With `joined` a line runs through the
    points, which is for continuous factors only (METHOD 21). `size` is that of a marker in the page's pixels.
    """

    label: str
    look: Look
    points: pd.DataFrame
    samples: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["x", "y", "note"]))
    joined: bool = False
    size: int = 9


@dataclass(frozen=True)
class Bars:
    """Stretches of horizontal bars: `table` has y, left and right; `half` is how far they reach up and down."""

    label: str
    colour: str
    table: pd.DataFrame
    hatch: str = ""
    alpha: float = 1.0
    half: float = BAR


@dataclass(frozen=True)
class Rule:
    """A line across a panel at a value of the y axis, named at its right end, or of the x axis, named at its top."""

    at: float
    label: str = ""
    axis: str = "y"
    colour: str = "#444444"
    dash: str = "dashed"


# Where nothing differs: of ratios along the x axis, and along the y axis.
SAME_X, SAME_Y = (Rule(1.0, axis=axis, dash="solid") for axis in ("x", "y"))


class Note(NamedTuple):
    """A text in the middle of a place in a panel."""

    x: float
    y: float
    text: str
    colour: str = "#222222"


class Event(NamedTuple):
    """A rule of the x axis, the line of text (from the top) that names it, and whether the name stands before it."""

    rule: Rule
    tier: int
    before: bool


@dataclass(frozen=True)
class Panel:
    """One pair of axes. With `rows`, each is named above its marks, from the top down (row i lies at y = -i).

    Names stand in stripes that no line crosses, so marks keep within a quarter of a row's height.

    `rules` are limits, which the axes reach out to, events, and the ratio at which nothing differs. Panels that are
    read together are given the same `x_ends` or `y_ends`.
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
        """Return the x axis' ends: everything drawn, with room for the markers."""
        return self.x_ends or _compute_ends(self._join_values("x"), self.x_log, bool(self.rows))

    def compute_y_range(self) -> tuple[float, float]:
        """Return the y axis' ends; the names of events have room above all that is drawn."""
        if self.rows:
            return -len(self.rows) + 0.55, ABOVE + STRIPE
        if self.y_ends:
            return self.y_ends
        low, high = _compute_ends(self._join_values("y"), self.y_log, True)
        share = NAME * (1 + max((event.tier for event in self.list_events()), default=-1))
        return low, _compute_value_at(low, high, 1 / (1 - share), self.y_log)

    def get_x_tick_names(self) -> dict[float, str]:
        """Return what stands at each tick of the x axis."""
        return dict(zip(self.x_ticks, self.x_tick_texts or map(format_tick, self.x_ticks), strict=True))

    def get_y_tick_names(self) -> dict[float, str]:
        """Return what stands at each tick of the y axis."""
        return dict(zip(self.y_ticks, self.y_tick_texts or map(format_tick, self.y_ticks), strict=True))

    def list_limits(self) -> list[tuple[Rule, float]]:
        """Return the rules that are named at the right, from below, each with the y of its name: names keep apart."""
        low, high = self.compute_y_range()
        rules = sorted((rule for rule in self.rules if rule.axis == "y" and rule.label), key=lambda rule: rule.at)
        places = np.array([_compute_share(rule.at, low, high, self.y_log) for rule in rules])
        steps = NAME * np.arange(len(rules))
        places = np.maximum.accumulate(places - steps) + steps
        # What does not fit below the top moves down again.
        places = np.minimum(places, 1 - steps[::-1])
        return [
            (rule, _compute_value_at(low, high, place, self.y_log)) for rule, place in zip(rules, places, strict=True)
        ]

    def list_events(self) -> list[Event]:
        """Return the rules that are named at the top; names that are near each other get lines of text of their own."""
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
        """Return the y at which the names of events of one line of text stand."""
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
    """What is shown under one heading; `numbers` is all that is drawn, `name` the stem of its files."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    numbers: pd.DataFrame
    columns: int = 1


def shorten_names(figure: Figure) -> Figure:
    """Return a figure whose names each are one line, and no longer than leaves room for what is drawn."""

    def shorten_panel(panel: Panel) -> Panel:
        drawn = {
            kind: tuple(replace(one, label=_shorten_name(one.label)) for one in getattr(panel, kind))
            for kind in ("marks", "bars", "rules")
        }
        rows = {kind: tuple(map(_shorten_name, getattr(panel, kind))) for kind in ("rows", "x_tick_texts")}
        return replace(panel, title=" ".join(panel.title.split()), **drawn, **rows)

    return replace(figure, panels=tuple(map(shorten_panel, figure.panels)))


def _shorten_name(name: str) -> str:
    """Names differ at both ends, so what is too long loses its middle."""
    name = " ".join(name.split())
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}…{name[1 - LONGEST // 2 :]}"


def _compute_share(value: float, low: float, high: float, log: bool) -> float:
    """Where between `low` and `high` a value lies, from 0 to 1 as the eye sees it."""
    if log:
        value, low, high = np.log([value, low, high])
    return float((value - low) / (high - low))


def _compute_value_at(low: float, high: float, share: float, log: bool) -> float:
    """The value that lies at `share` of the way from `low` to `high`."""
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
    """Return the arms' marks a little apart, so that arms and samples do not hide each other; the numbers stay.

    `levels` are the places on the x axis, `wide` says that it is logarithmic.
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
    """Return at most nine round numbers for a logarithmic axis, 1 among them where it lies between the ends."""
    if high <= 6 * low:
        ticks = MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    else:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        if sum(low <= tick <= high for tick in ticks) > 9:
            ticks = [10.0**power for power in powers]
    return tuple(float(f"{tick:.6g}") for tick in ticks if low <= tick <= high)


def format_tick(value: float) -> str:
    """Return `value` as a tick: no digits that say nothing."""
    return f"{value:g}"


def compress_text(text: str) -> str:
    """Return a text as the page's own script inflates it: figures are most of a long page."""
    return b64encode(zlib.compress(text.encode(), 9)).decode()
