"""What follows from a run for one's own snapshot: why a method leads, what a copy or yt costs, and the line of code."""

import math
from collections.abc import Iterator

import pandas as pd

from scripts.report import leaders, listings, names, prose
from scripts.report.declaration import Column
from scripts.report.markup import bold, bullets, code, verbatim
from scripts.report.page import Page, Table
from scripts.report.results import Results
from scripts.studies.particles.methods import METHODS, script
from scripts.studies.particles.report import OPERATIONS, counted
from scripts.studies.particles.snapshots import AT_MOST, FIELD, TYPE

MIB = 2**20
# Contexts whose lines of code are shown, by the levels that they have.
_PLAIN = {
    **{"driver": ("sec2",), "operation": ("load", "sum"), "selection": ("all",), "rereads": ("1",)},
    **{"memory": ("none",), "pool": ("processes",)},
}
_USUAL = {"chunk": str(AT_MOST), "workers": "4", "threads": "1"}


def why(run: Results) -> list[str]:
    """Return what reading a chunk takes, and what a task costs beside it, where a loop and Dask were measured."""
    cells = run.measured
    if "chunk_s" not in cells:
        return []
    cells = cells[cells["overhead_ms"].notna() & cells["chunk_s"].notna()]
    dask = cells["method"].map(lambda name: METHODS[name].dask).astype(bool)
    if dask.all() or not dask.any():
        return []
    chunk = prose.span(1000 * cells.loc[~dask, "chunk_s"], prose.number)
    costs = cells[dask].groupby("method", sort=False)["overhead_ms"].median()
    tasks = prose.listing(f"{prose.number(cost)} ms with {method}" for method, cost in costs.items())
    return [f"The loop reads a chunk in {chunk} ms; a task that reads nothing costs {tasks}."]


def through_yt(run: Results) -> Iterator[str]:
    """Yield what tasks weigh and take that are sent yt's objects, against those that are sent what to read."""
    weights, costs = _of_cells(run, "task_bytes"), run.measured.set_index("cell")["overhead_ms"]
    rows = run.contest[run.contest["metric"] == run.report.metrics[0].name]
    rows = rows[(rows["baseline"] == "delayed") & (rows["contender"] == "yt-delayed")]
    for row in _measured(rows, run):
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
    for row in _measured(rows[(rows["factor"] == "driver") & (rows["contender"] == "parquet")], run):
        own, other = (cells.loc[row[f"{side}_cell"]] for side in ("contender", "baseline"))
        copy, files = (f"{prose.number(stored[row[f'{side}_cell']])} MiB" for side in ("contender", "baseline"))
        ratio = names.ratio_with_interval(row["ratio"], row["ratio_low"], row["ratio_high"])
        said = ", ".join(filter(None, [row["verdict"], ratio and f"ratio {ratio}"]))
        if row["verdict"] == "faster":
            saved = [other["iteration_s"] * (1 - row[name]) for name in ("ratio", "ratio_high", "ratio_low")]
            least, most, fewest = (math.ceil(own["prepare_s"] / seconds) for seconds in saved)
            pays = f"from {least:,} [{fewest:,}, {most:,}] reads on, converting pays"
        elif row["verdict"] in ("same", "slower"):
            pays = "converting was not shown to pay, however often it is read"
        else:
            pays = "whether converting pays is not decided"
        made = f"{prose.number(own['prepare_s'])} s to make and {copy} instead of {files}"
        yield (
            f"{_what(row)}, {row['method']}: a copy takes {made}. "
            f"Reading it against the HDF5 files: {said}; {bold(pays)}."
        )


def show_code(page: Page, run: Results) -> None:
    """Show the line of code of each method that leads at the largest size, and a script with them."""
    data = run.facts.get("settings", {}).get("data", {})
    field = {"group": data.get("group", TYPE), "field": data.get("field", FIELD)}
    texts, lines = [], []
    for lead in _leading(run):
        method, operation = METHODS[lead.arms[0][0]], lead.contexts[0][leaders.context_of(run).index("operation")]
        if line := (method.load if operation == "load" else method.add).format(**field):
            where, size = leaders.in_words(lead, run)[0], run.names.level(run.report.along, lead.levels[-1])
            texts.append(f"{prose.capital(where)}, at {size}: {code(line)}")
            lines.append(f"{'values' if operation == 'load' else 'total'} = {line}")
    if texts:
        levels = {name: run.usual.get(name, usual) for name, usual in _USUAL.items()}
        page.section("In code", bullets(texts))
        with page.fold("a script with these lines"):
            page.text(verbatim(script(lines, **field, **levels)))


def _leading(run: Results) -> list[leaders.Lead]:
    """Who was shown to lead at the largest size of its context, where whole HDF5 files were loaded or summed up."""
    largest: dict[tuple, leaders.Lead] = {}
    for lead in leaders.find(run) if run.report.contest else []:
        levels = dict(zip(leaders.context_of(run), zip(*lead.contexts, strict=True), strict=True))
        plain = all(set(levels[name]) <= {level, *also} for name, (level, *also) in _PLAIN.items())
        if plain and lead.levels[-1] == lead.of[-1]:
            largest[lead.group, lead.contexts] = lead
    return [lead for lead in largest.values() if lead.kind in ("one", "same")]


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


def _measured(rows: pd.DataFrame, run: Results) -> list[dict]:
    """The comparisons both of whose cells were measured."""
    there = set(run.measured["cell"])
    return [row for row in rows.to_dict("records") if {row["baseline_cell"], row["contender_cell"]} <= there]


def _what(row: dict) -> str:
    return prose.capital(f"{OPERATIONS[row['operation']]}, {counted(row['particles'])} particles")


def _of_cells(run: Results, name: str) -> pd.Series:
    """The median of what was in force over a cell's valid records, by cell."""
    return pd.Series(
        listings.of_readers(f"effective.{name}", "median")(run, run.measured).to_numpy(), run.measured["cell"]
    )
