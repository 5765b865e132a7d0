"""What follows from a run for one's own snapshot: why a method leads, what a copy or yt costs, and the line of code."""

import math
from collections.abc import Iterator

import pandas as pd

from scripts.report import leaders, names, prose
from scripts.report.listings import of_readers
from scripts.report.markup import bold, code
from scripts.report.page import Table
from scripts.report.results import Results
from scripts.studies.particles.methods import METHODS, READ
from scripts.studies.particles.report import OPERATIONS, counted
from scripts.studies.particles.snapshots import AT_MOST, FIELD, TYPE

MIB, GIB = 2**20, 2**30


def why(run: Results) -> list[str]:
    """Return what reading a chunk takes, and what a task costs beside it, where a loop and Dask were measured."""
    cells = run.measured[run.measured["overhead_ms"].notna() & run.measured["chunk_s"].notna()]
    dask = cells["method"].map(lambda name: METHODS[name].dask).astype(bool)
    if dask.all() or not dask.any():
        return []
    chunk = prose.span(1000 * cells.loc[~dask].groupby("chunk")["chunk_s"].median(), prose.number)
    costs = cells[dask].groupby("method", sort=False)["overhead_ms"].median()
    tasks = prose.listing(f"{prose.number(cost)} ms with {method}" for method, cost in costs.items())
    return [f"The loop reads a chunk in {chunk} ms; a task that reads nothing costs {tasks}."]


def through_yt(run: Results) -> Iterator[str]:
    """Yield what tasks weigh and take that are sent yt's objects, against those that are sent what to read."""
    weights = _of_cells(run, "task_bytes")
    for row in run.contest[run.contest["metric"] == run.report.metrics[0].name].to_dict("records"):
        if (row["baseline"], row["contender"]) != ("delayed", "yt-delayed"):
            continue
        ratio = names.ratio_with_interval(row["ratio"], row["ratio_low"], row["ratio_high"])
        sent, usual = (f"{weights[row[f'{side}_cell']]:,.0f} bytes" for side in ("contender", "baseline"))
        yield (
            f"{_what(row)}: a task of yt-delayed is sent {sent} (yt's chunk and dataset), one of delayed {usual}; "
            f"ratio of times {ratio} ({row['verdict']})."
        )


def converting(run: Results) -> Iterator[str]:
    """Yield what a copy in Parquet takes, and from how many reads on it pays, if reading it is shown to be faster."""
    cells, stored = run.measured.set_index("cell"), _of_cells(run, "read_bytes") / MIB
    rows = run.comparisons()
    for row in rows[(rows["factor"] == "driver") & (rows["contender"] == "parquet")].to_dict("records"):
        own, other = (cells.loc[row[f"{side}_cell"]] for side in ("contender", "baseline"))
        copy, files = (f"{prose.number(stored[row[f'{side}_cell']])} MiB" for side in ("contender", "baseline"))
        ratio = names.ratio_with_interval(row["ratio"], row["ratio_low"], row["ratio_high"])
        said = f"{row['verdict']}, ratio {ratio}"
        if row["verdict"] == "faster":
            saved = [other["iteration_s"] * (1 - row[name]) for name in ("ratio", "ratio_high", "ratio_low")]
            least, most, fewest = (math.ceil(own["prepare_s"] / seconds) for seconds in saved)
            pays = f"from {least:,} [{fewest:,}, {most:,}] reads on, converting pays"
        else:
            pays = "converting was not shown to pay, however often it is read"
        made = f"{prose.number(own['prepare_s'])} s to make and {copy} instead of {files}"
        yield (
            f"{_what(row)}, {row['method']}: a copy takes {made}. "
            f"Reading it against the HDF5 files: {said}; {bold(pays)}."
        )


def in_code(run: Results) -> list[str]:
    """Return the line of code for the method that leads at the largest size: one to load, and one to sum up."""
    decided = [lead for lead in leaders.find(run) if lead.kind in ("one", "same")] if run.report.contest else []
    largest = {lead.group: lead for lead in sorted(decided, key=lambda lead: names.amount(lead.levels[-1]))}
    lines, (group, field) = [], _field(run)
    for operation in ("load", "sum"):
        if lead := largest.get(OPERATIONS[operation]):
            method = METHODS[lead.arms[0][0]]
            line = (method.load if operation == "load" else method.add).format(group=group, field=field)
            size = run.names.level(run.report.along, lead.levels[-1])
            lines += [f"{prose.capital(OPERATIONS[operation])} at {size}: {code(line)}"] if line else []
    return lines


def preamble(run: Results) -> str:
    """Return the lines that those of `in_code` need."""
    group, field = _field(run)
    levels = {name: run.usual.get(name, usual) for name, usual in (("chunk", AT_MOST), ("workers", 4), ("threads", 1))}
    return READ.format(group=group, field=field, **levels)


def out_of_core(run: Results) -> Table:
    """Return the cells whose workers had a limit of memory: the data, in memory, against it, and what workers took."""
    cells = run.measured[run.measured["memory"] != "none"]
    if cells.empty:
        return Table("out-of-core", "", pd.DataFrame())
    cells = run.names.sort(cells, ["operation", "particles", "rereads", "memory", "method"])
    limit, peak = cells["memory"].map(names.amount), _of_cells(run, "worker_peak_bytes")
    data = cells["cell"].map(run.records.groupby("cell")["particles_listed"].first()) * 8
    shown = run.varying(cells, [name for name in run.report.names if name not in ("memory", "method")])
    frame = {run.report.factor(name).title: [run.names.cell(name, level) for level in cells[name]] for name in shown}
    ends = cells[["iteration_s", "iteration_s_low", "iteration_s_high"]].itertuples(index=False)
    workers = cells["workers"].astype(int)
    share = 100 * cells["cell"].map(peak) * workers / limit
    frame |= {
        "method": cells["method"].to_list(),
        "data in memory / GiB": (data / GIB).to_numpy(),
        "limit of all workers": [run.names.level("memory", level) for level in cells["memory"]],
        "data / limit": (data / limit).to_numpy(),
        "time / s": [names.with_interval(*row, prose.number) for row in ends],
        "largest worker, of its limit / %": share.to_numpy(),
    }
    digits = {"data in memory / GiB": prose.number, "data / limit": prose.number}
    return Table(
        "out-of-core",
        "Reductions whose workers together had a limit of memory; data as 8-byte numbers; median [95 % CI].",
        pd.DataFrame(frame),
        digits | {"largest worker, of its limit / %": names.whole},
        {"largest worker, of its limit / %": (share > 100).to_list()},
        "a worker that took more than its limit",
    )


def _field(run: Results) -> tuple[str, str]:
    data = run.facts.get("settings", {}).get("data", {})
    return data.get("group", TYPE), data.get("field", FIELD)


def _what(row: dict) -> str:
    return prose.capital(f"{OPERATIONS[row['operation']]}, {counted(row['particles'])} particles")


def _of_cells(run: Results, name: str) -> pd.Series:
    """The median of what was in force over a cell's valid records, by cell."""
    return pd.Series(of_readers(f"effective.{name}", "median")(run, run.measured).to_numpy(), run.measured["cell"])
