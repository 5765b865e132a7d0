"""Draw the plots of the report: jobs over time with limits, rates, queue depths, percentiles, and load averages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from sbench.pages.curves import INVALID
from sbench.pages.plot import COLOURS, GREY, Figure, Look, Marks, Panel, Rule, choose_round_ticks
from sbench.studies.volumes import fio_options
from sbench.studies.volumes.report import phrases, words
from sbench.studies.volumes.report.batteries import Results, Trace, select_rows
from sbench.studies.volumes.series import ALL_HOSTS, FACTORS

TOGETHER = 2 * len(COLOURS)  # maximum number of volumes in a panel
SINGLE = 10  # maximum number of panels for single batteries; the batteries with the widest spread are drawn
RANKED = 8  # more batteries than this, of one or two jobs each, are drawn as rows instead of over time
SHOWN = 30  # maximum number of such rows
CHANGES = 8  # maximum number of level changes that are marked in a panel
DETAIL = {
    "p99": ("p99", Look(COLOURS[0], "circle"), 6),
    "p99.9": ("p99.9", Look(COLOURS[4], "triangle", filled=False), 5),
    "max": ("maximum", Look(GREY, "x"), 4),
}
NAMED = (50, 90, 99, 99.9, 99.99)
LATENCIES = ("operation", "N", "p99_ms", "p99.9_ms", "max_ms")


def draw_latency(run: Results) -> Figure:
    """Plot the p99 of each job over time, with a panel per job file and a panel below for modelled credits.

    Many batteries of one or two jobs are drawn by `_draw_ranked` instead.
    """
    if len(run.traces) > RANKED and max(len(trace.jobs) for trace in run.traces) <= 2:
        return _draw_ranked(run)
    panels, drawn = [], dict.fromkeys(("changes drawn", "credits drawn"), False)
    for about, traces in _split_by_panel(run):
        invalid = [one for one in run.invalid_traces if one.levels["job"] == traces[0].levels["job"]]
        marks = _build_lines(traces, run, "time", "p99_ms")
        if points := [_select_points(trace, "time", "p99_ms") for trace in invalid]:
            marks.append(Marks("[INVALID]", INVALID, pd.concat(points), size=6))
        changes = [rule for trace in traces for rule in _build_event_rules(trace, run.changes, "first", "{}", run)]
        changes = changes if len(changes) <= CHANGES else []
        drawn["changes drawn"] |= bool(changes)
        rules = (*_build_limit_rules(run), *changes)
        title = f"p99 of {phrases.describe_trace_operation(traces, run)}{about}"
        together = _scale_panels([Panel(title, run.time_title, "p99 / ms", tuple(marks), rules=rules)])
        if credits := _build_lines(traces, run, "time", "credits_million", ": credits", marker=""):
            gone = [
                rule
                for one in traces
                for rule in _build_event_rules(one, run.collapses, "predicted", "gone in {}", run)
            ]
            rules, title = tuple(gone if len(gone) <= CHANGES else ()), "Burst credits by the model"
            together.append(Panel(title, run.time_title, "million I/Os", tuple(credits), rules=rules, height=200))
            drawn["credits drawn"] = True
        ends = [end for one in together for end in one.compute_x_range()]
        panels += [replace(one, x_ends=(min(ends), max(ends))) for one in together]
    caption = _write_caption("figure of jobs", drawn)
    return Figure("latency", "p99 of each job", caption, tuple(panels), _select_numbers(run, *LATENCIES))


def _draw_ranked(run: Results) -> Figure:
    """Plot the p99 and its confidence interval in a row per series, sorted in descending order."""
    cells = run.measured[run.measured["p99_ms_high"].notna() & (run.measured["host"] != ALL_HOSTS)]
    cells = cells.sort_values("p99_ms_high", ascending=False, ignore_index=True)
    shown = cells.head(SHOWN)
    middle = shown["p99_ms"].fillna((shown["p99_ms_low"] * shown["p99_ms_high"]) ** 0.5)
    ends = {"x_low": shown["p99_ms_low"], "x_high": shown["p99_ms_high"].clip(upper=phrases.UNBOUNDED_MS)}
    points = pd.DataFrame({"x": middle, "y": -np.arange(len(shown), dtype=float), **ends})
    rows = tuple(phrases.format_label(row, run) for row in shown.to_dict("records"))
    rules = tuple(replace(rule, axis="x") for rule in _build_limit_rules(run))
    marks = (Marks("", Look.from_arm(0), points),)
    panel = Panel("p99 of each series", "p99 / ms", marks=marks, rows=rows, rules=rules, x_log=True)
    panel = replace(panel, x_ticks=choose_round_ticks(*panel.compute_x_range()))
    caption = words.fill("figure of series")
    caption += words.fill("series drawn", drawn=SHOWN, of=len(cells)) if len(cells) > SHOWN else ""
    numbers = cells[[*FACTORS, "p99_ms", "p99_ms_low", "p99_ms_high"]]
    return Figure("latency", "p99 of each series", caption, (panel,), numbers)


def draw_details(run: Results) -> Figure:
    """Plot p99, p99.9 and maximum of each job over time, and the segments. There is a panel for each battery."""
    p99 = [trace.jobs["p99_ms"] for trace in run.traces]
    spreads = {number: one.max() / one.min() for number, one in enumerate(p99) if one.notna().any()}
    widest, panels = sorted(spreads, key=spreads.get, reverse=True)[:SINGLE], []
    for trace in (run.traces[number] for number in sorted(widest)):
        marks = [
            Marks(label, own, points, joined=name == "p99", size=size)
            for name, (label, own, size) in DETAIL.items()
            if len(points := _select_points(trace, "time", f"{name}_ms"))
        ]
        segments = select_rows(run.segments, trace.levels, trace.repeat)
        if len(segments):
            low, high = (segments[f"{end}_number"].map(trace.times) for end in ("first", "last"))
            bars = pd.DataFrame({"x": (low + high) / 2, "y": segments["p99_ms"], "x_low": low, "x_high": high})
            marks.append(Marks("", Look("#000000", ""), bars.dropna()))
        rules = (*_build_limit_rules(run), *_build_event_rules(trace, run.changes, "first", "{} ×{:.3g}", run, GREY))
        axis = f"{phrases.describe_trace_operation([trace], run)} / ms"
        panels.append(Panel(phrases.format_legend(trace, run), run.time_title, axis, tuple(marks), rules=rules))
    caption = _write_caption(
        "figure of segments", {"axis shared": len(panels) > 1, "jumps drawn": len(run.changes) > 0}
    )
    caption += words.fill("segments drawn", drawn=SINGLE) if len(spreads) > SINGLE else ""
    title = "p99, p99.9 and maximum of each series"
    return Figure("details", title, caption, tuple(_scale_panels(panels)), _select_numbers(run, *LATENCIES), 2)


def draw_rates(run: Results) -> Figure:
    """Draw IOPS and MiB/s of each job over time, with the volume's documented limits as lines."""
    panels, drawn = [], dict.fromkeys(("device drawn", "ceilings drawn", "baselines drawn"), False)
    for about, traces in _split_by_panel(run):
        device = _build_lines(traces, run, "time", "device_iops", ": device", marker="x")
        device = [replace(one, joined=False, size=5) for one in device]
        for column, unit, beside, bounds in (
            ("iops", "IOPS", device, ("ceiling_iops", "baseline_iops")),
            ("mib_s", "MiB/s", (), ("ceiling_mib_s",)),
        ):
            lines, rules = _build_lines(traces, run, "time", column), _build_ceiling_rules(traces, bounds, run)
            drawn["device drawn"] |= bool(beside)
            drawn["ceilings drawn"] |= any(rule.dash == "dashed" for rule in rules)
            drawn["baselines drawn"] |= any(rule.dash == "dotted" for rule in rules)
            panels += _scale_panels([Panel(f"{unit}{about}", run.time_title, unit, (*lines, *beside), rules=rules)])
    title = "IOPS and throughput of each job"
    numbers = _select_numbers(run, "iops", "mib_s", "device_iops", "runtime_s")
    caption = _write_caption("figure of rates", drawn) if panels else words.fill("no rates")
    return Figure("rates", title, caption, tuple(panels), numbers, 2)


