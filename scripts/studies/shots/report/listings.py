"""The tables of a report: object times, requests, what did not work, the harness's own cost, the machine."""

import numpy as np
import pandas as pd

from scripts.report import account, prose
from scripts.report.judgement import is_true
from scripts.report.names import size
from scripts.report.page import Table
from scripts.studies.shots.report.phases import object_time_table
from scripts.studies.shots.report.results import FACTORS, Results, in_order, numbers

# More bytes than twice the data asked for are called high; nothing says that less is good.
HIGH_AMPLIFICATION = 2.0
MIB = 2**20
COLOURED = ("faster", "slower", "same")


def described(results: Results, access: str | None = None) -> Table:
    """Return the `describe()` table of mean-obj-time in seconds, six digits as the published study prints it."""
    if results.samples.empty:
        return Table("object-times-described", "", pd.DataFrame())
    table = object_time_table(results, access).reset_index()
    levels = _levels(table.assign(**{factor: "" for factor in FACTORS if factor not in table}), results)
    levels["page buffer"], levels["workers"] = table["buffer"], table["workers"]
    table = levels.join(table[["count", "mean", "std", "min", "25%", "50%", "75%", "max"]])
    told = results.names.level("access", access or "")
    numbers = ("mean", "std", "min", "25%", "50%", "75%", "max")
    return Table(
        f"object-times-described{f'-{access}' if access else ''}",
        f"mean-obj-time in seconds{f', {told}' if told else ''}: tasks of all repeats, by effective page buffer and "
        "number of workers.",
        table,
        dict.fromkeys(numbers, "{:.6f}".format),
    )


def glance(results: Results) -> Table:
    """Return the ratios of the first factor compared, a row a context, a column a metric, coloured by verdict."""
    rows = results.verdicts
    rows = rows[(rows["role"] != "control") & (rows["factor"] == rows["factor"].iloc[0])] if len(rows) else rows
    if rows.empty:
        return Table("at-a-glance", "", pd.DataFrame())
    factor = rows["factor"].iloc[0]
    others = [one for one in FACTORS if one != factor]
    told = [
        f"{prose.ratio(one.ratio)} {one.verdict}" if pd.notna(one.ratio) else one.verdict for one in rows.itertuples()
    ]
    keys = [*others, "baseline", "contender"]
    rows = rows.assign(told=told).set_index([*keys, "metric"])
    texts, verdicts = (rows[column].unstack("metric").reset_index() for column in ("told", "verdict"))
    order = sorted(range(len(texts)), key=lambda row: in_order(tuple(texts.loc[row, keys])))
    texts, verdicts = texts.iloc[order].reset_index(drop=True), verdicts.iloc[order].reset_index(drop=True)
    frame = _levels(texts.assign(**{factor: ""}), results)
    if texts[["baseline", "contender"]].drop_duplicates().shape[0] > 1:
        frame["compared"] = texts["contender"] + " / " + texts["baseline"]
    over = {}
    for metric in results.report.metrics:
        name = metric.title
        if metric.name in texts:
            frame[name] = texts[metric.name].fillna("")
            over[name] = [verdict if verdict in COLOURED else "unknown" for verdict in verdicts[metric.name]]
    new, old = (results.names.level(factor, rows.index.get_level_values(side)[0]) for side in keys[-2:][::-1])
    caption = (
        f"Time of {new} / time of {old}, by what is timed. The total runtime decides; the rest is judged row by row."
    )
    meaning = "the verdict; grey where there is none"
    return Table("at-a-glance", caption, frame, over=over, meaning=meaning)


