"""Figures of one value against one numeric factor: every repeat, the summary, its interval, the store's ceiling."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from scripts.lib import sizes
from scripts.report import names, prose
from scripts.report.plot import GREY, SAME_Y, Figure, Look, Marks, Panel, beside, time_ticks
from scripts.studies.blobs.patterns import FROM_ONE
from scripts.studies.blobs.report import words
from scripts.studies.blobs.report.data import Results

PANELS = 12  # that are drawn; all are in the numbers
ARMS = 8  # in a panel; more are told apart by panels of their own
TICKS = 6  # along the x axis of a panel that takes half the page
INVALID = Look(GREY, "x")
INTERVAL = "Small marks: each repeat; large mark: their summary; bar: its 95 % CI, from 6 repeats on."
X_LABELS = {
    "size": "Size of an object",
    "processes": "MPI processes",
    "operation_size": "Size of an operation",
    "chunk_size": "Size of a chunk",
    "concurrency": "Requests in flight",
}


@dataclass(frozen=True)
class Value:
    """A column of the cells and records, how it and its axis are called, what it means, whether 1 is no difference."""

    column: str
    name: str
    axis: str
    means: str
    ratio: bool = False


BANDWIDTH = Value(
    "mib_s",
    "Bandwidth",
    "Bandwidth / MiB/s",
    "Bandwidth: all bytes that reached the processes divided by all time; higher is better.",
)
LATENCY = Value(
    "latency_s",
    "Latency",
    "Latency of an iteration / s",
    "Latency: until the last process is done, the {latency}; lower is better.",
)
FIRST = Value(
    "first_ratio",
    "First iteration against the rest",
    "First iteration / median of the later ones",
    "The latency of a record's first iteration divided by the median of its later ones; above 1 the first took longer.",
    ratio=True,
)
IMBALANCE = Value(
    "imbalance",
    "Last against first process done",
    "Last process done / first process done",
    "When the last process was done by when the first was, from the iteration's begin: median over its record.",
    ratio=True,
)
SHARE = Value(
    "share",
    "Share of the ceiling",
    "Bandwidth / bandwidth of bare requests",
    "Bandwidth of a record divided by what bare requests got of the same store in the same record; 1 is the ceiling. "
    "Patterns in which one process reads for all are left out: what it fetches once counts once for each.",
    ratio=True,
)


@dataclass(frozen=True)
class _Plot:
    """What all panels of a figure share: how variants of a store look is the same in each."""

    results: Results
    factor: str
    value: Value
    varies: list[str]
    variants: list[tuple]

    @property
    def stores(self) -> list[str]:
        return list(self.results.cells["store"].unique())


def against(results: Results, factor: str, value: Value = BANDWIDTH) -> Figure:
    """Return a value against a numeric factor: a panel a pattern (and what else varies much), an arm a store.

    Arms with one level of the factor are left out where others have several; sizes are drawn in any case.
    """
    name = f"{value.column.replace('_', '-')}-by-{factor.replace('_', '-')}"
    title = f"{value.name} by {_of(factor)}"
    cells = _chosen(results, factor, value)
    if cells.empty:
        return Figure(name, title, "", (), pd.DataFrame())
    keys, groups = _groups(cells, factor, results)
    varies = results.varying(cells, [one for one in words.FACTORS if one not in (*keys, factor, "store")])
    plot = _Plot(results, factor, value, varies, results.names.sorted_rows(cells, varies) if varies else [()])
    panels = tuple(_panel(levels, group, plot) for levels, group in groups[:PANELS])
    ceiling = (
        " Dotted, or stars: the store's own ceiling, the most that bare requests got in the panel's cells."
        if _ceilings(cells, value).any()
        else ""
    )
    more = f" Drawn are the first {PANELS} of {len(groups)} panels; all are in the numbers."
    interval = "" if results.records.empty else f" {INTERVAL}"
    means = value.means.format(latency=words.latency(results.records))
    caption = means + ceiling + interval + (more if len(groups) > PANELS else "")
    return Figure(name, title, caption, panels, _numbers(cells, value, results), 2)


def _chosen(results: Results, factor: str, value: Value) -> pd.DataFrame:
    cells = results.measured
    cells = cells[cells[value.column].notna()]
    if value is SHARE:
        cells = cells[~cells["pattern"].isin(FROM_ONE)]
    if cells.empty:
        return cells
    others = [one for one in words.FACTORS if one != factor]
    several = cells.groupby(others, sort=False)[factor].transform("nunique") > 1
    return cells[several] if several.any() or factor != "size" else cells


def _groups(cells: pd.DataFrame, factor: str, results: Results) -> tuple[list[str], list[tuple[dict, pd.DataFrame]]]:
    """What tells panels apart, pattern and more where arms are many; each panel's levels and cells."""
    keys = ["pattern", "objects", *(["size"] if factor != "size" else [])]
    for more in ("cache", "processes", "chunk_size", "concurrency", "operation_size"):
        arms = [one for one in words.FACTORS if one not in (*keys, factor)]
        if cells.groupby(keys)[arms].apply(lambda group: len(group.drop_duplicates())).max() <= ARMS:
            break
        if more != factor:
            keys.append(more)
    groups = [(dict(zip(keys, levels, strict=True)), group) for levels, group in cells.groupby(keys, sort=False)]
    return keys, sorted(groups, key=lambda one: [results.names.order(*level) for level in one[0].items()])


