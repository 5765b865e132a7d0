"""Figures over the time of a battery: latency with limits, changes and modelled credits, and rates under ceilings."""

from dataclasses import replace

import numpy as np
import pandas as pd

from scripts.report import prose
from scripts.report.plot import COLOURS, GREY, Figure, Look, Marks, Panel, Rule
from scripts.studies.volumes.report import arms, words
from scripts.studies.volumes.report.arms import Clock, Trace
from scripts.studies.volumes.report.data import Levels, Results

# Panels of single series that a page bears; those in which most happened are drawn.
MANY = 10
DETAIL = {
    "p99": (Look(COLOURS[0], "circle"), 6),
    "p99.9": (Look(COLOURS[4], "triangle", filled=False), 5),
    "max": (Look(GREY, "x"), 4),
}
LATENCY = ["number", "job_Id", "minutes", "operation", "N", "p99_ms", "p99.9_ms", "max_ms"]
RATES = ["number", "job_Id", "minutes", "iops", "mib_s", "device_iops", "runtime_s"]


def latency(results: Results) -> Figure:
    """Return p99 of each job, all volumes of a job file together, with the modelled credits below."""
    title = "p99 of each job"
    panels = []
    for about, traces in arms.panels(results):
        clock = Clock.of(traces)
        marks = tuple(_line(trace, "p99_ms", clock, results) for trace in traces if trace[1]["p99_ms"].notna().any())
        invalid = [trace for trace in results.invalid if trace[0].job == traces[0][0].job]
        marks += tuple(arms.invalid_marks(invalid, "p99_ms", clock))
        if not marks:
            continue
        changes = arms.change_rules(traces, results, clock)
        panel = Panel(
            title=_title(f"p99 of {_operation(traces, results)}", about),
            x_label=clock.label,
            y_label="p99 / ms",
            marks=marks,
            rules=(*arms.limit_rules(results), *(changes if len(changes) <= 8 else ())),
        )
        panel = arms.with_ticks(panel)
        credits = _credits(traces, clock, results)
        ends = _together(panel, *credits)
        panels += [replace(one, x_ends=ends) for one in (panel, *credits)]
    caption = (
        "A mark is a job. Dashed: the limits. Dotted, in the volume's colour: the first job after a change. Below, "
        "where a volume's type has burst credits: what the model leaves of them."
    )
    return Figure("latency", title, caption, tuple(panels), arms.numbers([*results.traces, *results.invalid], LATENCY))


def details(results: Results) -> Figure:
    """Return p99, p99.9 and maximum of each job, a panel a series, with its segments."""
    title = "Each series by itself: p99, p99.9 and maximum"
    traces = [trace for trace in results.traces if trace[1]["p99_ms"].notna().any()]
    shown = _most_telling(traces, results)
    rules = arms.limit_rules(results)
    panels = arms.on_one_scale([_detail(trace, rules, results) for trace in shown])
    left = len(traces) - len(shown)
    caption = (
        "Bars: the median p99 of a segment; dotted: its first job, with the ratio to the segment before. "
        + (f"The {len(shown)} series in which most changed are drawn, {left} more are in the numbers. " if left else "")
        + "All panels have the same axis of latency."
    )
    return Figure("details", title, caption, tuple(panels), arms.numbers(results.traces, LATENCY), 2)


def rates(results: Results) -> Figure:
    """Return operations and MiB a second of each job under what the volume is provisioned for."""
    title = "Operations and throughput of each job, under the volume's ceiling"
    panels = []
    for about, traces in arms.panels(results):
        clock, traces = Clock.of(traces), [(series, _with_device(rows)) for series, rows in traces]
        for column, text, bounds in (
            ("iops", "Operations a second", ("ceiling_iops", "baseline_iops")),
            ("mib_s", "MiB/s", ("ceiling_mib_s",)),
        ):
            marks = [_line(trace, column, clock, results) for trace in traces if trace[1][column].notna().any()]
            if column == "iops":
                marks += [_device(trace, clock, results) for trace in traces if trace[1]["device_iops"].notna().any()]
            if marks:
                rules = _bounds(traces, bounds, results)
                panel = Panel(_title(text, about), clock.label, text, tuple(marks), rules=rules)
                panels.append(arms.with_ticks(panel))
    if not panels:
        return Figure("rates", title, "Rates of the jobs are not known.", (), pd.DataFrame())
    caption = (
        "A mark is a job: operations that fio completed (left) and bytes it moved (right). Crosses: what the device "
        "did for it, where the kernel tells. Dashed: the most that the volume's type and size allow, where known; "
        "dotted: what they allow without burst credits."
    )
    with_device = [(series, _with_device(rows)) for series, rows in results.traces]
    return Figure("rates", title, caption, tuple(panels), arms.numbers(with_device, RATES), 2)


def _title(what: str, about: str) -> str:
    return f"{what}{f': {about}' if about else ''}"


def _operation(traces: list[Trace], results: Results) -> str:
    names = dict.fromkeys(words.operation(rows["operation"].iloc[0], series, results) for series, rows in traces)
    return prose.listing(names, "or")


def _line(trace: Trace, column: str, clock: Clock, results: Results) -> Marks:
    """A series over time: continuous, so its jobs are joined."""
    series, rows = trace
    points = pd.DataFrame({"x": clock.time(rows), "y": rows[column], "note": arms.notes(rows)})
    points = points.dropna(subset=["x", "y"])
    return Marks(arms.name(series, results), arms.look(series, results), points, joined=True, size=6)