def draw_depths(run: Results) -> Figure:
    """Draw IOPS and p99 over operations in flight, for jobs that differ only in queue depth and processes."""
    rows = run.measured.to_dict("records")
    lines: dict[tuple[str, str, str], list[dict]] = {}
    for row in rows:
        options = run.options.get(tuple(row[name] for name in FACTORS[:3]), {})
        alone = fio_options.format_signature({**options, "iodepth": "1", "numjobs": "1"})
        own = {"x": fio_options.count_in_flight(options), "iops": row.get("iops"), "p99": row.get("p99_ms")}
        lines.setdefault((row["store"], row["host"], alone), []).append(own)
    swept = {
        key: pd.DataFrame(own).sort_values("x") for key, own in lines.items() if len({one["x"] for one in own}) > 1
    }
    axis, panels = "Operations in flight: queue depth × processes", []
    for column, title, unit in (("iops", "IOPS", "IOPS"), ("p99", "p99", "p99 / ms")):
        marks = []
        for number, ((store, host, alone), points) in enumerate(list(swept.items())[: len(COLOURS)]):
            name = ", ".join(filter(None, (store, host if host != "unknown" else "", alone)))
            drawn = points[["x", column]].set_axis(["x", "y"], axis=1).dropna()
            marks.append(Marks(name, Look.from_arm(number, 0), drawn, joined=True, size=6))
        marks = [mark for mark in marks if len(mark.points)]
        if marks:
            ticks = tuple(sorted({float(x) for mark in marks for x in mark.points["x"]}))
            panels += _scale_panels([Panel(title, axis, unit, tuple(marks), x_log=True, x_ticks=ticks)])
    caption = words.fill("figure of depths")
    caption += words.fill("depths drawn", drawn=len(COLOURS)) if len(swept) > len(COLOURS) else ""
    numbers = run.measured.reindex(columns=[*FACTORS, "iops", "p99_ms"])
    return Figure("depths", "IOPS and p99 over operations in flight", caption, tuple(panels), numbers, 2)


