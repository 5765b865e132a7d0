"""Convert records to DataFrames of runs, samples, cells and requests.

This module is independent of studies. Factors are the columns of matrix.csv except `cell`, `omitted` and `twin_of`.
Metrics are the keys of a record's `seconds`, and samples already have their final column names. Levels are always
strings, so "3.10" stays "3.10". Rows are in the order of matrix.csv, then by repeat.
"""

import contextlib
import functools
import json
import math
import operator
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path

import pandas as pd

from sbench.design import fingerprint, prices, records, validity
from sbench.probe.program import Problem, write_text
from sbench.probe.slowed import SHARES
from sbench.stores import faults
from sbench.stores import network as networks
from sbench.stores.embedded import EXCHANGE
from sbench.verdicts import MIN_BLOCKS, model, stats

# Use Python strings, because Arrow strings are slow if values are read individually.
pd.options.mode.string_storage = "python"

# Overhead of the harness, summarized by medians. All other keys of `seconds` are metrics with intervals and verdicts.
OVERHEAD = ("plan", "null", "cluster_start", "verify", "gather", "index")
# The metrics of a study without measurements, which also come first in columns and verdicts. Other metrics follow in
# alphabetical order.
METRICS = ("total", "open", "first", "rest")
MIB = 2**20
# Quantities of a record other than metrics (METHOD 11, 14), summarized by the median of each cell.
_TAKEN = ("opens", "connections", "in_flight", "task_cpu_s", "cpu_s", "server_cpu_s", "round_trip_s", "rate_mib_s")
_COUNTS = ("logical_bytes", "tasks", "requests", *prices.BILLED, "bytes_offered", "bytes_delivered", *_TAKEN)
_UNUSABLE = {"status": "failed", "ok": False, "edited": False, "attempted": True}
_RESIDENT = ("resident_before", "resident_after")
_HASHES = {"code": "code", "data": "data", "packages": "lock"}
# Columns that identify the node, the machine and the device of the files (METHOD 14), with their keys in a record's
# `host`.
PLACES = {
    "node": ("node",),
    "machine": ("boot", "instance", "cpu", "affinity", "cpu_quota", "ram_bytes", "kernel"),
    "device": ("device", "mount_point"),
}
# Loads in the timed window, in seconds per second or major page faults per second, and the values above which they
# count as a disturbance.
_TIMES = ("steal_s", "cpu_pressure_s", "io_pressure_s", "memory_pressure_s", "throttled_s", "others_s")
_LOADS = {**dict.fromkeys(_TIMES, 0.02), "major_faults": 20.0}
_BEYOND = 3
EXCHANGES = (
    *("cell", "repeat", "connection", "method", "object", "offset_bytes", "length_bytes", "bytes", "status"),
    *("begin_s", "first_s", "end_s"),
)
_FACTS = ("page_buffer_bytes", "hdf5", "h5py", "oversubscribed", "idle_workers", "cache_state")


def read_matrix(path: Path | str) -> pd.DataFrame:
    """Read matrix.csv without the omitted combinations.

    Returns:
        The columns cell, factors… and twin_of, all of them strings.

    Raises:
        Problem: the file is missing or not a matrix.
    """
    try:
        matrix = mark_doubles(pd.read_csv(path, dtype=str, keep_default_na=False))
        return matrix[matrix["omitted"] == ""][["cell", *list_factors(matrix), "twin_of"]].reset_index(drop=True)
    except (OSError, ValueError, KeyError) as error:
        raise Problem(f"{path} is not a matrix of cells ({error}); remove it and run again") from error


def mark_doubles(matrix: pd.DataFrame) -> pd.DataFrame:
    """Mark each row whose cell occurs in an earlier row as omitted."""
    doubled = (matrix["cell"] != "") & matrix["cell"].duplicated()
    reason = "another row of matrix.csv has the same cell: " + matrix["cell"]
    return matrix.assign(omitted=matrix["omitted"].mask(doubled, reason), cell=matrix["cell"].mask(doubled, ""))


def list_factors(matrix: pd.DataFrame) -> list[str]:
    """Return the names of the factors, in the order of the columns of a matrix."""
    return [column for column in matrix.columns if column not in ("cell", "omitted", "twin_of")]