def requests(results: Results) -> Table:
    """Return requests, bytes and read amplification a cell: bytes delivered (else offered) / bytes of data."""
    cells = _ordered(results.measured)
    needed = ("requests", "bytes_offered", "amplification", "logical_bytes")
    if any(column not in cells for column in needed) or cells["requests"].isna().all():
        return Table("requests", "", pd.DataFrame())
    cells = cells[cells["requests"].notna()].reset_index(drop=True)
    frame = _levels(cells, results)
    frame["requests"] = cells["requests"]
    frame["spread over repeats"] = cells["requests_spread"]
    frame["data / MiB"] = cells["logical_bytes"] / MIB
    frame["offered / MiB"] = cells["bytes_offered"] / MIB
    frame["delivered / MiB"] = cells["bytes_delivered"] / MIB
    frame["amplification"] = cells["amplification"]
    frame["throughput / MiB/s"] = cells["throughput_mib_s"]
    moved = cells["bytes_delivered"].fillna(cells["bytes_offered"]) / MIB / cells["total_s"]
    frame["moved / MiB/s"], frame["bound / MiB/s"] = moved, _bound(cells, results)
    over = {
        "amplification": cells["amplification"] > HIGH_AMPLIFICATION,
        "spread over repeats": cells["requests_spread"].fillna(0) > 0,
    }
    whole = "{:.0f}".format
    formats = {"requests": whole, "spread over repeats": whole, "amplification": prose.ratio}
    formats |= {column: "{:.1f}".format for column in frame if column.endswith("MiB") or column.endswith("MiB/s")}
    return Table(
        "requests",
        "Requests and bytes that reached the store within the timed window, medians over the repeats. Amplification: "
        "bytes delivered (where not measured: offered) / bytes of data; below 1 where data are compressed. Moved: the "
        "bytes / total runtime; bound: what the emulated network lets through, one connection per worker.",
        frame,
        formats,
        over,
        f"amplification above {HIGH_AMPLIFICATION:g}, and requests that differ between repeats of one cell",
    )


def _bound(cells: pd.DataFrame, results: Results) -> pd.Series:
    """The emulated network's limit, MiB/s: that of a connection times the workers; NaN where there is none."""
    stores = results.facts.get("stores") or {}
    limits = {name: ((store.get("network") or {}).get("bandwidth_mib_s") or np.nan) for name, store in stores.items()}
    return cells["store"].map(limits).astype(float) * numbers(cells["workers"])


def troubled(results: Results) -> Table:
    """Return cells with failed or invalid repeats, and why."""
    return account.troubled(_ordered(results.cells), lambda cells: _levels(cells, results))


def harness(results: Results) -> Table:
    """Return what the harness itself costs beside the results: seconds and percent of the total."""
    cells = _ordered(results.measured)
    columns = {
        "cluster_start_s": "start of workers / s",
        "plan_s": "planning / s",
        "null_s": "empty tasks / s",
        "gather_s": "gathering / s",
        "verify_s": "verifying / s",
    }
    columns = {column: name for column, name in columns.items() if column in cells}
    if "null_s" not in cells:
        return Table("harness", "", pd.DataFrame())
    frame = _levels(cells, results)
    frame["total runtime / s"] = cells["total_s"]
    for column, name in columns.items():
        frame[name] = cells[column]
    share = 100 * cells["null_s"] / cells["total_s"]
    frame["empty tasks / %"] = share
    formats = {name: prose.number for name in ("total runtime / s", *columns.values())}
    return Table(
        "harness",
        "Median cost of the harness. Workers start before the clock does; planning and the dispatch of as many empty "
        "tasks are within the total; verifying stops the clock.",
        frame,
        formats | {"empty tasks / %": "{:.1f}".format},
        {"empty tasks / %": share > 10},
        "empty tasks above 10 % of the total",
    )