def draw_percentiles(run: Results) -> Figure:
    """Draw the percentile curve of each series; the x axis is 1 / (1 - percentile), logarithmic."""
    panels = []
    for about, traces in _split_by_panel(run):
        # A curve covers all batteries of a series, so draw it only for the first.
        own = [trace for trace in traces if trace.repeat == 1 and run.has_bins(trace)]
        curves = [(one, _build_curve(select_rows(run.percentiles, one.levels))) for one in own]
        marks = [
            Marks(phrases.format_legend(one, run), choose_look(one, run), curve, joined=True, size=5)
            for one, curve in curves
        ]
        marks = [mark for mark in marks if len(mark.points)]
        name, axis = phrases.describe_trace_operation(own, run) if own else "", "Percentile (slowest 1 in N operations)"
        panel = Panel(f"{name}{about}", axis, f"{name} / ms", tuple(marks), x_log=True, rules=_build_limit_rules(run))
        for shown in _scale_panels([panel]):
            low, high = shown.compute_x_range()
            ticks = {f"{p:g}": 1 / (1 - p / 100) for p in NAMED if low <= 1 / (1 - p / 100) <= high}
            panels.append(replace(shown, x_ticks=tuple(ticks.values()), x_tick_texts=tuple(ticks)))
    lacking = sum(not run.has_bins(trace) for trace in run.traces)
    caption = words.fill("figure of percentiles") + (words.fill("no curve", lacking=lacking) if lacking else "")
    caption, numbers = (caption, run.percentiles) if panels else (words.fill("no bins"), pd.DataFrame())
    return Figure("percentiles", "Percentiles of all jobs together", caption, tuple(panels), numbers)


