"""The tables of a report: verdicts, series, latency by job and volume, nodes, batteries, what did not work."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from scripts.analysis import prose
from scripts.analysis.page import Table, plain
from scripts.analysis.volumes import words
from scripts.analysis.volumes.data import Levels, Results
from scripts.analysis.volumes.series import ALL_HOSTS, FACTORS

# Yellow and red from these ms on, as the published study has them; p99 follows the first limit of the run.
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


def glance(results: Results) -> Table:
    """Return a row a series, a column a limit: the verdict with the value it rests on, and how long it was kept."""
    verdicts = results.verdicts
    if verdicts.empty:
        return Table("at-a-glance", "", pd.DataFrame())
    whole = verdicts[verdicts["segment"] == "all"]
    keys = list(dict.fromkeys(whole[list(FACTORS)].itertuples(index=False, name=None)))
    frame = _levels(pd.DataFrame(keys, columns=list(FACTORS)), results)
    over = {}
    for (limit, metric, height), rows in whole.groupby(["limit", "metric", "limit_ms"], sort=False):
        own = {tuple(row[factor] for factor in FACTORS): row for row in rows.to_dict("records")}
        name = f"{limit}: {metric} below {height:g} ms"
        frame[name] = [_verdict(_deciding(own[key], results)) if key in own else "" for key in keys]
        over[name] = [_colour(own[key]["verdict"]) if key in own else "" for key in keys]
        frame[f"{limit}: kept for"] = [_kept(own[key], results) if key in own else "" for key in keys]
    caption = (
        "The verdict on a whole series, with the value and interval of the segment that decides it. Kept for: from the "
        "battery's start to the first segment that does not meet the limit."
    )
    return Table("at-a-glance", caption, frame, over=over, meaning="the verdict; grey where there is none")


def limits(results: Results) -> Table:
    """Return the limits of the run and who set them."""
    frame = results.limits.rename(columns={"limit_ms": "below / ms"})
    return Table("limits", "The limits, and who set them.", frame, {"below / ms": "{:g}".format})


def summary(results: Results) -> Table:
    """Return a row a series: its operations, percentiles with intervals, and rates."""
    cells = results.cells
    cells = cells[cells["n"] > 0].reset_index(drop=True) if len(cells) else cells
    if cells.empty:
        return Table("series", "", pd.DataFrame())
    frame = _levels(cells, results)
    frame["operation"] = [_operation(row, results) for row in cells.to_dict("records")]
    frame["jobs"], frame["N"] = cells.get("jobs"), cells.get("N")
    for metric in SUMMED:
        frame[f"{metric} / ms"] = [_with_interval(row, metric) for row in cells.to_dict("records")]
    rest = {"interval": "intervals from", "max_ms": "max / ms", "stddev_ms": "stddev / ms", "iops": "operations/s"}
    rest |= {"mib_s": "MiB/s", "device_writes_per_write": "device writes a write"}
    for column, name in rest.items():
        frame[name] = cells.get(column)
    frame = _without_empty(frame)
    formats = dict.fromkeys(rest.values(), prose.number) | {"intervals from": str}
    formats |= dict.fromkeys(("jobs", "N"), "{:,.0f}".format)
    caption = (
        "All jobs of a series together: percentiles of merged histograms with 95 % intervals, refused (empty) where "
        "fewer than 10 operations lie above; operations and bytes by time over all jobs. Intervals from bounds of the "
        "jobs: without histograms the median of the jobs' own percentiles, with the least and the greatest. Device "
        "writes a write: write I/Os that the device completed for each write of fio."
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


def segments(results: Results) -> Table:
    """Return the segments of each series that changed, a row each."""
    found = results.segments
    if found.empty:
        return Table("segments", "", found)
    changed = found.groupby(list(FACTORS))["jump"].transform(lambda jumps: jumps.notna().any()).astype(bool)
    found = found[changed].reset_index(drop=True)
    if found.empty:
        return Table("segments", "", found)
    frame = _levels(found, results)
    frame["segment"], frame["from job"], frame["to job"] = found["segment"], found["first_job"], found["last_job"]
    frame["jobs"], frame["p99 / ms"] = found["jobs"], found["p99_ms"]
    frame["times the one before"] = [
        f"{prose.ratio(row['jump'])}{words.interval(row['jump_low'], row['jump_high'], prose.ratio)}"
        if pd.notna(row["jump"])
        else ""
        for row in found.to_dict("records")
    ]
    caption = "The series whose level changed, segment by segment. p99: the median of the jobs' own p99."
    return Table("segments", caption, frame, {"jobs": "{:.0f}".format, "p99 / ms": prose.number})


def differences(results: Results) -> Table:
    """Return the comparisons, a row each, with the method."""
    found = results.comparisons
    if found.empty:
        return Table("differences", "", found)
    found = found.reset_index(drop=True)
    frame = pd.DataFrame({"contender": found["contender"], "baseline": found["baseline"]})
    for factor in FACTORS:
        if found[factor].replace("", np.nan).nunique() > 1:
            frame[factor] = [words.level(factor, value) for value in found[factor]]
    frame["metric"], frame["phase"] = found["metric"].map(words.metric), found["phase"]
    frame["difference"] = [
        f"{words.signed(row['percent'])}{words.interval(row['low'], row['high'], words.signed)}"
        if pd.notna(row["percent"])
        else ""
        for row in found.to_dict("records")
    ]
    for column in ("verdict", "method"):
        if column in found:
            frame[column] = found[column]
    return Table("differences", "Difference of the contender from the baseline, with its 95 % interval.", frame)


def troubled(results: Results) -> Table:
    """Return batteries that failed or are invalid, and why."""
    cells = results.cells
    cells = cells[(cells["failed"] > 0) | (cells["invalid"] > 0)].reset_index(drop=True) if len(cells) else cells
    if cells.empty:
        return Table("failed-and-invalid", "", pd.DataFrame())
    frame = _levels(cells, results, every=True)
    frame.insert(0, "", np.where(cells["invalid"] > 0, "[INVALID]", "failed"))
    for column in ("failed", "invalid", "n", "reasons"):
        frame["valid" if column == "n" else column] = cells[column]
    return Table(
        "failed-and-invalid",
        "Batteries that failed, and batteries that broke a rule of measuring ([INVALID]): shown, and in no verdict.",
        frame,
        over={"": cells["invalid"] > 0},
        meaning="invalid",
    )


def left_out(results: Results) -> Table:
    """Return the files of an import that could not be used, and why."""
    rows = [
        {"file": str(one.get("file", "")), "reason": str(one.get("reason", ""))}
        for one in results.facts.get("left_out") or []
    ]
    return Table("left-out-files", "Files of the import that are not in the tables.", pd.DataFrame(rows))


def omitted(results: Results) -> Table:
    """Return the combinations of levels that were not measured, and why."""
    matrix = results.matrix
    if matrix.empty or "omitted" not in matrix:
        return Table("omitted", "", pd.DataFrame())
    matrix = matrix[matrix["omitted"] != ""].reset_index(drop=True)
    frame = matrix[[factor for factor in FACTORS if factor in matrix and (matrix[factor] != "").any()]]
    return Table(
        "omitted", "Combinations that the matrix names and that cannot exist.", frame.assign(reason=matrix["omitted"])
    )


def attempts(results: Results) -> Table:
    """Return earlier attempts that failed and were repeated."""
    rows = []
    for attempt in results.facts.get("failed_attempts") or []:
        told = attempt if isinstance(attempt, dict) else {"reasons": [attempt]}
        reasons = told.get("reasons") or []
        shown = {key: value for key, value in told.items() if isinstance(value, (str, int, float)) and key != "reasons"}
        rows.append({**shown, "reasons": "; ".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons)})
    return Table("failed-attempts", "Earlier attempts that failed; each was measured again.", pd.DataFrame(rows))


def batteries(results: Results) -> Table:
    """Return the batteries in the order in which they were run, with the pause before each and between its jobs."""
    found = results.facts.get("batteries") or []
    if not found:
        return Table("batteries", "", pd.DataFrame())
    order = sorted(found, key=lambda one: (str(one.get("started_utc") or "~"), one.get("position") or 0))
    rows, before = [], None
    for number, battery in enumerate(order, 1):
        started, ended = (
            pd.to_datetime(battery.get(f"{end}_utc"), utc=True, errors="coerce") for end in ("started", "ended")
        )
        rest = (started - before).total_seconds() if before is not None and pd.notna(started) else np.nan
        rows.append(
            {
                "": number,
                **{factor: words.level(factor, str(battery.get(factor) or "")) for factor in FACTORS},
                "began": f"{started:%Y-%m-%d %H:%M:%S}" if pd.notna(started) else "",
                "took": words.duration((ended - started).total_seconds())
                if pd.notna(started) and pd.notna(ended)
                else "",
                "rest before it": words.duration(rest) if pd.notna(rest) and rest >= 0 else "",
                "pause between jobs / s": battery.get("pause_s"),
                "status": battery.get("status") or "",
                "reasons": "; ".join(map(str, battery.get("reasons") or [])),
            }
        )
        before = ended if pd.notna(ended) else None
    frame = _without_empty(pd.DataFrame(rows))
    caption = (
        "The batteries in the order of their start (UTC): credits that one spends are gone for the next on the volume."
    )
    return Table("batteries", caption, frame, {"pause between jobs / s": "{:g}".format})


def volumes(results: Results) -> Table:
    """Return what is known of each volume: type and size, device, mount, fio, kernel and processor."""
    rows = []
    for battery in results.facts.get("batteries") or []:
        volume = battery.get("volume") if isinstance(battery.get("volume"), dict) else {}
        told = {"volume": battery.get("store"), "host": battery.get("host")}
        told |= {key.replace("_", " "): value for key, value in volume.items() if not isinstance(value, (dict, list))}
        told |= {key: battery.get(key) for key in ("device", "mount", "fio", "kernel", "cpu")}
        rows.append({key: "" if value is None else _fact(value) for key, value in told.items()})
    frame = _without_empty(pd.DataFrame(rows).fillna("").drop_duplicates(ignore_index=True)) if rows else pd.DataFrame()
    return Table(
        "volumes", "The volumes, as the configuration or the instance's metadata say, and what wrote to them.", frame
    )


def machine(results: Results) -> Table:
    """Return the facts of the machine; a column each where several measured."""
    hosts = results.facts.get("machines") or [results.facts.get("machine") or {}]
    keys = list(dict.fromkeys(key for host in hosts for key in host))
    frame = pd.DataFrame({"": [key.replace("_", " ") for key in keys]})
    for number, host in enumerate(hosts, 1):
        name = f"machine {number}" if len(hosts) > 1 else "value"
        frame[name] = ["" if host.get(key) is None else _fact(host[key], key) for key in keys]
    return Table("machine", "What measured.", frame[(frame.iloc[:, 1:] != "").any(axis=1)])


def job_files(results: Results) -> list[str]:
    """Return each job file as Markdown: its text, or the options that fio tells of."""
    lines = []
    for name, told in (results.facts.get("jobs") or {}).items():
        text = (told or {}).get("text") or "\n".join(
            key if str(value) in ("", "1") else f"{key}={value}"
            for key, value in ((told or {}).get("options") or {}).items()
        )
        if text:
            lines.append(f"Job `{name}`:\n\n" + "\n".join(f"    {line}" for line in text.strip().splitlines()))
    return lines or [plain(line) for line in _options(results)]


def _options(results: Results) -> list[str]:
    """The options of each job file as the batteries tell them, in a line."""
    found = {}
    for battery in results.facts.get("batteries") or []:
        options = battery.get("options") or {}
        if options:
            told = " ".join(f"--{key}={value}" for key, value in options.items())
            found[battery.get("job") or ""] = told
    return [f"{f'Job {name}: ' if name else ''}{told}" for name, told in found.items()]


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
    """Jobs as rows in time order, series as columns; a job that a series lacks is empty."""
    found = {
        name: rows.drop_duplicates("job_Id").set_index("job_Id")[metric]
        for name, rows in columns.items()
        if metric in rows
    }
    numbers = pd.concat([rows.set_index("job_Id")["number"] for rows in columns.values()])
    order = numbers.groupby(level=0, sort=False).median().sort_values(kind="stable").index
    frame = pd.DataFrame(found).reindex(order)
    if frame.notna().any(axis=None):
        return frame.rename_axis("job_Id").reset_index()
    return pd.DataFrame()


def _levels(table: pd.DataFrame, results: Results, every: bool = False) -> pd.DataFrame:
    """Return the columns that tell series apart, as people read them."""
    shown = ["store", *words.varying(results)]
    if every:
        shown = [factor for factor in FACTORS if factor in shown or (table[factor] != "").any()]
    frame = pd.DataFrame({"volume" if factor == "store" else factor: table[factor] for factor in shown})
    if "background" in frame:
        frame["background"] = [words.level("background", value) for value in frame["background"]]
    if "host" not in frame and (table["host"] == ALL_HOSTS).any():
        frame["host"] = table["host"]
    if "host" in frame:
        frame["host"] = frame["host"].replace(ALL_HOSTS, "all together")
    return frame.reset_index(drop=True)


def _verdict(row: dict) -> str:
    value = words.interval(row["low_ms"], row["high_ms"])
    told = f" {prose.number(row['value_ms'])}{value} ms" if pd.notna(row["value_ms"]) else ""
    return f"{row['verdict']}{told}"


def _colour(verdict: str) -> str:
    return verdict if verdict in ("meets", "misses") else "unknown"


def _segments_of(row: dict, results: Results) -> pd.DataFrame:
    """What a verdict on a whole series was made of."""
    own = results.of("verdicts", Levels(*(row[factor] for factor in FACTORS)))
    return own[(own["limit"] == row["limit"]) & (own["segment"] != "all")]


def _deciding(row: dict, results: Results) -> dict:
    """The segment that decided a series' verdict, the slowest of several; the series where there is none."""
    own = _segments_of(row, results)
    own = own[(own["verdict"] == row["verdict"]) & own["value_ms"].notna()]
    return own.loc[own["value_ms"].idxmax()].to_dict() if len(own) else row


def _kept(row: dict, results: Results) -> str:
    own = _segments_of(row, results)
    if row["verdict"] == "meets":
        return "all jobs"
    before = int(own["jobs"][(own["verdict"] == "meets").cummin()].sum())
    if pd.notna(row.get("kept_s")) and before:
        return f"{words.duration(float(row['kept_s']))}, {prose.count(before, 'job')}"
    if before:
        return prose.count(before, "job")
    return "not at all" if row["verdict"] == "misses" else ""


def _operation(row: dict, results: Results) -> str:
    series = Levels(*(row[factor] for factor in FACTORS))
    return words.operation(row["operation"], None if series.host == ALL_HOSTS else series, results)


def _with_interval(row: dict, metric: str) -> str:
    value = row.get(f"{metric}_ms", np.nan)
    if pd.isna(value):
        return ""
    return prose.number(value) + words.interval(*(row.get(f"{metric}_ms_{end}", np.nan) for end in ("low", "high")))


def _fact(value: object, key: str = "") -> str:
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return f"{value / 2**30:.1f} GiB"
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _without_empty(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.loc[:, [(frame[column].notna() & (frame[column] != "")).any() for column in frame]]