def conditions(results: Results) -> Table:
    """Return what was in force in each cell, as read back: versions, page buffer, cache state, workers without work."""
    cells = _ordered(results.measured)
    if "cache_state" not in cells:
        return Table("conditions", "", pd.DataFrame())
    frame = _levels(cells, results)
    frame["HDF5"], frame["repeats"] = cells.get("hdf5"), cells["n"]
    buffers = numbers(cells["page_buffer_bytes"])
    frame["page buffer in force / MiB"] = (buffers / MIB).where(buffers.notna(), cells["page_buffer_bytes"])
    frame["cache state"] = cells["cache_state"]
    for column in ("resident_before", "resident_after"):
        frame[f"{account.plain_name(column)} / %"] = 100 * cells[column]
    frame["idle workers"] = cells["idle_workers"]
    frame["oversubscribed"] = np.where(is_true(cells["oversubscribed"]), "yes", "")
    frame["outlying repeats"] = cells.get("outlying_repeats", pd.Series("", index=cells.index)).fillna("").astype(str)
    one = "{:.1f}".format
    formats = {
        "page buffer in force / MiB": lambda value: value if isinstance(value, str) else f"{value:g}",
        "resident before / %": one,
        "resident after / %": one,
    }
    over = {
        "cache state": (cells["cache_state"] != cells["cache"]) & (cells["cache"] != "any"),
        "idle workers": ~cells["idle_workers"].astype(str).isin(["0", "0.0", "nan"]),
        "oversubscribed": frame["oversubscribed"] == "yes",
        "outlying repeats": frame["outlying repeats"] != "",
    }
    return Table(
        "conditions",
        "What was in force, as read back from library and system; resident: share of the files in this machine's page "
        "cache. Outlying: the number of a repeat whose total lies outside Tukey's fences; it is flagged, not removed.",
        frame,
        formats,
        over,
        "another cache state than asked, workers without work, more workers than cores, outlying repeats",
    )


def datasets(results: Results) -> Table:
    """Return the datasets that were read, as read back from their files."""
    rows = []
    for name, told in (results.facts.get("data") or {}).items():
        layout = {
            key: value for key, value in (told.get("layout") or {}).items() if isinstance(value, (str, int, float))
        }
        shown = {account.plain_name(key): str(value) for key, value in layout.items()}
        rows.append({"dataset": name, "MiB": (told.get("bytes") or 0) / MIB, **shown})
    return Table("data", "The data, as read back from the files.", pd.DataFrame(rows), {"MiB": "{:.1f}".format})


def libraries(results: Results) -> Table:
    """Return the libraries under test."""
    rows = []
    for name, told in (results.facts.get("libraries") or {}).items():
        told = told if isinstance(told, dict) else {}
        if "hdf5" not in told and "library" not in told and name not in results.arms:
            continue
        source = (told.get("build") or {}).get("hdf5_source", "")
        row = {key: told.get(key, "") for key in ("kind", "hdf5", "h5py", "numpy", "dask", "ros3")}
        rows.append({"library": name, **{key: str(value) for key, value in row.items()}, "source": str(source or "")})
    frame = pd.DataFrame(rows)
    frame = frame.loc[:, (frame != "").any()] if len(frame) else frame
    return Table("libraries", "The libraries under test; all else is the same in each.", frame)


def _ordered(cells: pd.DataFrame) -> pd.DataFrame:
    levels = cells[list(FACTORS)].itertuples(index=False, name=None)
    order = sorted(range(len(cells)), key=lambda row, found=list(levels): in_order(found[row][1:] + found[row][:1]))
    return cells.iloc[order].reset_index(drop=True)


def _levels(cells: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Return the columns that tell the cells apart, as people read them; store, driver and cache state as one."""
    frame = pd.DataFrame(index=cells.index)
    if cells["store"].any():
        place = [factor for factor in ("store", "driver", "cache") if results.cells[factor].nunique() > 1] or ["store"]
        if not results.cells.groupby("store")["driver"].nunique().gt(1).any():
            place = [factor for factor in place if factor != "driver"] or ["store"]
        frame["from"] = [", ".join(filter(None, row)) for row in cells[place].itertuples(index=False, name=None)]
    for factor in ("layout", "access", "page_buffer", "workers", "library"):
        if results.cells[factor].nunique() > 1 and cells[factor].any():
            frame[account.plain_name(factor)] = [_short(factor, value, results) for value in cells[factor]]
    return frame.reset_index(drop=True)


def _short(factor: str, value: str, results: Results) -> str:
    if factor in ("access", "library"):
        return results.names.level(factor, value)
    return size(value) if factor == "page_buffer" else value
