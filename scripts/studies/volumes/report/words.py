"""How volumes, jobs, limits, times and differences are called where people read them."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from scripts.report import prose
from scripts.studies.volumes.report.data import METRICS, Levels, Results
from scripts.studies.volumes.series import ALL_HOSTS, FACTORS

BACKGROUNDS = {
    "none": "without a second job",
    "same": "with a second job on the same volume",
    "other": "with a second job on another volume",
    "unknown": "",
}
BACKGROUND_LABELS = {"none": "alone", "same": "load on the same volume", "other": "load on another volume"}
METRIC_NAMES = {"max": "maximum", "stddev": "standard deviation", "iops": "IOPS", "mib_s": "MiB/s"}
NAMED = 6  # volumes that a sentence names
LIMIT_OWNERS = {"etcd": "etcd's", "openshift": "OpenShift's"}


def volume(store: str, results: Results) -> str:
    """Return "gp2x1 (128 GiB gp2)", or the store's name alone where its type is not known."""
    rows = results.cells[results.cells["store"] == store]
    kind = next((kind for kind in rows.get("volume_type", []) if kind), "")
    if not kind:
        return store
    size = pd.to_numeric(rows["size_gib"], errors="coerce").max() if "size_gib" in rows else np.nan
    return f"{store} ({f'{size:g} GiB ' if pd.notna(size) else ''}{kind})"


def varying(results: Results) -> list[str]:
    """Return the factors beside the volume that have several levels; `host` where a volume had several."""
    factors = [factor for factor in ("job", "background") if len(results.levels(factor)) > 1]
    return [*factors, *(["host"] if any(_hosts(store, results) > 1 for store in results.levels("store")) else [])]


def telling(row: pd.Series | dict, results: Results) -> list[str]:
    """Return the factors that tell a series from the others of its volume."""
    factors = ["job"] if len(results.levels("job")) > 1 else []
    levels = {series.background for series in results.series if series.store == row["store"]}
    factors += ["background"] if len(levels) > 1 or row["background"] not in ("", "none", "unknown") else []
    return [*factors, *(["host"] if _hosts(row["store"], results) > 1 else [])]


def label(series: Levels, results: Results, without: Iterable[str] = ()) -> str:
    """Return a series as tables and legends call it: the volume, and what tells it from others of that volume."""
    shown = [factor for factor in telling(series._asdict(), results) if factor not in without]
    parts = [series.store, *(level(factor, getattr(series, factor)) for factor in shown)]
    parts += [f"battery {series.battery}"] if any(one.battery > 1 for one in results.series) else []
    return " · ".join(filter(None, parts))


def level(factor: str, value: str) -> str:
    """Return a level in few words."""
    return BACKGROUND_LABELS.get(value, value) if factor == "background" else value


def columns(table: pd.DataFrame, results: Results, every: bool = False) -> pd.DataFrame:
    """Return the columns that tell series apart, as people read them."""
    shown = ["store", *varying(results)]
    if every:
        shown = [factor for factor in FACTORS if factor in shown or (table[factor] != "").any()]
    frame = pd.DataFrame({"volume" if factor == "store" else factor: table[factor] for factor in shown})
    if "background" in frame:
        frame["background"] = [level("background", value) for value in frame["background"]]
    if "host" not in frame and (table["host"] == ALL_HOSTS).any():
        frame["host"] = table["host"]
    if "host" in frame:
        frame["host"] = frame["host"].replace(ALL_HOSTS, "all together")
    return frame.reset_index(drop=True)


def place(row: pd.Series | dict | Levels, results: Results) -> str:
    """Return where something was seen: "on gp2x1 (128 GiB gp2), with a second job on the same volume"."""
    row = row._asdict() if isinstance(row, Levels) else row
    shown = telling(row, results)
    parts = [f"on {volume(row['store'], results)}"]
    if row["host"] == ALL_HOSTS:
        parts.append("all hosts together")
    elif row["host"] and "host" in shown:
        parts.append(row["host"])
    parts += [f"job {row['job']}"] if row["job"] and "job" in shown else []
    parts += [BACKGROUNDS.get(row["background"], row["background"])] if "background" in shown else []
    return ", ".join(filter(None, parts))


