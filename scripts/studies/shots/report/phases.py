"""Figures of what a task's time is made of: objects, first access and the rest, opening and reading."""

from dataclasses import replace

import numpy as np
import pandas as pd

from scripts.report import prose
from scripts.report.plot import Bars, Boxes, Figure, Look, Marks, Panel, time_ticks
from scripts.studies.shots.report.results import FACTORS, PLACE, Results, describe_object_times, in_order

# Rows that a panel bears before it is thinned to the fewest and the most workers.
MANY_ROWS = 40
THINNED = " Of more than two numbers of workers the smallest and the largest are drawn; all are in the numbers."


def object_times(results: Results) -> Figure:
    """Return box plots of mean-obj-time by library, page buffer and workers, a panel a place and access."""
    name, title = "object-times", "Mean time per object, by library, page buffer and workers"
    if results.samples.empty:
        return Figure(name, title, "There are no samples to draw.", (), pd.DataFrame())
    samples = results.samples[results.samples["cell"].isin(results.measured["cell"]) & results.samples["valid"]]
    panels, numbers = [], []
    for levels, group in samples.groupby([*PLACE, "access"], sort=False, observed=True):
        where = dict(zip([*PLACE, "access"], levels, strict=True))
        factors = results.varying(group, ["layout", "page_buffer", "workers", "library"])
        table = _boxes(group, factors)
        rows = [results.names.row(row, factors) for row in table.to_dict("records")]
        table["y"] = -np.arange(len(table), dtype=float)
        boxes = tuple(
            Boxes(results.names.subject("library", arm), Look.of(number), table[table["library"] == arm])
            for number, arm in enumerate(results.arms)
            if (table["library"] == arm).any()
        )
        wide = table["max"].max() > 20 * table["min"].min() > 0
        panel = Panel(
            title=_title(where, results),
            x_label=f"Mean time per {where['access'].removesuffix('s')} and file in a task / s",
            boxes=boxes,
            rows=tuple(rows),
            x_log=bool(wide),
        )
        panels.append(_with_time_ticks(panel))
        numbers.append(table.assign(**where).drop(columns="y"))
    caption = (
        "Box: middle half of the tasks' mean-obj-time over all repeats, with the median; whiskers: the furthest task "
        "within 1.5 times the box; marks: smallest and largest. Tasks of one repeat share its conditions, so no "
        "interval is drawn."
    )
    return Figure(name, title, caption, tuple(panels), pd.concat(numbers))


def object_time_table(results: Results, access: str | None = None) -> pd.DataFrame:
    """Return the `describe()` table of mean-obj-time (s) by effective page buffer, workers and what else varies."""
    samples = results.samples
    samples = samples[samples["valid"] & samples["cell"].isin(results.measured["cell"])]
    samples = samples[samples["access"] == access] if access else samples
    context = results.varying(samples, [*PLACE, "layout", "access", "library"])
    return describe_object_times(samples, (*context, "buffer", "workers"))


def first_access(results: Results) -> Figure:
    """Return, row by row, the first dataset beside the mean of the later ones; each repeat a small mark."""
    name, title = "first-access", "First access against the rest"
    if "first_s" not in results.records:
        return Figure(name, title, "These samples do not tell the first dataset from the rest.", (), pd.DataFrame())
    cells, thinned = _thin(results.measured)
    records = results.records[results.records["valid"]]
    panels = []
    for place, group in cells.groupby(list(PLACE), sort=False):
        factors = results.varying(group, [factor for factor in FACTORS if factor != "library"])
        rows = results.names.sorted_rows(group, factors) if factors else [()]
        marks = []
        for number, arm in enumerate(results.arms):
            shift = 0.0 if len(results.arms) < 2 else 0.2 - 0.4 * number / (len(results.arms) - 1)
            own = group[group["library"] == arm]
            y = {row["cell"]: shift - rows.index(tuple(row[f] for f in factors)) for _, row in own.iterrows()}
            for column, what, filled in (("first_s", "first dataset", True), ("later_s", "later ones, mean", False)):
                look = Look(Look.of(number).colour, Look.of(number).marker, filled=filled)
                single = records[records["cell"].isin(y)]
                median = single.groupby("cell", sort=False)[column].median()
                points = pd.DataFrame({"x": median, "y": median.index.map(y)})
                samples = pd.DataFrame({"x": single[column], "y": single["cell"].map(y), "note": single["repeat"]})
                text = f"{results.names.subject('library', arm)}: {what}"
                marks.append(Marks(text, look, points, samples))
        labels = tuple(results.names.row(dict(zip(factors, row, strict=True)), factors) for row in rows)
        where = results.names.place(dict(zip(PLACE, place, strict=True)))
        panel = Panel(prose.capital(where), "Time per dataset / s", marks=tuple(marks), rows=labels, x_log=True)
        panels.append(_with_time_ticks(panel))
    caption = (
        "Filled: a task's first dataset after its first open (median over the record's tasks); hollow: mean of its "
        "later datasets. Small marks: each repeat; large ones: their median." + THINNED * thinned
    )
    columns = ["cell", *FACTORS, "repeat", "open_s", "first_s", "later_s", "rest_s"]
    numbers = records[records["cell"].isin(results.measured["cell"])][columns]
    return Figure(name, title, caption, tuple(panels), numbers)


