"""What follows from a run for one's own snapshot: why a method leads, what a copy or yt costs, and the line of code."""

import math
from collections.abc import Iterator

import pandas as pd

from scripts.report import leaders, listings, names, prose
from scripts.report.declaration import Column
from scripts.report.markup import bold, bullets, code, verbatim
from scripts.report.page import Page, Table
from scripts.report.results import Results
from scripts.statistics import JUDGED
from scripts.studies.particles.methods import METHODS, READ
from scripts.studies.particles.report import OPERATIONS, counted
from scripts.studies.particles.snapshots import AT_MOST, FIELD, TYPE

MIB = 2**20


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
    weights, costs = _of_cells(run, "task_bytes"), run.measured.set_index("cell")["overhead_ms"]
    for row in run.contest[run.contest["metric"] == run.report.metrics[0].name].to_dict("records"):
        if (row["baseline"], row["contender"]) != ("delayed", "yt-delayed"):
            continue
        ratio = names.ratio_with_interval(row["ratio"], row["ratio_low"], row["ratio_high"])
        own, other = (row[f"{side}_cell"] for side in ("contender", "baseline"))
        yield (
            f"{_what(row)}: a task of yt-delayed is sent {weights[own]:,.0f} bytes, yt's chunk and dataset, and costs "
            f"{prose.number(costs[own])} ms without reading; one of delayed {weights[other]:,.0f} bytes and "
            f"{prose.number(costs[other])} ms. Ratio of times {ratio}: {row['verdict']}."
        )


def converting(run: Results) -> Iterator[str]:
    """Yield what a copy in Parquet takes, and from how many reads on it pays, if reading it is shown to be faster."""
    cells, stored = run.measured.set_index("cell"), _of_cells(run, "read_bytes") / MIB
    rows = run.comparisons()
    for row in rows[(rows["factor"] == "driver") & (rows["contender"] == "parquet")].to_dict("records"):
        own, other = (cells.loc[row[f"{side}_cell"]] for side in ("contender", "baseline"))
        copy, files = (f"{prose.number(stored[row[f'{side}_cell']])} MiB" for side in ("contender", "baseline"))
        ratio = names.ratio_with_interval(row["ratio"], row["ratio_low"], row["ratio_high"])
        said = ", ".join(filter(None, [row["verdict"], ratio and f"ratio {ratio}"]))
        if row["verdict"] == "faster":
            saved = [other["iteration_s"] * (1 - row[name]) for name in ("ratio", "ratio_high", "ratio_low")]
            least, most, fewest = (math.ceil(own["prepare_s"] / seconds) for seconds in saved)
            pays = f"from {least:,} [{fewest:,}, {most:,}] reads on, converting pays"
        elif row["verdict"] in JUDGED:
            pays = "converting was not shown to pay, however often it is read"
        else:
            pays = "whether converting pays is not decided"
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


def show_code(page: Page, run: Results) -> None:
    """Show the lines of code, if any method leads, and what they need."""
    lines, (group, field) = in_code(run), _field(run)
    levels = {name: run.usual.get(name, usual) for name, usual in (("chunk", AT_MOST), ("workers", 4), ("threads", 1))}
    if lines:
        page.section("In code", bullets(lines))
        with page.fold("what these lines need"):
            page.text(verbatim(READ.format(group=group, field=field, **levels)))


def out_of_core(run: Results) -> Table:
    """Return the cells whose workers had a limit of memory: the data, in memory, against it, and what workers took."""

    def data(run: Results, cells: pd.DataFrame) -> pd.Series:
        return cells["cell"].map(run.records.groupby("cell")["particles_listed"].first()) * 8

    def limit(cells: pd.DataFrame) -> pd.Series:
        return cells["memory"].map(names.amount)

    def taken(run: Results, cells: pd.DataFrame) -> pd.Series:
        peak = cells["cell"].map(_of_cells(run, "worker_peak_bytes"))
        return 100 * peak * cells["workers"].astype(int) / limit(cells)

    def times(_: Results, cells: pd.DataFrame) -> list[str]:
        ends = cells[["iteration_s", "iteration_s_low", "iteration_s_high"]].to_numpy()
        return [names.with_interval(*row, prose.number) for row in ends]

    columns = (
        Column("data in memory / GiB", lambda run, cells: data(run, cells) / 2**30, prose.number),
        Column("data / limit", lambda run, cells: data(run, cells) / limit(cells), prose.number),
        Column("time / s", times),
        Column(
            "largest worker, of its limit / %",
            taken,
            names.whole,
            lambda share, _: share > 100,
            "a worker that took more than its limit",
        ),
    )
    caption = "Reductions whose workers together had a limit of memory; data as 8-byte numbers; median [95 % CI]."
    return listings.table(run, "out-of-core", caption, columns, run.measured[run.measured["memory"] != "none"])


def _field(run: Results) -> tuple[str, str]:
    data = run.facts.get("settings", {}).get("data", {})
    return data.get("group", TYPE), data.get("field", FIELD)


def _what(row: dict) -> str:
    return prose.capital(f"{OPERATIONS[row['operation']]}, {counted(row['particles'])} particles")


def _of_cells(run: Results, name: str) -> pd.Series:
    """The median of what was in force over a cell's valid records, by cell."""
    return pd.Series(
        listings.of_readers(f"effective.{name}", "median")(run, run.measured).to_numpy(), run.measured["cell"]
    )
