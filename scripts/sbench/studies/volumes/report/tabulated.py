"""Build the tables of the report: limits, segments, latencies by series, job and node, batteries, and volumes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from sbench.pages import cell_tables, names, prose
from sbench.pages import words as shared
from sbench.pages.cell_tables import format_fact, remove_empty_columns
from sbench.pages.markup import code, paragraph, verbatim
from sbench.pages.page import Page, Table
from sbench.studies.volumes.report import phrases, words
from sbench.studies.volumes.report.answers import FEW, Course, list_courses
from sbench.studies.volumes.report.batteries import Results
from sbench.studies.volumes.series import FACTORS
from sbench.verdicts.outcomes import Outcome

# Latencies in ms at or above which table cells are yellow, and red.
COLOURED = {"p99": (5.0, 10.0), "p99.9": (5.0, 10.0), "mean": (2.0, 5.0), "max": (50.0, 100.0), "stddev": (None, 1.0)}
TITLES = {"max": "Maximum", "mean": "Mean", "stddev": "Standard deviation"}
SUMMED = ("p50", "p99", "p99.9", "p99.99", "mean")
SUMMARY = {
    **{"interval": "intervals from", "max_ms": "max / ms", "stddev_ms": "stddev / ms", "iops": "IOPS"},
    **{"mib_s": "MiB/s", "device_writes_per_write": "device writes per write", "note": "note"},
}
OF_NODE = {
    **{"battery_id": "battery_id", "number": "job", "job_Id": "job_Id"},
    **{f"{name}_ms": f"{name} / ms" for name in ("max", "mean", "stddev", "p50", "p99", "p99.9", "p99.99")},
    **{"N": "N", "iops": "IOPS", "mib_s": "MiB/s", "runtime_s": "runtime / s", "minutes": "began / min"},
    **{"load1_before": "load before", "steal_percent": "steal / %", "free_gib_before": "free / GiB"},
    **{"device_util_percent": "device busy / %"},
}
WHOLE = "{:,.0f}".format
ABOVE = "operations of"  # in the heading of a column of shares at or above a limit
MOST_ROWS = 12  # longer tables are collapsed


@dataclass(frozen=True)
class TitledTable(Table):
    """A table that `show_tables` collapses under its title if it has many rows."""

    title: str = ""


def show_tables(page: Page, tables: Iterable[TitledTable], otherwise: str = "") -> None:
    """Add tables to a page, collapsing tables with more than `MOST_ROWS` rows.

    `otherwise` is the text to show for an empty table.
    """
    for table in tables:
        if len(table.frame) > MOST_ROWS:
            with page.fold(words.fill("fold", title=table.title, rows=len(table.frame))):
                page.show_table(table)
        else:
            page.show_table(table, otherwise)


def build_glance_table(run: Results) -> Table:
    """Build the overview: a row per series with, for each limit, the verdict, its latency and the time it was met."""
    every = list_courses(run)
    if not every:
        return _build_rates_table(run)
    if len({tuple(one.whole[name] for name in FACTORS) for one in every}) > FEW:
        every.sort(key=lambda course: np.nan_to_num(course.deciding_segment["value_ms"], nan=-1), reverse=True)
    series = pd.DataFrame([course.whole for course in every])[[*FACTORS]].drop_duplicates()
    frame, over = cell_tables.build_level_columns(series, run), {}
    limits = dict.fromkeys((one.whole["limit"], one.whole["metric"], one.whole["limit_ms"]) for one in every)
    for limit, metric, height in limits:
        own = {tuple(one.whole[name] for name in FACTORS): one for one in every if one.whole["limit"] == limit}
        shown = [own.get(levels) for levels in series.itertuples(index=False, name=None)]
        texts = [_format_course(one) if one else [""] * 4 for one in shown]
        title = f"{limit}: {metric} below {height:g} ms"
        kept, above = f"{limit}: stayed below {height:g} ms for", f"{limit}: {ABOVE} {height:g} ms or more"
        over[title], frame[title], frame[kept], shares = map(list, zip(*texts, strict=True))
        if any(shares):
            frame[above] = shares
    caption, meaning = words.fill("table at a glance"), shared.fill("colours of verdicts")
    caption += words.fill("shares at a glance") if any(f": {ABOVE} " in column for column in frame) else ""
    return Table("at-a-glance", caption, frame, over=over, meaning=meaning)


def _build_rates_table(run: Results) -> Table:
    """Build the overview without limits: rates and percentiles of each series, the highest p99 first."""
    rows = run.measured
    if rows.empty or "iops" not in rows:
        return Table("at-a-glance", "", pd.DataFrame())
    rows = rows.sort_values("p99_ms", ascending=False, ignore_index=True)
    columns = {"iops": "IOPS", "mib_s": "MiB/s", "p50_ms": "p50 / ms", "p99_ms": "p99 / ms", "max_ms": "max / ms"}
    frame = cell_tables.build_level_columns(rows, run)
    frame["operation"] = [phrases.describe_operation([row], run) for row in rows.to_dict("records")]
    frame = remove_empty_columns(frame.join(rows[[*columns]].rename(columns=columns)))
    formats = dict.fromkeys(columns.values(), prose.format_number) | {"IOPS": WHOLE}
    return Table("at-a-glance", words.fill("table of rates"), frame, formats)


def build_limits_table(run: Results) -> Table:
    """Build the table of limits with their sources."""
    columns = ["limit", "metric", "limit_ms", "source"]
    frame = run.limits[columns].drop_duplicates() if len(run.limits) else run.limits
    frame = frame.rename(columns={"limit_ms": "below / ms"})
    return Table("limits", words.fill("table of limits"), frame, {"below / ms": "{:g}".format})


def build_segments_table(run: Results) -> TitledTable:
    """Build the table of segments, for series with level changes only."""
    rows = run.segments
    if len(rows):
        rows = rows[rows.groupby(list(FACTORS))["jump"].transform("count") > 0].reset_index(drop=True)
    if rows.empty:
        return TitledTable("segments", "", rows)
    frame = cell_tables.build_level_columns(rows, run).assign(segment=rows["segment"])
    for end, title in (("first", "from"), ("last", "to")):
        frame[title] = [phrases.format_job(*one) for one in zip(rows[f"{end}_number"], rows[f"{end}_job"], strict=True)]
    frame["jobs"], frame["p99 / ms"] = rows["jobs"], rows["p99_ms"]
    jumps = rows[["jump", "jump_low", "jump_high"]].itertuples(index=False, name=None)
    frame["ratio to segment before"] = [names.format_ratio_with_interval(*row) for row in jumps]
    formats, title = {"jobs": WHOLE, "p99 / ms": prose.format_number}, words.fill("title of segments")
    return TitledTable("segments", words.fill("table of segments"), frame, formats, title=title)


def build_series_table(run: Results) -> TitledTable:
    """Build the table of series: operations, percentiles with confidence intervals, and rates."""
    cells = run.measured
    if cells.empty or "jobs" not in cells:
        return TitledTable("series", "", pd.DataFrame())
    if len(cells) > FEW:
        cells = cells.sort_values("p99_ms", ascending=False, ignore_index=True)
    frame = cell_tables.build_level_columns(cells, run)
    frame["operation"] = [phrases.describe_operation([row], run) for row in cells.to_dict("records")]
    frame["jobs"], frame["N"] = cells["jobs"], cells["N"]
    for metric in SUMMED:
        ends = cells.reindex(columns=[f"{metric}_ms{end}" for end in ("", "_low", "_high")]).to_numpy(float)
        frame[f"{metric} / ms"] = [
            names.format_with_interval(*row, prose.format_number) if row[0] == row[0] else "" for row in ends
        ]
    frame = remove_empty_columns(frame.join(cells.reindex(columns=SUMMARY).rename(columns=SUMMARY)))
    formats = dict.fromkeys(SUMMARY.values(), prose.format_number) | {"jobs": WHOLE, "N": WHOLE}
    formats |= {"intervals from": str, "note": str}
    return TitledTable("series", words.fill("table of series"), frame, formats, title=words.fill("title of series"))


def build_job_tables(run: Results) -> Iterator[TitledTable]:
    """Yield a coloured table per metric and job file, as in the published study: a row per job, a column per volume."""
    red = float(run.limits["limit_ms"].iloc[0]) if len(run.limits) else COLOURED["p99"][1]
    bounds = COLOURED | {"p99": (red / 2, red)}
    for name, traces in run.traces_by_job.items():
        about, suffix = (f", job {name}", f"-{name}") if len(run.traces_by_job) > 1 else ("", "")
        jobs = {phrases.format_legend(trace, run): trace.jobs.set_index("number") for trace in traces}
        calls = pd.concat([one["job_Id"] for one in jobs.values()]).groupby(level=0)
        # Show the id of a job in imported results if it is the same in all series.
        calls = calls.agg(lambda ids: ids.iloc[0] if ids.nunique() == 1 else "")
        for metric, (yellow, red) in bounds.items():
            frame = pd.DataFrame({series: one[f"{metric}_ms"] for series, one in jobs.items()}).sort_index()
            if frame.isna().all(axis=None):
                continue
            called = pd.DataFrame({"job": frame.index, "job_Id": calls.reindex(frame.index)}, frame.index)
            given = {"metric": TITLES.get(metric, metric), "operation": phrases.describe_trace_operation(traces, run)}
            unit, text = phrases.choose_unit(frame.to_numpy(float))
            yield TitledTable(
                f"{metric}-by-job{suffix}",
                words.fill("table of jobs", **given, unit=unit, about=about),
                remove_empty_columns(called.join(frame)).reset_index(drop=True),
                dict.fromkeys(jobs, text),
                {
                    series: np.select([values >= red, values >= (yellow or red)], ["red", "yellow"], "").tolist()
                    for series, values in frame.items()
                },
                (words.fill("yellow", height=yellow) if yellow else "") + words.fill("red", height=red),
                title=words.fill("title of jobs", **given, about=about),
            )


def build_node_tables(run: Results) -> Iterator[TitledTable]:
    """Yield a table per battery with all metrics of its jobs."""
    for number, trace in enumerate([*run.traces, *run.invalid_traces], 1):
        jobs = trace.jobs.reset_index(drop=True)
        frame = remove_empty_columns(jobs[[name for name in OF_NODE if name in jobs]].rename(columns=OF_NODE))
        nodes = jobs.get("node_name", pd.Series(trace.levels["host"])).unique()
        about = ", ".join(dict.fromkeys(filter(None, [*nodes, phrases.format_legend(trace, run)])))
        about = about if jobs["valid"].all() else f"[INVALID] {about}"
        yield TitledTable(
            f"node-{number}",
            words.fill("table of node", about=about, operation=phrases.describe_trace_operation([trace], run)),
            frame,
            dict.fromkeys(OF_NODE.values(), prose.format_number)
            | {"battery_id": str, "job": str, "job_Id": str, "N": WHOLE},
            title=about,
        )


def build_left_out_table(run: Results) -> TitledTable:
    """Build the table of files that could not be imported, with reasons."""
    frame = pd.DataFrame(run.facts.get("left_out") or [], columns=["file", "reason"])
    return TitledTable("left-out-files", words.fill("table of left out"), frame, title=words.fill("title of left out"))


def build_batteries_table(run: Results) -> Table:
    """Build the table of batteries in measurement order, with the pauses before each and between its jobs."""
    rows = pd.DataFrame(run.facts.get("batteries") or [])
    if rows.empty:
        return Table("batteries", "", rows)
    rows = rows.reindex(columns=[*FACTORS, "started_utc", "ended_utc", "position", "pause_s", "status", "reasons"])
    rows = rows.sort_values(["started_utc", "position"], ignore_index=True)
    start, end = (
        pd.to_datetime(rows[f"{event}_utc"], format="ISO8601", utc=True, errors="coerce")
        for event in ("started", "ended")
    )
    rest = (start - end.ffill().shift()).dt.total_seconds()
    frame = pd.DataFrame({"": rows.index + 1})
    for name in FACTORS:
        frame[name] = [run.names.format_table_level(name, level) if level else "" for level in rows[name].fillna("")]
    frame["began"] = start.dt.strftime("%Y-%m-%d %H:%M:%S")
    frame["took"] = (end - start).dt.total_seconds().map(phrases.format_duration)
    frame["pause before"] = rest.where(rest >= 0).map(phrases.format_duration)
    frame["pause between jobs / s"], frame["status"] = rows["pause_s"], rows["status"]
    frame["reasons"] = rows["reasons"].str.join("; ")
    formats = {"pause between jobs / s": "{:g}".format}
    caption = words.fill("table of batteries") + (words.fill("credits carry over") if run.has_credits else "")
    return Table("batteries", caption, remove_empty_columns(frame), formats)


def build_volumes_table(run: Results) -> Table:
    """Build the table of volumes: type, size, device and mount, with fio version, kernel and processor of the host."""
    rows = []
    for battery in run.facts.get("batteries") or []:
        row = {"volume": battery.get("store"), "host": battery.get("host")}
        volume = battery.get("volume")
        row |= {prose.format_name(key): value for key, value in volume.items()} if isinstance(volume, dict) else {}
        row |= {key: battery.get(key) for key in ("device", "memory", "mount", "fio", "kernel", "cpu")}
        rows.append({key: format_fact(value) for key, value in row.items()})
    frame = remove_empty_columns(pd.DataFrame(rows).fillna("").drop_duplicates(ignore_index=True))
    return Table("volumes", words.fill("table of volumes"), frame)


def render_job_files(run: Results) -> list[str]:
    """Render each job: the content of its job file, or the options in fio's output."""
    jobs = {
        job: "\n".join(name if str(value) in ("", "1") else f"{name}={value}" for name, value in options.items())
        for (_, job, _), options in run.options.items()
    }
    jobs |= {name: job["text"] for name, job in (run.facts.get("jobs") or {}).items()}
    return [paragraph(f"Job {code(name)}:") + verbatim(text.strip()) for name, text in jobs.items() if text]


def _format_course(course: Course) -> tuple[str, ...]:
    """Return the colour and text of a verdict, the time the limit was met, and the shares at or above the limit."""
    verdict, jobs = course.whole["verdict"], course.kept_jobs
    kept = "all jobs" if verdict == Outcome.MEETS else "not at all" if verdict == Outcome.MISSES else ""
    if jobs and verdict != Outcome.MEETS:
        kept = ", ".join(
            filter(None, [phrases.format_duration(course.whole["kept_s"]), prose.format_count(jobs, "job")])
        )
    text = f"{verdict} {phrases.format_latency(course.deciding_segment)}".strip()
    return "unknown" if verdict == "undecided" else verdict, text, kept, phrases.format_shares(course.whole)
