"""Format names of volumes, jobs and limits, durations and latencies for the report."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from sbench.pages import names, prose
from sbench.pages.cell_tables import get_numbers
from sbench.studies.volumes.etcd_metrics import METRICS
from sbench.studies.volumes.report import words
from sbench.studies.volumes.report.batteries import Results, Trace
from sbench.studies.volumes.series import FACTORS

UNBOUNDED_MS = 1e9  # an upper bound of this many ms or more is treated as unbounded
NAMED = 6  # maximum number of volumes or series listed in a sentence
_OVER = (("operations", ""), ("time", ""), ("time", "_low"), ("time", "_high"))
LIMIT_OWNERS = {"etcd": "etcd's", "etcd-commit": "etcd's", "openshift": "OpenShift's"}
# Descriptions of the operations in etcd's histograms.
_ETCD = {METRICS["wal_fsync"]: "etcd's fsync", METRICS["backend_commit"]: "etcd's commit"}


def format_volume(store: str, run: Results) -> str:
    """Format a volume as "gp2x1 (128 GiB gp2)", or only its name if its type is unknown."""
    cells = run.cells[run.cells["store"] == store]
    kind = next((kind for kind in cells.get("volume_type", []) if kind), "")
    size = get_numbers(cells, "size_gib").max()
    return f"{store} ({f'{size:g} GiB ' if pd.notna(size) else ''}{kind})" if kind else store


def format_place(store: str) -> str:
    """Format a volume for use as a noun in a sentence: "gp2x1", "the disk"."""
    return "the disk" if store == "disk" else store


def describe_conditions(levels: Mapping[str, str], run: Results) -> str:
    """Describe the conditions that distinguish a series within its volume: "alone", "with a second job on …"."""
    shown = [name for name in list_distinguishing_factors(levels, run) if levels[name]]
    alone = ("background", "none")
    named = [
        run.names.format_level(*alone)
        if (name, levels[name]) == alone
        else run.names.format_condition(name, [levels[name]])
        for name in shown
    ]
    return " ".join(filter(None, named))


def list_distinguishing_factors(levels: Mapping[str, str], run: Results) -> list[str]:
    """List the factors to name with a series: factors that distinguish it, the job if jobs differ, and any load."""
    shown = run.select_telling_factors(run.cells[run.cells["store"] == levels["store"]], FACTORS)
    shown += ["job"] if run.cells["job"].nunique() > 1 else []
    shown += ["background"] if levels["background"] in ("same", "other") else []
    return [factor for factor in FACTORS[1:] if factor in shown]


def format_label(levels: Mapping[str, str], run: Results) -> str:
    """Format the label of a series for legends and the headline: its volume and its distinguishing factors."""
    return run.names.format_row(levels, ["store", *list_distinguishing_factors(levels, run)])


def format_legend(trace: Trace, run: Results) -> str:
    """Format the label of a battery for plots. It includes a number if there are series with several batteries."""
    again = f" · battery {trace.repeat}" if any(one.repeat > 1 for one in run.traces) else ""
    return format_label(trace.levels, run) + again


def join_names(names: Sequence[str]) -> str:
    """Join names in a text, and abbreviate long lists as in "a, b and 7 more"."""
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], words.fill("more", many=len(names) - NAMED + 1)]
    return prose.format_list(names)


def describe_place(rows: Sequence[Mapping[str, str]], run: Results) -> str:
    """Describe volumes and the conditions that all rows share: "on gp2x1 (128 GiB gp2), without a second job"."""
    head, stores = rows[0], list(dict.fromkeys(row["store"] for row in rows))
    shown = [name for name in list_distinguishing_factors(head, run) if len({row[name] for row in rows}) == 1]
    named = format_volume(stores[0], run) if len(stores) == 1 else join_names(stores)
    on = len({row["host"] for row in rows})
    hosts = words.fill("on hosts", many=on) if on > len(stores) == 1 else ""
    conditions = [run.names.format_condition(name, [head[name]]) for name in shown if head[name]]
    return ", ".join(filter(None, [f"on {named}", *conditions, hosts]))


def describe_operation(rows: Iterable[Mapping[str, str]], run: Results) -> str:
    """Name the measured operation: "a read", "a write", or the sync call in the jobs' options."""
    named = []
    for row in rows:
        options = run.options.get(tuple(row[name] for name in FACTORS[:3]), {})
        # If the options are unknown, search the name of the job.
        mentioned = " ".join([*(name for name, value in options.items() if str(value) not in ("0", "")), row["job"]])
        sync = next((one for one in ("fdatasync", "fsync") if one in mentioned), "the sync after a write")
        sync = _ETCD.get(options.get("metric", ""), sync)
        name = {"sync": sync, "read": "a read", "write": "a write"}.get(row["operation"], "an operation")
        named.append(words.fill("when due", operation=name) if "rate_iops" in options else name)
    return prose.format_list(dict.fromkeys(named), "or")


