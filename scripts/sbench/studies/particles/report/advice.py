"""Give advice based on a run: why a method is fastest, the cost of a Parquet copy or of yt, and code to use."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from sbench.pages import cell_tables, leaders, names, prose
from sbench.pages.declaration import Column
from sbench.pages.headline import Sentence
from sbench.pages.markup import bold, bullets, code, verbatim
from sbench.pages.page import Page, Table
from sbench.pages.results import Results
from sbench.pages.statements import NoGain
from sbench.studies.particles.methods import METHODS, format_script
from sbench.studies.particles.report import OPERATIONS, format_particles, words
from sbench.studies.particles.snapshots import FIELD, TYPE
from sbench.verdicts.outcomes import Outcome

MIB = 2**20
_DASK = [name for name, method in METHODS.items() if method.dask]
# Code is shown only for results at these levels.
_PLAIN = {"driver": "sec2", "selection": "all", "rereads": "1", "memory": "none", "pool": "processes"}


def list_reasons(run: Results) -> list[Sentence]:
    """Explain why Dask was faster or not, by comparing the time to read a chunk with the overhead of a task.

    Return an empty list unless methods with and without Dask were measured.
    """
    cells = run.measured
    if "chunk_s" not in cells:
        return []
    cells = cells[cells["overhead_ms"].notna() & cells["chunk_s"].notna()]
    dask = cells["method"].isin(_DASK)
    if dask.all() or not dask.any():
        return []
    chunk = prose.format_span(1000 * cells.loc[~dask, "chunk_s"], prose.format_number)
    records = run.records[run.records["valid"] & run.records["cell"].isin(cells.loc[dask, "cell"])]
    costs = records.groupby("method")["overhead_ms"].median().reindex(cells.loc[dask, "method"].unique())
    tasks = [
        words.fill("cost of task", cost=prose.format_number(cost), method=run.names.format_subject("method", method))
        for method, cost in costs.items()
    ]
    rows = run.get_comparisons()
    rows = rows[(rows["baseline"] == "serial") & rows["contender"].isin(_DASK)]
    fields: list[Sentence] = []
    if len(rows) and not (rows["verdict"] == Outcome.FASTER).any():
        fields.append((words.fill("dask never faster"), (NoGain(tuple((one,) for one in run.to_comparisons(rows))),)))
    return [*fields, (words.fill("chunk and task", chunk=chunk, tasks=prose.format_list(tasks)), ())]


def describe_yt_tasks(run: Results) -> Iterator[str]:
    """Yield sentences that compare tasks that contain yt's objects with plain tasks, by size and overhead."""
    weights, costs = _compute_cell_medians(run, "task_bytes"), run.measured.set_index("cell")["overhead_ms"]
    rows = run.contest[run.contest["metric"] == run.report.metrics[0].name]
    for row in _select_measured(rows[(rows["baseline"] == "delayed") & (rows["contender"] == "yt-delayed")], run):
        own, other = (
            words.fill("sent", size=weights[cell], parts=what, cost=prose.format_number(costs[cell]))
            for cell, what in ((row["contender_cell"], words.fill("objects of yt")), (row["baseline_cell"], ""))
        )
        fields = {"ratio": names.format_ratio_with_interval(*_get_ratios(row)), "verdict": row["verdict"]}
        yield words.fill("through yt", cell=_format_operation(row), yt=own, other=other, **fields)


def describe_conversion(run: Results) -> Iterator[str]:
    """Yield sentences on how long a conversion to Parquet takes, and after how many reads it pays off, if ever."""
    cells, stored, rows = (
        run.measured.set_index("cell"),
        _compute_cell_medians(run, "read_bytes") / MIB,
        run.get_comparisons(),
    )
    for row in _select_measured(rows[(rows["factor"] == "driver") & (rows["contender"] == "parquet")], run):
        copy, files = (prose.format_number(stored[row[f"{side}_cell"]]) for side in ("contender", "baseline"))
        making, reading = cells["prepare_s"][row["contender_cell"]], cells["iteration_s"][row["baseline_cell"]]
        ratio = names.format_ratio_with_interval(*_get_ratios(row))
        pays = words.fill("pays undecided")
        if row["verdict"] == Outcome.FASTER:
            reads, most, fewest = (math.ceil(making / (reading * (1 - ratio))) for ratio in _get_ratios(row)[[0, 2, 1]])
            pays = words.fill("pays from", reads=reads, fewest=fewest, most=most)
        elif row["verdict"] in (Outcome.SAME, Outcome.SLOWER):
            pays = words.fill("never pays")
        fields = {"method": row["method"], "making": prose.format_number(making), "copy": copy, "files": files}
        fields["outcome"] = ", ".join(filter(None, [row["verdict"], ratio and f"ratio {ratio}"]))
        yield words.fill("converting", cell=_format_operation(row), **fields, pays=bold(pays))