def places(rows: list[dict], results: Results) -> str:
    """Return where something was seen that holds of all `rows`: hosts of one volume, or several volumes."""
    head = rows[0]
    stores = list(dict.fromkeys(row["store"] for row in rows))
    if len(rows) == 1:
        return place(head, results)
    if len(stores) == 1:
        return f"{place(head | {'host': ''}, results)}, on each of {len(rows)} hosts"
    named = stores if len(stores) <= NAMED else [*stores[: NAMED - 1], f"{len(stores) - NAMED + 1} more"]
    shown = [factor for factor in telling(head, results) if len({row[factor] for row in rows}) == 1]
    beside = [f"job {head['job']}"] if "job" in shown else []
    beside += [BACKGROUNDS.get(head["background"], head["background"])] if "background" in shown else []
    return ", ".join(filter(None, [f"on {prose.listing(named)}", *beside]))


def operation(name: str, series: Levels | None, results: Results) -> str:
    """Return what a latency is of: fdatasync where a job forces its writes by it, else fsync, a read, a write."""
    if name != "sync":
        return {"read": "a read", "write": "a write"}.get(name, "an operation")
    chosen = [series] if series else results.series
    syncs = {sync for one in chosen for sync in _syncs(results.battery(one).get("options") or {}, one.job)}
    return syncs.pop() if len(syncs) == 1 else "the sync after a write"


def limit(row: pd.Series | dict) -> str:
    """Return "etcd's 10 ms" or "the limit mine of 5 ms"."""
    name, height = str(row["limit"]), f"{float(row['limit_ms']):g} ms"
    return f"{LIMIT_OWNERS[name]} {height}" if name in LIMIT_OWNERS else f"the limit {name} of {height}"


def metric(name: str) -> str:
    """Return what a metric is called: "p99.9", "maximum", "operations a second"."""
    return METRIC_NAMES.get(name, name)


def metric_of(name: str, operation_name: str) -> str:
    """Return "p99 of fdatasync"; rates are of all operations."""
    return f"{metric(name)} of {operation_name}" if name in METRICS else metric(name)


def job(identifier: str, number: float | None = None) -> str:
    """Return "job g3 (the 33rd)", or "job 33" where a job is called by its number."""
    if number is None or pd.isna(number) or identifier == f"{number:.0f}":
        return f"job {identifier}"
    return f"job {identifier} (the {ordinal(int(number))})" if identifier else f"the {ordinal(int(number))} job"


def ordinal(number: int) -> str:
    """Return "1st", "33rd", "11th"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def duration(seconds: float) -> str:
    """Return "1 h 2 min", "4 min", "52 s"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return " ".join(([f"{hours} h"] if hours else []) + ([f"{rest} min"] if rest or not hours else []))


def ms(value: float) -> str:
    """Return a latency with three digits and its unit."""
    return f"{prose.number(value)} ms"


def starting(text: str) -> str:
    """Return a name as a caption begins with it: p99 and fdatasync stay as they are."""
    return text if text.startswith(("p5", "p9", "fdatasync", "fsync")) else prose.capital(text)


def interval(low: float, high: float, text=prose.number) -> str:
    """Return " [2.40, 2.42]" with a blank before it, or nothing where there is none."""
    return f" [{text(low)}, {text(high)}]" if pd.notna(low) and pd.notna(high) else ""


def change(percent: float, more: str = "higher", less: str = "lower") -> str:
    """Return a difference in words: "76 % higher", "4.1 % lower", "670 % higher (7.7-fold)"."""
    size = f"{abs(percent):,.{0 if abs(percent) >= 10 else 1}f} % {more if percent >= 0 else less}"
    return f"{size} ({fold(1 + percent / 100)})" if percent >= 200 else size


def signed(percent: float) -> str:
    """Return "+76 %" or "-4.1 %"."""
    return f"{'-' if percent < 0 else '+'}{abs(percent):,.{0 if abs(percent) >= 10 else 1}f} %"


def fold(ratio: float) -> str:
    """Return "7.7-fold"."""
    return f"{ratio:.1f}-fold" if ratio < 100 else f"{ratio:.0f}-fold"


def _hosts(store: str, results: Results) -> int:
    """On how many hosts one job file and background of a volume was measured, at most."""
    hosts: dict[tuple, set] = {}
    for series in results.series:
        if series.store == store:
            hosts.setdefault((series.job, series.background), set()).add(series.host)
    return max(map(len, hosts.values()), default=0)


def _syncs(options: dict, job_name: str) -> set[str]:
    """The call that forces a job's writes, from its options or, where they are lost, from its name."""
    forced = {name for name in ("fdatasync", "fsync") if str(options.get(name, "0")) not in ("0", "")}
    return forced or {name for name in ("fdatasync", "fsync") if name in job_name}