def _panel(levels: dict, cells: pd.DataFrame, plot: _Plot) -> Panel:
    factor, value, results = plot.factor, plot.value, plot.results
    records = results.records[results.records["valid"]]
    marks = [
        Marks(label, look, _points(arm, value), _samples(records, arm, factor, value), joined=True)
        for label, look, arm in _arms(cells, plot)
    ]
    invalid = _invalid(levels, factor, value, results)
    places = np.sort(np.concatenate([cells[factor].map(names.amount), invalid["x"]]).astype(float))
    places = np.unique(places)
    wide = bool(len(places) == 1 or places[-1] >= 4 * places[0])
    marks += [Marks("[INVALID]", INVALID, invalid)] if len(invalid) else []
    drawn = (*beside(marks, places, wide), *_ceiling_marks(cells, plot))
    ticks = _ticks(places)
    varies = [one for one in levels if one not in ("pattern", "objects")]
    told = [words.pattern_of(levels), *(results.names.level(one, levels[one]) for one in varies)]
    panel = Panel(
        title=" · ".join(filter(None, told)),
        x_label=X_LABELS[factor],
        y_label=value.axis,
        marks=drawn,
        x_log=wide,
        x_ticks=tuple(ticks),
        x_tick_texts=tuple(_tick(tick, factor) for tick in ticks),
        y_log=True,
        rules=(SAME_Y,) if value.ratio else (),
    )
    return _with_ticks(panel)


def _with_ticks(panel: Panel) -> Panel:
    low, high = panel.y_range()
    ticks = time_ticks(low, high)
    # Within less than a decade 1, 2 and 5 are too few to read a value from.
    return replace(panel, y_ticks=ticks if high > 6 * low and len(ticks) > 2 else _round(low, high))


def _round(low: float, high: float) -> tuple[float, ...]:
    """At most eight round numbers that divide a short logarithmic axis."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000):
        if (high - low) / step <= 8:
            return tuple(round(step * part, 6) for part in range(int(np.ceil(low / step)), int(high / step) + 1))
    return time_ticks(low, high)


def _arms(cells: pd.DataFrame, plot: _Plot) -> list[tuple[str, Look, pd.DataFrame]]:
    """(label, look, cells by the factor) of each arm: a store has a colour, its variants a dash and a hollow mark."""
    found = []
    for colour, store in enumerate(plot.stores):
        own = cells[cells["store"] == store]
        for style, levels in enumerate(plot.variants):
            arm = own[(own[plot.varies] == list(levels)).all(axis=1)] if plot.varies else own
            if len(arm):
                named = {"store": store, **dict(zip(plot.varies, levels, strict=True))}
                label = plot.results.names.row(named, named)
                place = arm[plot.factor].map(names.amount)
                found.append((label, Look.of(colour, style), arm.assign(x=place).sort_values("x")))
    return found


def _points(arm: pd.DataFrame, value: Value) -> pd.DataFrame:
    names = {value.column: "y", f"{value.column}_low": "y_low", f"{value.column}_high": "y_high"}
    return arm.rename(columns=names)[["x", *names.values(), "n"]]


def _samples(records: pd.DataFrame, arm: pd.DataFrame, factor: str, value: Value) -> pd.DataFrame:
    own = records[records["cell"].isin(arm["cell"]) & records[value.column].notna()]
    notes = "repeat " + own["repeat"].astype(str)
    return pd.DataFrame({"x": own[factor].map(names.amount).astype(float), "y": own[value.column], "note": notes})


def _invalid(levels: dict, factor: str, value: Value, results: Results) -> pd.DataFrame:
    """Each repeat of the panel's cells that have no valid one: they have no summary."""
    cells, records = results.invalid, results.records
    inside = (cells[list(levels)] == list(levels.values())).all(axis=1)
    own = records[records["cell"].isin(cells[inside]["cell"]) & records[value.column].notna()]
    notes = "repeat " + own["repeat"].astype(str)
    return pd.DataFrame({"x": own[factor].map(names.amount).astype(float), "y": own[value.column], "note": notes})