def _together(*panels: Panel) -> tuple[float, float]:
    ends = [panel.x_range() for panel in panels]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _credits(traces: list[Trace], clock: Clock, results: Results) -> list[Panel]:
    """The modelled credits of the volumes that have some, at the start and the end of each job."""
    marks, rules = [], []
    for series, rows in traces:
        credits = results.of_battery("credits", series)
        if credits.empty:
            continue
        look = arms.look(series, results)
        name, line = f"{arms.name(series, results)}: credits", replace(look, marker="")
        marks.append(Marks(name, line, _curve(credits, rows, clock), joined=True))
        collapse = results.of_battery("collapses", series)
        for row in collapse[collapse["predicted_number"].notna()].to_dict("records") if len(collapse) else []:
            at = clock.start_of(row["predicted_number"], rows)
            rules.append(Rule(at, f"gone in {row['predicted_job']}", "x", look.colour, "dashdot"))
    if not marks:
        return []
    return [
        Panel(
            title="Burst credits by the model",
            x_label=clock.label,
            y_label="million I/Os",
            marks=tuple(marks),
            rules=tuple(rules) if len(rules) <= 8 else (),
            height=200,
        )
    ]


def _curve(credits: pd.DataFrame, rows: pd.DataFrame, clock: Clock) -> pd.DataFrame:
    credits = credits.sort_values("number")
    starts = credits["number"].map(lambda number: clock.start_of(number, rows))
    lasting = 1.0
    if clock.minutes:
        seconds = rows.set_index("number")["runtime_s"] if "runtime_s" in rows else pd.Series(dtype=float)
        lasting = credits["number"].map(seconds / 60).fillna(0)
    ends = starts + lasting
    x = np.column_stack([starts, ends]).ravel()
    y = credits[["credits_start", "credits_end"]].to_numpy(float).ravel() / 1e6
    return pd.DataFrame({"x": x, "y": y})


def _detail(trace: Trace, limits: tuple[Rule, ...], results: Results) -> Panel:
    clock = Clock.of([trace])
    return Panel(
        title=words.label(trace[0], results),
        x_label=clock.label,
        y_label=f"{_operation([trace], results)} / ms",
        marks=(*_metrics(trace[1], clock), *_levels(*trace, clock, results)),
        rules=(*limits, *arms.change_rules([trace], results, clock, jumps=True)),
    )


def _metrics(rows: pd.DataFrame, clock: Clock) -> list[Marks]:
    marks = []
    for metric, (look, size) in DETAIL.items():
        points = pd.DataFrame({"x": clock.time(rows), "y": rows[f"{metric}_ms"], "note": arms.notes(rows)})
        points = points.dropna(subset=["x", "y"])
        if len(points):
            marks.append(Marks(words.metric(metric), look, points, joined=metric == "p99", size=size))
    return marks


def _levels(series: Levels, rows: pd.DataFrame, clock: Clock, results: Results) -> list[Marks]:
    """The median p99 of each segment as a bar over its jobs."""
    segments = results.of_battery("segments", series)
    if segments.empty:
        return []
    at = clock.time(rows).set_axis(rows["number"])
    ends = [segments[f"{end}_number"].map(at) for end in ("first", "last")]
    points = pd.DataFrame({"x": (ends[0] + ends[1]) / 2, "y": segments["p99_ms"], "x_low": ends[0], "x_high": ends[1]})
    return [Marks("", Look("#000000", ""), points.dropna())]


def _most_telling(traces: list[Trace], results: Results) -> list[Trace]:
    """At most so many series as a page bears: those with most segments and the widest span of p99 first."""
    if len(traces) <= MANY:
        return traces

    def happened(trace: Trace) -> tuple[int, float]:
        p99 = trace[1]["p99_ms"].dropna()
        return len(results.of("segments", trace[0])), float(p99.max() / p99.min())

    chosen = {trace[0] for trace in sorted(traces, key=happened, reverse=True)[:MANY]}
    return [trace for trace in traces if trace[0] in chosen]


def _with_device(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the device's I/Os a second, read and written, where known."""
    parts = [rows[column] for column in ("device_read_ios", "device_write_ios") if column in rows]
    if not parts or "runtime_s" not in rows:
        return rows.assign(device_iops=np.nan)
    return rows.assign(device_iops=pd.concat(parts, axis=1).sum(axis=1, min_count=1) / rows["runtime_s"])


def _device(trace: Trace, clock: Clock, results: Results) -> Marks:
    series, _ = trace
    marks = _line(trace, "device_iops", clock, results)
    look = replace(arms.look(series, results), marker="x")
    return replace(marks, label=f"{marks.label}: device", look=look, joined=False, size=5)


def _bounds(traces: list[Trace], columns: tuple[str, ...], results: Results) -> tuple[Rule, ...]:
    """What the volumes of a panel are provisioned for; volumes of one height share a line."""
    heights: dict[tuple[float, str], list[str]] = {}
    for series, _ in traces:
        cell = results.cell(series)
        provisioned = [float(cell.get(column, np.nan)) for column in columns]
        for column, height in zip(columns, provisioned, strict=True):
            # A baseline is one of its own where a volume can do more than that for a while.
            if np.isfinite(height) and (column == columns[0] or height != provisioned[0]):
                heights.setdefault((height, column), []).append(series.store)
    rules = []
    for (height, column), stores in heights.items():
        who = list(dict.fromkeys(stores))
        name = ", ".join(who) if len(who) <= 2 else f"{len(who)} volumes"
        rules.append(Rule(height, f"{name} {height:,.0f}", dash="dashed" if column == columns[0] else "dotted"))
    return tuple(rules)
