"""The tables of latencies: all jobs of a series together, by job and volume, by node."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from scripts.report import prose
from scripts.report.account import without_empty
from scripts.report.page import Table
from scripts.studies.volumes.report import words
from scripts.studies.volumes.report.data import Levels, Results
from scripts.studies.volumes.series import ALL_HOSTS, FACTORS

COLOURED = {"p99": (5.0, 10.0), "p99.9": (5.0, 10.0), "mean": (2.0, 5.0), "max": (50.0, 100.0), "stddev": (None, 1.0)}
SUMMED = ("p50", "p99", "p99.9", "p99.99", "mean")
OF_NODE = {
    "battery_id": "battery_id",
    "job_Id": "job_Id",
    **{f"{name}_ms": f"{name} / ms" for name in ("max", "mean", "stddev", "p50", "p99", "p99.9", "p99.99")},
    "N": "N",
    "iops": "operations/s",
    "mib_s": "MiB/s",
    "runtime_s": "runtime / s",
    "minutes": "began / min",
    "load1_before": "load before",
    "steal_percent": "steal / %",
    "free_gib_before": "free / GiB",
    "device_util_percent": "device busy / %",
}


def summary(results: Results) -> Table:
    """Return a row a series: its operations, percentiles with intervals, and rates."""
    cells = results.cells
    cells = cells[cells["n"] > 0].reset_index(drop=True) if len(cells) else cells
    if cells.empty:
        return Table("series", "", pd.DataFrame())
    frame = words.columns(cells, results)
    frame["operation"] = [_operation(row, results) for row in cells.to_dict("records")]
    frame["jobs"], frame["N"] = cells.get("jobs"), cells.get("N")
    for metric in SUMMED:
        frame[f"{metric} / ms"] = [_with_interval(row, metric) for row in cells.to_dict("records")]
    rest = {"interval": "intervals from", "max_ms": "max / ms", "stddev_ms": "stddev / ms", "iops": "operations/s"}
    rest |= {"mib_s": "MiB/s", "device_writes_per_write": "device writes per write"}
    for column, name in rest.items():
        frame[name] = cells.get(column)
    frame = without_empty(frame)
    formats = dict.fromkeys(rest.values(), prose.number) | {"intervals from": str}
    formats |= dict.fromkeys(("jobs", "N"), "{:,.0f}".format)
    caption = (
        "All jobs of a series together: percentiles of merged histograms with 95 % CI, refused (empty) where "
        "fewer than 10 operations lie above; operations and bytes divided by time over all jobs. Intervals from bounds "
        "of the jobs: without histograms the median of the jobs' own percentiles, with the smallest and the largest. "
        "Device writes per write: write I/Os that the device completed for each write of fio."
    )
    return Table("series", caption, frame, formats)


def by_job(results: Results) -> Iterator[Table]:
    """Yield the published tables: a row a job, a column a volume; one a metric and job file, coloured by limits."""
    for name in results.levels("job"):
        traces = [trace for trace in results.traces if trace[0].job == name]
        several = len(results.levels("job")) > 1
        for metric, bounds in _bounds(results).items():
            columns = {words.label(series, results, without=("job",)): rows for series, rows in traces}
            frame = _pivot(columns, f"{metric}_ms")
            if frame.empty:
                continue
            operations = {rows["operation"].iloc[0]: series for series, rows in traces}
            of = prose.listing([words.operation(one, series, results) for one, series in operations.items()], "or")
            about = f", job {name}" if several else ""
            yield Table(
                f"{metric}-by-job{f'-{name}' if several else ''}",
                f"{words.starting(words.metric(metric))} of {of} in ms{about}, by job and volume.",
                frame,
                dict.fromkeys(columns, _exact),
                {column: _shades(frame[column], *bounds) for column in columns},
                _meaning(*bounds),
            )


def by_node(results: Results) -> Iterator[Table]:
    """Yield all metrics of each node and volume, a row a job."""
    for number, (series, rows) in enumerate([*results.traces, *results.invalid], 1):
        names = [name for name in rows.get("node_name", pd.Series(dtype=str)).unique() if name] or [series.host]
        columns = {column: name for column, name in OF_NODE.items() if column in rows and rows[column].notna().any()}
        frame = rows[list(columns)].rename(columns=columns).reset_index(drop=True)
        invalid = "" if rows["valid"].all() else "[INVALID] "
        about = ", ".join(dict.fromkeys(filter(None, [*names, words.label(series, results)])))
        of = words.operation(rows["operation"].iloc[0], series, results)
        yield Table(
            f"node-{number}",
            f"{invalid}{about}: latencies of {of}, and the rest, job by job.",
            frame,
            dict.fromkeys(columns.values(), prose.number) | {"N": "{:.0f}".format, "battery_id": str, "job_Id": str},
            {
                f"{metric} / ms": _shades(rows[f"{metric}_ms"], *bounds)
                for metric, bounds in _bounds(results).items()
                if f"{metric}_ms" in columns
            },
            "as in the tables by job and volume",
        )


def _bounds(results: Results) -> dict[str, tuple[float | None, float]]:
    """From how many ms a metric is yellow and red."""
    limits = results.limits
    first = limits[limits["metric"] == "p99"]["limit_ms"] if len(limits) else []
    red = float(first.iloc[0]) if len(first) else COLOURED["p99"][1]
    return COLOURED | {"p99": (red / 2, red)}


def _exact(value: float) -> str:
    """A latency as fio gives it, to the nanosecond, as the published tables print it."""
    return f"{value:.6f}"


def _shades(values: pd.Series, yellow: float | None, red: float) -> list[str]:
    return [
        "red" if value >= red else "yellow" if yellow is not None and value >= yellow else ""
        for value in values.to_numpy()
    ]


def _meaning(yellow: float | None, red: float) -> str:
    return f"{f'yellow (△) from {yellow:g} ms on, ' if yellow is not None else ''}red (▲) from {red:g} ms on"


def _pivot(columns: dict[str, pd.DataFrame], metric: str) -> pd.DataFrame:
    """Jobs as rows in time order, series as columns; a job that a series lacks is empty.

    Jobs are called by their numbers, by the labels of imported results where there are no others.
    """
    labelled = not any(rows["job_Id"].str.isdecimal().any() for rows in columns.values())
    named = {
        name: rows.assign(job=rows["job_Id"] if labelled else rows["number"].map("{:.0f}".format))
        for name, rows in columns.items()
    }
    values = {
        name: rows.drop_duplicates("job").set_index("job")[metric] for name, rows in named.items() if metric in rows
    }
    numbers = pd.concat([rows.set_index("job")["number"] for rows in named.values()])
    order = numbers.groupby(level=0, sort=False).median().sort_values(kind="stable").index
    frame = pd.DataFrame(values).reindex(order)
    if frame.notna().any(axis=None):
        return frame.rename_axis("job_Id" if labelled else "job").reset_index()
    return pd.DataFrame()


def _operation(row: dict, results: Results) -> str:
    series = Levels(*(row[factor] for factor in FACTORS))
    return words.operation(row["operation"], None if series.host == ALL_HOSTS else series, results)


def _with_interval(row: dict, metric: str) -> str:
    value = row.get(f"{metric}_ms", np.nan)
    if pd.isna(value):
        return ""
    return prose.number(value) + words.interval(*(row.get(f"{metric}_ms_{end}", np.nan) for end in ("low", "high")))
