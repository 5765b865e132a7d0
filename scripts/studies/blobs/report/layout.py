"""The published layout: one table per pattern, sizes in rows, latency and bandwidth of each store in columns."""

from collections.abc import Iterator

import pandas as pd

from scripts.report import account, names, prose
from scripts.report.page import Table
from scripts.studies.blobs.report import PATTERNS, REPORT, printed
from scripts.studies.blobs.report.results import Results, processes_of

# What has rows of its own where it varies, beside the size.
ROWS = ["processes", "operation_size", "chunk_size", "concurrency", "cache"]
NUMBERS = [
    *("latency_s", "latency_s_low", "latency_s_high", "mib_s", "mib_s_low", "mib_s_high"),
    *("n", "failed", "invalid", "edited"),
]
TITLES = {
    "single-file": "Each process reads the whole of one object (single file, multiple readers)",
    "multiple-files": "Each process reads the whole of an object of its own (multiple files, multiple readers)",
    "broadcast": "One process reads the whole object and broadcasts it",
    "sections": "Each process reads its own contiguous section",
    "sections-interleaved": "Each process reads every P-th piece",
    "scatter": "One process reads the whole object and scatters its sections",
    "mpi-io": "Contiguous sections through MPI-IO, each process by itself",
    "mpi-io-interleaved": "Interleaved pieces through MPI-IO, each process by itself",
    "mpi-io-collective": "Contiguous sections through MPI-IO, collectively",
    "mpi-io-collective-interleaved": "Interleaved pieces through MPI-IO, collectively",
}


def tables(results: Results) -> Iterator[Table]:
    """Yield a table for each pattern that was measured, objects of each process's own apart."""
    cells = results.cells[results.cells["control"] == ""]
    order = [(pattern, own) for pattern in PATTERNS for own in (False, True)]
    for pattern, own in order:
        rows = cells[(cells["pattern"] == pattern) & ((cells["objects"] == "own") == own)]
        if len(rows):
            yield _table(rows.reset_index(drop=True), pattern, own, results)


def audit(results: Results) -> Table:
    """Return the printed cells whose bandwidth does not follow from size and latency."""
    processes = processes_of(results.facts)
    disagreeing = printed.disagreeing(results.printed, processes) if results.is_printed else results.printed.iloc[:0]
    if disagreeing.empty:
        return Table("audit", "", pd.DataFrame())
    frame = disagreeing[["pattern", "size", "store"]].assign(size=disagreeing["size"].map(names.size))
    frame["latency / s"], frame["bandwidth / MiB/s"] = disagreeing["latency"], disagreeing["bandwidth"]
    frame["recomputed / MiB/s"], frame["printed against it / %"] = disagreeing["recomputed"], disagreeing["percent"]
    caption = (
        f"{len(disagreeing)} of {len(results.printed)} printed bandwidths that do not follow from the size and the "
        f"latency printed beside them ({processes} processes), even if both were rounded."
    )
    formats = {"recomputed / MiB/s": "{:.3f}".format, "printed against it / %": "{:+.2f}".format}
    return Table("audit", caption, frame, formats, numbers=disagreeing)


def _table(cells: pd.DataFrame, pattern: str, own: bool, results: Results) -> Table:
    varies = [factor for factor in ROWS if cells[factor].nunique() > 1]
    keys = [*varies, "size"]
    order = results.names.sorted_rows(cells, keys)
    stores = [store for store in results.cells["store"].unique() if store in set(cells["store"])]
    by_place = {(row["store"], *(row[key] for key in keys)): row for row in cells.to_dict("records")}
    frame = pd.DataFrame(
        {_head(key): [_level(key, levels[place]) for levels in order] for place, key in enumerate(keys)}
    )
    over = {}
    for store in stores:
        own_cells = [by_place.get((store, *levels)) for levels in order]
        name = results.names.store(store)
        for head, column, text in (
            (f"{name} latency / s", "latency_s", prose.number),
            (f"{name} MiB/s", "mib_s", names.rate),
        ):
            frame[head] = [_text(cell, column, text, results) for cell in own_cells]
            over[head] = [bool(cell) and cell["invalid"] > 0 for cell in own_cells]
    columns = ["pattern", "objects", *keys, "store", *NUMBERS]
    columns = [column for column in columns if column not in keys or column in (*varies, "size")]
    numbers = cells.assign(place=[order.index(tuple(levels)) for levels in cells[keys].to_numpy()])
    numbers = numbers.sort_values("place", kind="stable")[columns]
    how = (
        "as printed"
        if results.is_printed
        else "latency: median of the iterations after the first (of a single one, that one); bandwidth: all bytes "
        "divided by all time, with the first iteration; [95 % CI] over the repeats, where they are 6 or more"
    )
    title = TITLES[pattern] + (", each of an object of its own" if own else "")
    same = {factor: str(cells[factor].iloc[0]) for factor in ROWS if factor not in varies}
    shared = ", ".join(results.names.level(*level) for level in same.items() if level[1] not in ("", "any"))
    return Table(
        f"table-{pattern}{'-own' if own else ''}",
        f"{title}: {how}. {prose.capital(shared)}{'.' if shared else ''}",
        frame,
        over=over,
        meaning="a repeat of the cell broke a rule of measuring",
        numbers=numbers.reset_index(drop=True),
    )


def _head(key: str) -> str:
    return "size of an object" if key == "size" else key.replace("_", " ")


def _level(key: str, value: str) -> str:
    return names.size(value) if REPORT.factor(key).size else value


def _text(cell: dict | None, column: str, text, results: Results) -> str:
    if cell is None:
        return ""
    if not cell["n"]:
        return account.mark(cell) if cell["invalid"] or cell["failed"] else "not measured"
    if results.is_printed:
        return _printed(cell, column, results)
    if pd.isna(cell[column]):
        return ""
    return names.with_interval(cell[column], cell[f"{column}_low"], cell[f"{column}_high"], text)


def _printed(cell: dict, column: str, results: Results) -> str:
    """A number as it stands in the printed table, with all its digits."""
    rows = results.printed
    inside = (rows[["store", "pattern", "size"]] == [cell["store"], cell["pattern"], cell["size"]]).all(axis=1)
    return str(rows[inside].iloc[0]["latency" if column == "latency_s" else "bandwidth"])