def _ceilings(cells: pd.DataFrame, value: Value) -> pd.Series:
    """Which cells have a ceiling to draw; of one reader that gives to the others it bounds what it alone fetches."""
    return cells["ceiling_mib_s"].notna() & ~cells["pattern"].isin(FROM_ONE) & (value is BANDWIDTH)


def _ceiling_marks(cells: pd.DataFrame, plot: _Plot) -> list[Marks]:
    """The most that bare requests got of each store, and state of the cache, in the panel's cells at each place."""
    marks = []
    shown = ["store", *(["cache"] if "cache" in plot.varies else [])]
    for levels, own in cells[_ceilings(cells, plot.value)].groupby(shown, sort=False):
        named = dict(zip(shown, levels, strict=True))
        most = own.assign(x=own[plot.factor].map(names.amount)).groupby("x")["ceiling_mib_s"].max().reset_index()
        # One place alone makes no line.
        look = Look(Look.of(plot.stores.index(named["store"])).colour, "" if len(most) > 1 else "star", "dotted")
        points = most.rename(columns={"ceiling_mib_s": "y"}).assign(y_low=np.nan, y_high=np.nan, n=np.nan)
        label = plot.results.names.row(named, shown)
        marks.append(Marks(f"{label}: ceiling", look, points, joined=True))
    return marks


def _ticks(places: np.ndarray) -> np.ndarray:
    """Places that are named: all, or every second and so on, the largest among them."""
    step = -(-len(places) // TICKS)
    return places[::-1][::step][::-1]


def _tick(place: float, factor: str) -> str:
    return sizes.text(place) if factor in words.SIZES else f"{place:g}"


def _of(factor: str) -> str:
    return {"size": "size", "processes": "number of processes", "concurrency": "requests in flight"}.get(
        factor, f"{factor.split('_')[0]} size"
    )


def _numbers(cells: pd.DataFrame, value: Value, results: Results) -> pd.DataFrame:
    ends = [value.column, f"{value.column}_low", f"{value.column}_high"]
    extra = ["ceiling_mib_s"] if value is BANDWIDTH else []
    columns = ["cell", *words.FACTORS, "repeat", "n", *ends, *extra]
    single = results.records[results.records["cell"].isin([*cells["cell"], *results.invalid["cell"]])]
    single = single[["cell", *words.FACTORS, "repeat", "valid", value.column, *extra]]
    return pd.concat([cells.assign(repeat="")[columns], single])


def first_in_words(results: Results) -> list[str]:
    """Return a sentence a store: how much longer the first iteration took than the later ones."""
    return _spans(results, "first_ratio", "the first iteration took {} times as long as the later ones")


def imbalance_in_words(results: Results) -> list[str]:
    """Return a sentence a store: how far apart the first and the last process are done."""
    return _spans(results, "imbalance", "the last process was done after {} times as long as the first")


def _spans(results: Results, column: str, text: str) -> list[str]:
    lines = []
    cells = results.measured
    for store in cells["store"].unique():
        own = cells[(cells["store"] == store) & cells[column].notna()][column]
        if len(own):
            told = text.format(f"{prose.ratio(own.median())}")
            lines.append(
                f"{results.names.store(store)}: {told} (median of {prose.count(len(own), 'cell')}; {prose.span(own)})."
            )
    return lines