def show_code(page: Page, run: Results) -> None:
    """Show code to load and to sum values with the method that was fastest at the largest size, and a full script."""
    data = run.facts.get("settings", {}).get("data", {})
    field = {"group": data.get("group", TYPE), "field": data.get("field", FIELD)}
    texts, scripts = [], {}
    for lead, cell in _find_leading_cells(run):
        method, loads = METHODS[cell["method"]], cell["operation"] == "load"
        if line := (method.load if loads else method.add).format(**field):
            levels = {name: cell[name] for name in ("chunk", "workers", "threads")}
            size, *dask = (run.names.format_level(name, cell[name]) for name in ("particles", "workers", "threads"))
            by = f" with {' of '.join(dask)}" if method.dask else ""
            texts.append(f"{prose.capitalize_first(leaders.describe_lead(lead, run)[0])}, at {size}{by}: {code(line)}")
            scripts.setdefault(tuple(levels.items()), []).append(f"{'values' if loads else 'total'} = {line}")
    if texts:
        page.show_section("In code", bullets(texts))
        with page.fold(f"{'a script' if len(scripts) == 1 else 'scripts'} for your files"):
            page.show_text(
                *(verbatim(format_script(lines, **field, **dict(levels))) for levels, lines in scripts.items())
            )


def _find_leading_cells(run: Results) -> Iterator[tuple[leaders.Lead, dict]]:
    """Select, for each operation, the result that the shown code is based on. Yield it with its cell.

    Only results on entire HDF5 files (`_PLAIN`) qualify. The one with the most particles is chosen, then the one with
    the highest rate.
    """
    leading: dict[str, list] = {}
    for lead in leaders.find_leads(run):
        cells = leaders.select_cells(lead, run)
        cells = cells[cells["arm"].isin(lead.arms) & (cells["particles"] == lead.levels[-1])]
        if lead.kind in ("one", "same") and (cells[list(_PLAIN)] == list(_PLAIN.values())).all(axis=None):
            cell = cells.loc[cells["rate"].idxmax()].to_dict()
            leading.setdefault(cell["operation"], []).append((lead, cell))
    for some in leading.values():
        yield max(some, key=lambda lead: (int(lead[1]["particles"]), lead[1]["rate"]))


def build_memory_table(run: Results) -> Table:
    """Build a table that compares data size and peak worker memory with the limit, for cells with a memory limit."""
    cells = run.measured[run.measured["memory"] != "none"]
    data = 8 * cells["particles"].astype(int) * cells["rereads"].astype(int)
    limit = cells["memory"].map(names.parse_amount)
    taken = cells["cell"].map(_compute_cell_medians(run, "worker_peak_bytes")) * cells["workers"].astype(int)
    cells = cells.assign(gib=data / 2**30, times=data / limit, share=100 * taken / limit)
    above = (lambda share, _: share > 100, words.fill("colours of memory"))
    columns = (
        Column("data in memory / GiB", "gib", prose.format_number),
        Column("data / limit", "times", prose.format_number),
        cell_tables.build_estimate_column("time / s", "iteration_s"),
        Column("peak of the largest worker, share of its limit / %", "share", names.format_percentage, *above),
    )
    return cell_tables.build_table(run, "out-of-core", words.fill("table of memory"), columns, cells)


def _select_measured(rows: pd.DataFrame, run: Results) -> list[dict]:
    """Return the comparisons for which both cells were measured."""
    there = set(run.measured["cell"])
    return [row for row in rows.to_dict("records") if {row["baseline_cell"], row["contender_cell"]} <= there]


def _get_ratios(row: dict) -> np.ndarray:
    return np.array([row["ratio"], row["ratio_low"], row["ratio_high"]], dtype=float)


def _format_operation(row: dict) -> str:
    return prose.capitalize_first(f"{OPERATIONS[row['operation']]}, {format_particles(row['particles'])} particles")


def _compute_cell_medians(run: Results, name: str) -> pd.Series:
    """Return each cell's median of an entry of `effective` over its valid records."""
    values = cell_tables.from_readers(f"effective.{name}", "median")(run, run.measured)
    return values.set_axis(run.measured["cell"])