def describe_trace_operation(traces: Iterable[Trace], run: Results) -> str:
    """Name the measured operation of batteries (see `describe_operation`)."""
    return describe_operation([trace.levels | {"operation": trace.jobs["operation"].iloc[0]} for trace in traces], run)


def format_limit(row: Mapping) -> str:
    """Format a limit: "etcd's 10 ms", or "the limit mine of 5 ms" for a limit named `mine` in the configuration."""
    name, height = str(row["limit"]), f"{float(row['limit_ms']):g} ms"
    owner = LIMIT_OWNERS.get(name)
    return f"{owner} {height}" if owner else words.fill("own limit", name=name, height=height)


def format_job(number: float, identifier: str = "") -> str:
    """Format a job as "job 33 (g3)", or "job 33" without an id; return an empty string if the number is missing."""
    if pd.isna(number):
        return ""
    return f"job {number:.0f}" + (f" ({identifier})" if identifier and identifier != f"{number:.0f}" else "")


def format_duration(seconds: float) -> str:
    """Format a duration: "1 h 2 min", "4 min", "52 s"; return an empty string if it is unknown."""
    if pd.isna(seconds):
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return " ".join(([f"{hours} h"] if hours else []) + ([f"{minutes} min"] if minutes or not hours else []))


def format_shares(row: Mapping) -> str:
    """Format how much is at or above a limit, as in "0.01 % of operations, 9.1 [8.7, 9.6] % of the time".

    Return "none" if both are zero, or an empty string if they are unknown.
    """
    share, *ends = (row.get(f"{name}_over_percent{end}", math.nan) for name, end in _OVER)
    if pd.isna(share) or ends[-1] == 0:
        return "" if pd.isna(share) else "none"
    time = (
        ""
        if pd.isna(ends[0])
        else words.fill("over limit in time", share=names.format_with_interval(*ends, prose.format_number))
    )
    return words.fill("over limit", share=prose.format_number(share), time=time)


def choose_unit(values_ms: np.ndarray) -> tuple[str, Callable[[float], str]]:
    """Choose a unit (µs, ms or s) for all latencies of a table.

    Returns:
        The unit, and a function that formats a latency in ms in this unit with three significant digits.
    """
    unit, factor = "ms", 1.0
    if np.nanmax(values_ms) < 1:
        unit, factor = "µs", 1e3
    elif np.nanmin(values_ms) >= 1e3:
        unit, factor = "s", 1e-3
    return unit, lambda ms: _format_three_digits(ms * factor)


def _format_three_digits(value: float) -> str:
    return prose.format_number(float(f"{value:.3g}"))


def format_near_limit(value: float, limit: float) -> str:
    """Format a latency with two significant digits, or with as many as needed to show its side of a limit."""
    for digits in range(2, 17):
        rounded = float(f"{value:.{digits}g}")
        if (rounded < limit) == (value < limit):
            break
    decimals = 0 if rounded == 0 else max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}"


def format_latency(row: Mapping) -> str:
    """Format a latency with its interval as "2.41 [2.40, 2.42] ms", or as "between 8 and 16 ms" without a value.

    Return an empty string if neither a value nor bounds are known.
    """
    if pd.isna(row["value_ms"]):
        low, high = row["low_ms"], row["high_ms"]
        if high < UNBOUNDED_MS:
            return words.fill("between", low=prose.format_number(low), high=prose.format_number(high))
        return words.fill("at least", low=prose.format_number(low)) if low > 0 or pd.notna(high) else ""
    return f"{names.format_with_interval(row['value_ms'], row['low_ms'], row['high_ms'], prose.format_number)} ms"