def opening(results: Results) -> Figure:
    """Return stacked bars of the seconds that a record's tasks spent opening, in first datasets and in the rest."""
    name, title = "open-read", "Opening against reading"
    if "open_sum_s" not in results.records:
        return Figure(name, title, "These samples do not tell opening from reading.", (), pd.DataFrame())
    parts = {"open_sum_s": "opening", "first_sum_s": "first dataset of a task", "rest_s": "all other datasets"}
    records = results.records[results.records["valid"]]
    medians = records.groupby("cell", sort=False)[list(parts)].median()
    numbers = results.measured[["cell", *FACTORS]].join(medians, on="cell", how="inner")
    cells, thinned = _thin(numbers)
    panels = []
    for place, group in cells.groupby(list(PLACE), sort=False):
        factors = results.varying(group, ["layout", "access", "page_buffer", "workers", "library"])
        order = results.names.sorted_rows(group, factors) if factors else [()]
        group = group.set_index("cell")
        y = np.array([-float(order.index(tuple(row))) for row in group[factors].to_numpy()])
        ends = group[list(parts)].cumsum(axis=1)
        bars = tuple(
            Bars(text, colour, pd.DataFrame({"y": y, "left": ends[part] - group[part], "right": ends[part]}), hatch)
            for (part, text), colour, hatch in zip(
                parts.items(), ("#D55E00", "#E69F00", "#56B4E9"), ("//", "xx", ""), strict=True
            )
        )
        panels.append(
            Panel(
                title=prose.capital(results.names.place(dict(zip(PLACE, place, strict=True)))),
                x_label="Time of all tasks together / s",
                bars=bars,
                rows=tuple(results.names.row(dict(zip(factors, row, strict=True)), factors) for row in order),
            )
        )
    caption = (
        "Seconds that all tasks of a record together spent opening files, in each task's first dataset and in all "
        "others; medians over the repeats. With several workers this sum exceeds the total runtime." + THINNED * thinned
    )
    return Figure(name, title, caption, tuple(panels), numbers)


def _boxes(samples: pd.DataFrame, factors: list[str]) -> pd.DataFrame:
    rows = []
    for levels, times in samples.groupby(factors or ["library"], sort=False, observed=True)["mean-obj-time"]:
        q1, median, q3 = np.quantile(times, [0.25, 0.5, 0.75])
        inside = times[(times >= q1 - 1.5 * (q3 - q1)) & (times <= q3 + 1.5 * (q3 - q1))]
        row = dict(zip(factors or ["library"], levels, strict=True)) | {"count": len(times), "min": times.min()}
        rows.append(
            row | {"low": inside.min(), "q1": q1, "median": median, "q3": q3, "high": inside.max(), "max": times.max()}
        )
    rows.sort(key=lambda row: in_order(tuple(row[factor] for factor in factors)))
    table = pd.DataFrame(rows)
    return table if "library" in table else table.assign(library=samples["library"].iloc[0])


def _thin(cells: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """Keep the fewest and the most workers of a place whose rows are too many to read."""
    kept, thinned = [], False
    for _, group in cells.groupby(list(PLACE), sort=False):
        workers = pd.to_numeric(group["workers"], errors="coerce")
        if len(group) > MANY_ROWS and workers.nunique() > 2:
            group, thinned = group[workers.isin([workers.min(), workers.max()])], True
        kept.append(group)
    return (pd.concat(kept) if kept else cells), thinned


def _with_time_ticks(panel: Panel) -> Panel:
    """Give a logarithmic axis its ticks, and make one of less than a decade linear, from 0."""
    low, high = panel.x_range()
    if not panel.x_log or high < 10 * low:
        return replace(panel, x_log=False)
    return replace(panel, x_ticks=time_ticks(low, high))


def _title(where: dict, results: Results) -> str:
    access = results.names.level("access", where["access"])
    return prose.capital(" · ".join(filter(None, [results.names.place(where), access])))