def draw_load(run: Results) -> Figure:
    """Draw the p99 of each job over the load average before the job."""
    panels = []
    for about, traces in _split_by_panel(run):
        marks = [replace(one, joined=False) for one in _build_lines(traces, run, "load1_before", "p99_ms")]
        title, axis = (
            f"p99 of {phrases.describe_trace_operation(traces, run)}{about}",
            "Load average over 1 minute, before the job",
        )
        panels += _scale_panels([Panel(title, axis, "p99 / ms", tuple(marks), rules=_build_limit_rules(run))])
    caption = words.fill("figure of load" if panels else "no load")
    numbers = _select_numbers(run, "load1_before", "load1_after", "steal_percent", "p99_ms")
    return Figure("load", "p99 of each job over the load average before it", caption, tuple(panels), numbers)


def choose_look(trace: Trace, run: Results) -> Look:
    """Choose the colour and line style of a battery, the same in all plots.

    There is a colour per series, or per volume if there are too many series.
    """
    series = [(one.volume, (one.levels["background"], one.repeat)) for one in run.traces]
    volumes, styles = (list(dict.fromkeys(parts)) for parts in zip(*series, strict=True))
    volume, style = own = (trace.volume, (trace.levels["background"], trace.repeat))
    unlike = list(dict.fromkeys(series))
    number = unlike.index(own) if len(unlike) <= len(COLOURS) else volumes.index(volume)
    return Look.from_arm(number, styles.index(style))


def _write_caption(name: str, drawn: Mapping[str, bool]) -> str:
    """Build a caption from the template `name`, and from a template for each optional element that was drawn."""
    return "".join(map(words.fill, [name, *(part for part, is_drawn in drawn.items() if is_drawn)]))


