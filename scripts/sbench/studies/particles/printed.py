"""Read the timings printed in the published study, and compare them with measured times."""

import math
import re
from pathlib import Path

import pandas as pd

from sbench.design import csv_file
from sbench.design.csv_file import AMOUNT, TEXT
from sbench.pages import names, prose
from sbench.pages.page import Table
from sbench.pages.results import Results
from sbench.probe.program import Problem
from sbench.studies.particles.methods import METHODS, PUBLISHED
from sbench.studies.particles.report import OPERATIONS
from sbench.studies.particles.snapshots import AT_MOST, PRESETS

# `std_s` is optional, because some timings have no standard deviation.
COLUMNS = dict.fromkeys(("stage", "kind", "method"), TEXT) | {"mean_s": AMOUNT}
WORKERS, THREADS = "4", "2"
AS_PUBLISHED = {
    **{"driver": "sec2", "chunk": str(AT_MOST), "selection": "all", "pool": "processes", "memory": "none"},
}
_KEYS = ["particles", "rereads", "operation", "method"]
_CHUNKS = re.compile(r"\((\d+) chunks\)")
# (number of particles, number of times that each chunk is listed) by number of listed chunks.
LISTS = {
    chunks * times: (str(particles), str(times)) for particles, _, chunks in PRESETS.values() for times in (1, 10, 2000)
}


def read_printed(path: Path) -> list[dict]:
    """Read the printed timings.

    Returns:
        A row per timing with chunks, operation, method (a level of our factor), mean_s and std_s.

    Raises:
        Problem: the file cannot be read, lacks a column, or contains a row that is not a timing of a known method.
    """
    remedy = "correct studies.particles.published"
    table = csv_file.read_table(path, COLUMNS, remedy).reindex(columns=[*COLUMNS, "std_s"])
    table["std_s"] = pd.to_numeric(table["std_s"], errors="coerce")
    called = {published: method for method, published in PUBLISHED.items()}
    rows = []
    for row in table.to_dict("records"):
        chunks = _CHUNKS.search(row["stage"])
        if not chunks or row["method"] not in called:
            got = f"{row['stage']}, {row['method']}"
            raise Problem(f"{path}: stage and method must be a timing of the published study (got {got}); {remedy}")
        operation, method = called[row["method"]]
        deviation = None if pd.isna(row["std_s"]) else row["std_s"]
        rows.append({"chunks": int(chunks[1]), "operation": operation, "method": method})
        rows[-1] |= {"mean_s": row["mean_s"], "std_s": deviation}
    return rows


def build_printed_table(run: Results) -> Table:
    """Build a table that compares each printed timing with a measurement of the same chunks, operation and method."""
    printed = pd.DataFrame(run.facts.get("printed") or [])
    if printed.empty:
        return Table("published", "", pd.DataFrame())
    # If several cells match, prefer cells with the published number of workers and threads.
    cells = run.measured
    cells = cells[(cells[list(AS_PUBLISHED)] == list(AS_PUBLISHED.values())).all(axis=1)]
    as_published = (cells["workers"] == WORKERS) & (cells["threads"] == THREADS)
    cells = cells.assign(as_published=as_published).sort_values("as_published", ascending=False, kind="stable")
    cells = cells.drop_duplicates(_KEYS).set_index(_KEYS)
    rows = []
    for row in printed.to_dict("records"):
        particles, rereads = LISTS.get(row["chunks"], ("", ""))
        # Without repeated chunks, pure and impure futures run the same tasks.
        method = "futures" if METHODS[row["method"]].pure and rereads == "1" else row["method"]
        own, serial = (_find_cell(cells, particles, rereads, row["operation"], name) for name in (method, "serial"))
        alike = printed[(printed["chunks"] == row["chunks"]) & (printed["operation"] == row["operation"])]
        base = alike.loc[alike["method"] == "serial", "mean_s"]
        time, *ends = own[["iteration_s", "iteration_s_low", "iteration_s_high"]]
        rows.append(
            {
                "chunks listed": row["chunks"],
                "operation": OPERATIONS[row["operation"]],
                "method": PUBLISHED[row["operation"], row["method"]],
                "published / s": _format_with_deviation(row["mean_s"], row["std_s"]),
                "published: × as fast as serial": base.iloc[0] / row["mean_s"] if len(base) else math.nan,
                "measured / s": "" if pd.isna(time) else names.format_with_interval(time, *ends, prose.format_number),
                "measured: × as fast as serial": serial["iteration_s"] / time,
                "workers × threads": "" if pd.isna(time) else f"{own['workers']} × {own['threads']}",
            }
        )
    caption = (
        "The published timings, mean ± standard deviation, with 4 workers of 2 threads, and times measured here "
        "with the same numbers of particles and lists of chunks. If chunks repeat, the published futures read each "
        "chunk once."
    )
    digits = dict.fromkeys(("published: × as fast as serial", "measured: × as fast as serial"), prose.format_ratio)
    return Table("published", caption, pd.DataFrame(rows), digits)


def _find_cell(cells: pd.DataFrame, *key: str) -> pd.Series:
    return cells.loc[key] if key in cells.index else pd.Series(math.nan, cells.columns)


def _format_with_deviation(mean: float, deviation: float | None) -> str:
    return prose.format_number(mean) + (f" ± {prose.format_number(deviation)}" if pd.notna(deviation) else "")