def get_levels(matrix: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return the levels of all cells of a matrix: name of the cell -> factor -> level."""
    names = list_factors(matrix)
    return {row["cell"]: {name: row[name] for name in names} for row in matrix.to_dict("records")}


def build_runs_and_samples(matrix: pd.DataFrame, kept: Iterable[records.Kept]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Build the tables of runs and of samples from the records of a matrix's cells.

    Unusable records count as failed.

    Returns:
        runs: one row per record. Columns: cell, repeat, status, ok (done, valid and not edited), edited, reasons,
            attempted (not skipped), timed_out (`seconds total` is then the time limit), `seconds <name>`, work,
            requests, facts, `code` and `data` (hashes of the measuring code and the data), and, if recorded, `software`
            (the fingerprint as JSON).
        samples: samples.csv, one row per sample. Columns: those of the sample, followed by cell, factors…, repeat,
            status, valid and session.
    """
    rows, of_records = [], []
    for one in kept:
        summary = _build_run(one.record) if one.record else _UNUSABLE | {"reasons": [one.problem]}
        summary |= {"software": kept_as} if (kept_as := fingerprint.read_fingerprint(one)) else {}
        samples = one.record.get("samples", []) if one.record else []
        of_records.append({"cell": one.cell, "repeat": one.repeat, **summary})
        place = {"cell": one.cell, **one.levels, "repeat": one.repeat}
        place |= {"status": summary["status"], "valid": summary["ok"], "session": summary.get("session", "")}
        rows += [{**sample, **place} for sample in samples]
    empty = ["cell", *list_factors(matrix), "repeat", "status", "valid", "session"]
    return (
        pd.DataFrame(of_records, columns=None if of_records else ["cell", "repeat", *_UNUSABLE, "reasons"]),
        pd.DataFrame(rows, columns=None if rows else empty),
    )


def list_full_blocks(measured: Iterable[dict]) -> list[int]:
    """Return the blocks that were to measure every cell that `measured` (records) contains.

    Later rounds, and calls with `--only`, measure fewer cells. Blocks of older records without `block_cells` count as
    full. If no block is full, the list is empty.
    """
    due: dict[int, set] = {}
    cells = set()
    for record in measured:
        due.setdefault(record["repeat"], set()).add(record.get("block_cells", math.inf))
        cells.add(record["name"])
    return sorted(block for block, counts in due.items() if max(counts) >= len(cells))


def select_blocks(rows: pd.DataFrame, blocks: Collection[int], usable: pd.Series) -> pd.DataFrame:
    """Select the rows of these blocks, so that values of different cells are of the same blocks.

    Args:
        rows: a table with the columns cell and repeat.
        blocks: the numbers of the blocks; if there are none, all rows are selected.
        usable: flags of the rows. Cells without a usable row in these blocks keep all of their rows.
    """
    inside = rows["repeat"].isin(blocks)
    return rows[inside | ~rows["cell"].isin(rows.loc[inside & usable, "cell"])].copy()


def list_metrics(runs: pd.DataFrame) -> list[str]:
    """Return the metrics that were measured: total, open, first and rest, then others in alphabetical order."""
    measured = {column.removeprefix("seconds ") for column in map(str, runs) if column.startswith("seconds ")}
    names = (measured or set(METRICS)) - set(OVERHEAD)
    return [name for name in METRICS if name in names] + sorted(names - set(METRICS))


def build_cells_table(matrix: pd.DataFrame, runs: pd.DataFrame, blocks: Collection[int] = ()) -> pd.DataFrame:
    """Build cells.csv, with one row per cell that summarizes its valid repeats in `blocks` (see `select_blocks`).

    - `n` counts all valid repeats, and `n_used` the ones in `blocks`, which the other columns summarize.
    - Failed and invalid repeats are counted. Edited records count as invalid.
    - Times are medians in seconds; for metrics, with the interval from `stats.estimate_median`.
    - Throughput (MiB/s) and amplification are ratios of sums over the repeats.
    - Counts and bytes are medians. requests_spread is the maximum minus the minimum number of requests, which should
      be 0.
    - Facts that differ between repeats are joined by " | ".
    """
    timed = list_metrics(runs)
    overhead = [name for name in OVERHEAD if f"seconds {name}" in runs] or list(OVERHEAD[:4])
    parts = dict(list(runs.groupby("cell", sort=False)))
    rows = []
    for cell in matrix[["cell", *list_factors(matrix)]].to_dict("records"):
        part = parts.get(cell["cell"], runs.iloc[:0])
        ok = part["ok"].astype(bool)
        good, wrong = part[ok], part[~ok]
        failed = int((wrong["status"] != "done").sum())
        cell |= {"n": len(good), "failed": failed, "invalid": len(wrong) - failed, "edited": int(wrong["edited"].sum())}
        used = select_blocks(good, blocks, good["ok"].astype(bool))
        summary = {"n_used": len(used), **_compute_summary(used, timed, overhead)}
        rows.append({**cell, **summary, "reasons": _join_reasons(wrong)})
    cells = pd.DataFrame(rows, dtype=object).infer_objects()
    # Exclude cells that wait deliberately or before retries, whose times would distort the model.
    modelled = model.compute_modelled_s(cells[~_find_waiting(cells)])
    cells.insert(list(cells).index("amplification"), "modelled_s", modelled)
    good = runs[runs["ok"].astype(bool)]
    for name, flagged in (("outlying_repeats", _find_outlying(good)), ("disturbed_repeats", _find_disturbed(good))):
        cells.insert(list(cells).index("cache_state"), name, cells["cell"].map(_join_repeats(good[flagged])).fillna(""))
    return cells


def _find_waiting(cells: pd.DataFrame) -> pd.Series:
    """Flag the cells that are slowed controls or whose reads have injected faults."""
    levels = cells.reindex(columns=["control", "fault"])
    return levels["control"].isin(SHARES) | ~levels["fault"].fillna(faults.NONE).isin([faults.NONE])


def build_exchanges_table(kept: Iterable[records.Kept]) -> pd.DataFrame:
    """Build the table of recorded requests, which come from one record of each cell. It may have no rows.

    Returns:
        The columns `EXCHANGES`. Offset and length are missing for requests without a byte range. `bytes` is the size
        of the response. The times are in seconds from the start of the window to the start of the request, its first
        byte and its last byte.
    """
    folders = {one.cell: one.path.parent for one in kept}
    frames = [frame for cell, folder in folders.items() for frame in _read_exchanges(cell, folder / records.REQUESTS)]
    if not frames:
        return pd.DataFrame(columns=EXCHANGES)
    rows = pd.concat(frames, ignore_index=True)
    ends = rows["range"].astype("string").str.extract(r"bytes=(\d+)-(\d+)").astype("Int64")
    rows = rows.assign(offset_bytes=ends[0], length_bytes=ends[1] - ends[0] + 1)
    return rows.rename(columns={"path": "object", **{name: f"{name}_s" for name in ("begin", "first", "end")}})[
        list(EXCHANGES)
    ]


def write_table(table: pd.DataFrame, path: Path | str, digits: int | None = None) -> None:
    """Write a table as CSV, atomically.

    Numbers have `digits` significant digits. If it is None, they have as many as needed to restore the same double.
    Write measured values in full, but computed values with 12 digits, because the last bits of a logarithm depend on
    the processor.
    """
    write_text(path, table.to_csv(index=False, lineterminator="\n", float_format=f"%.{digits}g" if digits else None))


def _read_exchanges(cell: str, path: Path) -> Iterator[pd.DataFrame]:
    """Yield the table of requests in a file, or nothing if the file does not exist.

    A damaged file is reported on standard error.
    """
    if path.is_file():
        try:
            yield pd.read_csv(path, dtype={"status": str})[["repeat", *EXCHANGE]].assign(cell=cell)
        except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
            print(f"left out: {path} is not a table of requests ({error})", file=sys.stderr)


def _build_run(record: dict) -> dict:
    done = record["status"] == "done"
    faults = validity.list_faults(record)
    run = {"status": record["status"], "ok": done and not faults, "edited": records.EDITED in faults, "reasons": faults}
    run["attempted"] = "cause" not in record
    run |= {name: record[name] for name in ("round", "most_repeats") if name in record}
    if limit := record.get("timed_out_s"):
        return {**run, "timed_out": True, "seconds total": float(limit), "session": record.get("session", "")}
    if not done:
        return run
    work, cache, provenance = record["work"], record.get("cache", {}), record.get("provenance", {})
    of_methods = record.get("requests", {})
    requests = of_methods.values()
    facts = {**cache, **(record.get("effective") or {}), "cache_state": cache.get("state")}
    measured = {f"seconds {name}": value for name, value in record["seconds"].items()}
    measured |= {"logical_bytes": work.get("logical_bytes"), "tasks": work.get("tasks_done")}
    measured["timed_bytes"] = work.get("timed_bytes", work.get("logical_bytes"))
    measured |= {name: facts.get(name) for name in _RESIDENT} | compute_usage(record)
    return {
        **run,
        **{name: _to_float(value) for name, value in measured.items()},
        "read": json.dumps(record.get("read")),
        "verified": record.get("verified") or "",
        "requests": _sum_requests(requests, "count"),
        **(prices.count_billed(of_methods) if of_methods else dict.fromkeys(prices.BILLED, math.nan)),
        **{name: _sum_requests(requests, name) for name in ("bytes_offered", "bytes_delivered")},
        **{name: facts.get(name) for name in _FACTS},
        **{name: provenance.get(f"{key}_sha256", "") for name, key in _HASHES.items()},
        **{name: json.dumps([record.get("host", {}).get(key) for key in keys]) for name, keys in PLACES.items()},
        "session": record.get("session", ""),
        "began_s": _parse_begin(record),
        "step_seconds": _to_float(record.get("step_seconds")),
    }


def _parse_begin(record: dict) -> float:
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return datetime.fromisoformat(record["started_utc"]).timestamp()
    return math.nan


def compute_usage(record: dict) -> dict[str, float | None]:
    """Compute the resources that a record used: the quantities in `_TAKEN`, and the loads as `load <name>`.

    `task_cpu_s` is the CPU time of all tasks divided by the number of parallel workers. `rate_mib_s` is the measured
    network rate of one request multiplied by the number of requests in flight, up to the limit of an emulated network.
    Loads are per second of the timed window. Missing values are None.
    """
    network, resources = record.get("network") or {}, record.get("resources") or {}
    opens, cpu = (
        [sample[key] for sample in record.get("samples", []) if sample.get(key) is not None]
        for key in ("opens", "cpu-time")
    )
    workers = (record.get("effective") or {}).get("workers") or 1
    cpu_s = {name: _compute_cpu_s(resources.get(name)) for name in ("reader", "server", "network")}
    counts = {
        "opens": sum(opens) if opens else None,
        "connections": network.get("connections"),
        "in_flight": network.get("in_flight"),
        "task_cpu_s": sum(cpu) / workers if cpu else None,
        "cpu_s": cpu_s["reader"],
        "server_cpu_s": cpu_s["server"],
        "round_trip_s": network.get("round_trip_s"),
        "rate_mib_s": _compute_rate(record, network),
    }
    machine, window = dict(resources.get("machine") or {}), resources.get("window_s")
    if machine.get("busy_s") is not None:
        machine["others_s"] = max(0.0, machine["busy_s"] - sum(filter(None, cpu_s.values())))
    return counts | {
        f"load {name}": machine[name] / window if window and machine.get(name) is not None else None for name in _LOADS
    }


def _compute_rate(record: dict, network: dict) -> float | None:
    if not network.get("mib_s") or not network.get("in_flight"):
        return None
    emulated = ((record.get("settings") or {}).get("store") or {}).get("network")
    return float(min(network["mib_s"] * max(1.0, network["in_flight"]), networks.compute_rate_limit(emulated)))


def _compute_cpu_s(process: dict | None) -> float | None:
    """Return the CPU time of a process and its children in seconds; None if unknown or spread over several machines."""
    if not process or process["user_s"] is None:
        return None
    return float(process["user_s"] + process["system_s"])


def _to_float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _sum_requests(requests: Collection[dict], key: str) -> float:
    """Sum a quantity over the HTTP methods of a record's requests.

    The result is NaN if `requests` is empty (the store is not embedded), or if bytes were offered but the quantity was
    not measured.
    """
    if not requests:
        return math.nan
    return sum(
        _to_float(method.get(key) if method.get("bytes_offered") else method.get(key) or 0) for method in requests
    )


def _compute_summary(good: pd.DataFrame, timed: list[str], overhead: list[str]) -> dict:
    summary: dict = {}
    for name in timed:
        middle = stats.estimate_median(_get_column(good, f"seconds {name}"))
        summary |= {f"{name}_s": middle.value, f"{name}_s_low": middle.low, f"{name}_s_high": middle.high}
    summary |= {f"{name}_s": _compute_median(good, f"seconds {name}") for name in overhead}
    logical = _get_column(good, "logical_bytes")
    summary["throughput_mib_s"] = stats.compute_rate(
        _get_column(good, "timed_bytes") / MIB, _get_column(good, "seconds total")
    )
    for name in _COUNTS:
        summary[name] = _to_whole(_compute_median(good, name))
        if name == "requests":
            summary["requests_spread"] = _to_whole(_compute_spread(good, name))
    moved = _get_column(good, "bytes_delivered").fillna(_get_column(good, "bytes_offered"))
    summary["amplification"] = stats.compute_rate(moved, logical) if moved.notna().all() else math.nan
    summary |= {name: _join_values(_get_column(good, name)) for name in _FACTS[:-1]}
    summary |= {name: _compute_median(good, name) for name in _RESIDENT}
    return summary | {"cache_state": _join_values(_get_column(good, "cache_state"))}


def _find_outlying(good: pd.DataFrame) -> pd.Series:
    """Flag total times that are more than 1.5 interquartile ranges outside their cell's quartiles (METHOD 19).

    Flagged repeats are not removed.
    """
    total = _get_column(good, "seconds total")
    low, high = (total.groupby(good["cell"], sort=False).transform("quantile", share) for share in (0.25, 0.75))
    reach = 1.5 * (high - low)
    return _has_enough(good) & ((total < low - reach) | (total > high + reach))


def _find_disturbed(good: pd.DataFrame) -> pd.Series:
    """Flag records with a load of more than three times the cell's median, which includes the load of the cell itself.

    Flagged repeats are not removed, because long-running cells are disturbed more often.
    """
    loads = {name: good[f"load {name}"].astype(float) for name in _LOADS if f"load {name}" in good}
    medians = {name: load.groupby(good["cell"], sort=False).transform("median") for name, load in loads.items()}
    beyond = [(load > _BEYOND * medians[name]) & (load > _LOADS[name]) for name, load in loads.items()]
    return _has_enough(good) & functools.reduce(operator.or_, beyond) if beyond else pd.Series(False, index=good.index)


def _has_enough(good: pd.DataFrame) -> pd.Series:
    sizes: pd.Series = good.groupby("cell", sort=False)["repeat"].transform("size")
    return sizes >= MIN_BLOCKS


def _join_repeats(flagged: pd.DataFrame) -> pd.Series:
    return flagged["repeat"].astype(str).groupby(flagged["cell"], sort=False).agg(" ".join)


def _compute_spread(rows: pd.DataFrame, name: str) -> float:
    """Return the largest difference of a quantity between repeats that read the same objects.

    The result is NaN if no two repeats read the same objects.
    """
    like = _get_column(rows, name).groupby(_get_column(rows, "read")).agg(["min", "max", "count"])
    return float((like["max"] - like["min"])[like["count"] > 1].max())


def _get_column(rows: pd.DataFrame, name: str) -> pd.Series:
    return rows[name] if name in rows else pd.Series(math.nan, index=rows.index, dtype=float)


def _compute_median(rows: pd.DataFrame, name: str) -> float:
    return stats.estimate_median(_get_column(rows, name)).value


def _to_whole(value: float) -> int | float | None:
    """Convert a count to an integer if it is whole. Medians of counts may be fractional; NaN becomes None."""
    return None if math.isnan(value) else int(value) if value == int(value) else value


def _join_values(values: pd.Series) -> object:
    distinct = sorted({value.item() if hasattr(value, "item") else value for value in values.dropna()}, key=str)
    whole = [int(value) if isinstance(value, float) and value == int(value) else value for value in distinct]
    return whole[0] if len(whole) == 1 else " | ".join(map(str, whole)) or None


def _join_reasons(wrong: pd.DataFrame) -> str:
    repeats: dict[str, list[str]] = {}
    for repeat, reasons in zip(wrong["repeat"], wrong["reasons"], strict=True):
        for reason in reasons:
            repeats.setdefault(" ".join(str(reason).split()), []).append(str(repeat))
    return "; ".join(f"repeat{'s' * (len(some) > 1)} {', '.join(some)}: {reason}" for reason, some in repeats.items())