def _split_by_panel(run: Results) -> Iterator[tuple[str, list[Trace]]]:
    """Yield the title suffix and the batteries of each panel.

    There is a panel per job file, or several if it has more than `TOGETHER` volumes, which could not be distinguished.
    """
    volumes = list(dict.fromkeys(one.volume for one in run.traces))
    for job, traces in run.traces_by_job.items():
        parts: dict[int, list[Trace]] = {}
        for trace in traces:
            parts.setdefault(volumes.index(trace.volume) // TOGETHER, []).append(trace)
        of_job = f"job {job}" if len(run.traces_by_job) > 1 else ""
        for number, part in enumerate(parts.values(), 1):
            of_part = f"volumes, part {number} of {len(parts)}" if len(parts) > 1 else ""
            which = ", ".join(filter(None, (of_job, of_part)))
            yield f": {which}" if which else "", part


def _build_lines(traces: Sequence[Trace], run: Results, x: str, y: str, suffix: str = "", **changed) -> list[Marks]:
    """Build a line per battery through its jobs, from the columns `x` and `y`; batteries without values are omitted.

    `suffix` is appended to the name in the legend, and `changed` overrides attributes of the line style.
    """
    drawn = [(trace, _select_points(trace, x, y)) for trace in traces]
    drawn = [
        (phrases.format_legend(trace, run), choose_look(trace, run), points) for trace, points in drawn if len(points)
    ]
    return [Marks(name + suffix, replace(own, **changed), points, joined=True, size=6) for name, own, points in drawn]


def _select_points(trace: Trace, x: str, y: str) -> pd.DataFrame:
    """Select the jobs of a battery that have values in both columns, with the text of their tooltips."""
    points = trace.jobs.reindex(columns=[x, y]).set_axis(["x", "y"], axis=1)
    notes = map(phrases.format_job, trace.jobs["number"], trace.jobs["job_Id"])
    return points.assign(note=list(notes)).dropna(subset=["x", "y"])


def _build_limit_rules(run: Results) -> tuple[Rule, ...]:
    """Build a line per limit; limits of equal height share a line."""
    names = run.limits.groupby("limit_ms", sort=False)["limit"].unique() if len(run.limits) else pd.Series(dtype=object)
    return tuple(Rule(float(height), f"{', '.join(who)} {height:g}") for height, who in names.items())


def _build_event_rules(
    trace: Trace, table: pd.DataFrame, which: str, text: str, run: Results, colour: str = ""
) -> list[Rule]:
    """Build a vertical line at each job that `table` lists in its columns `which`_job and `which`_number.

    `text` is formatted with the name of the job and the jump. By default, the lines have the colour of the battery.
    """
    rows = select_rows(table, trace.levels, trace.repeat)
    rules = []
    for row in rows[rows[f"{which}_number"].notna()].to_dict("records") if len(rows) else ():
        name = text.format(phrases.format_job(row[f"{which}_number"], row[f"{which}_job"]), row.get("jump"))
        at = trace.times.get(row[f"{which}_number"], np.nan)
        rules.append(Rule(float(at), name, "x", colour or choose_look(trace, run).colour, "dotted"))
    return rules


def _build_curve(rows: pd.DataFrame) -> pd.DataFrame:
    """Build the points of a percentile curve, without the maximum. Only labelled points get confidence intervals."""
    if rows.empty:
        return rows
    rows = rows[rows["percentile"] < 100].sort_values("percentile")
    named = rows["percentile"].isin(NAMED)
    ends = {f"y_{end}": rows[end].where(named) for end in ("low", "high")}
    return pd.DataFrame({"x": 1 / (1 - rows["percentile"] / 100), "y": rows["ms"], **ends, "n": rows["N"]})


def _build_ceiling_rules(traces: Sequence[Trace], columns: Sequence[str], run: Results) -> tuple[Rule, ...]:
    """Build a line for each documented rate in `columns` of a panel's volumes. Equal rates share a line."""
    cells = run.cells[run.cells["store"].isin([trace.levels["store"] for trace in traces])]
    heights = cells.reindex(columns=["store", *columns]).melt("store", var_name="column", value_name="height").dropna()
    rules = []
    # Draw a baseline only if it differs from the ceiling.
    for height, own in heights.drop_duplicates(["store", "height"]).groupby(["column", "height"], sort=False):
        who = ", ".join(own["store"]) if len(own) <= 2 else f"{len(own)} volumes"
        dash = "dashed" if height[0] == columns[0] else "dotted"
        rules.append(Rule(float(height[1]), f"{who} {height[1]:,.0f}", dash=dash))
    return tuple(rules)


def _scale_panels(panels: Sequence[Panel]) -> list[Panel]:
    """Give non-empty panels a common y axis, logarithmic if the values span more than about a decade."""
    panels = [panel for panel in panels if panel.marks]
    ends = [end for panel in panels for end in replace(panel, y_log=True).compute_y_range()]
    if not ends or max(ends) < 12 * min(ends):
        return panels
    low, high = min(ends), max(ends)
    together = (low, high) if len(panels) > 1 else None
    return [replace(panel, y_log=True, y_ends=together, y_ticks=choose_round_ticks(low, high)) for panel in panels]


def _select_numbers(run: Results, *columns: str) -> pd.DataFrame:
    """Return the data behind a plot: the given columns of all finished jobs, if available."""
    shown = [*FACTORS, "repeat", "valid", "number", "job_Id", "minutes", *columns]
    jobs = run.samples[run.samples["status"] == "done"] if len(run.samples) else run.samples
    return jobs[[name for name in shown if name in jobs]]
